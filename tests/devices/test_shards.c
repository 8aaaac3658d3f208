/* The engine of data parallelism by itself: who owns what, bytes by formula and by link level, virtual time by
 * recurrence, memory as published.
 * tier: check
 * ranks: 1 2 3 4 8
 */
#include "emulated_devices/schemes/data/data.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <math.h>

/* Everything is a multiple of 8, so that blocks are equal on 1, 2, 4 and 8 devices. */
static const struct model_config even = {
    .name = "even", .S = 8, .D = 16, .H = 4, .K = 4, .A = 4, .F = 32, .L = 3, .V = 40, .family = &family_gpt2,
    .biases = BIASES_BLOCK,
    .eps = 1e-5, .init_std = 0.2,
};

/* A flop a picosecond; 10 us and 20 ps a byte between pairs, in nodes of 4, and elsewhere.  Memory takes no time. */
static const struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = 3,
    .link = { { .level = "pair", .devices = 2, .latency = 10000000, .rate = 50000, .eager = ALWAYS_EAGER },
              { .level = "node", .devices = 4, .latency = 10000000, .rate = 50000, .eager = ALWAYS_EAGER },
              { .level = "cluster", .latency = 10000000, .rate = 50000, .eager = ALWAYS_EAGER } },
};

static double part_flops(int part) { return 1e6 * (3 + part * 7 % 5); }

#include "tests/devices/engine.h"

/* ---- who owns what ----------------------------------------------------------------------------------------------- */

struct seen { int *times; int64_t place; };

static void see(void *context, struct portion s)
{
    const struct seen *seen = context;
    for (int64_t i = 0; i < s.length; i++) seen->times[s.parameter->place + s.piece + i]++;
}

/* For every w | g | o of 12 devices, flat and by rows: the shards of the devices that share make up the unit, each
 * element once; what a device steps lies in what it keeps the gradient of, and that in its weights. */
static void test_shards_make_up_the_unit(void **state)
{
    (void)state;
    static struct parameter p[3];
    static const int64_t dims[3][2] = { { 5, 7 }, { 11, 0 }, { 3, 2 } };
    char first[128] = "shards do not nest";
    int wrong = 0, chains = 0;
    for (int i = 0; i < 3; i++) p[i].layout = layout_whole(i == 1 ? 1 : 2, dims[i]);
    for (int o = 1; o <= 12; o++)
        for (int g = 1; g <= o; g++)
            for (int w = 1; w <= g; w++)
                for (int rows = 0; rows < 2; rows++) {
                    struct shards s = { .P = 12, .weights = w, .gradients = g, .optimizer = o };
                    struct unit u;
                    if (shards_check(&s, NULL) != OK) continue;
                    unit_lay_out(&u, p, 3, &s, rows);
                    chains++;
                    for (enum shard_level l = BY_WEIGHTS; l <= BY_OPTIMIZER; l++) {
                        int times[35 + 11 + 6] = { 0 };
                        struct seen seen = { times, 0 };
                        for (s.rank = 0; s.rank < s.P; s.rank++) {
                            const struct interval own = shards_range(&s, l, u.padded),
                                                  wider = l > BY_WEIGHTS ? shards_range(&s, l - 1, u.padded)
                                                                         : (struct interval){ 0, u.padded };
                            wrong += interval_meet(own, wider).count != own.count;
                            unit_each_stretch(&u, own, see, &seen);
                        }
                        for (int i = 0; i < 35 + 11 + 6; i++)
                            if (times[i] * shards_stride(&s, l + 1) != s.P && wrong++ == 0)
                                snprintf(first, sizeof first,
                                         "%d | %d | %d level %d rows %d: element %d is kept %d times", w, g, o, (int)l,
                                         rows, i, times[i]);
                    }
                }
    ASSERT_ALL(wrong == 0 && chains == 2 * 40, "%s (%d of them, %d chains)", first, wrong, chains);
}

/* ---- memory as published ----------------------------------------------------------------------------------------- */

/* Model states in GB (10^9 bytes) with mixed-precision Adam, 2 + 2 + 12 bytes an element: arXiv:1910.02054, table 1, as
 * its formulas give it. */
