/* A Llama on every mesh equals the one-device model, with fewer key/value heads than devices and with more.
 * ranks: 1 4
 * verify ranks: 3 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  Where key/value heads have copies, their gradients are sums over the copies, and count once in the
 * norm.
 */
#include "ref/model/kinds.h"
#include "tests/devices/trained.h"

static struct plan llama(int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_llama(&p);
    p.tensor = tensor;
    return p;
}

/* Every mesh of this many devices that a scheme takes. */
static void each_mesh(const char *tensor, void (*f)(struct plan))
{
    FOR_MESHES(dp, tp, pp) {
        struct plan p = llama(dp, tp, pp, tensor);
        if (plan_check(&p, &err) == OK) f(p);
    }
}

static void tied(struct plan p)
{
    if (p.mesh.size[PP] < 4 && p.mesh.size[DP] < 4) check(&p);
}

static void untied_dropout(struct plan p)
{
    if (p.mesh.size[PP] > 2 || p.mesh.size[DP] > 2) return;
    case_take_dropout(&p);
    p.recompute = "full";
    check(&p);
}

/* Below `make verify` 8 devices have only what fits on no fewer: schemes that need a cube of them. */
static bool in_sample(void) { return tier_now() == TIER_VERIFY || test_size < 8; }
static bool needs_so_many(const char *tensor)
{
    struct plan p = llama(1, 4, 1, tensor);
    return plan_check(&p, &err) != OK;
}

static void test_every_mesh(void **state) { (void)state; if (in_sample()) each_mesh("1d", tied); }
static void test_every_mesh_with_sequence_parallelism(void **state)
{
    (void)state;
    if (in_sample()) each_mesh("1d-sp", untied_dropout);
}

static void test_every_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i); i++)
        for (int K = 1; K <= 3 && (in_sample() || needs_so_many(tensor_scheme_at(i)->head.name)); K += 2) {
            struct plan p = llama(1, test_size, 1, tensor_scheme_at(i)->head.name);
            if (in_sample() && !tier_takes(i + K / 2 + test_size, 2)) continue;
            p.recompute = "selective";
            p.model.K = K;
            check_if_taken(p);
        }
}

/* Groups and devices that do not divide each other, either way; Llama 3's frequencies. */
static void test_heads_that_do_not_divide(void **state)
{
    static const struct { int H, K; } shape[] = { { 8, 2 }, { 9, 3 }, { 12, 6 }, { 8, 1 } };
    (void)state;
    for (int i = 0; i < 4 && in_sample(); i++) {
        struct plan p = llama(1, test_size, 1, "1d");
        p.model.H = shape[i].H, p.model.K = shape[i].K, p.model.D = shape[i].H * p.model.A;
        p.model.rotary = (struct rotary){ .theta = 100, .scaling = SCALING_LLAMA3, .factor = 4, .low_frequency = 1,
                                          .high_frequency = 4, .original_positions = 64 };
        check(&p);
    }
}

static void test_every_schedule(void **state)
{
    (void)state;
    const int every = tier_now() == TIER_VERIFY ? 1 : 5;
    for (int i = 1; schedule_generator_at(i) && (test_size == 2 || test_size == 4); i += every) {
        struct plan p = llama(1, test_size / 2, 2, "1d");
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) == OK) check(&p);
    }
}

/* Parts of a copy lie on different devices, and are counted once none the less. */
static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && test_size == 4; i++) {
        struct plan p = llama(2, 2, 1, "1d");
        if (!tier_takes(i, 2)) continue;
        p.model.K = 1;
        p.data.scheme = data_scheme_at(i)->head.name;
        check_if_taken(p);
    }
}

/* Every row of QKV is somebody's, and counted by one device. */
static void test_heads_are_dealt_out(void **state)
{
    (void)state;
    for (int K = 1; K <= 6; K++)
        for (int H = K; H <= 24; H += K)
            for (int parts = 1; parts <= H; parts++) {
                const struct model_config c = { .H = H, .K = K };
                int64_t query = 0, first_copies = 0;
                for (int i = 0; i < parts; i++) {
                    const struct heads h = heads_at(&c, parts, i);
                    ASSERT_ALL(h.queries.first == query && h.queries.count >= 1 && h.keys.count >= 1,
                               "H=%d K=%d, part %d of %d: queries %lld to %lld, %lld keys", H, K, i, parts,
                               (long long)h.queries.first, (long long)(h.queries.first + h.queries.count),
                               (long long)h.keys.count);
                    ASSERT_ALL(h.queries.first / (H / K) == h.keys.first &&
                                   (h.queries.first + h.queries.count - 1) / (H / K) == h.keys.first + h.keys.count - 1,
                               "H=%d K=%d, part %d of %d: query heads do not belong to its key/value heads", H, K, i,
                               parts);
                    query += h.queries.count;
                    if (h.copy == 0) first_copies += h.keys.count;
                }
                ASSERT_ALL(query == H && first_copies == K, "H=%d K=%d in %d parts: %lld and %lld are dealt out", H, K,
                           parts, (long long)query, (long long)first_copies);
            }
}

static void test_refusals(void **state)
{
    (void)state;
    struct plan p = case_plan(1, 1, 1);
    case_take_llama(&p);
    const int size[AXIS_COUNT] = { [DP] = 1, [TP] = 10, [PP] = 1, [CP] = 1, [EP] = 1 },
              cube[AXIS_COUNT] = { [DP] = 1, [TP] = 8, [PP] = 1, [CP] = 1, [EP] = 1 };
    mesh_make(&p.mesh, size, NULL);
    expect_refused(p, "--tp 10: the model has H=9 heads; tp can be at most that");
    mesh_make(&p.mesh, cube, NULL);
    p.tensor = "3d", p.model.K = 1;
    expect_refused(p, "the model has K=1 key/value heads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_heads_are_dealt_out),
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_mesh_with_sequence_parallelism),
        MPI_TEST(test_every_scheme),
        MPI_TEST(test_heads_that_do_not_divide),
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_refusals),
    };
    return MPI_RUN("llama", tests);
}
