/* Inference on every mesh equals the one-device model, with weights in shards, on the slow tier, or on the device.
 * ranks: 1 3 4
 * verify ranks: 2 6 8
 *
 * Losses and activations in fp64 to 1e-12; messages, bytes and memory peaks by formula; weights do not change.
 */
#include "tests/devices/trained.h"

static struct plan inference(struct plan p)
{
    p.optimizer = &no_optimizer, p.hyper = no_optimizer.usual;
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) check_if_taken(inference(case_plan(dp, tp, pp)));
}

static void test_every_model(void **state)
{
    (void)state;
    for (int i = 0; case_model_at(i); i++) {
        if (!tier_takes(i + test_size, 3)) continue;
        struct plan p = inference(case_plan(test_size == 4 ? 2 : 1, test_size == 4 ? 2 : test_size, 1));
        case_model_at(i)->take(&p);
        check_if_taken(p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && (test_size == 3 || in_verify()); i++) {
        struct plan p = case_plan(test_size, 1, 1);
        case_take_data(&p, data_scheme_at(i));
        p = inference(p);
        check_if_taken(p);
    }
}

/* Where weights are changes no bit: losses are equal, and so are weights, which nobody steps. */
static void test_rings(void **state)
{
    (void)state;
    struct plan p = inference(case_plan(1, 1, test_size));
    p.model.L = 2 * test_size + 3;
    const double loss = check(&p).loss;
    for (int ring = 2; ring <= 5; ring++) {
        p.data.scheme = "zero3", p.data.offload = 1u << PARAMETERS, p.data.offload_slice = 64, p.data.ring = ring;
        const double own = check(&p).loss;
        ASSERT_ALL(own == loss, "ring of %d: loss %.17g, on the device %.17g", ring, own, loss);
    }
}

static void test_rings_of_shards_and_tiles(void **state)
{
    (void)state;
    struct plan p = inference(case_plan(test_size, 1, 1));
    p.model.L = 5, p.data.scheme = "zero3", p.data.offload = 1u << PARAMETERS, p.data.offload_slice = 64;
    p.data.ring = 4;
    check(&p);
    p.data.tiles = 3;
    check(&p);
}

/* A mixture whose experts alone are away, devices having different ones. */
static void test_experts_on_the_tier(void **state)
{
    (void)state;
    struct plan p = case_plan(test_size, 1, 1);
    case_take_mixtral(&p);
    case_take_experts(&p, test_size, test_size > 1 ? "alltoall" : "here");
    p = inference(p);
    p.data.scheme = "zero3", p.data.offload = 1u << PARAMETERS, p.data.offload_experts = true;
    p.data.offload_slice = 64, p.data.ring = 3;
    if (plan_check(&p, &err) == OK) check(&p);
    else ASSERT_ALL(test_size > 5, "%s", err.text);
}

/* What training steps with such a ring is what it steps without. */
static void test_a_ring_in_training(void **state)
{
    (void)state;
    struct plan p = case_plan(test_size, 1, 1);
    p.model.L = 4, p.data.scheme = "zero3", p.data.offload_slice = 64;
    p.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    const uint64_t hash = check(&p).hash;
    p.data.ring = 5;
    ASSERT_ALL(check(&p).hash == hash, "other bits than with a ring of 3");
}

static void test_16_bits(void **state)
{
    (void)state;
    if (test_size > 2) return;
    struct plan p = inference(case_plan(1, test_size, 1));
    p.dtype = BF16;
    check(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_model),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_rings),
        MPI_TEST(test_rings_of_shards_and_tiles),
        MPI_TEST(test_experts_on_the_tier),
        MPI_TEST(test_a_ring_in_training),
        MPI_TEST(test_16_bits),
    };
    return MPI_RUN("infer", tests);
}
