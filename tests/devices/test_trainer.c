/* A model trained on every mesh of so many devices equals the one-device model.
 * ranks: 1 2 3 4 6 8
 *
 * Every factorisation into dp x tp x pp, in fp64, with a shape in which nothing divides: the loss, every gradient and
 * every weight of every device after each of three SGD steps without clipping (Adam and clipping would hide a constant
 * factor) agree with ref/ to 1e-12, norm over norm; and messages, bytes and additions equal their formulas.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/compare.h"
#include "ref/numeric/philox.h"

static struct error err;

/* L, H for up to 8 stages and 8 parts; D = 27, F = 50, V = 61 divide by nothing. */
static const struct model_config nasty = {
    .name = "nasty", .S = 9, .D = 27, .H = 9, .A = 3, .F = 50, .L = 9, .V = 61, .tied = true, .eps = 1e-5, .init_std = 0.2,
};
enum { TOKENS = 7, BATCH = 19, STEPS = 3 };

/* Random tokens; about one label in eight is ignored, so that devices hold different numbers of those that count. */
static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels)
{
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        const uint64_t at = (uint64_t)(first * p->S + i);
        ids[i] = (int32_t)(random_uniform((uint64_t)step, 1, at) * (double)p->model.V);
        labels[i] = random_uniform((uint64_t)step, 2, at) < 0.125 ? IGNORE_LABEL : (int32_t)(random_uniform((uint64_t)step, 3, at) * (double)p->model.V);
    }
}

static struct plan make_plan(int dp, int tp, int pp)
{
    struct plan p = {
        .model = nasty, .B = BATCH, .S = TOKENS, .micros = BATCH / dp >= 2 ? 2 : 1, .chunks = 1, .dtype = F64, .seed = 7, .bucket = 1000,
        .tensor = "1d", .data = "ddp", .schedule = "1f1b", .allreduce = "ring", .optimizer = optimizers[1], .hyper = { .lr = 0.05 },
    };
    const int size[AXIS_COUNT] = { [DP] = dp, [TP] = tp, [PP] = pp, [CP] = 1, [EP] = 1 };
    (void)mesh_make(&p.mesh, size, NULL);
    return p;
}

/* ---- one run --------------------------------------------------------------------------------------------------------- */

struct outcome {
    struct comparison comparison;       /* rank 0 */
    bool initial_equal;                 /* rank 0: the first weights are the reference's, bit for bit */
    bool traffic_equal;
    uint64_t hash;                      /* of this device's weights at the end */
    uint64_t whole_hash;                /* rank 0: of the whole model's, whatever the mesh */
    uint64_t peak[BUFFERS], peak_formula[BUFFERS];      /* bytes by tag */
    struct traffic counted[AXIS_COUNT];
    struct collective_cost formula[AXIS_COUNT];
    double loss;
};

static uint64_t hash_weights(const struct trainer *t)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < t->parameters.count; i++) {
        const unsigned char *byte = t->parameters.all[i].w.data;
        for (size_t b = 0; b < tensor_bytes(t->parameters.all[i].w); b++) h = (h ^ byte[b]) * 0x100000001b3u;
    }
    return h;
}

/* The whole model's weights, tensor by tensor in the model's order. */
static uint64_t hash_whole(struct trainer *t)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < model_param_count(&t->plan.model); i++) {
        const struct param_spec s = model_param(&t->plan.model, i);
        const int64_t n = s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
        struct tensor whole = tensor_1d(calloc((size_t)n, 8), t->plan.dtype, n);
        const unsigned char *byte = whole.data;
        if (collect_whole(t, i, KIND_WEIGHT, whole, &err) != OK) return 0;
        for (size_t b = 0; b < tensor_bytes(whole); b++) h = (h ^ byte[b]) * 0x100000001b3u;
        free(whole.data);
    }
    return h;
}

static void read_traffic(struct outcome *o, const struct trainer *t)
{
    o->traffic_equal = true;
    for (int a = 0; a < AXIS_COUNT; a++) {
        struct traffic *sum = &o->counted[a];
        for (int op = 0; op < CONTROL; op++) {
            sum->messages_sent += t->comm->traffic[AXIS_BIT(a)][op].messages_sent;
            sum->bytes_sent += t->comm->traffic[AXIS_BIT(a)][op].bytes_sent;
            sum->additions += t->comm->traffic[AXIS_BIT(a)][op].additions;
        }
        const struct collective_cost one = trainer_cost(t, AXIS_BIT(a));
        o->formula[a] = (struct collective_cost){ .messages = STEPS * one.messages, .bytes = STEPS * one.bytes, .additions = STEPS * one.additions };
        o->traffic_equal = o->traffic_equal && sum->messages_sent == o->formula[a].messages && sum->bytes_sent == o->formula[a].bytes
                           && sum->additions == o->formula[a].additions;
    }
}

