/* Training without a backward pass: every form on meshes with every axis, the same bits, no gradients, two numbers
 * shared.
 * ranks: 2 6 8
 *
 * That losses, slope and weights agree with one device, and that messages, bytes, additions and memory equal their
 * formulas, is part of every case (verify/cases/case.h).
 */
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include "ref/model/mezo.h"
#include "ref/model/params.h"
#include <stdlib.h>
#include <string.h>

static struct plan mezo_plan(int dp, int tp, int pp, int sides)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_mezo(&p, sides);
    return p;
}

/* On both sides the same dropout, by any schedule's forwards:
 * 1f1b's, two stages on a device, two copies of each stage. */
static void test_with_every_axis(void **state)
{
    static const char *const schedules[] = { "1f1b", "interleaved", "chimera" };
    (void)state;
    for (int i = 0; i < 3 && test_size == 8; i++) {
        struct plan p = mezo_plan(2, 2, 2, 2);
        p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
        p.model.tied = i > 0;
        p.model.L = 5;
        ASSERT_ALL(case_take_schedule(&p, schedules[i], &err) == OK, "%s", err.text);
        if (i > 0) p.data.scheme = "zero3";
        check(&p);
    }
    if (test_size != 6) return;
    struct plan uneven = mezo_plan(6, 1, 1, 2), llama = mezo_plan(2, 3, 1, 2), rows = mezo_plan(3, 2, 1, 1);
    uneven.micros = 3;
    check(&uneven);
    case_take_llama(&llama);
    check(&llama);
    rows.data.scheme = "fsdp";
    rows.tensor = "1d-sp";
    check(&rows);
}

/* Weights whole, in flat shards, in shards by rows, in groups; gathered ahead or not:
 * the same numbers, moved in the same way. */
static void test_whoever_keeps_weights_same_bits(void **state)
{
    static const struct {
        const char *scheme;
        bool no_prefetch;
    } kept[] = { { "ddp", false }, { "zero3", false }, { "zero3", true }, { "fsdp", false } };
    uint64_t first = 0, hash = 0;
    (void)state;
    for (enum dtype t = F32; t <= F64; t++)
        for (int i = 0; i < 4; i++) {
            struct plan p = mezo_plan(test_size, 1, 1, 2);
            p.dtype = t;
            p.data.scheme = kept[i].scheme, p.data.no_prefetch = kept[i].no_prefetch;
            ASSERT_ALL(plan_check(&p, &err) == OK && case_train(&p, 5, &hash, NULL, &err) == OK, "%s", err.text);
            if (i == 0) first = hash;
            ASSERT_ALL(test_rank != 0 || hash == first, "%s: weights of %s have other bits than those of ddp",
                       dtype_name(t), kept[i].scheme);
        }
}

/* ---- one device -------------------------------------------------------------------------------------------------- */

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    (void)within;
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        const int64_t at = first * p->S + i;
        ids[i] = (int32_t)((step + 3 * at) % p->model.V);
        labels[i] = at % 8 == 5 ? IGNORE_LABEL : (int32_t)(7 * at % p->model.V);
    }
}

/* The rule as ref/model/mezo.h has it, and nothing else. */
static void train_serial(struct transformer *m, const struct plan *p, int steps)
{
    int32_t *ids = calloc((size_t)(2 * p->B * p->S), sizeof *ids), *labels = ids + p->B * p->S;
    assert_non_null(ids);
    for (int s = 0; s < steps; s++) {
        double loss[2];
        const uint64_t key = mezo_key(p->seed, s);
        fill(p, s, 0, p->B, ids, labels, NULL);
        for (int side = 0; side < 2; side++)
            assert_int_equal(transformer_loss_along(m, key, side ? -p->hyper.distance : p->hyper.distance, ids, labels,
                                                    p->B, p->S, &loss[side], &err),
                             OK);
        transformer_gradients_along(m, key, mezo_slope(loss, p->hyper.distance));
        const struct step step = { .lr = p->hyper.lr, .t = s + 1, .gradient_scale = 1, .hyper = &p->hyper };
        for (int i = 0; i < m->params; i++) optimizer_step(p->optimizer, m->w[i], m->g[i], NULL, step);
    }
    free(ids);
}

/* ---- what is kept and sent --------------------------------------------------------------------------------------- */

static void train_steps(struct session *s, struct plan *p, int steps)
{
    session_open(s, p, (struct batch_source){ fill, p });
    for (int i = 0; i < steps; i++) session_step(s);
}

static uint64_t bytes_sent(const struct comm *c, enum traffic_kind kind)
{
    return ledger_kind(&c->counted, kind).bytes_sent;
}

