/* Probes and what is kept: every activation, gradient, weight and state of every device is compared, and what is broken
 * on purpose is named: tensor, devices, factor.  Copies: replicas.h.
 * ranks: 1 4
 * verify ranks: 6
 */
#include "tests/devices/session.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/reference/replicas.h"
#include "ref/model/params.h"
#include "tests/tier.h"
#include <math.h>
#include <string.h>

static struct error err;

/* ---- a run with somebody between the devices and the comparison -------------------------------------------------- */

/* What is done to one tensor before the comparison sees it. */
struct mistake {
    const char *name;                   /* NULL: nothing is done */
    int layer;
    bool gradient;
    double factor;
    enum axis axis;                     /* only at this coordinate of an axis; -1: everywhere */
    int coordinate;
};

struct breaker { const struct mistake *mistake; struct probes *probes; };

static void break_and_pass_on(void *context, const char *name, int layer, bool gradient, int micro, struct tensor t)
{
    const struct breaker *b = context;
    const struct mistake *m = b->mistake;
    const struct trainer *trainer = b->probes->trainer;
    const bool here =
        m->coordinate < 0 || mesh_coordinate(&trainer->plan.mesh, trainer->comm->rank, m->axis) == m->coordinate;
    struct views v = views_of(trainer->comm->device);
    const struct tensor seen = view_write(&v, t);
    if (m->name && strcmp(m->name, name) == 0 && m->layer == layer && m->gradient == gradient && here)
        for (int64_t i = 0; i < tensor_count(t); i++)
            tensor_set(seen, i, m->factor == 0 ? 0 : m->factor * tensor_get(seen, i));
    views_end(&v);
    b->probes->probe.see(b->probes->probe.context, name, layer, gradient, micro, t);
}

/* One number of what a device keeps, and what it is instead. */
struct slip { enum tensor_kind kind; int index, rank; bool last; double value; };

enum { MOST_SLIPS = 4 };
static struct slip slips[MOST_SLIPS];   /* of the next run; index -1: no slip */
static double loss_slip, norm_slip;     /* added to them */

static void no_slips(void)
{
    for (int i = 0; i < MOST_SLIPS; i++) slips[i] = (struct slip){ .index = -1 };
    loss_slip = norm_slip = 0;
}

/* Exchange that number for the slip's, which is then the right one: twice, and nothing has happened. */
static void exchange_number(struct trainer *t, struct slip *s)
{
    const struct parameter *p = s->index < 0 ? NULL : parameter_find(&t->parameters, s->index);
    struct interval kept;
    struct tensor own;
    if (p == NULL || t->comm->rank != s->rank) return;
    assert_int_equal(collect_own(t, p, s->kind, &kept, &own, &err), OK);
    const int64_t n = layout_count(&p->layout), at = s->last ? kept.count - 1 : 0;
    struct tensor all = tensor_1d(calloc((size_t)n, dtype_size(own.dtype)), own.dtype, n);
    const double right = kept.count > 0 ? tensor_get(own, at) : 0;
    memcpy((char *)all.data + (size_t)kept.first * dtype_size(own.dtype), own.data, tensor_bytes(own));
    if (kept.count > 0) tensor_set(all, kept.first + at, s->value);
    s->value = right;
    collect_keep(t, p, s->kind, all);
    free(own.data), free(all.data);
}

static void exchange_numbers(struct trainer *t, bool gradients)
{
    for (int i = 0; i < MOST_SLIPS; i++)
        if ((slips[i].kind == KIND_GRADIENT) == gradients) exchange_number(t, &slips[i]);
}

/* In what the first twin of the next run is as close to the truth as chance may bring it. */
static enum closeness { NOT_CLOSE, CLOSE_ACTIVATIONS, CLOSE_LOSS, CLOSE_GRADIENTS, CLOSE_NORM } closeness;
static int twins_of_run;                /* how many twins the last one needed */

