/* Models of which only a part trains: classes of parameters, stages with encoders, low-rank adapters.  Three steps
 * equal one device on every mesh, memory and bytes equal their formulas; what does not train keeps its bits and costs
 * no gradient, no state and no message.
 * ranks: 2 4
 * verify ranks: 1 3 6 8
 */
#include "emulated_devices/model/collect.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/adapters.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/trained.h"
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include <stdlib.h>

static void take_adam(struct plan *p)
{
    const struct optimizer *adam;
    assert_int_equal(optimizer_find(&adam, "adamw", &err), OK);
    case_take_optimizer(p, adam, 1);
}

static void take_adapters(struct plan *p, int64_t rank)
{
    const bool mixture = p->model.mlp == MLP_MIXTURE;
    p->model.adapters = (struct adapters_config){ rank, 2.5, LOW_ON_ATTENTION | (mixture ? LOW_ON_EXPERTS
                                                                                         : LOW_ON_FEED) };
    p->model.trains = 1u << CLASS_ADAPTERS;
}

/* A Uni-MoE's three stages: connectors; experts; adapters of the mixture and connectors.  0: all trains. */
static struct plan stage_of(int stage, int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_mixtral(&p);
    p.model.mixture.capacity_factor = p.model.mixture.sequence_coefficient = 0;
    p.encoders = (struct encoder_request){ .kinds = MODALITIES, .placement = ENCODERS_APART, .chunks = 2, .slack = 50 };
    if (stage == 1) p.model.trains = 1u << CLASS_ENCODERS;
    if (stage == 2) p.model.trains = 1u << CLASS_EXPERTS | 1u << CLASS_ROUTERS;
    if (stage == 3) take_adapters(&p, 2), p.model.trains |= 1u << CLASS_ENCODERS;
    return p;
}

/* ---- meshes ------------------------------------------------------------------------------------------------------ */

static void test_stages_on_meshes(void **state)
{
    int n = 0;
    (void)state;
    FOR_MESHES(dp, tp, pp)
        for (int stage = 1; stage <= 3; stage++) {
            struct plan p = stage_of(stage, dp, tp, pp);
            if (++n % 2) take_adam(&p);
            if (in_verify() || n % 3 == stage % 3) check_if_taken(p);
        }
}

/* All ways to cut matrices, of which some cut them in two directions, or have copies of pieces. */
static void test_adapters_with_tensor_schemes(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i); i++) {
        struct plan p = case_plan(1, test_size, 1);
        if (i % 2) case_take_llama(&p);
        take_adapters(&p, 3), take_adam(&p);
        p.tensor = tensor_scheme_at(i)->head.name;
        if (in_verify() || i % 4 == 0 || test_size == 2) check_if_taken(p);
    }
}

static void test_data_schemes(void **state)
{
    static const char *const schemes[] = { "zero1", "zero2", "zero3", "fsdp", "hsdp", "fsdp-once" };
    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        struct plan p = case_plan(test_size, 1, 1);
        if (i % 2) case_take_llama(&p);
        p.data.scheme = schemes[i];
        if (i == 4 && test_size % 2 == 0) p.data.group = 2;
        if (i == 2 || i == 1) take_adapters(&p, 2), p.micros = 2;
        else p.model.trains = 1u << (i % 2 ? CLASS_NORMS : CLASS_ATTENTION) | 1u << CLASS_HEAD;
        take_adam(&p);
        check_if_taken(p);
    }
}

