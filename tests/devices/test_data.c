/* Data-parallel schemes: the same bits whoever keeps what, on every mesh; traffic by link level; memory as published.
 * ranks: 3 4
 * verify ranks: 1 2 5 6 8
 *
 * That each agrees with one device, and that messages, bytes, additions and memory equal their formulas, is part of
 * every case (verify/cases/case.h).
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/case.h"
#include "tests/tier.h"

static struct error err;

/* Of the main test; the others vary it, and are shorter. */
enum { MANY_STEPS = 20, FEW_STEPS = 3 };

/* AdamW, which clips by the global norm, with the default algorithms. */
static struct plan adam_plan(int dp, int tp, int pp, enum dtype dtype, int micros)
{
    struct plan p = case_plan(dp, tp, pp);
    p.model.L = pp;
    p.B = 2 * dp + 1, p.S = 3;                                          /* uneven */
    p.model.tied = false;
    p.dtype = dtype;
    p.micros = micros;
    p.optimizer = optimizers[0];
    p.hyper = p.optimizer->usual;
    p.hyper.clip = 0.1;                                                 /* the norm is larger */
    return p;
}

static uint64_t bits_of(struct plan *p, const char *scheme, int group, int steps)
{
    uint64_t hash = 0;
    p->data.scheme = scheme;
    p->data.group = group;
    ASSERT_ALL(plan_check(p, &err) == OK, "%s: refused: %s", scheme, err.text);
    ASSERT_ALL(case_train(p, steps, &hash, NULL, &err) == OK, "%s: %s", scheme, err.text);
    return hash;
}

static void same_bits(struct plan *p, const char *const schemes[], int group, int steps)
{
    const uint64_t first = bits_of(p, schemes[0], group, steps);
    for (int i = 1; schemes[i]; i++) {
        const uint64_t other = bits_of(p, schemes[i], group, steps);
        ASSERT_ALL(test_rank != 0 || other == first,
                   "dp=%d tp=%d pp=%d %s M=%d group %d: weights of %s have other bits than those of %s",
                   p->mesh.size[DP], p->mesh.size[TP], p->mesh.size[PP], dtype_name(p->dtype), p->micros, group,
                   schemes[i], schemes[0]);
    }
}

static const char *const flat[] = { "ddp", "zero1", "zero1-overlap", "zero2", "zero3", "fsdp", "fsdp-once", NULL };

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void test_same_gradients_in_same_weights_out(void **state)
{
    (void)state;
    for (enum dtype t = F32; t <= F64; t++) {
        struct plan p = adam_plan(test_size, 1, 1, t, 1);
        same_bits(&p, flat, 0, t == F32 && test_size % 2 == 0 ? MANY_STEPS : FEW_STEPS);
    }
}

/* Nine heads on two devices, 61 tokens on two or three: what tp does not cut lies in another place
 * of each device's buckets. */
static void test_with_tensor_and_pipeline(void **state)
{
    (void)state;
    if (test_size == 4 || test_size == 6) {
        struct plan tp = adam_plan(test_size / 2, 2, 1, F32, 1), pp = adam_plan(test_size / 2, 1, 2, F32, 1);
        tp.model.tied = pp.model.tied = true;
        same_bits(&tp, flat, 0, FEW_STEPS);
        same_bits(&pp, flat, 0, FEW_STEPS);
    }
    if (test_size == 6) {
        struct plan narrow = adam_plan(2, 3, 1, F32, 1);
        same_bits(&narrow, flat, 0, FEW_STEPS);
    }
    if (test_size == 8) {
        struct plan all = adam_plan(2, 2, 2, F32, 1);
        same_bits(&all, flat, 0, MANY_STEPS);
    }
}

/* A tied embedding's two uses of one microbatch are one sum in every scheme;
 * SGD shows the last bit of every gradient. */
static void test_with_a_tied_embedding(void **state)
{
    (void)state;
    struct plan adam = adam_plan(test_size, 1, 1, F32, 1), sgd = adam;
    adam.model.tied = sgd.model.tied = true;
    (void)optimizer_find(&sgd.optimizer, "sgd", NULL);
    sgd.hyper = (struct hyperparameters){ .lr = 0.05, .clip = 0.1 };
    same_bits(&adam, flat, 0, FEW_STEPS);
    same_bits(&sgd, flat, 0, FEW_STEPS);
    struct plan narrow = adam_plan(test_size, 1, 1, BF16, 1);
    narrow.data.narrow_gradients = true;
    same_bits(&narrow, flat, 0, FEW_STEPS);
}