static void bring_twin_close(struct reference *r, struct step_result *told)
{
    switch (closeness) {
    case NOT_CLOSE: return;
    case CLOSE_ACTIVATIONS:
        for (int i = 0; i < r->record.count; i++) r->record.all[i].distance = 0;
        return;
    case CLOSE_LOSS: r->loss_spread = 0; return;
    case CLOSE_GRADIENTS:
        for (int i = 0; i < r->truth.model.params; i++)
            memcpy(r->twin.model.g[i].data, r->truth.model.g[i].data, tensor_bytes(r->truth.model.g[i]));
        return;
    case CLOSE_NORM:                    /* its bound is that of all gradients: only an error can be near it */
        told->norm = reference_norm(r) + 1.01 * reference_norm_bound(r);
    }
}

static enum error_code one_step(struct trainer *t, struct reference *ref, const struct mistake *mistake, bool isolate,
                                struct comparison *c)
{
    struct probes probes;
    struct step_result result = { 0 };
    probes_open(&probes, t, isolate);
    struct breaker b = { mistake, &probes };
    const struct probe breaking = { .see = break_and_pass_on, .context = &b };
    trainer_watch(t, &breaking);
    enum error_code e = compare_begin(&probes, ref, &err);
    if (!e) e = trainer_gradients(t, &result, &err);
    exchange_numbers(t, true);
    struct step_result told = result;
    told.loss += loss_slip, told.norm += norm_slip;
    if (!e && t->comm->rank == 0) bring_twin_close(ref, &told);
    if (!e) e = compare_gradients(&probes, ref, &told, c, &err);
    exchange_numbers(t, true);
    if (!e) e = trainer_update(t, &result, &err);
    exchange_numbers(t, false);
    if (!e && t->comm->rank == 0) e = reference_update(ref, &err);
    if (!e) e = compare_weights(t, ref, c, &err);
    if (t->comm->rank == 0) twins_of_run = ref->twins;
    probes_close(&probes);
    return e;
}

/* Collective; the comparison is on rank 0. */
static struct comparison run(struct plan *p, const struct mistake *mistake, bool isolate)
{
    static struct comparison c;
    struct session s;
    struct reference ref;
    const struct batch_source source = { fill_drawn, p };
    c = (struct comparison){ 0 };
    session_open(&s, p, source);
    ASSERT_ALL(test_rank != 0 || reference_open(&ref, p, source, &err) == OK, "%s", err.text);
    const enum error_code e = one_step(&s.trainer, &ref, mistake, isolate, &c);
    ASSERT_ALL(e == OK, "%s", err.text);
    if (test_rank == 0) reference_close(&ref);
    session_close(&s);
    return c;
}

static struct plan mesh_of_test(void)
{
    switch (test_size) {
    case 1: return case_plan(1, 1, 1);
    case 2: return case_plan(1, 2, 1);
    case 4: return case_plan(2, 2, 1);
    case 6: return case_plan(3, 2, 1);
    default: return case_plan(2, 2, 2);
    }
}

static const char *place_of_failure(const struct comparison *c, const struct plan *p)
{
    static char text[160];
    return diagnose_place(text, sizeof text, &p->mesh, &c->where.on);
}