static void test_experts_apart(void **state)
{
    static const char *const dispatch[] = { "alltoall", "two-step", "allgather" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = case_plan(1, test_size, 1);
        case_take_mixtral(&p);
        case_take_experts(&p, test_size, dispatch[i]);
        take_adapters(&p, 2);
        if (i == 1 && test_size % 2 == 0) p.ep = test_size / 2, p.etp = 2;
        if (i == 2) p.model.adapters = (struct adapters_config){ 0 }, p.model.trains = 1u << CLASS_EXPERTS;
        if (in_verify() || i < 2) check_if_taken(p);
    }
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

static int64_t elements(const struct model_config *c, bool trained)
{
    int64_t n = 0;
    for (int i = 0; i < model_param_count(c); i++) {
        const struct param_spec s = model_param(c, i);
        if (param_trains(c, &s) == trained) n += s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
    }
    return n;
}

/* With ddp a device keeps all weights, and gradients and Adam's two states of what trains; a plan says so, too. */
static void test_kept_bytes(void **state)
{
    (void)state;
    for (int lora = 0; lora < 2; lora++) {
        struct plan p = case_plan(test_size, 1, 1);
        struct plan_memory m;
        case_take_llama(&p);
        p.model.tied = false;
        if (lora) take_adapters(&p, 2);
        else p.model.trains = 1u << CLASS_FEED;
        take_adam(&p);
        assert_int_equal(plan_check(&p, &err), OK);
        assert_int_equal(plan_memory(&p, test_rank, 0, &m, &err), OK);
        const int64_t train = elements(&p.model, true), still = elements(&p.model, false);
        assert_true(train > 0 && still > 0);
        ASSERT_ALL(m.peak.tag[GRADIENTS] == 8 * (uint64_t)train && m.peak.tag[OPTIMIZER] == 16 * (uint64_t)train &&
                   m.peak.tag[PARAMETERS] == 8 * (uint64_t)(train + still),
                   "a device keeps %llu, %llu and %llu bytes of weights, gradients and states; %lld numbers train, "
                   "%lld do not", (unsigned long long)m.peak.tag[PARAMETERS], (unsigned long long)m.peak.tag[GRADIENTS],
                   (unsigned long long)m.peak.tag[OPTIMIZER], (long long)train, (long long)still);
    }
}

/* The all-reduce is of what trains alone: a ring sends 2 (P-1)/P of it. */
static void test_sent_bytes(void **state)
{
    (void)state;
    struct plan p = case_plan(test_size, 1, 1);
    case_take_llama(&p);
    take_adapters(&p, 2), p.allreduce = "ring";
    struct session s;
    session_open(&s, &p, (struct batch_source){ fill_counting, &p });
    const struct account a = trainer_cost(&s.trainer, TRAFFIC_DATA);
    const double bytes = (double)account_total(&a).bytes_sent,
                 want = 8.0 * 2 * (test_size - 1) / test_size * (double)elements(&p.model, true);
    ASSERT_ALL(bytes >= want - 64 * test_size && bytes <= want + 64 * test_size, "%g bytes are sent; of what trains "
               "%g", bytes, want);
    session_close(&s);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* After three steps what does not train has the bits that were drawn, and what trains has others. */
static void test_bits_stay(void **state)
{
    (void)state;
    struct plan p = stage_of(3, test_size, 1, 1);
    struct session s;
    int moved = 0;
    take_adam(&p);
    p.data.scheme = "zero3";
    session_open(&s, &p, (struct batch_source){ fill_counting, &p });
    for (int step = 0; step < 3; step++) session_step(&s);
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec spec = model_param(&p.model, i);
        struct tensor now = tensor_2d(calloc((size_t)(spec.dim[0] * (spec.ndim == 2 ? spec.dim[1] : 1)) + 1, 16),
                                      p.dtype, spec.dim[0], spec.ndim == 2 ? spec.dim[1] : 1);
        assert_non_null(now.data);
        collect_whole(&s.trainer, i, KIND_WEIGHT, now);
        const int64_t n = tensor_count(now);
        char *const drawn = (char *)now.data + tensor_bytes(now);
        param_init(&spec, p.seed, p.dtype, 0, n, drawn);
        const bool same = memcmp(now.data, drawn, tensor_bytes(now)) == 0;
        ASSERT_ALL(test_rank > 0 || param_trains(&p.model, &spec) || same,
                   "%s does not train, and has other bits than it began with", spec.name);
        moved += param_trains(&p.model, &spec) && !same;
        free(now.data);
    }
    ASSERT_ALL(test_rank > 0 || moved > 0, "%d adapters have moved", moved);
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_stages_on_meshes), MPI_TEST(test_adapters_with_tensor_schemes),
                                        MPI_TEST(test_data_schemes), MPI_TEST(test_experts_apart),
                                        MPI_TEST(test_kept_bytes), MPI_TEST(test_sent_bytes),
                                        MPI_TEST(test_bits_stay) };
    return MPI_RUN("trained parts", tests);
}