static void test_table_of_the_zero_paper(void **state)
{
    static const struct { int N; double GB[3][3]; } row[] = {
        { 1,    { { 120, 120, 120 },      { 2048, 2048, 2048 }, { 16000, 16000, 16000 } } },
        { 4,    { { 52.5, 41.3, 30 },     { 896, 704, 512 },    { 7000, 5500, 4000 } } },
        { 16,   { { 35.6, 21.6, 7.5 },    { 608, 368, 128 },    { 4750, 2875, 1000 } } },
        { 64,   { { 31.4, 16.6, 1.88 },   { 536, 284, 32 },     { 4187, 2218, 250 } } },
        { 256,  { { 30.4, 15.4, 0.47 },   { 518, 263, 8 },      { 4046, 2054, 62.5 } } },
        { 1024, { { 30.1, 15.1, 0.12 },   { 513, 257, 2 },      { 4011, 2013, 15.6 } } },
    };
    static const int64_t size[] = { 7500000000, 128000000000, 1000000000000 };
    static const char *const stage[] = { "zero1", "zero2", "zero3" };
    char first[128] = "";
    (void)state;
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) for (int m = 0; m < 3; m++) for (int z = 0; z < 3; z++) {
        const struct data_request q = { .scheme = stage[z] };
        struct shards s;
        assert_int_equal(data_shards(&s, &q, row[r].N, 0, NULL), OK);
        const struct model_state k = shards_state(&s, size[m], (struct state_bytes){ 2, 2, 12 });
        const double GB = (double)(k.weights + k.gradients + k.optimizer) / 1e9, want = row[r].GB[m][z];
        /* the last one printed; it was cut or rounded */
        const double digit = want >= 100 ? 1 : want >= 3 ? 0.1 : 0.01;
        if (!(fabs(GB - want) <= digit) && first[0] == 0)
            snprintf(first, sizeof first, "%s, %lld elements, N = %d: %g GB, the paper has %g", stage[z],
                     (long long)size[m], row[r].N, GB, want);
    }
    ASSERT_ALL(first[0] == 0, "%s", first);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_sent(void)
{
    uint64_t sum = 0;
    for (int l = 0; l < CLUSTER_LEVELS; l++) sum += ledger_level(&comm.counted, l).bytes;
    return sum;
}

/* In blocks, which are gathered twice; not in what comes before and after them. */
static int64_t block_elements(void)
{
    int64_t n = 0;
    for (int i = 0; i < model_param_count(&even); i++) {
        const struct param_spec s = model_param(&even, i);
        if (s.layer >= 0 && s.layer < even.L) n += s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
    }
    return n;
}

/* 2, 2, 2 and 3 times n(P-1)/P; of the last, what has no backward for its input, or has it at once,
 * is gathered once. */
static void test_volumes(void **state)
{
    (void)state;
    const int64_t n = model_elements(&even), P = test_size;
    const int64_t blocks = block_elements();
    if (P == 3) return;                                                    /* padding: see the formulas of every case */
    const struct { struct data_request q; int64_t elements; } c[] = {
        { { .scheme = "ddp", .bucket = 1 << 30 }, 2 * n }, { { .scheme = "zero1" }, 2 * n },
        { { .scheme = "zero2" }, 2 * n },
        { { .scheme = "zero3" }, 3 * blocks + 2 * (n - blocks) }, { { .scheme = "zero3", .keep = true }, 2 * n },
        { { .scheme = "fsdp" }, 3 * blocks + 2 * (n - blocks) },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        open_engine(c[i].q);
        step_of(1);
        const uint64_t want = (uint64_t)(c[i].elements / P * (P - 1)) * sizeof(float);
        ASSERT_ALL(bytes_sent() == want, "%s%s: sent %llu bytes, want %llu", c[i].q.scheme, c[i].q.keep ? " kept" : "",
                   (unsigned long long)bytes_sent(), (unsigned long long)want);
        close_engine();
    }
}

static void expect_levels(const char *what, const uint64_t want[CLUSTER_LEVELS])
{
    for (int l = 0; l < CLUSTER_LEVELS; l++)
        ASSERT_ALL(ledger_level(&comm.counted, l).bytes == want[l], "%s: %llu bytes at level %s, want %llu", what,
                   (unsigned long long)ledger_level(&comm.counted, l).bytes, machine.link[l].level,
                   (unsigned long long)want[l]);
}