static const char *scale_of_failure(const struct comparison *c, const struct plan *p)
{
    static char text[160];
    return diagnose_scale(text, sizeof text, &p->mesh, p->micros, &c->where.on);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const struct mistake none = { .coordinate = -1 };

/* Each device that holds a stage shows the stage's ten tensors a layer and the three of the ends,
 * forward and backward. */
static void test_all_is_compared(void **state)
{
    (void)state;
    for (int isolate = 0; isolate < 2; isolate++) {
        struct plan p = mesh_of_test();
        p.dtype = isolate ? F32 : F64;
        const struct comparison c = run(&p, &none, isolate);
        const int64_t copies = p.mesh.size[DP] * p.mesh.size[TP], L = p.model.L;
        const int64_t activations = 2 * (10 * L + 3) * copies, parameters = 2 * (12 * L + 4) * copies;
        const int64_t tied = p.mesh.size[PP] > 1 ? 2 * copies : 0;      /* the last stage has the token embedding too */
        ASSERT_ALL(test_rank != 0 || !c.failed, "%s %s on device %d", c.first_kind, c.first.tensor, c.first.rank);
        ASSERT_ALL(test_rank != 0 || c.compared == activations + parameters + tied + 2,
                   "%lld tensors were compared, expected %lld", (long long)c.compared,
                   (long long)(activations + parameters + tied + 2));
    }
}

/* Whatever is broken is the first that is named, forward and backward, at both ends and in the middle. */
static void test_each_tensor_is_named(void **state)
{
    (void)state;
    static const struct { const char *name; int layer; const char *full; } places[] = {
        { "embedding", -1, "embedding" }, { "ln_1", 0, "h.0.ln_1" }, { "attn.qkv", 1, "h.1.attn.qkv" },
        { "attn.heads", 2, "h.2.attn.heads" },
        { "attn.out", 0, "h.0.attn.out" }, { "mid", 1, "h.1.mid" }, { "ln_2", 2, "h.2.ln_2" },
        { "mlp.up", 0, "h.0.mlp.up" },
        { "mlp.act", 1, "h.1.mlp.act" }, { "mlp.out", 2, "h.2.mlp.out" }, { "out", 1, "h.1.out" },
        { "ln_f", -2, "ln_f" }, { "logits", -2, "logits" },
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            struct plan p = mesh_of_test();
            const struct mistake m = {
                places[i].name,     places[i].layer == -2 ? (int)p.model.L : places[i].layer, gradient, 3, TP,
                p.mesh.size[TP] - 1
            };
            const struct comparison c = run(&p, &m, false);
            ASSERT_ALL(test_rank != 0 || (c.failed && strcmp(c.first.tensor, places[i].full) == 0),
                       "%s %s was broken, but the report names %s %s", gradient ? "gradient" : "activation",
                       places[i].full, c.first_kind, c.first.tensor);
            ASSERT_ALL(test_rank != 0 || strcmp(c.first_kind, gradient ? "activation gradient" : "activation") == 0,
                       "it is called %s", c.first_kind);
            ASSERT_ALL(test_rank != 0 || c.first.ratio > 2, "ratio %g", c.first.ratio);
            ASSERT_ALL(test_rank != 0 || mesh_coordinate(&p.mesh, c.first.rank, TP) == m.coordinate,
                       "the report names device %d", c.first.rank);
        }
}

/* Along an axis, with the factor in words. */
static void test_axis_and_factor(void **state)
{
    (void)state;
    struct plan p = mesh_of_test();
    const struct mistake by_dp = { "ln_2", 0, true, p.mesh.size[DP], DP, -1 };
    struct comparison c = run(&p, &by_dp, false);
    if (test_size == 6) {
        ASSERT_ALL(test_rank != 0 || strcmp(scale_of_failure(&c, &p), "expected times 3.0000 = dp") == 0, "%s",
                   scale_of_failure(&c, &p));
        ASSERT_ALL(test_rank != 0 || strcmp(place_of_failure(&c, &p), "any dp, any tp") == 0, "%s",
                   place_of_failure(&c, &p));
    }
    if (test_size == 1) return;
    p = mesh_of_test();
    const struct mistake zero = { "mlp.act", 1, false, 0, TP, 1 };
    c = run(&p, &zero, false);
    ASSERT_ALL(test_rank != 0 || strcmp(scale_of_failure(&c, &p), "zero") == 0, "%s", scale_of_failure(&c, &p));
    ASSERT_ALL(test_rank != 0 || strncmp(place_of_failure(&c, &p), "tp=1", 4) == 0, "%s", place_of_failure(&c, &p));
    ASSERT_ALL(test_rank != 0 || devices_count(&c.where.on.failing) == p.mesh.size[DP], "%d devices",
               devices_count(&c.where.on.failing));
}

static void test_nan_is_named(void **state)
{
    (void)state;
    struct plan p = mesh_of_test();
    const struct mistake m = { "attn.heads", 1, false, NAN, TP, 0 };
    const struct comparison c = run(&p, &m, false);
    ASSERT_ALL(test_rank != 0 || (c.failed && strcmp(c.first.tensor, "h.1.attn.heads") == 0), "the report names %s",
               c.first.tensor);
}

/* Of every parameter the gradient, the weight and a state, each on another device, first or last element: each is the
 * worst of its kind.  Beside a weight and a state nothing else is wrong; beside a gradient the step that the device has
 * taken, which is another gradient's. */
static void test_each_kept_tensor_is_named(void **state)
{
    (void)state;
    struct plan p = mesh_of_test();
    const int params = model_param_count(&p.model), thin = tier_now() == TIER_VERIFY ? 1 : 5;
    for (int run_of = 0; run_of < 2 * params; run_of++) {
        const int i = run_of / 2, first = run_of % 2 ? 1 : 0, end = run_of % 2 ? 3 : 1;
        if (i % thin != test_size % thin) continue;
        p = mesh_of_test();
        ASSERT_ALL(optimizer_find(&p.optimizer, "adamw", &err) == OK, "%s", err.text);
        p.hyper = p.optimizer->usual;
        const int second = i / 2 % 2;
        char of[PARAM_NAME];
        const struct param_spec spec = model_param(&p.model, i);
        snprintf(of, sizeof of, "%s of %.70s", p.optimizer->state_name[second], spec.name);
        const enum tensor_kind kinds[] = { KIND_GRADIENT, KIND_WEIGHT, KIND_STATE + (enum tensor_kind)second };
        no_slips();
        for (int k = first; k < end; k++) slips[k] = (struct slip){ kinds[k], i, (i + k) % test_size, (i + k) % 2, 3 };
        const struct comparison c = run(&p, &none, false);
        no_slips();
        const struct worst *worst[] = { &c.gradient, &c.weight, &c.state };
        const char *name[] = { spec.name, spec.name, of }, *kind[] = { "gradient", "weight", "state" };
        for (int k = first; k < end; k++) {
            ASSERT_ALL(test_rank != 0 || (worst[k]->ratio > 2 && strcmp(worst[k]->tensor, name[k]) == 0),
                       "%s was broken, the worst is %s", name[k], worst[k]->tensor);
            ASSERT_ALL(test_rank != 0 || worst[k]->rank == (i + k) % test_size,
                       "%s was broken on device %d, the report names %d", name[k], (i + k) % test_size, worst[k]->rank);
        }
        ASSERT_ALL(test_rank != 0 || (first == 0 ? c.wrong > 0 : c.wrong == 2),
                   "%s: %lld comparisons do not hold, expected 2", spec.name, (long long)c.wrong);
        ASSERT_ALL(test_rank != 0 ||
                       (strcmp(c.first_kind, kind[first]) == 0 && strcmp(c.first.tensor, name[first]) == 0),
                   "%s %s is named first", c.first_kind, c.first.tensor);
    }
}

/* Weights that are gathered as codes after the step are what the masters quantise to, bit for bit: their bound is 0. */
static void test_weights_of_codes_are_compared(void **state)
{
    (void)state;
    for (int slip = 0; slip < 2 && test_size > 1; slip++) {
        struct plan p = case_plan(test_size, 1, 1);
        p.data.scheme = "zero1", p.data.quantise_weights = (struct block_format){ 8, 64 };
        no_slips();
        if (slip) slips[0] = (struct slip){ KIND_WEIGHT, 2, test_size - 1, true, 3 };
        const struct comparison c = run(&p, &none, false);
        no_slips();
        ASSERT_ALL(test_rank != 0 || c.wrong == slip, "%lld comparisons do not hold, expected %d; first is %s %s",
                   (long long)c.wrong, slip, c.first_kind, c.first.tensor);
        ASSERT_ALL(test_rank != 0 || !slip ||
                       (strcmp(c.first.tensor, model_param(&p.model, 2).name) == 0 && c.first.rank == test_size - 1),
                   "weight %s on device %d is named", c.first.tensor, c.first.rank);
    }
}

static void test_loss_and_norm_are_compared(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct plan p = mesh_of_test();
        no_slips();
        loss_slip = sign * 1e-6, norm_slip = sign * 1e-6;
        const struct comparison c = run(&p, &none, false);
        no_slips();
        ASSERT_ALL(test_rank != 0 || (c.wrong == 2 && c.loss.ratio > 2 && c.norm.ratio > 2),
                   "%lld do not hold; loss %g, norm %g", (long long)c.wrong, c.loss.ratio, c.norm.ratio);
        ASSERT_ALL(test_rank != 0 || (c.number && strcmp(c.first.tensor, "loss") == 0), "%s is named", c.first.tensor);
    }
}

