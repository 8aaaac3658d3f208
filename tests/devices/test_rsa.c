/* Ring self-attention sends as much as the four all-reduces of a layer cut by heads, stores whole rows of scores, and
 * trains in 16 bits.  Every mesh in fp64: test_attention.c.
 * ranks: 2 3
 * verify ranks: 4 6
 */
#include "tests/devices/trained.h"
#include "tests/devices/attending.h"

/* Counted, with the default all-reduce: it sends 2 (P-1)/P of the sum, as a ring does. */
static void test_sends_as_much_as_tensor_parallelism(void **state)
{
    (void)state;
    const int64_t P = test_size, A = 6;
    const struct attention_shape n = { .B = 3, .S = 4 * P, .H = 4, .K = 4, .A = A };
    struct cluster c;
    assert_int_equal(cluster_find(&c, CLUSTER_USUAL, &err), OK);
    const struct attended a = attend("rsa", n, &c);
    const uint64_t sent = account_total(&a.sent[0]).bytes_sent + account_total(&a.sent[1]).bytes_sent,
                   elements = (uint64_t)(8 * (P - 1) * n.B * n.H * (n.S / P) * A);
    ASSERT_ALL(sent == elements * 4, "a layer sends %llu bytes, must be 4 x %llu", (unsigned long long)sent,
               (unsigned long long)elements);
}

static struct plan plan_of(const char *attention)
{
    struct plan p = case_plan(1, 1, 1);
    case_take_context(&p, test_size, attention);
    p.S = p.model.S = 4 * test_size, p.B = 3, p.micros = 1;
    return p;
}

/* A ring keeps a log-sum-exp for each row and head, rsa a score for each token. */
static void test_keeps_whole_rows_of_scores(void **state)
{
    (void)state;
    struct plan rsa = plan_of("rsa"), ring = plan_of("ring");
    const uint64_t kept = check(&rsa).activations, of_ring = check(&ring).activations;
    const int64_t n = rsa.S / test_size, rows = rsa.model.L * rsa.B * rsa.model.H * n;
    ASSERT_ALL(kept - of_ring == (uint64_t)(rows * (rsa.S - 1)) * 8, "%llu bytes more than a ring, not 8 x %lld x %lld",
               (unsigned long long)(kept - of_ring), (long long)rows, (long long)(rsa.S - 1));
}

static void test_sixteen_bits(void **state)
{
    static const enum dtype formats[] = { BF16, F16 };
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct plan p = case_plan(1, 1, 1);
        case_take_context(&p, test_size, "rsa"), case_take_llama(&p), case_take_dropout(&p);
        p.dtype = formats[f];
        check(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_sends_as_much_as_tensor_parallelism), MPI_TEST(test_keeps_whole_rows_of_scores),
        MPI_TEST(test_sixteen_bits),
    };
    return MPI_RUN("ring self-attention", tests);
}