/* From one element at a time to everything at once.  With two microbatches, each scheme beside itself. */
static void test_any_bucket(void **state)
{
    static const int64_t size[] = { 4, 5000, 40000, 1 << 30 };          /* less than a unit, than some, than two; all */
    (void)state;
    for (int micros = 1; micros <= 2; micros++) {
        const bool tp = test_size % 2 == 0 && test_size > 2;
        struct plan p = adam_plan(tp ? test_size / 2 : test_size, tp ? 2 : 1, 1, F32, micros);
        p.model.tied = true;
        for (int i = 0; i < 4; i++) {                                   /* of flat[], those that have buckets */
            p.data.bucket = 1000;
            const uint64_t want = bits_of(&p, flat[i], 0, FEW_STEPS);
            for (int k = 0; k < 4; k++) {
                if (i == 0 && k == 0) continue;                       /* ddp would send every element by itself: slow */
                p.data.bucket = size[k];
                const uint64_t got = bits_of(&p, flat[i], 0, FEW_STEPS);
                ASSERT_ALL(test_rank != 0 || got == want,
                           "%s, %d microbatches: weights have other bits with --bucket %lld than with 1000", flat[i],
                           micros, (long long)size[k]);
            }
        }
    }
}

/* Gradients kept whole add up over microbatches first, those in shards over devices first. */
static void test_microbatches_add_up_in_two_orders(void **state)
{
    static const char *const whole[] = { "ddp", "zero1", "zero1-overlap", "fsdp-once", NULL };
    static const char *const in_shards[] = { "zero2", "zero3", "fsdp", NULL };
    (void)state;
    struct plan micro = adam_plan(test_size, 1, 1, F32, 2);
    micro.model.tied = true;
    same_bits(&micro, whole, 0, FEW_STEPS);
    same_bits(&micro, in_shards, 0, FEW_STEPS);
    const uint64_t one = bits_of(&micro, "ddp", 0, FEW_STEPS), other = bits_of(&micro, "zero2", 0, FEW_STEPS);
    ASSERT_ALL(test_rank != 0 || test_size < 3 || one != other,
               "sums in two orders have the same bits: this test would see nothing");
}

/* Within groups, then across them: the same tree for all that have the same groups. */
static void test_groups_add_up_in_a_tree(void **state)
{
    static const char *const by_group[] = { "hsdp", "mics", "hpz", "zero1", "zero1-overlap", "zero2", "fsdp-once",
                                            NULL };
    (void)state;
    for (int N = 2; N < test_size; N++) {
        if (test_size % N != 0) continue;
        struct plan p = adam_plan(test_size, 1, 1, F32, 1);
        same_bits(&p, by_group, N, FEW_STEPS);
    }
    if (test_size != 4 && test_size != 8) return;
    struct plan p = adam_plan(test_size, 1, 1, F32, 1);                 /* ((0+1) + (2+3)) + .., in ddp too */
    p.allreduce = "doubling";
    const uint64_t doubling = bits_of(&p, "ddp", 0, FEW_STEPS), in_pairs = bits_of(&p, "hsdp", 2, FEW_STEPS);
    ASSERT_ALL(test_rank != 0 || in_pairs == doubling,
               "hsdp in pairs has other bits than ddp, both with recursive doubling");
}

/* How weights are gathered, and when, changes nothing but time and memory. */
static void test_gathering_permutes(void **state)
{
    (void)state;
    struct plan p = adam_plan(test_size, 1, 1, F32, 1);
    const uint64_t plain = bits_of(&p, "zero3", 0, FEW_STEPS);
    for (int i = 1; i < 4; i++) {
        p.data.keep = i & 1, p.data.no_prefetch = i & 2;
        const uint64_t other = bits_of(&p, "zero3", 0, FEW_STEPS);
        ASSERT_ALL(test_rank != 0 || other == plain, "reshard %d, prefetch %d: other bits", !p.data.keep,
                   !p.data.no_prefetch);
    }
}

/* ---- the norm ---------------------------------------------------------------------------------------------------- */

