/* Experts on a slow tier (--offload experts): the same bits as without, and all else stays on the device.
 * ranks: 2
 * verify ranks: 1 3 4 6 8
 *
 * That each agrees with one device, and that reads, writes, messages and memory equal their formulas, is part of every
 * case (verify/cases/case.h).
 */
#include "ref/model/params.h"
#include "tests/mpi_cmocka.h"
#include "tests/tier.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/output.h"

static struct error err;
static struct outcome o;

enum { ALL = 1 << PARAMETERS | 1 << GRADIENTS | 1 << OPTIMIZER };

static struct plan mixture_plan(int dp, int tp, int pp, const char *scheme)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_mixtral(&p);
    p.data.scheme = scheme;
    p.data.offload_slice = 100;
    return p;
}

/* @return the whole model's bits, on rank 0. */
static uint64_t checked(struct plan *p, const char *what)
{
    ASSERT_ALL(plan_check(p, &err) == OK, "%s: refused: %s", what, err.text);
    ASSERT_ALL(case_run(p, &o, &err) == OK, "%s: %s", what, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s: %s", what, o.verdict.text);
    return o.whole_hash;
}

/* The resident run, all on the tier, only experts: equal bits.  The device holds least of all with all on the tier, and
 * less with experts there than with nothing. */
static void compare(struct plan p, unsigned what)
{
    const uint64_t plain = checked(&p, "resident");
    const uint64_t resident = o.model_state;
    p.data.offload = what;
    uint64_t all = 0;
    if (plan_check(&p, &err) == OK) {
        ASSERT_ALL(checked(&p, "all on the tier") == plain || test_rank != 0, "all on the tier: other bits");
        all = o.model_state;
    }
    p.data.offload_experts = true;
    /* a stage of one layer needs all at once; with more devices than experts some have none */
    const bool smaller = p.mesh.size[PP] == 1 && p.ep <= p.model.mixture.E;
    const uint64_t bits = checked(&p, "experts on the tier");
    ASSERT_ALL(test_rank != 0 || bits == plain, "%s, ep=%d %s: experts on the tier: other bits than without",
               p.data.scheme, p.ep, p.dispatch);
    ASSERT_ALL((o.model_state < resident || !smaller) && o.model_state >= all,
               "%s: the device holds %llu bytes of weights, gradients and state; resident %llu, all on the tier %llu",
               p.data.scheme, (unsigned long long)o.model_state, (unsigned long long)resident,
               (unsigned long long)all);
}

static void test_each_class(void **state)
{
    (void)state;
    if (test_size > 2) return;
    for (unsigned what = tier_now() == TIER_VERIFY ? 1 : 7; what < 8; what++) {
        struct plan p = mixture_plan(test_size, 1, 1, "zero3");
        ASSERT_ALL(optimizer_find(&p.optimizer, "momentum", &err) == OK, "%s", err.text);
        p.hyper = p.optimizer->usual, p.hyper.clip = 0;
        compare(p, (what & 1 ? 1 << OPTIMIZER : 0) | (what & 2 ? 1 << GRADIENTS : 0) |
                       (what & 4 ? 1 << PARAMETERS : 0));
    }
}

/* Attention's weights are shared by all devices, experts by those of a copy; some have no expert. */
static void test_experts_apart(void **state)
{
    (void)state;
    if (test_size == 1) return;
    for (int ep = 2; ep <= test_size; ep++) {
        if (test_size % ep != 0) continue;
        struct plan p = mixture_plan(test_size, 1, 1, "zero3");
        case_take_experts(&p, ep, "alltoall");
        compare(p, ALL);
    }
}

static void test_with_tensor_and_pipeline(void **state)
{
    (void)state;
    if (test_size % 2 != 0 || tier_now() != TIER_VERIFY) return;
    struct plan p = mixture_plan(test_size / 2, 2, 1, "fsdp");
    compare(p, ALL);
    p = mixture_plan(test_size / 2, 1, 2, "zero3");
    compare(p, ALL);
}

static void test_a_file(void **state)
{
    (void)state;
    if (test_size != 2 || tier_now() != TIER_VERIFY) return;
    struct plan p = mixture_plan(2, 1, 1, "zero3");
    p.data.offload_to = temporary_folder();
    compare(p, ALL);
    p.dtype = BF16;
    compare(p, ALL);
}

/* The host keeps nothing of the file, some, or all of it. */
static void test_a_host_that_keeps_experts(void **state)
{
    static const char *const schemes[] = { "zero3", "fsdp" };           /* fsdp pads each parameter */
    (void)state;
    if (test_size != 2) return;
    for (int i = tier_now() == TIER_VERIFY ? 0 : 1; i < 2; i++) {
        struct plan p = mixture_plan(2, 1, 1, schemes[i]);
        const uint64_t plain = checked(&p, "resident");
        p.data.offload = ALL, p.data.offload_experts = i == 1, p.data.offload_to = temporary_folder();
        for (uint64_t room = 1; room <= 1 << 30; room <<= 15) {
            p.data.host_cache = room;
            ASSERT_ALL(checked(&p, "with a cache") == plain || test_rank != 0, "%s, a cache of %llu bytes: other bits",
                       schemes[i], (unsigned long long)room);
        }
    }
}

/* Experts of which two devices have copies have other bits with gradients in shards: these are added up after each
 * microbatch, not after the last.  Local: the plans are of four devices. */
static void test_the_order_of_sums(void **state)
{
    (void)state;
    for (int ep = 2; ep <= 4; ep += 2) {
        uint64_t key[2];
        for (int shards = 0; shards < 2; shards++) {
            struct plan p = mixture_plan(1, 4, 1, shards ? "zero3" : "ddp");
            case_take_experts(&p, ep, "alltoall");
            ASSERT_ALL(plan_check(&p, &err) == OK && case_bits_key(&p, &key[shards], &err) == OK, "%s", err.text);
        }
        ASSERT_ALL((key[0] == key[1]) == (ep == 4), "ep=%d: shards %s to add in the same order", ep,
                   ep == 4 ? "do not seem" : "seem");
    }
}

/* ---- three memories ---------------------------------------------------------------------------------------------- */

/* Numbers of all dense parameters and of all experts', and of the largest dense part. */
struct numbers { uint64_t dense, experts, part; };

static struct numbers numbers_of(const struct model_config *c)
{
    struct numbers n = { 0 };
    uint64_t part[64] = { 0 };
    for (int i = 0; i < model_param_count(c); i++) {
        const struct param_spec s = model_param(c, i);
        const uint64_t all = (uint64_t)(s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1));
        if (s.expert >= 0) n.experts += all;
        else n.dense += all, part[s.layer + 1] += all;
    }
    for (int i = 0; i < 64; i++) n.part = part[i] > n.part ? part[i] : n.part;
    return n;
}

