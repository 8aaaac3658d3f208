/* optimizer.c -- the laws of an optimizer: what its step must do whatever its rule is.
 *
 * kinds.c lists law_kind_optimizer.  The one-device run steps with the same function as the devices, so it cannot show
 * that a step is wrong.  These laws compare the step with itself: in two formats, of parts, of scaled gradients, of
 * other rates.  Numbers are drawn, and every buffer has guards.  Errors are ERR_MEMORY.
 */
#include "emulated_devices/verify/plugins/laws.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES, GUARDS, KEPT_GRADIENT, REPEATS, FORMATS, CLIPPING, DECAY, RATE, DESCENDS, USED_STATES, NANS, SHAPE, USUAL,
    TRAINS
};
static const struct law optimizer_laws[] = {
    [PIECES] = { "pieces", "stepping parts, or single elements, is stepping the whole, up to 2^24 elements" },
    [GUARDS] = { "guards", "nothing is written beside weights and states" },
    [KEPT_GRADIENT] = { "gradient", "the gradient does not change" },
    [REPEATS] = { "repeats", "equal arguments give equal bits, in 64 calls on two tensors in turns" },
    [FORMATS] = { "formats", "fp32 steps as fp64 does" },
    [CLIPPING] = { "clipping", "a step of g with gradient_scale s is a step of s g" },
    [DECAY] = { "decay", "weights shrink with weight_decay where there is no gradient, and stay without it" },
    [RATE] = { "rate", "a first step is proportional to lr; without lr weights stay" },
    [DESCENDS] = { "descends", "a first step goes against the gradient" },
    [USED_STATES] = { "states", "each state has a name, is used, and no other memory is" },
    [NANS] = { "nans", "a NaN of a gradient reaches its element, and no other" },
    [SHAPE] = { "shape", "a matrix is stepped as the vector of its elements" },
    [USUAL] = { "usual", "its usual hyperparameters are possible ones" },
    [TRAINS] = { "trains", "with states in shards on three devices, training is that of one device" },
    { NULL, NULL }
};

enum { PAD = 16, WARM = 2, SMALL = 1001, LARGE = (1 << 20) + 5, LARGEST = 1 << 24, PIECE = 4096 };
#define GUARD_HOLDS 77.0

/* A tensor's numbers: weights, gradient, states.  One allocation in one format, with guards between. */
struct leaf {
    enum dtype dtype;
    int64_t n;
    char *memory;
    struct tensor w, g, state[OPTIMIZER_MAX_STATES];
};

/* One leaf for the laws: the optimizer, whose book it is, and hyperparameters of its steps. */
struct stepping { struct book *book; const struct optimizer *optimizer; struct hyperparameters hyper; };

enum { PARTS = 2 + OPTIMIZER_MAX_STATES };

static struct tensor *part_of_leaf(struct leaf *leaf, int k)
{
    return k == 0 ? &leaf->w : k == 1 ? &leaf->g : &leaf->state[k - 2];
}

static bool leaf_open(struct leaf *leaf, enum dtype dtype, int64_t n)
{
    const size_t each = dtype_size(dtype), stride = ((size_t)n + 2 * PAD) * each;
    *leaf = (struct leaf){ .dtype = dtype, .n = n, .memory = malloc(PARTS * stride) };
    if (leaf->memory == NULL) return false;
    for (int k = 0; k < PARTS; k++) {
        char *const at = leaf->memory + (size_t)k * stride;
        const struct tensor whole = tensor_1d(at, dtype, n + 2 * PAD);
        for (int i = 0; i < PAD; i++) {
            tensor_set(whole, i, GUARD_HOLDS);
            tensor_set(whole, PAD + n + i, GUARD_HOLDS);
        }
        *part_of_leaf(leaf, k) = tensor_1d(at + PAD * each, dtype, n);
        memset(at + PAD * each, 0, (size_t)n * each);
    }
    return true;
}

static void leaf_close(struct leaf *leaf) { free(leaf->memory); }