/* Each level of sharding stays on its level of links when its groups follow them. */
static void test_levels_of_links(void **state)
{
    (void)state;
    const uint64_t n = (uint64_t)model_elements(&even) * sizeof(float),
                   blocks = (uint64_t)block_elements() * sizeof(float);
    const uint64_t in_pair = (3 * blocks + 2 * (n - blocks)) / 2;           /* what zero3 sends with P = 2 */
    if (test_size == 4) {
        open_engine((struct data_request){ .scheme = "hsdp", .group = 2 });
        step_of(1);
        const uint64_t want[] = { in_pair, n / 2, 0 };                    /* all-reduce of n/2 between 2: 2 (n/2) 1/2 */
        expect_levels("hsdp in pairs of 4", want);
        close_engine();
    }
    if (test_size == 8) {
        open_engine((struct data_request){ .scheme = "chain", .shards = { 2, 4, 8 } });
        step_of(1);
        /* halves of n/2 and of n/4, gradients out and weights back */
        const uint64_t want[] = { in_pair, n / 2, n / 4 };
        expect_levels("2 | 4 | 8", want);
        close_engine();
        open_engine((struct data_request){ .scheme = "hpz", .group = 4 });
        step_of(1);
        ASSERT_ALL(ledger_level(&comm.counted, 2).bytes == n / 4,
                   "hpz in nodes of 4: %llu bytes leave the node, want %llu",
                   (unsigned long long)ledger_level(&comm.counted, 2).bytes, (unsigned long long)n / 4);
        close_engine();
    }
}

static void sent_by(const char *scheme, int micros, uint64_t at[CLUSTER_LEVELS])
{
    open_engine((struct data_request){ .scheme = scheme, .group = 4 });
    step_of(micros);
    for (int l = 0; l < CLUSTER_LEVELS; l++) at[l] = ledger_level(&comm.counted, l).bytes;
    const struct account second = data_level_cost(&dp, BY_COPIES);
    const struct traffic copies = account_total(&second);
    ASSERT_ALL(copies.bytes_sent == at[2],
               "%s, %d microbatches: the second hop sends %llu bytes by its formula, %llu were counted", scheme, micros,
               (unsigned long long)copies.bytes_sent, (unsigned long long)at[2]);
    close_engine();
}

/* Partition groups of 4, of two pairs each.  The second hop leaves the group once a step, however many microbatches.
 * Gathered in two levels every block crosses to the other pair once;
 * around a ring a pair's last device passes on all but one of the four. */
