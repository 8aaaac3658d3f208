#include "emulated_devices/check/recompute/steps.h"
#include "ref/optim/factors.h"
#include "emulated_devices/check/recompute/stepping.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct single_name stepping_after(const struct single_steps *o, int64_t k, const char *what, const char *param)
{
    struct single_name n;
    if (k < 0) snprintf(n.text, sizeof n.text, "start/%s", param);
    else if (k + 1 == o->steps) snprintf(n.text, sizeof n.text, "%s/%s/%s", o->optimizer, what, param);
    else snprintf(n.text, sizeof n.text, "%s/%lld/%s/%s", o->optimizer, (long long)k + 1, what, param);
    return n;
}

struct single_name stepping_gradient(const struct single_steps *o, int64_t k, const char *param)
{
    struct single_name n;
    if (k == 0) snprintf(n.text, sizeof n.text, "grad/%s", param);
    else snprintf(n.text, sizeof n.text, "%s/%lld/grad/%s", o->optimizer, (long long)k + 1, param);
    return n;
}

/* ---- what a step reads ------------------------------------------------------------------------------------------- */

static struct tensor input(const struct stepping *t, struct single_name name)
{
    return single_input_block(t->s, name, (struct single_block){ t->first, t->rows }, t->whole, t->cols);
}

/* The unit roundoff of the format that a tensor has been rounded to: the 16-bit one if all its numbers are some of
 * it. */
static double unit_of(const struct stepping *t, struct tensor x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, t->o->format, 1);
    if (!dtype_is_narrow(t->o->format)) return t->u;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        tensor_set(one, 0, numbers(x)[i]);
        if (tensor_get(one, 0) != numbers(x)[i]) return t->u;
    }
    return dtype_unit(t->o->format);
}

/* What there was before the step, and how far the program's own number may have been from it, relative. */
struct before { struct tensor x; double off, tiny; };

static struct before before_of(const struct stepping *t, const char *what)
{
    if (t->k == 0 && strcmp(what, "weight") != 0) return (struct before){ .x = single_new(t->s, t->rows, t->cols) };
    struct before b = { .x = input(t, stepping_after(t->o, t->k - 1, what, t->param.name)) };
    if (single_going(t->s) && unit_of(t, b.x) > t->u)
        b.off = unit_of(t, b.x), b.tiny = rounding_of(t->o->format, DTYPE_COUNT, 1).tiny;
    return b;
}