static enum error_code steps(struct trainer *t, struct reference *ref, struct outcome *o)
{
    const bool here = t->comm->rank == 0;
    struct step_result result;
    enum error_code e = compare_weights(t, ref, &o->comparison, &err);
    o->initial_equal = o->comparison.largest_error == 0;
    for (int s = 0; s < STEPS && !e; s++) {
        e = trainer_gradients(t, &result, &err);
        if (here && !e) e = reference_gradients(ref, &err);
        if (!e) e = compare_gradients(t, ref, result.loss, &o->comparison, &err);
        if (!e) e = trainer_update(t, &result, &err);
        if (here && !e) reference_update(ref);
        if (!e) e = compare_weights(t, ref, &o->comparison, &err);
    }
    o->loss = result.loss;
    return e;
}

static enum error_code train(const struct plan *plan, struct outcome *o)
{
    struct device device;
    struct comm comm;
    struct trainer t;
    struct reference ref;
    const struct batch_source source = { fill, plan };
    memset(o, 0, sizeof *o);
    enum error_code e = device_open(&device, plan->dtype, 0, &err);
    if (!e) e = comm_open(&comm, &device, &err);
    if (!e) e = trainer_open(&t, plan, &comm, source, &err);
    if (e) return e;
    if (comm.rank == 0) e = reference_open(&ref, plan, source, &err);
    if (!e) e = steps(&t, &ref, o);
    read_traffic(o, &t);
    o->hash = hash_weights(&t);
    o->whole_hash = hash_whole(&t);
    for (int tag = 0; tag < BUFFERS; tag++) o->peak[tag] = device.arena.peak.tag[tag], o->peak_formula[tag] = trainer_peak(&t, tag);
    if (device.arena.now.tag[ACTIVATIONS] != 0) e = ERR_MEMORY, snprintf(err.text, sizeof err.text, "activations are left after a step");
    if (comm.rank == 0) reference_close(&ref);
    trainer_close(&t);
    comm_close(&comm);
    device_close(&device);
    return e;
}

static const char *describe(const struct plan *p, char *text, size_t size)
{
    snprintf(text, size, "dp=%d tp=%d pp=%d micro=%d %s %s%s", p->mesh.size[DP], p->mesh.size[TP], p->mesh.size[PP], p->micros, p->schedule,
             p->model.tied ? "tied" : "untied", p->model.dropout_residual > 0 ? " dropout" : "");
    return text;
}