static void test_mics(void **state)
{
    uint64_t two_hops[2][CLUSTER_LEVELS], ring[CLUSTER_LEVELS];
    (void)state;
    if (test_size != 8) return;
    const uint64_t n = (uint64_t)model_elements(&even) * sizeof(float),
                   gathered = n + (uint64_t)block_elements() * sizeof(float);
    sent_by("mics", 1, two_hops[0]);
    sent_by("mics", 2, two_hops[1]);
    sent_by("hsdp", 1, ring);
    for (int M = 1; M <= 2; M++)
        ASSERT_ALL(two_hops[M - 1][2] == n / 4, "%d microbatches: %llu bytes leave the partition group, want %llu", M,
                   (unsigned long long)two_hops[M - 1][2], (unsigned long long)n / 4);
    ASSERT_ALL(two_hops[1][0] + two_hops[1][1] > 3 * (two_hops[0][0] + two_hops[0][1]) / 2,
               "the first hop is not taken for every microbatch");
    const uint64_t crossed = test_rank % 2 ? 3 * gathered / 4 : 0, crosses = gathered / 4;
    ASSERT_ALL(two_hops[0][1] + crossed == ring[1] + crosses, "gathering sends %llu bytes to the other pair, want %llu",
               (unsigned long long)(two_hops[0][1] + crossed - ring[1]), (unsigned long long)crosses);
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

static uint64_t messages_sent(void)
{
    uint64_t sum = 0;
    for (int l = 0; l < CLUSTER_LEVELS; l++) sum += ledger_level(&comm.counted, l).messages;
    return sum;
}

/* How many exchanges units take that wait for others until the next would make them more than `most` elements.
 * Backward passes finish the last unit first, and the tokens before the positions. */
static int exchanges(int64_t most, bool backward)
{
    int64_t waiting = 0;
    int n = 0;
    for (int i = 0; i < dp.units; i++) {
        const int unit = !backward           ? i
                         : i < dp.units - 2  ? dp.units - 1 - i
                         : i == dp.units - 2 ? UNIT_TOKENS
                                             : UNIT_POSITIONS;
        const int64_t u = dp.unit[unit].padded;
        if (waiting > 0 && waiting + u > most) n++, waiting = 0;
        waiting += u;
        if (waiting >= most) n++, waiting = 0;
    }
    return n + (waiting > 0);
}

static int64_t largest_unit(void)
{
    int64_t most = 0;
    for (int u = 0; u < dp.units; u++) most = dp.unit[u].padded > most ? dp.unit[u].padded : most;
    return most;
}

/* A reduce-scatter and an all-gather for each bucket, P-1 messages each; as many bytes whatever its size.  Of zero2
 * what waits is memory: less than a bucket, or a unit, beside the unit that is computed, and the shard. */
static void test_units_go_in_buckets(void **state)
{
    static const char *const schemes[] = { "zero1", "zero2" };
    static const int64_t sizes[] = { 1, 700, 2500, 5000, 1 << 20 };                   /* elements */
    int fewest = 1 << 20, most = 0;
    (void)state;
    const int P = test_size;
    for (int s = 0; s < 2; s++) for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        open_engine((struct data_request){ .scheme = schemes[s], .bucket = sizes[i] * (int64_t)sizeof(float) });
        step_of(1);
        const int n = exchanges(sizes[i], true) + exchanges(sizes[i], false);
        const struct account cost = data_cost(&dp);
        const struct traffic formula = account_total(&cost);
        int64_t padded = 0;
        for (int u = 0; u < dp.units; u++) padded += dp.unit[u].padded;
        ASSERT_ALL(messages_sent() == (uint64_t)(n * (P - 1)), "%s, --bucket of %lld elements: %llu messages, want %d",
                   schemes[s], (long long)sizes[i], (unsigned long long)messages_sent(), n * (P - 1));
        ASSERT_ALL(bytes_sent() == (uint64_t)(2 * padded / P * (P - 1)) * sizeof(float),
                   "%s, --bucket of %lld elements: sent %llu bytes", schemes[s], (long long)sizes[i],
                   (unsigned long long)bytes_sent());
        ASSERT_ALL(formula.messages_sent == messages_sent() && formula.bytes_sent == bytes_sent(),
                   "%s, --bucket of %lld elements: the formula says %llu messages", schemes[s], (long long)sizes[i],
                   (unsigned long long)formula.messages_sent);
        const uint64_t peak = device.arena.peak.tag[GRADIENTS];
        const int64_t unit = largest_unit(),
                      waits = sizes[i] < padded ? (sizes[i] > unit ? sizes[i] : 0) + 2 * unit : padded;
        ASSERT_ALL(peak == data_peak(&dp).gradients,
                   "%s, --bucket of %lld elements: gradients take %llu bytes, by the formula %llu", schemes[s],
                   (long long)sizes[i], (unsigned long long)peak, (unsigned long long)data_peak(&dp).gradients);
        ASSERT_ALL(s == 0 || P == 1 || peak <= (uint64_t)(padded / P + waits) * sizeof(float),
                   "%s, --bucket of %lld elements: gradients take %llu bytes", schemes[s], (long long)sizes[i],
                   (unsigned long long)peak);
        fewest = n < fewest ? n : fewest, most = n > most ? n : most;
        close_engine();
    }
    ASSERT_ALL(fewest == 2 && most == 2 * (PARTS + 1), "from %d to %d exchanges: sizes do not try what is in between",
               fewest, most);
}

/* In one bucket a reduce-scatter and an all-gather are an all-reduce. */
static void test_zero_takes_the_time_of_ddp(void **state)
{
    static const char *const schemes[] = { "ddp", "zero1", "zero2" };
    picoseconds took[3];
    (void)state;
    for (int s = 0; s < 3; s++) {
        open_engine((struct data_request){ .scheme = schemes[s], .bucket = 1 << 30, .allgather = "direct" });
        step_of(1);
        took[s] = device.clock.now;
        close_engine();
    }
    for (int s = 1; s < 3; s++)
        ASSERT_ALL((double)took[s] <= 1.02 * (double)took[0], "%s takes %.1f us, ddp %.1f us", schemes[s],
                   1e-6 * (double)took[s], 1e-6 * (double)took[0]);
}

/* ---- virtual time ------------------------------------------------------------------------------------------------ */