double stepping_clip(const struct stepping *t)
{
    char name[64];
    if (t->o->hyper.clip == 0) return 1;
    snprintf(name, sizeof name, "%s/norm", t->o->optimizer);
    const struct tensor norm = single_input(t->s, single_name("", name), 1, t->o->steps);
    return single_going(t->s) ? clip_scale(&t->o->hyper, numbers(norm)[t->k]) : 1;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Begin a result after the step.  `store` is then the unit of what it has been rounded to. */
static bool begin(struct stepping *t, const char *what, const char *words, const struct rounding *usual)
{
    if (!single_begin_block(t->s, stepping_after(t->o, t->k, what, t->param.name), words,
                            (struct single_block){ t->first, t->rows }, t->rows < t->whole ? t->whole : 0, t->cols))
        return false;
    t->s->rounding = *usual;
    t->s->rounding.store = unit_of(t, t->s->verdict.have);
    if (t->s->rounding.store == t->u) t->s->rounding.tiny = t->tiny;
    return true;
}

static struct step step_of(const struct stepping *t)
{
    return (struct step){ .lr = t->o->lr[t->k],
                          .t = t->k + 1,
                          .hyper = &t->o->hyper,
                          .weight_decay = weight_decay_of(&t->o->hyper, t->param.decay) };
}

/* The gradient of a step.  Where ranks have parts of it, each is clipped and rounded, and then they are added. */
struct clipped { struct tensor g; struct single_sizes sizes; double clip; };

static struct clipped clipped_of(const struct stepping *t)
{
    const struct single_name name = stepping_gradient(t->o, t->k, t->param.name);
    struct clipped c = { .g = input(t, name), .clip = stepping_clip(t) };
    if (single_going(t->s))
        c.sizes = single_sizes_of(t->s, name, c.g, t->first, t->rows < t->whole ? t->whole : 0);
    return c;
}

static double off_by_parts(const struct stepping *t, const struct clipped *c, int64_t i)
{
    return c->sizes.parts > 1 ? t->u * c->sizes.parts * c->clip * numbers(c->sizes.absolute)[i] : 0;
}

/* Where both numbers are some of the format of 16 bits.  Not of the first step; of weights, which may start with such
 * numbers and then all move by the learning rate, nor of the second. */
static void note_kept(struct stepping *t, const struct before *b, int64_t i, double left, double rest)
{
    if (t->k < (t->state < 0 ? 2 : 1) || b->off == 0 || t->s->rounding.store == t->u) t->kept.wide = true;
    else kept_add(&t->kept, t->o->format, numbers(b->x)[i], left, rest, numbers(t->s->verdict.have)[i]);
}

/* state = keep state + part term; in the first step the state is 0.  By steps 1 - keep is computed in the format.
 * coupled: decay that is in the gradient. */
static struct single_value mean(struct stepping *t, const char *what, double keep, double part, bool squared,
                                double coupled)
{
    const struct before m = before_of(t, what);
    const struct before w = coupled > 0 ? before_of(t, "weight") : (struct before){ 0 };
    const struct clipped c = clipped_of(t);
    if (!single_going(t->s)) return single_stop(t->s);
    const struct single_value v = single_value_new(t->s, t->rows, t->cols);
    for (int64_t i = 0; !t->s->failed && i < tensor_count(c.g); i++) {
        const double old = keep * numbers(m.x)[i], x = c.clip * numbers(c.g)[i], off = off_by_parts(t, &c, i),
                     new = part * (squared ? x * x : x), moved = part * off * (squared ? 2 * fabs(x) + off : 1);
        const double decay = coupled > 0 ? coupled * numbers(w.x)[i] : 0;
        note_kept(t, &m, i, old, new + decay);
        single_put(v, i,
                   (struct element){ old + new + decay, m.tiny + (m.off + 3 * t->u) * fabs(old) + 8 * t->u * fabs(new) +
                                                            moved + (w.off + 3 * t->u) * fabs(decay) +
                                                            t->tiny * (3 + part * (1 + 2 * fabs(x) * squared)) },
                   t->u * (fabs(new) / part + fabs(old) + fabs(decay)));
    }
    return v;
}

/* How far a step of adamw is off, where a moment has been rounded to a format of 16 bits and is small in it. */
static double off_by_underflow(const struct stepping *t, const struct adam_factors *f, double x, double y)
{
    const double tiny = rounding_of(t->o->format, DTYPE_COUNT, 1).tiny,
                 most = 1 / (sqrt(fmax(0, y - tiny)) * f->root + f->eps),
                 least = 1 / (sqrt(y + tiny) * f->root + f->eps);
    return f->rate * (fabs(x) * (most - least) + tiny * most);
}

/* The decayed weight, minus what the optimizer adds: adamw of its two states, others of one, or of the gradient. */
static struct single_value weight(struct stepping *t)
{
    const bool adam = t->is->states == 2;
    const struct adam_factors f = adam_factors(step_of(t));
    const struct sgd_factors d = sgd_factors(step_of(t));
    const struct before w = before_of(t, "weight");
    const char *const param = t->param.name;
    const bool plain = t->is->states == 0;
    const struct clipped c = plain ? clipped_of(t) : (struct clipped){ .clip = 1 };
    const struct tensor x = plain ? c.g : input(t, stepping_after(t->o, t->k, t->is->state_name[0], param)),
                        y = adam ? input(t, stepping_after(t->o, t->k, t->is->state_name[1], param)) : tensor_none;
    const double lr = t->o->lr[t->k], coupled = plain ? d.coupled : 0;
    if (!single_going(t->s)) return single_stop(t->s);
    const double off_x = !plain && unit_of(t, x) > t->u ? unit_of(t, x) : 0,
                 off_y = adam && unit_of(t, y) > t->u ? unit_of(t, y) : 0;
    const struct single_value v = single_value_new(t->s, t->rows, t->cols);
    for (int64_t i = 0; !t->s->failed && i < tensor_count(x); i++) {
        const double old = numbers(w.x)[i],
                     step = adam ? f.rate * numbers(x)[i] / (sqrt(numbers(y)[i]) * f.root + f.eps)
                                 : lr * (c.clip * numbers(x)[i] + coupled * old),
                     left = adam ? f.after * f.before * old : d.keep * old, rest = adam ? -f.after * step : -step,
                     times = adam ? 2 * f.rate / (sqrt(numbers(y)[i]) * f.root + f.eps) : lr;
        note_kept(t, &w, i, left, rest);
        single_put(v, i,
                   (struct element){ left + rest,
                                     w.tiny + (w.off + 4 * t->u) * fabs(old) +
                                         (off_x + off_y + 16 * t->u) * fabs(step) +
                                         (off_y > 0 ? off_by_underflow(t, &f, numbers(x)[i], numbers(y)[i]) : 0) +
                                         (plain ? lr * off_by_parts(t, &c, i) : 0) + t->tiny * (4 + times) },
                   adam ? t->u * (1 / f.c1 + 1 / f.c2) * fabs(step) : 0);
    }
    return v;
}

/* A result of a step: a mean of gradients, or the weight. */
struct made { const char *what, *words; bool is_mean; double keep, part; bool squared; double coupled; };

static struct single_value make(struct stepping *t, const struct made *m)
{
    return m->is_mean ? mean(t, m->what, m->keep, m->part, m->squared, m->coupled) : weight(t);
}

/* Whether it is kept in 16 bits, and nobody has said so. */
static bool is_kept(const struct stepping *t, const struct rounding *usual)
{
    return !usual->stored_states && kept_is_clear(&t->kept);
}

/* Some rows at a time, as long as all is right.  @return whether it is, and has been reported. */
static bool right_in_blocks(struct stepping *t, const struct made *m, const struct rounding *usual)
{
    const int64_t whole = t->whole, step = single_block(t->s, t->cols);
    struct single_result sum = { 0 };
    bool right = step < whole;
    t->kept = (struct kept){ 0 };
    for (t->first = 0; t->first < whole && right; t->first += step) {
        t->rows = whole - t->first < step ? whole - t->first : step;
        right = begin(t, m->what, m->words, usual) && single_end_tile(t->s, make(t, m), t->first, &sum);
    }
    t->first = 0, t->rows = whole;
    right = right && !is_kept(t, usual);
    if (right) single_end_tiles(t->s, &sum, whole);
    return right || t->s->failed;
}

static void check_result(struct stepping *t, const struct made *m, const struct rounding *usual)
{
    char words[SINGLE_MISTAKE];
    if (right_in_blocks(t, m, usual) || !begin(t, m->what, m->words, usual)) return;
    t->kept = (struct kept){ 0 };
    const struct single_value v = make(t, m);
    snprintf(words, sizeof words, "kept in %s: step %lld goes on from rounded numbers, which --stored-states allows",
             dtype_name(t->o->format), (long long)t->k + 1);
    if (single_going(t->s) && is_kept(t, usual)) t->s->verdict.wrong_anyway = words;
    single_end(t->s, v);
    t->s->verdict.wrong_anyway = NULL;
}

static void check_parameter(struct stepping *t)
{
    const struct rounding usual = t->s->rounding;
    const struct adam_factors f = adam_factors(step_of(t));
    const double coupled = sgd_factors(step_of(t)).coupled;
    t->s->verdict.stepping = t;
    for (int i = 0; i < t->is->states; i++) {
        const bool adam = t->is->states == 2;
        const struct made m = { .what = t->is->state_name[i], .is_mean = true, .squared = adam && i,
                                .words = adam && i ? "the mean of squared gradients" : "the mean of gradients",
                                .keep = adam ? i ? f.beta2 : f.beta1 : t->o->hyper.momentum,
                                .part = adam ? i ? f.new2 : f.new1 : 1, .coupled = adam ? 0 : coupled };
        t->state = i;
        check_result(t, &m, &usual);
    }
    t->state = -1;
    check_result(t, &(struct made){ .what = "weight", .words = "the optimizer's step" }, &usual);
    t->s->rounding = usual, t->s->verdict.stepping = NULL;
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* off: what the sum may be off, in units of roundoff, because ranks add up the parts of a gradient.  fourth: the sum of
 * the squares of parameters' sums. */
struct squares { double sum, fourth, off; int64_t terms; };

static void add_squares(struct single *s, struct single_name name, struct single_block block, int64_t whole,
                        int64_t cols, struct squares *to)
{
    const int used = s->memory.used;
    const struct tensor g = single_input_block(s, name, block, whole, cols);
    const bool parts = single_going(s) && single_has_parts(s, name);
    const struct single_sizes sizes =
        parts ? single_sizes_of(s, name, g, block.first, block.rows < whole ? whole : 0)
              : (struct single_sizes){ .parts = 1 };
    for (int64_t j = 0; single_going(s) && j < tensor_count(g); j++) {
        to->sum += numbers(g)[j] * numbers(g)[j];
        to->off += parts ? 2 * (sizes.parts - 1) * numbers(sizes.absolute)[j] * fabs(numbers(g)[j]) : 0;
    }
    to->terms += tensor_count(g);
    single_release(s, used);
}

/* Of all gradients of a step, some rows at a time. */
static struct squares squares_of(struct single *s, const struct single_steps *o, int64_t k)
{
    struct squares all = { 0 };
    for (int i = 0; i < model_param_count(s->context->config); i++) {
        const struct param_spec p = model_param(s->context->config, i);
        const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1], most = single_block(s, cols);
        const double before = all.sum;
        for (int64_t first = 0; first < rows && single_going(s); first += most)
            add_squares(s, stepping_gradient(o, k, p.name),
                        (struct single_block){ first, rows - first < most ? rows - first : most }, rows, cols, &all);
        all.fourth += (all.sum - before) * (all.sum - before);
    }
    return all;
}

static void check_norms(struct single *s, const struct single_steps *o)
{
    char name[64];
    snprintf(name, sizeof name, "%s/norm", o->optimizer);
    if (!single_begin(s, single_name("", name), "the norm of all gradients", 1, o->steps)) return;
    struct single_value v = single_value_new(s, 1, o->steps);
    for (int64_t k = 0; k < o->steps && single_going(s); k++) {
        const struct squares all = squares_of(s, o, k);
        const double norm = sqrt(all.sum), off = norm > 0 ? all.off * s->rounding.sum / norm / 2 : all.off;
        single_put(v, k, (struct element){ norm, norm * (rounding_of_sum(s->rounding.sum, all.terms) / 2 +
                                                         2 * s->rounding.sum) + off +
                                                     single_tiny_squares(s, norm, all.terms) },
                   single_stored_norms(s, norm, all.fourth));
    }
    v.number = true;
    single_end(s, v);
}

/* ---- all steps --------------------------------------------------------------------------------------------------- */

static const struct optimizer *find(const char *name)
{
    for (int i = 0; optimizers[i]; i++)
        if (strcmp(optimizers[i]->name, name) == 0) return optimizers[i];
    return NULL;
}

/* sgd, momentum, adamw. */
static bool is_known(const struct optimizer *is)
{
    return is && !is->low_rank && !is->forward_only &&
           (strcmp(is->name, "sgd") == 0 || strcmp(is->name, "momentum") == 0 || strcmp(is->name, "adamw") == 0);
}

static void report_unknown(struct stepping *t)
{
    static const char words[] = "the step of an optimizer that is not known";
    if (!single_begin(t->s, stepping_after(t->o, t->k, "weight", t->param.name), words, t->rows, t->cols)) return;
    t->s->reading.unknown = words;
    single_end(t->s, single_stop(t->s));
}

enum error_code single_check_steps(const struct model_config *c, const struct single_steps *o, struct rounding rounding,
                                   struct single_source source, struct error *err)
{
    const struct single_context context = { .config = c, .ops = ops_for(F64), .source = source, .err = err };
    struct single s = { .context = &context, .rounding = rounding };
    const struct optimizer *is = find(o->optimizer);
    check_norms(&s, o);
    for (int64_t k = 0; k < o->steps; k++) {
        for (int i = 0; i < model_param_count(c) && !s.failed; i++) {
            struct stepping t = { &s, o, is, k, model_param(c, i), .number = i,
                                  .u = dtype_unit(dtype_wide(o->format)),
                                  .tiny = dtype_step(dtype_wide(o->format)) / 2 };
            t.rows = t.whole = t.param.ndim > 1 ? t.param.dim[0] : 1, t.cols = t.param.dim[t.param.ndim - 1];
            if (is_known(is)) check_parameter(&t);
            else report_unknown(&t);
        }
    }
    single_close(&s);
    return s.failed;
}

/* ---- microbatches ------------------------------------------------------------------------------------------------ */

/* The gradient of a parameter, and what each microbatch adds to it. */
struct added { struct single_name sum; const char *param; int64_t micros, rows, cols; };

static bool begin_sum(struct single *s, const struct added *a, struct single_block block)
{
    return single_begin_block(s, a->sum, "the sum over microbatches", block, block.rows < a->rows ? a->rows : 0,
                              a->cols);
}

/* Some rows: their sum, the sum of absolute values (in `fused`), and what is stored on the way (in `steps`).
 * @return SINGLE_LACKING, with nothing that lacks, if the program does not have the first of the terms. */
static struct single_value add_up(struct single *s, const struct added *a, struct single_block block)
{
    char term[SINGLE_NAME];
    const struct single_value v = single_value_new(s, block.rows, a->cols);
    const int used = s->memory.used;
    for (int64_t k = 0; k < a->micros && single_going(s); k++) {
        snprintf(term, sizeof term, "micro/%lld/grad/%s", (long long)k, a->param);
        const struct tensor g = single_input_block(s, single_name("", term), block, a->rows, a->cols);
        if (k == 0 && s->reading.lacks[0]) {
            single_read_anew(s);
            return (struct single_value){ .status = SINGLE_LACKING };
        }
        for (int64_t i = 0; single_going(s) && i < block.rows * a->cols; i++) {
            numbers(v.y)[i] += numbers(g)[i], numbers(v.fused)[i] += fabs(numbers(g)[i]);
            numbers(v.steps)[i] += s->rounding.store * fabs(numbers(v.y)[i]);
        }
        single_release(s, used);
    }
    return v;
}

static double largest_of(struct single_value v)
{
    double largest = 0;
    for (int64_t i = 0; i < tensor_count(v.fused); i++) largest = fmax(largest, numbers(v.fused)[i]);
    return largest;
}

/* The whole may also have been computed at once, from the same tokens.  largest: sum of absolute values. */
static struct single_value bound_sum(struct single *s, const struct added *a, struct single_value v, double largest)
{
    const double at_once = rounding_of_sum(s->rounding.sum, s->cursor.N) * largest,
                 each = rounding_of_sum(s->rounding.sum, a->micros) + s->rounding.store;
    for (int64_t i = 0; single_going(s) && i < tensor_count(v.y); i++)
        single_put(v, i, (struct element){ numbers(v.y)[i], at_once + each * numbers(v.fused)[i] },
                   numbers(v.steps)[i] + (double)a->micros * s->rounding.tiny);
    return single_going(s) ? v : single_stop(s);
}

/* Twice over all rows: for the largest, and for the sums.  @return whether all are right, and have been reported. */
static bool sum_is_right_in_blocks(struct single *s, const struct added *a, int64_t step)
{
    struct single_result sum = { 0 };
    double largest = 0;
    bool right = true;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t first = 0; first < a->rows && right; first += step) {
            const struct single_block block = { first, a->rows - first < step ? a->rows - first : step };
            right = begin_sum(s, a, block);
            const struct single_value v = right ? add_up(s, a, block) : single_stop(s);
            right = right && tensor_present(v.y);
            if (right && pass == 0) largest = fmax(largest, largest_of(v));
            if (right && pass == 1) right = single_end_tile(s, bound_sum(s, a, v, largest), first, &sum);
            else single_release(s, 0);
        }
    if (right) single_end_tiles(s, &sum, a->rows);
    return right || s->failed;
}

