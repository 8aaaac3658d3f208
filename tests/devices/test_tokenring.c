/* TokenRing: what it sends each way, by the rule of the released code; when it is faster than a ring, and when not.
 * ranks: 1 2 3 4 6
 *
 * Queries and results are of H A numbers of a token, the log-sum-exp of H: two calls with different A tell how many
 * tokens of each a device has sent.
 */
#include "tests/devices/attending.h"

enum { NARROW = 4, WIDE = 8, TOKENS = 8, LEVELS = 2 };

/* Two nodes if the devices are an even number. */
static struct cluster machine(bool nodes, int64_t inside, int64_t between)
{
    struct cluster c = { .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = LEVELS };
    c.link[0] = (struct link){ .level = "node", .devices = nodes && test_size > 2 ? test_size / 2 : 1, .rate = inside,
                              .eager = ALWAYS_EAGER };
    c.link[1] = (struct link){ .level = "cluster", .rate = between, .eager = ALWAYS_EAGER };
    return c;
}

static struct attention_shape sizes_of(int64_t K, int64_t A)
{
    return (struct attention_shape){ .B = 3, .S = TOKENS * test_size, .H = 4, .K = K, .A = A };
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Halves of a device's tokens that a device sends, by the level of the link: queries, and results. */
struct halves { uint64_t queries[LEVELS], results[LEVELS]; };

/* As zigzag_token_ring.py counts: at step s device r has queries of device r + s, all of them if r + s < P. */
static struct halves released(int rank)
{
    const int P = test_size, left = (rank + P - 1) % P, node = P > 2 ? P / 2 : 1;
    struct halves h = { { 0 }, { 0 } };
    for (int s = 1; s < P; s++) {
        const int owner = (rank + s) % P;
        h.queries[left / node != rank / node] += left + s < P ? 2 : 1;
        h.results[owner / node != rank / node] += rank + s < P ? 2 : 1;
    }
    return h;
}

/* Bytes of halves in which each token has so many numbers of width A, and so many of one of each head. */
static uint64_t bytes(uint64_t wide, uint64_t single, struct attention_shape n)
{
    return (uint64_t)(n.B * n.H * TOKENS / 2) * 4 * (wide * (uint64_t)n.A + single);
}

static void test_bytes_each_way(void **state)
{
    (void)state;
    const struct cluster c = machine(true, 0, 0);
    const struct halves h = released(test_rank);
    for (int64_t A = NARROW; A <= WIDE; A += WIDE - NARROW) {
        const struct attention_shape n = sizes_of(2, A);
        const struct attended a = attend("tokenring", n, &c);
        for (int level = 0; level < LEVELS; level++) {
            const uint64_t q = h.queries[level], r = h.results[level], forward = bytes(q + r, r, n),
                           backward = bytes(2 * q + r, 2 * q, n),
                           sent[] = { a.sent[0].of[POINT_TO_POINT].level[level].bytes,
                                      a.sent[1].of[POINT_TO_POINT].level[level].bytes };
            ASSERT_ALL(sent[0] == forward, "A=%d, level %d: forward %llu bytes, not %llu", (int)A, level,
                       (unsigned long long)sent[0], (unsigned long long)forward);
            ASSERT_ALL(sent[1] == backward, "A=%d, level %d: backward %llu bytes, not %llu", (int)A, level,
                       (unsigned long long)sent[1], (unsigned long long)backward);
        }
    }
}

/* 0.75 (P-1) times a device's tokens in the mean, each way; as published for P = 4. */
static void test_load_of_each_device(void **state)
{
    (void)state;
    static const uint64_t four[] = { 3, 6, 5, 4 }, back[] = { 6, 5, 4, 3 };
    const struct cluster c = machine(false, 0, 0);
    const struct attention_shape narrow = sizes_of(4, NARROW), wide = sizes_of(4, WIDE);
    const struct attended little = attend("tokenring", narrow, &c), much = attend("tokenring", wide, &c);
    const uint64_t P = (uint64_t)test_size, half = bytes(0, 1, narrow),
                   sent[] = { account_total(&little.sent[0]).bytes_sent, account_total(&much.sent[0]).bytes_sent },
                   both = (sent[1] - sent[0]) / half / (WIDE - NARROW), results = sent[0] / half - NARROW * both,
                   mine[] = { both - results, results };
    uint64_t sum[2];
    MPI_Request request;
    MPI_Iallreduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, harness, &request);
    patience_meet(&request);
    ASSERT_ALL(2 * sum[0] == 3 * P * (P - 1) && 2 * sum[1] == 3 * P * (P - 1), "sums %llu and %llu halves",
               (unsigned long long)sum[0], (unsigned long long)sum[1]);
    ASSERT_ALL(P != 4 || (mine[0] == four[test_rank % 4] && mine[1] == back[test_rank % 4]),
               "sends %llu halves of queries, %llu of results", (unsigned long long)mine[0],
               (unsigned long long)mine[1]);
}