static picoseconds larger(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* How long a ring takes by itself: all devices begin at once. */
static picoseconds alone(struct group *g, enum operation op, int64_t count)
{
    float *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    const picoseconds before = device.clock.now;
    const struct collective c = { .in = op == ALLGATHER ? x + count / g->size * g->rank : x,
                                  .out = x,
                                  .count = count,
                                  .dtype = F32,
                                  .reduction = SUM };
    ASSERT_ALL(collective_run(g, op, "ring", &c, &err) == OK, "%s", err.text);
    const picoseconds t = device.clock.now - before;
    device.clock.now = before;
    for (int l = 0; l < CLUSTER_LEVELS; l++) device.clock.send[l].count = device.clock.receive[l].count = 0;
    free(x);
    return t;
}

/* Bucket i is done at c(i) = max(c(i-1), ready(i)) + t(i), and the step waits for the last one. */
static void test_buckets_overlap_with_backward(void **state)
{
    enum { BUCKET = 2048 };                                             /* elements: a multiple of every P here but 3 */
    (void)state;
    if (test_size == 3) return;
    open_engine((struct data_request){ .scheme = "ddp", .bucket = BUCKET * sizeof(float) });
    dp.allreduce = "ring";                                          /* in which all devices are done at the same time */
    const int64_t n = model_elements(&even);
    struct use list[PARTS];
    picoseconds done = 0, now = 0;
    int64_t reduced = 0, ready = 0;
    for (int i = 0; i < PARTS; i++) list[i] = (struct use){ .part = PARTS - 1 - i, .pass = PASS_BACKWARD_WEIGHT };
    set_uses(list, PARTS);
    const picoseconds full = alone(&world, ALLREDUCE, BUCKET), rest = alone(&world, ALLREDUCE, n % BUCKET);
    for (int i = 0; i < PARTS; i++) {
        const int part = PARTS - 1 - i;
        int unit[2];
        use(part, PASS_BACKWARD_WEIGHT);
        now += 1000000 * (3 + part * 7 % 5);
        for (int k = 0, units = data_units_of(&even, part, unit); k < units; k++) ready += dp.unit[unit[k]].padded;
        while (reduced < n && (reduced + BUCKET < n ? reduced + BUCKET : n) <= ready) {
            done = larger(done, now) + (n - reduced < BUCKET ? rest : full);
            reduced += BUCKET;
        }
        ASSERT_ALL(device.clock.now == now, "part %d: computing ends at %lld, want %lld", part,
                   (long long)device.clock.now, (long long)now);
        ASSERT_ALL(device.clock.stream[COMMUNICATION] == larger(done, now),
                   "part %d: buckets are done at %lld, want %lld", part, (long long)device.clock.stream[COMMUNICATION],
                   (long long)larger(done, now));
    }
    ASSERT_ALL(data_finish_gradients(&dp, &err) == OK, "%s", err.text);
    ASSERT_ALL(device.clock.now == larger(now, done), "the step waits until %lld, want %lld",
               (long long)device.clock.now, (long long)larger(now, done));
    ASSERT_ALL(reduced >= n && (test_size == 1 || done > now), "%lld of %lld elements reduced", (long long)reduced,
               (long long)n);
    close_engine();
}

/* Part i starts when the one before it has computed and its weights are there;
 * then the gathering of the next one starts. */
static void test_prefetch_hides_gathering(void **state)
{
    (void)state;
    picoseconds took[2];
    for (int late = 0; late < 2; late++) {
        open_engine((struct data_request){ .scheme = "zero3", .no_prefetch = late });
        struct use list[PARTS];
        picoseconds gather[PARTS] = { 0 }, start, end = 0, here = 0;
        for (int i = 0; i < PARTS; i++) list[i] = (struct use){ .part = i, .pass = PASS_FORWARD };
        set_uses(list, PARTS);
        for (int i = 0; i < PARTS; i++) {
            int unit[2];
            for (int k = 0, units = data_units_of(&even, i, unit); k < units; k++)
                gather[i] += alone(&world, ALLGATHER, dp.unit[unit[k]].padded);
        }
        here = gather[0];
        for (int i = 0; i < PARTS; i++) {
            use(i, PASS_FORWARD);
            if (late && i > 0) here = end + gather[i];
            start = larger(end, here);
            end = start + 1000000 * (3 + i * 7 % 5);
            if (!late && i + 1 < PARTS) here = start + gather[i + 1];
            ASSERT_ALL(device.clock.now == end, "prefetch %d, part %d: ends at %lld, want %lld", !late, i,
                       (long long)device.clock.now, (long long)end);
        }
        took[late] = end;
        close_engine();
    }
    ASSERT_ALL(test_size == 1 || took[0] < took[1], "prefetching takes %lld, not prefetching %lld", (long long)took[0],
               (long long)took[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_shards_make_up_the_unit),
        MPI_TEST(test_table_of_the_zero_paper),
        MPI_TEST(test_volumes),
        MPI_TEST(test_levels_of_links),
        MPI_TEST(test_mics),
        MPI_TEST(test_units_go_in_buckets),
        MPI_TEST(test_zero_takes_the_time_of_ddp),
        MPI_TEST(test_buckets_overlap_with_backward),
        MPI_TEST(test_prefetch_hides_gathering),
    };
    return MPI_RUN("shards", tests);
}