/* A first twin that is close to the truth makes bounds too small for a correct run: others are asked for, until it is
 * right. */
static void test_close_twin_is_not_the_last(void **state)
{
    static const char *const of[] = { "nothing", "activations", "loss", "gradients", "norm" };
    (void)state;
    for (int i = NOT_CLOSE; i <= CLOSE_NORM && test_size > 1; i++) {
        struct plan p = mesh_of_test();
        p.dtype = F32;
        closeness = (enum closeness)i;
        const struct comparison c = run(&p, &none, false);
        closeness = NOT_CLOSE;
        ASSERT_ALL(test_rank != 0 || !c.failed, "close in %s: %s %s is called wrong after %d twins", of[i],
                   c.first_kind, c.first.tensor, twins_of_run);
        ASSERT_ALL(test_rank != 0 || (twins_of_run > 1) == (i != NOT_CLOSE), "close in %s: %d twins", of[i],
                   twins_of_run);
    }
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* After a step without mistakes: one number is another in its last bit, on one device. */
static enum error_code copies(struct plan *p, struct slip *slip, uint64_t *compared)
{
    struct session s;
    struct step_result result;
    const struct batch_source source = { fill_drawn, p };
    const bool gradient = slip->kind == KIND_GRADIENT;
    struct interval kept;
    struct tensor own = tensor_none;
    session_open(&s, p, source);
    enum error_code e = trainer_gradients(&s.trainer, &result, &err);
    if (!e && !gradient) e = trainer_update(&s.trainer, &result, &err);
    if (!e)
        e = collect_own(&s.trainer, parameter_find(&s.trainer.parameters, slip->index < 0 ? 0 : slip->index),
                        slip->kind, &kept, &own, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    if (kept.count > 0) slip->value = nextafter(tensor_get(own, slip->last ? kept.count - 1 : 0), INFINITY);
    exchange_number(&s.trainer, slip);
    *compared = 0;
    e = replicas_check(&s.trainer, gradient ? BEFORE_OPTIMIZER : AFTER_OPTIMIZER, compared, &err);
    free(own.data);
    session_close(&s);
    return e;
}

/* Every device once, with a kind and an element of its own; copies along dp, whole or in
 * shards that are cut differently. */
static void test_copies(void **state)
{
    (void)state;
    static const char *const kind_name[] = { "weight", "gradient", "exp_avg", "exp_avg_sq" };
    static const enum tensor_kind kinds[] = { KIND_WEIGHT, KIND_GRADIENT, KIND_STATE, KIND_STATE + 1 };
    for (int r = -1; r < test_size && test_size > 1; r++) {
        struct plan p = mesh_of_test();
        char want[160];
        uint64_t compared;
        ASSERT_ALL(optimizer_find(&p.optimizer, "adamw", &err) == OK, "%s", err.text);
        p.hyper = p.optimizer->usual;
        const int k = (r + 1) % 4, params = model_param_count(&p.model);
        struct slip slip = { kinds[k], r < 0 ? -1 : (7 * r + 3) % params, r, r % 2, 0 };
        const enum error_code e = copies(&p, &slip, &compared);
        if (r < 0) {
            ASSERT_ALL(e == OK, "%s", err.text);
            continue;
        }
        snprintf(want, sizeof want, "%s %s on device", kind_name[k], model_param(&p.model, slip.index).name);
        ASSERT_ALL(e == ERR_CHECK && strstr(err.text, want) != NULL, "%s %d was broken; code %d %s", want, r, e,
                   e ? err.text : "");
    }
}

/* Shards that are cut differently, where tp is uneven: the half of a block's parameters ends inside attn.c_proj.bias on
 * the first of three devices, on the second inside ln_2.bias, on the third inside ln_2.weight.
 * Not every device has some of each. */
static void test_copies_cut_differently(void **state)
{
    (void)state;
    int broken = 0;
    for (int r = 0; r < 6 && test_size == 6; r++) {
        struct plan p = case_plan(2, 3, 1);
        uint64_t compared;
        struct slip slip = { KIND_WEIGHT, 7 + r % 3, r, r % 2, 0 };
        char want[160];
        p.model.D = p.model.H = p.model.K = 10, p.model.A = 1, p.model.F = 23, p.data.scheme = "zero3",
        p.data.bucket = 0;
        snprintf(want, sizeof want, "weight %s on device", model_param(&p.model, slip.index).name);
        const enum error_code e = copies(&p, &slip, &compared);
        char nothing[HARNESS_TEXT] = "";
        int speaker;
        const int had = harness_collect(test_rank == r && slip.value != 0, nothing, &speaker);
        ASSERT_ALL(had ? e == ERR_CHECK && strstr(err.text, want) : e == OK, "%s %d: code %d, %s", want, r, e,
                   err.text);
        broken += had;
    }
    ASSERT_ALL(test_size != 6 || broken >= 3, "%d devices have some of it", broken);
}

/* Weights so large that scores of attention overflow, on one device as on many. */
static struct plan overflowing(void)
{
    struct plan p = mesh_of_test();
    p.dtype = F32;
    p.model.init_std = sqrt(1e38 / (double)p.model.D);         /* a little more, and variances overflow before */
    return p;
}

static void test_the_truth_diverges_too(void **state)
{
    (void)state;
    struct plan p = overflowing();
    const struct comparison c = run(&p, &none, false);
    ASSERT_ALL(test_rank != 0 || !c.failed, "%s %s on device %d is blamed", c.first_kind, c.first.tensor, c.first.rank);
    ASSERT_ALL(test_rank != 0 || (c.diverged && strcmp(c.divergence.tensor, "h.0.attn.heads") == 0),
               "diverged first in %s", c.divergence.tensor);
}

/* What is not finite on a device alone is its own fault, and so is a loss that is finite where the truth's is not. */
static void test_a_device_diverges_alone(void **state)
{
    (void)state;
    static const struct { const char *name; int layer; double factor; enum axis axis; const char *full; } wrong[] = {
        { "ln_1", 0, NAN, TP, "h.0.ln_1" }, { "attn.qkv", 0, INFINITY, TP, "h.0.attn.qkv" },
        { "logits", 3, 0, AXIS_COUNT, "loss" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct plan p = overflowing();
        const struct mistake m = {
            wrong[i].name, wrong[i].layer, false, wrong[i].factor, TP, wrong[i].axis == TP ? p.mesh.size[TP] - 1 : -1
        };
        const struct comparison c = run(&p, &m, false);
        ASSERT_ALL(test_rank != 0 || (c.failed && strcmp(c.first.tensor, wrong[i].full) == 0),
                   "%s was broken, the report names %s", wrong[i].full, c.failed ? c.first.tensor : "nothing");
    }
}

/* With the right inputs for everything, one wrong tensor is wrong on the devices that make it, and nothing else is. */
static void test_isolated(void **state)
{
    (void)state;
    for (int gradient = 0; gradient < 2; gradient++) {
        struct plan p = mesh_of_test();
        const struct mistake m = { "mid", 1, gradient, 2, TP, 0 };
        const struct comparison c = run(&p, &m, true);
        ASSERT_ALL(test_rank != 0 || strcmp(c.first.tensor, "h.1.mid") == 0, "the report names %s", c.first.tensor);
        ASSERT_ALL(test_rank != 0 || c.wrong == p.mesh.size[DP], "%lld comparisons do not hold, expected %d",
                   (long long)c.wrong, p.mesh.size[DP]);
    }
}

int main(void)
{
    no_slips();
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_all_is_compared), MPI_TEST(test_each_tensor_is_named), MPI_TEST(test_axis_and_factor),
            MPI_TEST(test_nan_is_named),
        MPI_TEST(test_each_kept_tensor_is_named), MPI_TEST(test_weights_of_codes_are_compared),
            MPI_TEST(test_loss_and_norm_are_compared), MPI_TEST(test_close_twin_is_not_the_last),
        MPI_TEST(test_copies), MPI_TEST(test_copies_cut_differently),
        MPI_TEST(test_the_truth_diverges_too), MPI_TEST(test_a_device_diverges_alone), MPI_TEST(test_isolated),
    };
    return MPI_RUN("probe", tests);
}