static bool guards_hold(struct leaf *leaf)
{
    for (int k = 0; k < PARTS; k++) {
        const size_t each = dtype_size(leaf->dtype);
        const struct tensor whole = tensor_1d((char *)part_of_leaf(leaf, k)->data - PAD * each, leaf->dtype,
                                              leaf->n + 2 * PAD);
        for (int i = 0; i < PAD; i++)
            if (tensor_get(whole, i) != GUARD_HOLDS || tensor_get(whole, PAD + leaf->n + i) != GUARD_HOLDS)
                return false;
    }
    return true;
}

/* A number that fp32 has, between -1 and 1, and not near 0. */
static double optimizer_number(uint64_t which, int64_t i)
{
    const double x = 2 * random_uniform(which, 77, (uint64_t)i) - 1;
    return (double)(float)(x < 0 ? x - 0.05 : x + 0.05);
}

static void draw_weights(struct leaf *leaf)
{
    for (int64_t i = 0; i < leaf->n; i++) tensor_set(leaf->w, i, optimizer_number(1, i));
}

static void draw_gradient(struct leaf *leaf, int step, double size)
{
    for (int64_t i = 0; i < leaf->n; i++)
        tensor_set(leaf->g, i, (float)(size * optimizer_number((uint64_t)(10 + step), i)));
}

static struct step step_of(const struct stepping *s, int64_t t)
{
    return (struct step){ .lr = s->hyper.lr, .weight_decay = s->hyper.weight_decay, .gradient_scale = 1, .t = t,
                          .hyper = &s->hyper };
}

/* Step elements first .. first + n - 1 of a leaf.  All states have memory, also those that are not stated. */
static void step_part(const struct stepping *s, struct leaf *leaf, int64_t first, int64_t n, struct step step)
{
    struct tensor x[PARTS];
    for (int k = 0; k < PARTS; k++)
        x[k] = tensor_1d((char *)part_of_leaf(leaf, k)->data + (size_t)first * dtype_size(leaf->dtype), leaf->dtype, n);
    (leaf->dtype == F64 ? s->optimizer->step_f64 : s->optimizer->step_f32)(x[0], x[1], x + 2, step);
}

static void step_whole(const struct stepping *s, struct leaf *leaf, struct step step)
{
    step_part(s, leaf, 0, leaf->n, step);
}

static bool same_leaves(struct leaf *a, struct leaf *b, int states)
{
    for (int k = 0; k < 2 + states; k++)
        if (memcmp(part_of_leaf(a, k)->data, part_of_leaf(b, k)->data, tensor_bytes(*part_of_leaf(a, k))) != 0)
            return false;
    return true;
}

/* Weights and states after some steps from zero states. */
static void warm_up(const struct stepping *s, struct leaf *leaf, int steps)
{
    draw_weights(leaf);
    for (int t = 1; t <= steps; t++) {
        draw_gradient(leaf, t, 1);
        step_whole(s, leaf, step_of(s, t));
    }
    draw_gradient(leaf, steps + 1, 1);
}

static enum error_code no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for an optimizer's tensors");
}

/* ---- the same step, in another way ------------------------------------------------------------------------------- */

/* Whole, in two halves, in pieces, element by element: equal bits. */
static enum error_code judge_pieces(const struct stepping *s, enum dtype dtype, int64_t n, int64_t piece,
                                    struct error *err)
{
    struct leaf whole, cut;
    if (!leaf_open(&whole, dtype, n)) return no_memory(err);
    if (!leaf_open(&cut, dtype, n)) return leaf_close(&whole), no_memory(err);
    law_now(s->book, "a step of %lld %s in pieces of %lld", (long long)n, dtype_name(dtype), (long long)piece);
    warm_up(s, &whole, 1), warm_up(s, &cut, 1);
    step_whole(s, &whole, step_of(s, 2));
    for (int64_t i = 0; i < n; i += piece) step_part(s, &cut, i, n - i < piece ? n - i : piece, step_of(s, 2));
    law_judge(s->book, PIECES, same_leaves(&whole, &cut, s->optimizer->states),
              "%lld elements in %s, stepped in pieces of %lld, have other bits than stepped together", (long long)n,
              dtype_name(dtype), (long long)piece);
    law_judge(s->book, GUARDS, guards_hold(&whole) && guards_hold(&cut), "a step of %lld elements in %s writes outside "
              "its tensors", (long long)n, dtype_name(dtype));
    leaf_close(&whole), leaf_close(&cut);
    return OK;
}

