/* Attention with gathered keys and values: what it sends, by a formula, and that its forward pass has the bits of
 * ring-zigzag.
 * ranks: 1 2 3 4
 */
#include "tests/devices/attending.h"

static struct cluster usual(void)
{
    struct cluster c;
    assert_int_equal(cluster_find(&c, CLUSTER_USUAL, &err), OK);
    return c;
}

/* To each of the others all of this device's keys and values, and in backward a sum for it of their gradients. */
static void test_bytes(void **state)
{
    (void)state;
    const int P = test_size;
    const struct attention_shape n = { .B = 3, .S = 4 * P, .H = 6, .K = 2, .A = 6 };
    const struct cluster c = usual();
    const struct attended a = attend("allgather-kv", n, &c);
    const uint64_t block = (uint64_t)(n.B * n.S / P * 2 * n.K * n.A) * 4, want = (uint64_t)(P - 1) * block;
    for (int pass = 0; pass < 2; pass++) {
        const struct traffic *gathered = &a.sent[pass].of[ALLGATHER], *reduced = &a.sent[pass].of[REDUCE_SCATTER];
        ASSERT_ALL(gathered->bytes_sent == want, "pass %d gathers %llu bytes, not %llu", pass,
                   (unsigned long long)gathered->bytes_sent, (unsigned long long)want);
        ASSERT_ALL(reduced->bytes_sent == (pass == 0 ? 0 : want), "pass %d reduces %llu bytes", pass,
                   (unsigned long long)reduced->bytes_sent);
        const struct traffic all = account_total(&a.sent[pass]);
        ASSERT_ALL(all.bytes_sent == gathered->bytes_sent + reduced->bytes_sent, "pass %d sends %llu bytes", pass,
                   (unsigned long long)all.bytes_sent);
    }
}

static void test_forward_has_the_bits_of_the_ring(void **state)
{
    (void)state;
    const struct attention_shape n = { .B = 1, .S = 3 * test_size + 1, .H = 4, .K = 2, .A = 6 };
    const struct cluster c = usual();
    const struct attended gathered = attend("allgather-kv", n, &c), ring = attend("ring-zigzag", n, &c);
    ASSERT_ALL(gathered.bits[0] == ring.bits[0], "not the bits of ring-zigzag");
    ASSERT_ALL(gathered.bits[0] != gathered.bits[1], "nothing computed");
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_bytes), MPI_TEST(test_forward_has_the_bits_of_the_ring) };
    return MPI_RUN("gathered keys and values", tests);
}