/* Every parameter counts once: tied ones, copies along dp and tp, and pieces of shards. */
static void test_norm_counts_everything_once(void **state)
{
    (void)state;
    struct step_result want = { 0 }, got;
    uint64_t hash;
    struct plan p = test_size == 8       ? adam_plan(2, 2, 2, F64, 1)
                    : test_size % 2 == 0 ? adam_plan(test_size / 2, 2, 1, F64, 1)
                                         : adam_plan(test_size, 1, 1, F64, 1);
    p.model.tied = true;
    for (int i = 0; flat[i]; i++) {
        p.data.scheme = flat[i];
        ASSERT_ALL(plan_check(&p, &err) == OK && case_train(&p, 3, &hash, &got, &err) == OK, "%s", err.text);
        if (i == 0) want = got;
        ASSERT_ALL(got.norm == want.norm && want.norm > 0.1, "%s: norm %.17g, ddp's is %.17g", flat[i], got.norm,
                   want.norm);
        ASSERT_ALL(got.loss == want.loss, "%s: loss %.17g, ddp's is %.17g", flat[i], got.loss, want.loss);
    }
}

/* ---- with every schedule ----------------------------------------------------------------------------------------- */

/* Weights come and go, gradients are scattered, in whatever order a schedule asks for them. */
static void test_with_every_schedule(void **state)
{
    static const char *const schemes[] = { "zero1", "zero1-overlap", "zero2", "zero3", "fsdp", "fsdp-once" };
    int trained = 0;
    (void)state;
    if (test_size != 4) return;
    for (int i = 0; schedule_generator_at(i); i++) {
        struct plan p = case_plan(2, 1, 2);
        if (!tier_takes(i, 2)) continue;
        struct outcome o;
        p.data.scheme = schemes[i % 6];
        p.data.keep = i % 3 == 1, p.data.no_prefetch = i % 5 == 2;
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) != OK) continue;
        ASSERT_ALL(case_run(&p, &o, &err) == OK, "%s, %s: %s", p.schedule, p.data.scheme, err.text);
        ASSERT_ALL(o.verdict.code == OK, "%s, %s: %s", p.schedule, p.data.scheme, o.verdict.text);
        trained++;
    }
    ASSERT_ALL(trained >= (tier_now() == TIER_VERIFY ? 10 : 5), "only %d schedules could be trained with", trained);
}

/* Steps inside the schedule, and two versions of the weights: as far as they are whole. */
static void test_steps_in_mid_stream(void **state)
{
    static const char *const schemes[] = { "zero1", "zero2" };
    (void)state;
    if (test_size != 4) return;
    for (int i = 0; i < 2; i++) {
        struct plan p = case_plan(2, 1, 2);
        struct outcome o;
        p.schedule = "pipedream-2bw", p.micros = 6, p.hyper.clip = 0;
        p.data.scheme = schemes[i];
        ASSERT_ALL(plan_check(&p, &err) == OK && p.updates > 1, "%s", err.text);
        ASSERT_ALL(case_run(&p, &o, &err) == OK, "%s", err.text);
        ASSERT_ALL(o.verdict.code == OK, "pipedream-2bw, %s: %s", p.data.scheme, o.verdict.text);
        p.data.scheme = "zero3";
        ASSERT_ALL(plan_check(&p, &err) == ERR_PLAN && strstr(err.text, "two versions"), "zero3 with 2bw: %s",
                   err.text);
    }
}

static void test_keeping_and_not_prefetching_is_counted(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i++) {
        struct plan p = case_plan(test_size, 1, 1);
        struct outcome o;
        p.data = (struct data_request){ .scheme = "zero3", .bucket = 1, .keep = i & 1, .no_prefetch = i & 2 };
        ASSERT_ALL(plan_check(&p, &err) == OK && case_run(&p, &o, &err) == OK, "%s", err.text);
        ASSERT_ALL(o.verdict.code == OK, "reshard %d, prefetch %d: %s", !p.data.keep, !p.data.no_prefetch,
                   o.verdict.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_same_gradients_in_same_weights_out),
        MPI_TEST(test_with_tensor_and_pipeline),
        MPI_TEST(test_with_a_tied_embedding),
        MPI_TEST(test_any_bucket),
        MPI_TEST(test_microbatches_add_up_in_two_orders),
        MPI_TEST(test_groups_add_up_in_a_tree),
        MPI_TEST(test_gathering_permutes),
        MPI_TEST(test_norm_counts_everything_once),
        MPI_TEST(test_with_every_schedule),
        MPI_TEST(test_steps_in_mid_stream),
        MPI_TEST(test_keeping_and_not_prefetching_is_counted),
    };
    return MPI_RUN("data", tests);
}
