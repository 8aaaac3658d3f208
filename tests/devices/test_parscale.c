/* A model with parallel streams on every mesh equals the one-device model, with its streams on one device or along cp.
 * ranks: 1 2 4
 * verify ranks: 3 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  Three streams with prefixes of four tokens: along two devices they are uneven, and so are the
 * tokens whose streams a device weighs.
 */
#include "tests/devices/counted.h"
#include "tests/devices/trained.h"

static struct plan parscale(int dp, int tp, int pp, int cp)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_streams(&p);
    case_take_context(&p, cp, cp > 1 ? "streams" : "whole");
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    for (int cp = 1; cp <= 3; cp++)
        for (int dp = 1; dp * cp <= test_size; dp++)
            for (int pp = 1; dp * pp * cp <= test_size && pp <= 4; pp++) {
                if (test_size % (dp * pp * cp) != 0) continue;
                struct plan p = parscale(dp, test_size / (dp * pp * cp), pp, cp);
                if (!tier_takes(dp + pp + cp + test_size, 2)) continue;
                check(&p);
            }
}

static void test_more_streams(void **state)
{
    (void)state;
    for (int P = 2; P <= 8; P += 3) {
        const int cp = P < test_size ? P : test_size;
        if (test_size % cp != 0) continue;
        struct plan p = parscale(1, test_size / cp, 1, cp);
        p.model.streams.P = P, p.model.L = 1;
        check(&p);
    }
}

static const char *const recompute[] = { "selective", "full", "selective++" };

static void test_recomputation(void **state)
{
    (void)state;
    for (int r = 0; r < 3 && test_size <= 3; r++) {
        struct plan p = parscale(1, 1, 1, test_size);
        p.recompute = recompute[r], p.model.tied = r == 1;
        check(&p);
    }
}

static void test_every_schedule(void **state)
{
    (void)state;
    for (int i = 0; schedule_generator_at(i) && test_size == 4; i += in_verify() ? 1 : 7) {
        struct plan p = parscale(1, 1, 2, 2);
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) == OK) check(&p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && (test_size == 2 || (test_size == 4 && in_verify())); i++) {
        if (!tier_takes(i, 3)) continue;
        struct plan p = test_size == 2 ? parscale(1, 1, 1, 2) : parscale(2, 1, 1, 2);
        case_take_data(&p, data_scheme_at(i));
        check_if_taken(p);
    }
}

static void test_tiles_and_offload(void **state)
{
    (void)state;
    if (test_size > 3) return;
    struct plan p = parscale(1, 1, 1, test_size);
    p.data.scheme = "zero3";
    p.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER, p.data.offload_slice = 64;
    check(&p);
    p = parscale(test_size, 1, 1, 1), p.data.scheme = "zero3", p.data.tiles = 3;
    check_if_taken(p);
}

static void test_16_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < 3 && test_size <= 3; i++) {
        struct plan p = parscale(1, 1, 1, test_size);
        p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
        p.model.L = 1;
        check(&p);
    }
}

/* Copies of keys, and of their prefixes, on devices along tp: more of them than key/value heads. */
static void test_copied_keys(void **state)
{
    (void)state;
    if (test_size != 4) return;
    struct plan p = parscale(1, 2, 1, 2);
    p.model.K = 1;
    check(&p);
}

/* Without a backward pass there is no gradient of a prefix. */
static void test_forward_only(void **state)
{
    (void)state;
    if (test_size != 2) return;
    struct plan p = parscale(1, 1, 1, 2);
    case_take_mezo(&p, 1);
    check(&p);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* A device sends its streams of others' tokens, forward, and others' streams of its tokens, backward. */
static void test_bytes(void **state)
{
    (void)state;
    for (int P = test_size; P <= 8 && test_size > 1; P += 3) {
        struct plan p = parscale(1, 1, 1, test_size);
        p.model.streams.P = P, p.micros = 1;
        const int64_t T = p.B * p.S, q = block_at(P, test_size, test_rank).count,
                      own = block_at(T, test_size, test_rank).count,
                      want = (q * (T - own) + (P - q) * own) * p.model.D * (int64_t)sizeof(double);
        const struct counted n = count(p);
        ASSERT_ALL(n.sent[TRAFFIC_ATTENTION] == (uint64_t)want, "%d streams: %llu bytes sent, not %lld", P,
                   (unsigned long long)n.sent[TRAFFIC_ATTENTION], (long long)want);
    }
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    struct plan p = parscale(1, 1, 1, test_size);
    if (test_size == 4) expect_refused(p, "at most as many devices as parallel streams");
    if (test_size == 1) return;
    p = case_plan(1, 1, 1), case_take_qwen2(&p), case_take_context(&p, test_size, "streams");
    expect_refused(p, "needs a model with parallel streams");
    p = parscale(1, 1, 1, test_size), p.attention = "ring";
    expect_refused(p, "prefixes");
    p = parscale(1, test_size, 1, 1), p.tensor = "1d-sp";
    expect_refused(p, "--tensor 1d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_more_streams),
        MPI_TEST(test_recomputation),
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_tiles_and_offload),
        MPI_TEST(test_16_bits),
        MPI_TEST(test_copied_keys),
        MPI_TEST(test_forward_only),
        MPI_TEST(test_bytes),
        MPI_TEST(test_refused),
    };
    return MPI_RUN("parscale", tests);
}
