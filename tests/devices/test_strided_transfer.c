/* Strided bytes from device to device, by the way that is predicted to be fastest: the bytes that arrive are those of a
 * copy; messages are those of the choice; and the receiver's clock says what was predicted, to the picosecond.
 * ranks: 2
 */
#include "emulated_devices/comm/strided_transfer.h"
#include "tests/devices/on_devices.h"

enum { MEMORY = 1 << 16, PAIRS = 3, CLUSTERS = 6, ROUNDS = 40 };
static unsigned char from[PAIRS][MEMORY], into[PAIRS][MEMORY], want[PAIRS][MEMORY], packed[PAIRS * MEMORY];

static uint64_t drawn = 12345;
static int transfer_draw(int least, int most)
{
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return least + (int)((drawn >> 33) % (uint64_t)(most - least + 1));
}

/* Machines on which one way or another is fastest: messages for nothing, dear messages, memory as slow as the link, and
 * three that are shipped, one of which has measured kernels and a host that starts them. */
static struct cluster cluster_number(int number)
{
    static const char *const shipped[] = { "toy", "textbook", "h100-infiniband" };
    struct cluster c;
    struct error err;
    assert_int_equal(cluster_find(&c, shipped[number % 3], &err), OK);
    if (number < 3) return c;
    assert_int_equal(cluster_find(&c, "toy", &err), OK);
    c.levels = 1, c.link[0] = c.link[1], c.link[0].devices = 0, c.link[0].gap = 0;
    if (number > 3) c.link[0].gap = 300000000, c.kernels.launch = 1000;
    if (number > 4) c.memory_rate = 300, c.link[0].gap = 1000000, c.link[0].eager = 64;
    return c;
}

/* Up to three boxes of bytes, each inside another array on each side. */
static int random_pairs(struct strided_pair *pair)
{
    const int count = transfer_draw(1, PAIRS);
    for (int p = 0; p < count; p++) {
        int64_t extent[3], dim[2][3], start[2][3];
        for (int d = 0; d < 3; d++) {
            extent[d] = transfer_draw(1, 20);
            for (int side = 0; side < 2; side++) {
                dim[side][d] = extent[d] + transfer_draw(0, 10) * transfer_draw(0, 1);
                start[side][d] = transfer_draw(0, (int)(dim[side][d] - extent[d]));
            }
        }
        pair[p] = (struct strided_pair){ strided_box(3, dim[0], start[0], extent, 1),
                                         strided_box(3, dim[1], start[1], extent, 1) };
    }
    return count;
}

/* One transfer from device 0 to device 1.  @return its way. */
static enum strided_way transfer_once(struct group *group, const struct cluster *cluster)
{
    struct strided_pair pair[PAIRS];
    struct strided_transfer t;
    struct error err;
    struct ledger before = comm.counted;
    const int pairs = random_pairs(pair);
    char *memory[PAIRS];
    for (int p = 0; p < PAIRS; p++) {
        for (int i = 0; i < MEMORY; i++) from[p][i] = (unsigned char)transfer_draw(0, 255);
        memset(into[p], 7, MEMORY), memset(want[p], 7, MEMORY);
        memory[p] = (char *)(test_rank == 0 ? from[p] : into[p]);
        if (p < pairs) strided_move(want[p], &pair[p].to, from[p], &pair[p].from);
    }
    clock_restart(&device.clock, cluster, F32);
    enum error_code e = strided_open(&t, group, 1 - test_rank, test_rank == 0 ? SENDS_STRIDED : RECEIVES_STRIDED, pair,
                                     pairs, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    t.host = transfer_draw(0, 1);
    struct exchange x = exchange_begin(group, POINT_TO_POINT);
    strided_start(&t, &x, memory, packed);
    e = strided_wait(&t, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    for (int p = 0; p < pairs; p++)
        ASSERT_ALL(test_rank == 0 || memcmp(into[p], want[p], MEMORY) == 0, "%s: pair %d of %d has other bytes",
                   strided_way_name(t.choice.way), p, pairs);
    ASSERT_ALL(test_rank == 0 || device.clock.now == t.choice.time, "%s in %d messages: the clock says %lld ps, "
               "predicted were %lld", strided_way_name(t.choice.way), t.choice.messages, (long long)device.clock.now,
               (long long)t.choice.time);
    /* The ledger has counted what the formula enters. */
    struct traffic sent = before.of[TRAFFIC_OTHER].of[POINT_TO_POINT];
    if (test_rank == 0) strided_enter(&sent, group_level(group, 1), pair, pairs, t.choice);
    for (int level = -1; level < CLUSTER_LEVELS; level++)
        ASSERT_ALL(traffic_equal(&sent, &comm.counted.of[TRAFFIC_OTHER].of[POINT_TO_POINT], level),
                   "%s: %d messages were not counted so", strided_way_name(t.choice.way), t.choice.messages);
    return t.choice.way;
}

/* Every machine, many lists of boxes: and each way is the fastest one of some. */
static void test_as_predicted(void **state)
{
    struct group group;
    struct error err;
    int of[STRIDED_WAYS] = { 0 };
    (void)state;
    ASSERT_ALL(group_world(&group, &comm, &err) == OK, "%s", err.text);
    for (int n = 0; n < CLUSTERS; n++) {
        const struct cluster cluster = cluster_number(n);
        for (int i = 0; i < ROUNDS; i++) of[transfer_once(&group, &cluster)]++;
    }
    for (enum strided_way way = ONE_SHOT; way < STRIDED_WAYS; way++)
        ASSERT_ALL(of[way] >= ROUNDS / 4, "%s was the fastest %d times of %d", strided_way_name(way), of[way],
                   CLUSTERS * ROUNDS);
    group_close(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_as_predicted) };
    return MPI_RUN("strided transfers", tests);
}
