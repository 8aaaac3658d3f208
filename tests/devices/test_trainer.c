/* A model trained on every mesh of so many devices equals the one-device model.
 * tier: check
 * ranks: 1 2 3 4
 * verify ranks: 6 8
 *
 * Every factorisation into dp x tp x pp, in fp64, with a shape in which nothing divides: the loss, every gradient and
 * every weight of every device after each of three SGD steps without clipping (Adam and clipping would hide a constant
 * factor) agree with ref/ to 1e-12, norm over norm; and messages, bytes and additions equal their formulas.
 */
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include "emulated_devices/verify/reference/counts.h"
#include <string.h>

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* On 8 devices `make verify` tries every mesh, other tiers the one that splits all three axes: smaller groups have the
 * rest.  Of 4 devices `make check` takes what splits two. */
static bool in_sample(int dp, int tp, int pp)
{
    const int split = (dp > 1) + (tp > 1) + (pp > 1);
    return tier_now() == TIER_VERIFY || split >= (test_size == 8                               ? 3
                                                  : test_size == 4 && tier_now() == TIER_CHECK ? 2
                                                                                               : 0);
}

static void each_mesh(void (*f)(int dp, int tp, int pp))
{
    for (int dp = 1; dp <= test_size; dp++)
        for (int tp = 1; dp * tp <= test_size; tp++)
            if (test_size % (dp * tp) == 0 && in_sample(dp, tp, test_size / (dp * tp)))
                f(dp, tp, test_size / (dp * tp));
}

/* Where dp or tp has several devices, they have copies, and a case compares them. */
static void check_tied(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    const struct outcome o = check(&p);
    ASSERT_ALL(test_rank != 0 || dp * tp == 1 || o.copies_compared > 0, "dp=%d tp=%d pp=%d: no copies were compared",
               dp, tp, pp);
}

static void check_gpipe_untied_dropout(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    p.schedule = "gpipe";
    case_take_dropout(&p);
    p.micros = CASE_BATCH / dp < 3 ? CASE_BATCH / dp : 3;   /* of different numbers of sequences */
    check(&p);
}

static void test_every_mesh(void **state) { (void)state; each_mesh(check_tied); }
static void test_every_mesh_gpipe_untied_dropout(void **state) { (void)state; each_mesh(check_gpipe_untied_dropout); }

/* A mesh that uses all devices, with as many axes as it can. */
static struct plan mixed_plan(void)
{
    return test_size == 8   ? case_plan(2, 2, 2)
           : test_size == 6 ? case_plan(1, 3, 2)
           : test_size == 4 ? case_plan(2, 2, 1)
                            : case_plan(1, 1, test_size);
}

static void test_same_plan_same_bits(void **state)
{
    (void)state;
    struct outcome first, second;
    struct plan p = mixed_plan();
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s", err.text);
    ASSERT_ALL(case_run(&p, &first, &err) == OK && case_run(&p, &second, &err) == OK, "%s", err.text);
    ASSERT_ALL(first.hash == second.hash, "weights of the same plan run twice have other bits");
}

/* The seed of the comparison itself: with fp32 and AdamW, nothing but the measured bound. */
static void test_fp32_within_measured_bound(void **state)
{
    (void)state;
    struct plan p = mixed_plan();
    p.dtype = F32;
    p.optimizer = optimizers[0];
    p.hyper = p.optimizer->usual;
    const struct outcome o = check(&p);
    ASSERT_ALL(test_rank != 0 || test_size == 1 || o.comparison.largest.error > 0,
               "fp32 on several devices equals the reference to the last bit: is it compared at all?");
}

/* With dp = pp = 1 the tensor scheme and the sharing of losses talk over the same devices: each has a ledger of its
 * own, by operation and level.  A ledger that says something else is named by device, kind, operation and level. */
static void test_kinds_over_the_same_devices(void **state)
{
    struct session s;
    struct plan p = case_plan(1, test_size, 1);
    char want[200];
    (void)state;
    session_open(&s, &p, (struct batch_source){ fill_strided, &p });
    session_step(&s);
    ASSERT_ALL(traffic_check(&s.trainer, 1, &err) == OK, "%s", err.text);

    const struct traffic tensor = ledger_kind(&s.comm.counted, TRAFFIC_TENSOR),
                         shared = ledger_kind(&s.comm.counted, TRAFFIC_RESULT);
    ASSERT_ALL(memcmp(s.trainer.tp.member, s.trainer.result.along[0].member, sizeof(int) * (size_t)test_size) == 0,
               "the groups have other members");
    ASSERT_ALL(test_size == 1 || (tensor.messages_sent > 0 && shared.messages_sent > 0), "a kind has sent nothing");

    struct traffic *entered = &s.comm.expected.of[TRAFFIC_TENSOR].of[ALLREDUCE];
    entered->level[0].bytes++;
    snprintf(want, sizeof want, "device %d, tensor allreduce over links of level ", test_rank);
    ASSERT_ALL(traffic_check(&s.trainer, 1, &err) == ERR_CHECK && strstr(err.text, want) == err.text,
               "one byte more at a level: %s", err.text);
    entered->level[0].bytes--, entered->additions++;
    snprintf(want, sizeof want, "device %d, tensor allreduce: counted ", test_rank);
    ASSERT_ALL(traffic_check(&s.trainer, 1, &err) == ERR_CHECK && strstr(err.text, want) == err.text,
               "one addition more: %s", err.text);
    entered->additions--, s.comm.counted.of[TRAFFIC_DATA].of[ALLGATHER].messages_sent++;
    snprintf(want, sizeof want, "device %d, data allgather: counted 1 messages", test_rank);
    ASSERT_ALL(traffic_check(&s.trainer, 1, &err) == ERR_CHECK && strstr(err.text, want) == err.text,
               "a message of another kind: %s", err.text);
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_mesh_gpipe_untied_dropout),
        MPI_TEST(test_same_plan_same_bits),
        MPI_TEST(test_kinds_over_the_same_devices),
        MPI_TEST(test_fp32_within_measured_bound),
    };
    return MPI_RUN("trainer", tests);
}