static struct outcome check(struct plan *p)
{
    char what[128];
    struct outcome o;
    describe(p, what, sizeof what);
    enum error_code e = plan_check(p, &err);
    ASSERT_ALL(e == OK, "%s: refused: %s", what, err.text);
    e = train(p, &o);
    ASSERT_ALL(e == OK, "%s: %s", what, err.text);
    const struct comparison *c = &o.comparison;
    ASSERT_ALL(test_rank != 0 || o.initial_equal, "%s: initial weights differ from the reference's: %s on device %d", what, c->weight.tensor, c->weight.rank);
    ASSERT_ALL(test_rank != 0 || !c->failed, "%s: %s %s on device %d at step %lld: error %.3g, bound %.3g", what, c->first_kind, c->first.tensor,
               c->first.rank, (long long)c->first.step, c->first.error, c->first.bound);
    ASSERT_ALL(test_rank != 0 || c->largest_error <= 1e-12,
               "%s: largest error %.3g; worst loss %.3g, gradient %s on device %d %.3g at step %lld, weight %s on device %d %.3g at step %lld", what,
               c->largest_error, c->loss.error, c->gradient.tensor, c->gradient.rank, c->gradient.error, (long long)c->gradient.step,
               c->weight.tensor, c->weight.rank, c->weight.error, (long long)c->weight.step);
    for (int a = 0; a < AXIS_COUNT; a++)
        ASSERT_ALL(o.counted[a].messages_sent == o.formula[a].messages && o.counted[a].bytes_sent == o.formula[a].bytes
                       && o.counted[a].additions == o.formula[a].additions,
                   "%s: %s: counted %llu messages %llu bytes %llu additions, formula %llu %llu %llu", what, axis_name(a),
                   (unsigned long long)o.counted[a].messages_sent, (unsigned long long)o.counted[a].bytes_sent,
                   (unsigned long long)o.counted[a].additions, (unsigned long long)o.formula[a].messages,
                   (unsigned long long)o.formula[a].bytes, (unsigned long long)o.formula[a].additions);
    for (int tag = 0; tag < BUFFERS; tag++)
        ASSERT_ALL(o.peak[tag] == o.peak_formula[tag], "%s: peak of %s: counted %llu bytes, formula %llu", what, arena_tag_name(tag),
                   (unsigned long long)o.peak[tag], (unsigned long long)o.peak_formula[tag]);
    return o;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------- */

static void each_mesh(void (*f)(int dp, int tp, int pp))
{
    for (int dp = 1; dp <= test_size; dp++)
        for (int tp = 1; dp * tp <= test_size; tp++)
            if (test_size % (dp * tp) == 0) f(dp, tp, test_size / (dp * tp));
}

static void check_tied(int dp, int tp, int pp)
{
    struct plan p = make_plan(dp, tp, pp);
    check(&p);
}

static void check_gpipe_untied_dropout(int dp, int tp, int pp)
{
    struct plan p = make_plan(dp, tp, pp);
    p.schedule = "gpipe";
    p.model.tied = false;
    p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
    p.micros = BATCH / dp < 3 ? BATCH / dp : 3;   /* of different numbers of sequences */
    check(&p);
}

static void test_every_mesh(void **state) { (void)state; each_mesh(check_tied); }
static void test_every_mesh_gpipe_untied_dropout(void **state) { (void)state; each_mesh(check_gpipe_untied_dropout); }

/* A mesh that uses all devices, with as many axes as it can. */
static struct plan mixed_plan(void)
{
    return test_size == 8 ? make_plan(2, 2, 2) : test_size == 6 ? make_plan(1, 3, 2) : test_size == 4 ? make_plan(2, 2, 1) : make_plan(1, 1, test_size);
}

static void test_same_plan_same_bits(void **state)
{
    (void)state;
    struct outcome first, second;
    struct plan p = mixed_plan();
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s", err.text);
    ASSERT_ALL(train(&p, &first) == OK && train(&p, &second) == OK, "%s", err.text);
    ASSERT_ALL(first.hash == second.hash, "weights of the same plan run twice have other bits");
}

/* Every schedule there is computes what one device computes; those that add weight gradients in the order of the
 * microbatches, on one copy of each stage, end with the same bits. */
static void test_every_schedule(void **state)
{
    (void)state;
    const int dp = test_size % 2 == 0 && test_size > 2 ? 2 : 1, pp = test_size / dp;
    uint64_t bits = 0;
    int trained = 0;
    for (int i = 0; schedule_generators[i]; i++) {
        struct plan p = make_plan(dp, 1, pp);
        struct schedule s;
        p.model.L = 17, p.model.tied = false, p.micros = 4, p.chunks = 2;
        p.schedule = schedule_generators[i]->name;
        if (schedule_generators[i]->chunks) p.chunks = schedule_generators[i]->chunks;
        if (strcmp(p.schedule, "1f1b") == 0 || strcmp(p.schedule, "gpipe") == 0 || plan_check(&p, &err) != OK) p.chunks = 1;
        if (plan_check(&p, &err) != OK) continue;
        const struct outcome o = check(&p);
        const struct schedule_request q = { .devices = pp, .micros = p.micros, .chunks = p.chunks };
        ASSERT_ALL(schedule_make(&s, p.schedule, &q, &err) == OK, "%s: %s", p.schedule, err.text);
        struct place place[2];
        const bool in_order = schedule_adds_in_order(&s) && schedule_holders(&s, 0, place, 2) == 1;
        schedule_free(&s);
        trained++;
        if (!in_order) continue;
        if (bits == 0) bits = o.whole_hash;
        ASSERT_ALL(test_rank != 0 || bits == o.whole_hash, "%s: weights have other bits than those of %s", p.schedule, schedule_generators[0]->name);
    }
    ASSERT_ALL(trained >= 10, "only %d schedules could be trained with", trained);
}

/* The seed of the comparison itself: with fp32 and AdamW, nothing but the measured bound. */
static void test_fp32_within_measured_bound(void **state)
{
    (void)state;
    struct plan p = mixed_plan();
    struct outcome o;
    p.dtype = F32;
    p.optimizer = optimizers[0];
    p.hyper = p.optimizer->usual;
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s", err.text);
    ASSERT_ALL(train(&p, &o) == OK, "%s", err.text);
    const struct comparison *c = &o.comparison;
    ASSERT_ALL(test_rank != 0 || !c->failed, "%s %s on device %d at step %lld: error %.3g, bound %.3g", c->first_kind, c->first.tensor, c->first.rank,
               (long long)c->first.step, c->first.error, c->first.bound);
    ASSERT_ALL(test_rank != 0 || test_size == 1 || c->largest_error > 0, "fp32 on several devices equals the reference to the last bit: is it compared at all?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_mesh_gpipe_untied_dropout),
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_same_plan_same_bits),
        MPI_TEST(test_fp32_within_measured_bound),
    };
    return MPI_RUN("trainer", tests);
}