static void check_sum(struct single *s, const struct added *a)
{
    const int64_t step = single_block(s, a->cols);
    const struct single_block all = { 0, a->rows };
    if ((step < a->rows && sum_is_right_in_blocks(s, a, step)) || !begin_sum(s, a, all)) return;
    const struct single_value v = add_up(s, a, all);
    if (!single_going(s) || tensor_present(v.y)) single_end(s, bound_sum(s, a, v, largest_of(v)));
    else single_release(s, 0);
}

static void check_loss(struct single *s, int64_t micros)
{
    if (!single_begin(s, single_name("", "loss"), "the sum over microbatches", 1, 1)) return;
    const struct single_value v = single_value_new(s, 1, 1);
    const struct tensor loss = single_input(s, single_name("", "micro/loss"), 1, micros);
    if (s->failed || s->reading.lacks[0]) {
        single_release(s, 0);
        return;
    }
    double sum = 0, absolute = 0;
    for (int64_t k = 0; k < micros; k++) sum += numbers(loss)[k], absolute += fabs(numbers(loss)[k]);
    single_put(v, 0, (struct element){ sum, (rounding_of_sum(s->rounding.sum, micros) + s->rounding.store) * absolute },
               s->rounding.store * (double)micros * absolute);
    single_end(s, v);
}

enum error_code single_check_micros(const struct model_config *c, int64_t micros, struct single_batch batch,
                                    struct rounding rounding, struct single_source source, struct error *err)
{
    const struct single_context context = { c, NULL, ops_for(F64), batch, source, err };
    struct single s = { .context = &context, .cursor = { .batch = batch, .N = batch.B * batch.S },
                        .rounding = rounding };
    for (int i = 0; i < model_param_count(c) && micros > 0; i++) {
        const struct param_spec p = model_param(c, i);
        check_sum(&s, &(struct added){ single_name("grad/", p.name), p.name, micros, p.ndim > 1 ? p.dim[0] : 1,
                                       p.dim[p.ndim - 1] });
    }
    if (micros > 0) check_loss(&s, micros);
    single_close(&s);
    return s.failed;
}