/* D dense numbers and S of experts in L layers on P devices, with 2 bytes of a weight and of a gradient, and 12 of
 * master and two states.  The paper has 16 D + 4 a S / L <= M P on devices, 16 a S <= M P on hosts, 12 S <= M P on
 * drives;
 * a is the part of experts that are in use.  Here a is 1, weights of the next layer are on the device too, and weights
 * and gradients are on the drive as well: 16 S. */
static void test_three_memories(void **state)
{
    enum { SLICE = 100, UNITS = 16 };
    (void)state;
    for (int offload = 0; offload < 2; offload++) {
        struct plan p = mixture_plan(test_size, 1, 1, "zero3");
        p.model.L = 4;
        p.dtype = BF16, p.data.narrow_gradients = true;
        ASSERT_ALL(optimizer_find(&p.optimizer, "adamw", &err) == OK, "%s", err.text);
        p.hyper = p.optimizer->usual, p.hyper.clip = 0;
        p.data.offload = offload ? ALL : 0, p.data.offload_experts = offload, p.data.offload_slice = SLICE;
        const struct numbers n = numbers_of(&p.model);
        const uint64_t P = (uint64_t)test_size, D = n.dense, S = n.experts, L = (uint64_t)p.model.L;
        checked(&p, "three memories");
        const uint64_t padding = 16 * UNITS * P, dense = 16 * D / P + (2 * 2 + 2) * n.part,
                       experts = (2 * 2 + 2) * S / L + (2 * 2 + 2) * S / L / P, step = 3 * SLICE * 16;
        ASSERT_ALL(!offload || (o.model_state >= 16 * D / P && o.model_state <= dense + experts + step + padding),
                   "the device holds %llu bytes, want 16 D / P = %llu and at most %llu + %llu + %llu",
                   (unsigned long long)o.model_state, (unsigned long long)(16 * D / P), (unsigned long long)dense,
                   (unsigned long long)experts, (unsigned long long)step);
        ASSERT_ALL(offload || o.model_state >= 16 * (D + S) / P,
                   "resident: %llu bytes, want at least 16 (D + S) / P = %llu",
                   (unsigned long long)o.model_state, (unsigned long long)(16 * (D + S) / P));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_each_class),
        MPI_TEST(test_experts_apart),
        MPI_TEST(test_with_tensor_and_pipeline),
        MPI_TEST(test_a_file),
        MPI_TEST(test_a_host_that_keeps_experts),
        MPI_TEST(test_the_order_of_sums),
        MPI_TEST(test_three_memories),
    };
    return MPI_RUN("offload_experts", tests);
}