/* Two devices that make a pass each, after fifty steps: every bit of every weight is the serial model's. */
static void test_two_sides_are_one_device(void **state)
{
    enum { STEPS = 50 };
    (void)state;
    if (test_size != 2) return;
    struct session s;
    struct transformer m = { .params = 0 };
    struct plan p = mezo_plan(2, 1, 1, 2);
    p.micros = 1;
    p.data.scheme = "zero3";
    p.hyper.steps = p.hyper.warmup = 0;
    train_steps(&s, &p, STEPS);
    if (test_rank == 0) {
        assert_int_equal(transformer_open(&m, &p.model, F64, p.seed, &err), OK);
        train_serial(&m, &p, STEPS);
    }
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec spec = model_param(&p.model, i);
        const size_t n = (size_t)(spec.dim[0] * (spec.ndim == 2 ? spec.dim[1] : 1));
        struct tensor whole = tensor_1d(calloc(n, sizeof(double)), F64, (int64_t)n);
        assert_non_null(whole.data);
        collect_whole(&s.trainer, i, KIND_WEIGHT, whole);
        ASSERT_ALL(test_rank != 0 || memcmp(whole.data, m.w[i].data, n * sizeof(double)) == 0,
                   "%s has other bits than the serial model's", spec.name);
        free(whole.data);
    }
    if (m.params) transformer_close(&m);
    session_close(&s);
}

/* Of a model of two layers and of one of six: no gradients, no optimizer state, one part moved,
 * and two losses to share. */
static void test_memory_and_traffic_without_gradients(void **state)
{
    enum { STEPS = 3 };
    (void)state;
    for (int64_t L = 2; L <= 6; L += 4) {
        struct session s;
        struct plan p = mezo_plan(test_size, 1, 1, 2);
        p.model.L = L;
        train_steps(&s, &p, STEPS);
        const struct arena *a = &s.device.arena;
        int64_t elements = 0, most = 0;
        for (int u = 0; u < s.trainer.data.units; u++) elements += s.trainer.data.unit[u].elements;
        for (int part = 0; part <= L + 1; part++) {
            int unit[2];
            int64_t n = 0;
            for (int k = 0, units = data_units_of(&p.model, part, unit); k < units; k++)
                n += s.trainer.data.unit[unit[k]].elements;
            if (n > most) most = n;
        }
        ASSERT_ALL(a->peak.tag[GRADIENTS] == 0 && a->peak.tag[OPTIMIZER] == 0,
                   "L=%lld: %llu bytes of gradients, %llu of optimizer state", (long long)L,
                   (unsigned long long)a->peak.tag[GRADIENTS], (unsigned long long)a->peak.tag[OPTIMIZER]);
        ASSERT_ALL(a->peak.tag[PARAMETERS] == (uint64_t)(elements + most) * 8,
                   "L=%lld: %llu bytes of weights; all and one part of them are %llu", (long long)L,
                   (unsigned long long)a->peak.tag[PARAMETERS], (unsigned long long)(elements + most) * 8);
        ASSERT_ALL(bytes_sent(&s.comm, TRAFFIC_DATA) == 0, "L=%lld: %llu bytes sent over dp", (long long)L,
                   (unsigned long long)bytes_sent(&s.comm, TRAFFIC_DATA));
        const uint64_t shared = bytes_sent(&s.comm, TRAFFIC_RESULT);
        ASSERT_ALL(shared <= STEPS * (16 + 2 * 16) && (test_size > 2 || shared == STEPS * 16),
                   "L=%lld: %llu bytes sent to share losses", (long long)L, (unsigned long long)shared);
        session_close(&s);
    }
}

/* Weights in shards: of a part each device has 1/P, and gets the rest from the others, once in its one pass. */
static void test_slices(void **state)
{
    (void)state;
    struct session s;
    struct plan p = mezo_plan(test_size, 1, 1, 2);
    p.model.tied = false;
    p.micros = 1;
    p.data.scheme = "zero3";
    train_steps(&s, &p, 1);
    uint64_t padded = 0;
    for (int u = 0; u < s.trainer.data.units; u++) padded += (uint64_t)s.trainer.data.unit[u].padded;
    const uint64_t P = (uint64_t)test_size, sent = bytes_sent(&s.comm, TRAFFIC_DATA);
    ASSERT_ALL(sent == padded / P * (P - 1) * 8, "%llu bytes sent; |B| (P-1)/P of all parts are %llu",
               (unsigned long long)sent, (unsigned long long)(padded / P * (P - 1) * 8));
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_with_every_axis),
        MPI_TEST(test_whoever_keeps_weights_same_bits),
        MPI_TEST(test_two_sides_are_one_device),
        MPI_TEST(test_memory_and_traffic_without_gradients),
        MPI_TEST(test_slices),
    };
    return MPI_RUN("mezo", tests);
}