static enum error_code run_pieces(const struct stepping *s, struct error *err)
{
    const struct { enum dtype dtype; int64_t n, piece; bool large; } cut[] = {
        { F32, SMALL, (SMALL + 1) / 2, false }, { F64, SMALL, (SMALL + 1) / 2, false }, { F32, SMALL, 1, false },
        { F64, 67, 1, false }, { F32, 1, 1, false }, { F32, SMALL, 7, false }, { F64, SMALL, 64, false },
        { F32, 70001, 129, false }, { F32, LARGE, PIECE, true }, { F64, LARGE, PIECE + 1, true },
        { F32, LARGEST, 1 << 19, true },
    };
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof cut / sizeof *cut && !e; i++)
        if (!cut[i].large || !s->book->is_short) e = judge_pieces(s, cut[i].dtype, cut[i].n, cut[i].piece, err);
    return e;
}

/* A step that keeps something of its own between calls gives other bits the second time. */
static enum error_code run_repeats(const struct stepping *s, struct error *err)
{
    enum { CALLS = 32, TENSORS = 2 };
    struct leaf first[TENSORS], now;
    enum error_code e = OK;
    for (int k = 0; k < TENSORS; k++)
        if (!leaf_open(&first[k], F32, k ? 77 : 513)) return no_memory(err);
    for (int call = 0; call < CALLS && !e; call++)
        for (int k = 0; k < TENSORS && !e; k++) {
            if (!leaf_open(&now, F32, first[k].n)) e = no_memory(err);
            if (e) break;
            law_now(s->book, "call %d of a step of %lld", call * TENSORS + k + 1, (long long)now.n);
            warm_up(s, call ? &now : &first[k], WARM);
            step_whole(s, call ? &now : &first[k], step_of(s, WARM + 1));
            if (call)
                law_judge(s->book, REPEATS, same_leaves(&first[k], &now, s->optimizer->states),
                          "call %d has other bits than the first, with the same arguments", call * TENSORS + k + 1);
            leaf_close(&now);
        }
    leaf_close(&first[0]), leaf_close(&first[1]);
    return e;
}

static enum error_code run_gradient(const struct stepping *s, struct error *err)
{
    for (enum dtype t = F32; t <= F64; t++) {
        struct leaf leaf, before;
        if (!leaf_open(&leaf, t, SMALL)) return no_memory(err);
        if (!leaf_open(&before, t, SMALL)) return leaf_close(&leaf), no_memory(err);
        warm_up(s, &leaf, WARM);
        draw_gradient(&before, WARM + 1, 1);
        law_now(s->book, "a step in %s", dtype_name(t));
        step_whole(s, &leaf, step_of(s, WARM + 1));
        law_judge(s->book, KEPT_GRADIENT, memcmp(leaf.g.data, before.g.data, tensor_bytes(leaf.g)) == 0,
                  "a step in %s changes the gradient", dtype_name(t));
        leaf_close(&leaf), leaf_close(&before);
    }
    return OK;
}

static enum error_code run_shape(const struct stepping *s, struct error *err)
{
    struct leaf vector, matrix;
    if (!leaf_open(&vector, F32, 7 * 11)) return no_memory(err);
    if (!leaf_open(&matrix, F32, 7 * 11)) return leaf_close(&vector), no_memory(err);
    warm_up(s, &vector, WARM), warm_up(s, &matrix, WARM);
    for (int k = 0; k < PARTS; k++)
        *part_of_leaf(&matrix, k) = tensor_2d(part_of_leaf(&matrix, k)->data, F32, 7, 11);
    law_now(s->book, "a step of a matrix of 7 x 11");
    step_whole(s, &vector, step_of(s, WARM + 1));
    const struct optimizer *const o = s->optimizer;
    o->step_f32(matrix.w, matrix.g, matrix.state, step_of(s, WARM + 1));
    law_judge(s->book, SHAPE, same_leaves(&vector, &matrix, o->states) && guards_hold(&matrix),
              "a matrix of 7 x 11 has other bits than a vector of 77");
    leaf_close(&vector), leaf_close(&matrix);
    return OK;
}

/* ---- laws within rounding ---------------------------------------------------------------------------------------- */

/* How far two leaves' weights went from where they began.  A difference of the way of 1e-3, and some roundings of
 * the weight itself, are allowed: a wrong factor is much more. */