static void test_a_ring_sends_less_if_queries_share_keys(void **state)
{
    (void)state;
    const struct cluster c = machine(false, 0, 0);
    for (int64_t K = 1; K <= 4 && test_size > 1; K *= 4) {
        const struct attended token = attend("tokenring", sizes_of(K, 4 * WIDE), &c),
                              ring = attend("ring-zigzag", sizes_of(K, 4 * WIDE), &c);
        const uint64_t sent[] = { account_total(&token.sent[0]).bytes_sent, account_total(&ring.sent[0]).bytes_sent };
        ASSERT_ALL((K == 1) == (sent[1] < sent[0]), "%d key heads for 4: tokenring sends %llu bytes, ring-zigzag %llu",
                   (int)K, (unsigned long long)sent[0], (unsigned long long)sent[1]);
    }
}

/* In the released code the one device merges its result with itself: the log-sum-exp grows by log 2. */
static void test_one_device_merges_nothing(void **state)
{
    (void)state;
    if (test_size > 1) return;
    const struct cluster c = machine(false, 0, 0);
    const struct attended token = attend("tokenring", sizes_of(2, WIDE), &c),
                          ring = attend("ring-zigzag", sizes_of(2, WIDE), &c);
    ASSERT_ALL(account_total(&token.sent[0]).messages_sent == 0, "sends messages to itself");
    ASSERT_ALL(token.bits[0] == ring.bits[0] && token.bits[1] == ring.bits[1], "not the bits of ring-zigzag");
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static picoseconds slowest(const char *scheme, const struct cluster *c)
{
    int64_t mine = attend(scheme, sizes_of(4, WIDE), c).took[0], most;
    MPI_Request request;
    MPI_Iallreduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, harness, &request);
    patience_meet(&request);
    return most;
}

/* Slow links: messages take longer than computing. */
static void test_both_ways_are_faster_if_they_are_two_ports(void **state)
{
    (void)state;
    if (test_size < 4) return;
    const struct cluster apart = machine(true, 1000000, 1000), shared = machine(false, 0, 1000);
    const picoseconds token = slowest("tokenring", &apart), ring = slowest("ring-zigzag", &apart),
                      one_port = slowest("tokenring", &shared), one_port_ring = slowest("ring-zigzag", &shared);
    ASSERT_ALL(token < ring, "two nodes: %lld ps, ring-zigzag %lld", (long long)token, (long long)ring);
    ASSERT_ALL(one_port >= one_port_ring, "one port for both ways: %lld ps, ring-zigzag %lld", (long long)one_port,
               (long long)one_port_ring);
}

/* A port to each other device, and messages alone, of u for the queries of a device.  A ring takes 2 (P-1) u, as keys
 * and values go one way.  TokenRing takes P + 1 times what a result takes at most: two steps of queries, P - 3 of
 * queries and results at once, and two of results.  One port each way carries both. */
static void test_on_a_mesh_the_ways_do_not_meet(void **state)
{
    (void)state;
    if (test_size < 3) return;
    struct cluster mesh = machine(false, 0, 1000), narrow;
    mesh.flop_rate[F32] = 0, mesh.levels = 1, mesh.link[0] = mesh.link[1];
    mesh.link[0].devices = test_size, mesh.link[0].ports = test_size - 1;
    narrow = mesh, narrow.link[0].ports = 1;
    const struct attention_shape n = sizes_of(4, WIDE);
    const picoseconds u = time_at_rate((uint64_t)(n.B * n.H * TOKENS * WIDE * 4), 1000), P = test_size,
                      token = slowest("tokenring", &mesh), ring = slowest("ring-zigzag", &mesh),
                      one_port = slowest("tokenring", &narrow), one_port_ring = slowest("ring-zigzag", &narrow);
    ASSERT_ALL(ring == 2 * (P - 1) * u && one_port_ring == ring, "rings take %lld and %lld ps, not %lld",
               (long long)ring, (long long)one_port_ring, (long long)(2 * (P - 1) * u));
    ASSERT_ALL(token * WIDE <= (P + 1) * u * (WIDE + 1), "mesh: %lld ps, u = %lld", (long long)token, (long long)u);
    ASSERT_ALL(one_port > token && (P < 4 || token < ring), "one port: %lld ps, mesh %lld, ring %lld",
               (long long)one_port, (long long)token, (long long)ring);
}

/* In a format as wide as its sums nothing is rounded. */
static void test_narrow_results_have_the_same_bits_in_fp32(void **state)
{
    (void)state;
    const struct cluster c = machine(false, 0, 0);
    const struct attended wide = attend("tokenring", sizes_of(4, WIDE), &c),
                          narrow = attend("tokenring-narrow", sizes_of(4, WIDE), &c);
    ASSERT_ALL(wide.bits[0] == narrow.bits[0] && wide.bits[1] == narrow.bits[1], "other bits than tokenring");
    ASSERT_ALL(account_total(&wide.sent[0]).bytes_sent == account_total(&narrow.sent[0]).bytes_sent, "other bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_bytes_each_way), MPI_TEST(test_load_of_each_device),
        MPI_TEST(test_a_ring_sends_less_if_queries_share_keys), MPI_TEST(test_one_device_merges_nothing),
        MPI_TEST(test_both_ways_are_faster_if_they_are_two_ports),
        MPI_TEST(test_on_a_mesh_the_ways_do_not_meet),
        MPI_TEST(test_narrow_results_have_the_same_bits_in_fp32),
    };
    return MPI_RUN("tokenring", tests);
}