enum { ROUNDINGS = 16 };

static int64_t first_apart(struct leaf *a, struct leaf *b, double u)
{
    for (int64_t i = 0; i < a->n; i++) {
        const double w = optimizer_number(1, i), x = tensor_get(a->w, i), y = tensor_get(b->w, i);
        if (!(fabs(x - y) <= 1e-3 * fabs(y - w) + ROUNDINGS * u * fabs(w))) return i;
    }
    return -1;
}

/* Three steps in both formats, with gradients of usual size and with small ones, with decay and without. */
static enum error_code run_formats(const struct stepping *s, struct error *err)
{
    static const double sizes[] = { 1, 1e-3, 30 };
    for (int k = 0; k < 6; k++) {
        struct leaf narrow, wide;
        if (!leaf_open(&narrow, F32, SMALL)) return no_memory(err);
        if (!leaf_open(&wide, F64, SMALL)) return leaf_close(&narrow), no_memory(err);
        draw_weights(&narrow), draw_weights(&wide);
        for (int t = 1; t <= 3; t++) {
            struct step step = step_of(s, t);
            step.weight_decay = k % 2 ? 0.1 : 0, step.gradient_scale = t == 2 ? 0.5 : 1;
            draw_gradient(&narrow, t, sizes[k / 2]), draw_gradient(&wide, t, sizes[k / 2]);
            law_now(s->book, "step %d in two formats", t);
            step_whole(s, &narrow, step), step_whole(s, &wide, step);
        }
        const int64_t at = first_apart(&narrow, &wide, dtype_unit(F32));
        law_judge(s->book, FORMATS, at < 0, "gradients of size %g: weight %lld is %.9g in fp32, %.9g in fp64",
                  sizes[k / 2], (long long)at, at < 0 ? 0 : tensor_get(narrow.w, at),
                  at < 0 ? 0 : tensor_get(wide.w, at));
        leaf_close(&narrow), leaf_close(&wide);
    }
    return OK;
}

/* Two steps each: of g with a scale, and of the gradient that was multiplied before. */
static enum error_code run_clipping(const struct stepping *s, struct error *err)
{
    static const double scales[] = { 0.5, 0.25, 2, 0.3 };
    for (int k = 0; k < 8; k++) {
        const enum dtype dtype = k % 2 ? F64 : F32;
        const double scale = scales[k / 2];
        struct leaf scaled, plain;
        if (!leaf_open(&scaled, dtype, SMALL)) return no_memory(err);
        if (!leaf_open(&plain, dtype, SMALL)) return leaf_close(&scaled), no_memory(err);
        draw_weights(&scaled), draw_weights(&plain);
        for (int t = 1; t <= 2; t++) {
            struct step step = step_of(s, t);
            draw_gradient(&scaled, t, 1), draw_gradient(&plain, t, 1);
            for (int64_t i = 0; i < plain.n; i++) tensor_set(plain.g, i, scale * tensor_get(plain.g, i));
            law_now(s->book, "a step with gradient_scale %g in %s", scale, dtype_name(dtype));
            step_whole(s, &plain, step);
            step.gradient_scale = scale;
            step_whole(s, &scaled, step);
        }
        /* A power of two rounds nothing, so bits are equal; 0.3 rounds. */
        const bool exact = scale != 0.3, same = same_leaves(&scaled, &plain, 0)
            || memcmp(scaled.w.data, plain.w.data, tensor_bytes(plain.w)) == 0;
        const int64_t at = first_apart(&scaled, &plain, dtype_unit(dtype));
        law_judge(s->book, CLIPPING, exact ? same : at < 0, "with gradient_scale %g in %s weights differ from those of "
                  "a gradient that was multiplied by it", scale, dtype_name(dtype));
        leaf_close(&scaled), leaf_close(&plain);
    }
    return OK;
}

/* Weights after a first step in fp64, with these factors.  size 0: there is no gradient. */
static bool first_step(const struct stepping *s, struct leaf *leaf, double lr, double decay, double size)
{
    struct step step = step_of(s, 1);
    if (!leaf_open(leaf, F64, SMALL)) return false;
    draw_weights(leaf);
    draw_gradient(leaf, 1, size);
    step.lr = lr, step.weight_decay = decay;
    law_now(s->book, "a first step with lr %g, weight_decay %g, gradients of size %g", lr, decay, size);
    step_whole(s, leaf, step);
    return true;
}

static enum error_code run_decay(const struct stepping *s, struct error *err)
{
    struct leaf without, with, more;
    const double lr = 1e-3;
    if (!first_step(s, &without, lr, 0, 0) || !first_step(s, &with, lr, 0.1, 0) || !first_step(s, &more, lr, 0.1, 1))
        return no_memory(err);
    for (int64_t i = 0; i < without.n; i++) {
        const double w = optimizer_number(1, i), x = tensor_get(with.w, i);
        law_judge(s->book, DECAY, tensor_get(without.w, i) == w, "without gradient and decay weight %lld goes from %g "
                  "to %g", (long long)i, w, tensor_get(without.w, i));
        law_judge(s->book, DECAY, fabs(x) < fabs(w) && x * w > 0,
                  "without gradient weight_decay 0.1 brings weight %lld from %.9g to %.9g", (long long)i, w, x);
    }
    leaf_close(&without), leaf_close(&with), leaf_close(&more);
    return OK;
}

static enum error_code run_rate(const struct stepping *s, struct error *err)
{
    struct leaf none, once, twice;
    const double lr = 1.0 / 1024;
    if (!first_step(s, &none, 0, 0.1, 1) || !first_step(s, &once, lr, 0, 1) || !first_step(s, &twice, 2 * lr, 0, 1))
        return no_memory(err);
    for (int64_t i = 0; i < none.n; i++) {
        const double w = optimizer_number(1, i), g = optimizer_number(11, i), a = tensor_get(once.w, i) - w,
                     b = tensor_get(twice.w, i) - w;
        law_judge(s->book, RATE, tensor_get(none.w, i) == w, "with lr 0 weight %lld goes from %g to %.17g",
                  (long long)i, w, tensor_get(none.w, i));
        law_judge(s->book, RATE, fabs(b - 2 * a) <= 1e-6 * fabs(b) + ROUNDINGS * dtype_unit(F64),
                  "weight %lld moves by %.9g with lr %g, and by %.9g with twice as much", (long long)i, a, lr, b);
        law_judge(s->book, DESCENDS, a * g < 0, "weight %lld moves by %g; its gradient is %g", (long long)i, a, g);
    }
    leaf_close(&none), leaf_close(&once), leaf_close(&twice);
    return OK;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static void judge_state_names(const struct stepping *s)
{
    const struct optimizer *const o = s->optimizer;
    for (int k = 0; k < o->states; k++) {
        bool again = false;
        for (int i = 0; i < k; i++) again = again || strcmp(o->state_name[i], o->state_name[k]) == 0;
        law_judge(s->book, USED_STATES, !again && o->state_name[k][0], "states have the same name, \"%s\", or none",
                  o->state_name[k]);
    }
    for (int k = o->states; k < OPTIMIZER_MAX_STATES; k++)
        law_judge(s->book, USED_STATES, o->state_name[k] == NULL, "state %d has a name, but .states says %d", k + 1,
                  o->states);
}

/* Each stated state has changed after three steps; memory behind them has not, and is not read. */
static enum error_code run_states(const struct stepping *s, struct error *err)
{
    const int states = s->optimizer->states;
    judge_state_names(s);
    for (enum dtype t = F32; t <= F64; t++) {
        struct leaf leaf;
        if (!leaf_open(&leaf, t, SMALL)) return no_memory(err);
        for (int k = states; k < OPTIMIZER_MAX_STATES; k++)
            for (int64_t i = 0; i < leaf.n; i++) tensor_set(leaf.state[k], i, NAN);
        warm_up(s, &leaf, WARM + 1);
        bool finite = true;
        for (int64_t i = 0; i < leaf.n; i++) finite = finite && isfinite(tensor_get(leaf.w, i));
        law_judge(s->book, USED_STATES, finite,
                  "a weight is not finite after three steps in %s: a state is read that is not stated",
                  dtype_name(t));
        for (int k = 0; k < OPTIMIZER_MAX_STATES; k++) {
            int64_t written = 0;
            for (int64_t i = 0; i < leaf.n; i++) {
                const double x = tensor_get(leaf.state[k], i);
                written += k < states ? x != 0 : !isnan(x);
            }
            law_judge(s->book, USED_STATES, k < states ? written > 0 : written == 0,
                      k < states ? "state %d of %d is never written, in %s"
                      : "state %d is written, but .states says %d, in %s",
                      k + 1, states, dtype_name(t));
        }
        leaf_close(&leaf);
    }
    return OK;
}

static enum error_code run_nans(const struct stepping *s, struct error *err)
{
    enum { AT = 40 };
    for (enum dtype t = F32; t <= F64; t++) {
        struct leaf leaf;
        if (!leaf_open(&leaf, t, SMALL)) return no_memory(err);
        warm_up(s, &leaf, 1);
        tensor_set(leaf.g, AT, NAN);
        law_now(s->book, "a step with a NaN in %s", dtype_name(t));
        step_whole(s, &leaf, step_of(s, 2));
        for (int64_t i = 0; i < leaf.n; i++) {
            bool nan = false;
            for (int k = 0; k < 2 + s->optimizer->states; k++)
                nan = nan || (k != 1 && isnan(tensor_get(*part_of_leaf(&leaf, k), i)));
            law_judge(s->book, NANS, nan == (i == AT), nan ? "in %s element %lld is NaN; the gradient's NaN is at %d"
                      : "in %s element %lld is a number, with a NaN as gradient (at %d)", dtype_name(t), (long long)i,
                      AT);
        }
        leaf_close(&leaf);
    }
    return OK;
}

static void judge_usual(const struct stepping *s)
{
    const struct hyperparameters *const h = &s->optimizer->usual;
    law_judge(s->book, USUAL, h->lr > 0 && isfinite(h->lr), "usual lr %g is not above 0", h->lr);
    law_judge(s->book, USUAL, h->beta1 >= 0 && h->beta1 < 1 && h->beta2 >= 0 && h->beta2 < 1 && h->momentum >= 0
              && h->momentum < 1, "usual beta1 %g, beta2 %g, momentum %g: not from 0 to 1", h->beta1, h->beta2,
              h->momentum);
    law_judge(s->book, USUAL, h->eps >= 0 && h->weight_decay >= 0 && h->clip >= 0,
              "usual eps %g, weight_decay %g, clip %g: below 0", h->eps, h->weight_decay, h->clip);
    law_judge(s->book, USUAL, s->optimizer->operations > 0 && s->optimizer->operations <= 1000,
              "%d operations for an element", s->optimizer->operations);
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static enum error_code judge_optimizer(struct book *book, const struct plugin_item *item, struct error *err)
{
    static enum error_code (*const run[])(const struct stepping *, struct error *) = {
        run_repeats, run_pieces, run_gradient, run_shape, run_formats, run_clipping, run_decay, run_rate, run_states,
        run_nans,
    };
    const struct optimizer *const o = item->optimizer;
    const struct stepping s = { book, o, o->usual };
    const char *const words[] = { "--model", "tiny", "--optimizer", o->name, "--dp", "3", "--zero", "3", "--batch", "6",
                                  NULL };
    enum error_code e = OK;
    judge_usual(&s);
    for (size_t i = 0; i < sizeof run / sizeof *run && !e; i++) e = run[i](&s, err);
    return e ? e : law_trains(book, TRAINS, words, err);
}

static bool is_optimizer(const struct plugin_item *item) { return item->optimizer != NULL; }

static void name_optimizer(const struct plugin_item *item, char name[LAW_NAME])
{
    snprintf(name, LAW_NAME, "%s", item->optimizer->name ? item->optimizer->name : "without a name");
}

/* Optimizers that draw directions have no step of elements, and those that project step whole matrices otherwise. */
static bool built_in_optimizer(int place, struct plugin_item *item)
{
    for (int i = 0; optimizers[i]; i++)
        if (!optimizers[i]->forward_only && !optimizers[i]->low_rank && place-- == 0)
            return *item = (struct plugin_item){ .optimizer = optimizers[i] }, true;
    return false;
}

const struct law_kind law_kind_optimizer = {
    .name = "optimizer", .laws = optimizer_laws, .is = is_optimizer, .names = name_optimizer,
    .built_in = built_in_optimizer, .judge = judge_optimizer,
};
