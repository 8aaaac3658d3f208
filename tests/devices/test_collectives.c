/* Every algorithm of every collective, from the registry: results, guard bands, what was counted against its cost.
 * tier: check
 * ranks: 1 2 3 5 8
 * verify ranks: 7 9 13 16
 */
#include "tests/devices/collective_devices.h"

/* ---- one case ---------------------------------------------------------------------------------------------------- */

static void check_values(struct complaint *bad, enum operation op, const struct collective *c, const void *out)
{
    const int64_t n = out_length(op, c, group.rank);
    for (int64_t i = 0; i < n && bad->text[0] == '\0'; i++) {
        const double got = get(c->dtype, out, i), want = end(op, c, group.rank, i);
        if (!(got == want)) COMPLAIN("out[%lld] = %.9g, want %.9g", (long long)i, got, want);
    }
}

/* In is as it was, but for what out covers of it. */
static void check_unchanged(struct complaint *bad, enum operation op, const struct collective *c, int64_t out_elements)
{
    const int64_t n = in_length(op, c, group.rank), each = (int64_t)dtype_size(c->dtype);
    const uintptr_t out = (uintptr_t)c->out, end_of_out = out + (uintptr_t)(out_elements * each);
    for (int64_t i = 0; i < n && bad->text[0] == '\0'; i++) {
        const uintptr_t at = (uintptr_t)c->in + (uintptr_t)(i * each);
        if (at >= out && at < end_of_out) continue;
        if (!(get(c->dtype, c->in, i) == start(op, c, group.rank, i))) COMPLAIN("changed in[%lld]", (long long)i);
    }
}

static void check_traffic(struct complaint *bad, const struct algorithm *a, const struct collective *c,
                          const struct traffic *before)
{
    const struct traffic *now = &comm.counted.of[group.kind].of[a->operation];
    const struct collective_cost want = collective_cost(a, group.rank, group.size, c);
    const uint64_t messages = now->messages_sent - before->messages_sent, bytes = now->bytes_sent - before->bytes_sent,
                   additions = now->additions - before->additions;
    if (messages != want.messages || bytes != want.bytes || additions != want.additions)
        COMPLAIN("cost says %llu messages, %llu bytes, %llu additions; did %llu, %llu, %llu",
                 (unsigned long long)want.messages, (unsigned long long)want.bytes, (unsigned long long)want.additions,
                 (unsigned long long)messages, (unsigned long long)bytes, (unsigned long long)additions);
    const struct traffic *expected = &comm.expected.of[group.kind].of[a->operation];
    for (int l = -1; l < CLUSTER_LEVELS; l++)
        if (!traffic_equal(now, expected, l))
            COMPLAIN("level %d: its calls expected %llu messages, %llu bytes; %llu and %llu were counted", l,
                     (unsigned long long)(l < 0 ? expected->messages_sent : expected->level[l].messages),
                     (unsigned long long)(l < 0 ? expected->bytes_sent : expected->level[l].bytes),
                     (unsigned long long)(l < 0 ? now->messages_sent : now->level[l].messages),
                     (unsigned long long)(l < 0 ? now->bytes_sent : now->level[l].bytes));
}

/* Rounds when a device sends one message and receives one at a time.  Exact for regular groups;
 * else at most so many. */
static void check_steps(struct complaint *bad, const struct algorithm *a, const struct collective *c, picoseconds time)
{
    uint64_t want = 0;
    for (int r = 0; r < group.size; r++) {
        const uint64_t steps = collective_cost(a, r, group.size, c).steps;
        if (steps > want) want = steps;
    }
    int64_t mine = time / device.clock.cluster.link[0].gap, most = 0;
    MPI_Request request;
    MPI_Iallreduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, harness, &request);
    patience_meet(&request);
    const bool regular = !a->by_nodes && (group.size & (group.size - 1)) == 0 && c->count % group.size == 0 &&
                         c->count > 0 && c->counts == NULL;
    if (want == 0) return;
    if (regular ? (uint64_t)most != want : (uint64_t)most > want)
        COMPLAIN("cost says %llu steps, the longest path has %lld", (unsigned long long)want, (long long)most);
}

/* Scratch that is taken in place only, as collective.h has it. */
static int64_t more_in_place(const struct algorithm *a, const struct collective *c)
{
    int64_t longest = 0;
    if (a->operation != ALLTOALL) return 0;
    if (strcmp(a->name, "linear") == 0) return all_between(c, group.rank, true);
    for (int d = 0; d < group.size; d++)
        if (d != group.rank && between(c, group.rank, d) > longest) longest = between(c, group.rank, d);
    return strncmp(a->name, "pairwise", 8) == 0 ? longest : 0;
}

/* In place: compared with the same call before, with in and out apart. */
static void check_scratch(struct complaint *bad, const struct algorithm *a, const struct collective *c, uint64_t peak,
                          bool in_place)
{
    static uint64_t apart;
    const int64_t n = in_length(a->operation, c, group.rank);
    if (!in_place) apart = peak;
    else if (n > 0 && group.size > 1 && peak - apart != dtype_size(c->dtype) * (uint64_t)more_in_place(a, c))
        COMPLAIN("%llu bytes of scratch, and %llu with in and out apart", (unsigned long long)peak,
                 (unsigned long long)apart);
}

static void run_case(const struct algorithm *a, struct collective c, bool in_place)
{
    c.nodes = group_nodes(&group), c.segment = CUT;
    const enum operation op = a->operation;
    const int r = group.rank;
    const int64_t ni = in_length(op, &c, r), no = out_length(op, &c, r);
    const size_t each = dtype_size(c.dtype);
    struct complaint bad_here = { "" }, *bad = &bad_here;
    struct error err = { .code = OK };

    /* In place: the block that is this device's lies inside the larger buffer;
     * the same buffer where shapes are equal. */
    struct buffer in = buffer_make(each * (size_t)ni), out = buffer_make(each * (size_t)no);
    int64_t shift = 0;
    if (in_place && has_blocks(op)) shift = first(&c, r);
    c.in = in.data;
    c.out = out.data;
    if (in_place && no >= ni && (no > 0 || ni == 0)) c.in = out.data + each * (size_t)shift;
    else if (in_place && ni > no && no > 0) c.out = in.data + each * (size_t)shift;
    unsigned char *given = c.in == in.data ? in.data : (unsigned char *)c.in;
    for (int64_t i = 0; i < ni; i++) put(c.dtype, given, i, start(op, &c, r, i));

    const struct traffic before = comm.counted.of[group.kind].of[op];
    const uint64_t held = device.arena.now.total;
    arena_reset_peak(&device.arena);
    clock_reset(&device.clock);

    const enum error_code code = collective_run(&group, op, a->name, &c, &err);

    if (code != OK) COMPLAIN("%s", err.text);
    check_values(bad, op, &c, c.out);
    if (!buffer_intact(in) || !buffer_intact(out)) COMPLAIN("wrote outside its buffers");
    check_unchanged(bad, op, &c, no);
    check_traffic(bad, a, &c, &before);
    if (device.arena.now.total != held)
        COMPLAIN("kept %llu bytes of scratch", (unsigned long long)(device.arena.now.total - held));
    if (!in_place) check_steps(bad, a, &c, device.clock.now);
    check_scratch(bad, a, &c, device.arena.peak.total - held, in_place);

    ASSERT_ALL(bad->text[0] == '\0', "%s: %s", describe(a, &c, in_place), bad->text);
    free(in.memory);
    free(out.memory);
}

/* ---- the cases of one algorithm ---------------------------------------------------------------------------------- */

static bool rooted(enum operation op) { return op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER; }

static void run_both_places(const struct algorithm *a, struct collective c)
{
    c.nodes = group_nodes(&group), c.segment = CUT;
    if (algorithm_refuses(a, group.size, &c) != NULL) return;
    run_case(a, c, false);
    const bool equal = a->operation != ALLTOALL || c.counts == NULL || mirrored;
    if (equal && (group.size <= 9 || c.count < LONG)) run_case(a, c, true);     /* the rest would be megabytes again */
}

static void run_counts(const struct algorithm *a)
{
    const int P = group.size;
    const int64_t block = LONG + 27;                         /* floats: a little above 64 KB, no multiple of anything */
    const int64_t counts[] = { 0, 1, P - 1, P, P + 1, 13, 257, a->operation == ALLTOALL ? block : block * P + 1 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        run_both_places(a, (struct collective){
                               .count = counts[i], .dtype = F32, .root = rooted(a->operation) ? (int)i % P : 0 });
}

static void run_uneven(const struct algorithm *a)
{
    int64_t counts[MAX_P];
    const int P = group.size;
    for (int kind = 0; kind < 4; kind++) {                          /* the last: everything with one device */
        const struct collective c = { .count = 9, .counts = counts, .dtype = F32, .root = kind % P };
        for (int b = 0; b < P; b++)
            counts[b] = kind == 3 ? (b == P / 2 ? 41 : 0) : (b * 5 + kind) % 4 * (kind == 2 ? 101 : 1);
        run_both_places(a, c);
    }
    counts[0] = LONG + 27;
    for (int b = 1; b < P; b++) counts[b] = b % 3 * 5000;
    run_both_places(a, (struct collective){ .counts = counts, .dtype = F32 });
}

static void run_uneven_alltoall(const struct algorithm *a)
{
    int64_t counts[MAX_P], receive[MAX_P];
    for (int kind = 0; kind < 10; kind++) {
        struct collective c = { .count = (int64_t[]){ 0, 4, 8, 12, 4 * 5003 }[kind / 2],
                                .counts = counts,
                                .recvcounts = receive,
                                .dtype = F32 };
        if (group.size > 9 && c.count > 12) break;
        mirrored = kind % 2 == 1;
        for (int b = 0; b < group.size; b++) {
            counts[b] = between(&c, group.rank, b);
            receive[b] = between(&c, b, group.rank);
        }
        run_both_places(a, c);
    }
    mirrored = false;
}

/* Formats and reductions do not know P: small groups are enough. */
static void run_formats(const struct algorithm *a)
{
    if (group.size > 5) return;
    for (enum dtype t = 0; t < DTYPE_COUNT; t++)
        for (enum reduction how = 0; how < (reduces(a->operation) ? REDUCTION_COUNT : 1); how++)
            run_both_places(a, (struct collective){ .count = group.size + 4, .dtype = t, .reduction = how });
}

static void test_every_algorithm(void **state)
{
    (void)state;
    for (int i = 0; algorithms[i] != NULL; i++) {
        const struct algorithm *a = algorithms[i];
        if (!selected(a)) continue;
        run_counts(a);
        if (has_blocks(a->operation)) run_uneven(a);
        if (a->operation == ALLTOALL) run_uneven_alltoall(a);
        if (a->operation != BARRIER) run_formats(a);
        if (a->operation == SCAN)
            for (int64_t n = 0; n < 9; n += 4)
                run_both_places(a, (struct collective){ .count = n, .dtype = F32, .exclusive = true });
    }
}

/* Nodes of every size, the last one smaller where they do not divide the group; the group has it first. */
static void test_algorithms_by_nodes(void **state)
{
    (void)state;
    for (int devices = 1; devices < group.size && devices <= 8; devices++) {
        const struct cluster m = nodes_of(devices);
        clock_restart(&device.clock, &m, F32);
        for (int i = 0; algorithms[i] != NULL; i++) {
            const struct algorithm *a = algorithms[i];
            if (!a->by_nodes || !selected(a)) continue;
            for (int64_t n = 0; n < 300; n = n * 5 + (n == 0 ? 1 : 2))
                run_both_places(a, (struct collective){ .count = n, .dtype = F32 });
            run_both_places(a, (struct collective){ .count = LONG * 2 + 1, .dtype = F64 });
            if (has_blocks(a->operation)) run_uneven(a);
            if (a->operation == ALLREDUCE)
                run_both_places(a, (struct collective){ .count = 77, .dtype = I32, .reduction = AVERAGE });
        }
    }
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

static void run_on_levels(const struct algorithm *a, struct collective c)
{
    struct complaint bad = { "" };
    struct error err = { .code = OK };
    const size_t each = dtype_size(c.dtype);
    c.nodes = group_nodes(&group), c.segment = CUT;
    if (algorithm_refuses(a, group.size, &c) != NULL) return;
    c.in = calloc((size_t)in_length(a->operation, &c, group.rank) + 1, each);
    c.out = calloc((size_t)out_length(a->operation, &c, group.rank) + 1, each);
    const struct traffic before = comm.counted.of[group.kind].of[a->operation];
    const enum error_code code = collective_run(&group, a->operation, a->name, &c, &err);
    check_traffic(&bad, a, &c, &before);
    ASSERT_ALL(code == OK && bad.text[0] == '\0', "%s: %s%s", describe(a, &c, false), err.text, bad.text);
    free((void *)(uintptr_t)c.in);
    free(c.out);
}

/* Over links of which level each algorithm sends: what its rehearsal says, in pairs within nodes of four. */
static void test_levels_of_every_algorithm(void **state)
{
    const struct cluster pairs = { .name = "pairs",
                                   .levels = 3,
                                   .link = {
                                       { .devices = 2, ONE_ROUND }, { .devices = 4, ONE_ROUND }, { ONE_ROUND } } };
    const int64_t counts[] = { 1, group.size + 1, 40 * group.size };
    (void)state;
    clock_restart(&device.clock, &pairs, F32);
    for (int i = 0; algorithms[i] != NULL; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts && selected(algorithms[i]); k++)
            run_on_levels(algorithms[i], (struct collective){ .count = counts[k], .dtype = F32, .root = 0 });
}

/* ---- the same results when nothing is buffered and everything is late -------------------------------------------- */

static uint64_t everything_once(uint64_t *time)
{
    enum { N = 61 };
    uint64_t h = 0;
    *time = 0;
    for (int i = 0; algorithms[i] != NULL; i++) {
        const struct algorithm *a = algorithms[i];
        float in[N * MAX_P] = { 0 }, out[N * MAX_P] = { 0 };
        struct error err;
        struct collective c = { .in = in, .out = out, .count = N, .dtype = F32 };
        if (!selected(a) || algorithm_refuses(a, group.size, &c) != NULL) continue;
        for (int k = 0; k < N * group.size; k++) in[k] = (float)rounded_value(group.rank, k);
        clock_reset(&device.clock);
        const enum error_code code = collective_run(&group, a->operation, a->name, &c, &err);
        ASSERT_ALL(code == OK, "%s %s: %s", operation_name(a->operation), a->name, err.text);
        h = h * 31 + hash_of(out, sizeof out);
        *time = *time * 31 + (uint64_t)device.clock.now;
    }
    return h;
}

static void test_timing_does_not_matter(void **state)
{
    uint64_t time, late_time;
    (void)state;
    const uint64_t bits = everything_once(&time);
    group_shut();
    setenv("ORRERY_SYNCHRONOUS", "1", 1);
    setenv("ORRERY_DELAY", "20", 1);
    group_open();
    const uint64_t late = everything_once(&late_time);
    group_shut();
    unsetenv("ORRERY_SYNCHRONOUS");
    unsetenv("ORRERY_DELAY");
    group_open();
    ASSERT_ALL(bits == late, "results change with delays");
    ASSERT_ALL(time == late_time, "virtual times change with delays");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_every_algorithm),
        ON_DEVICES(test_algorithms_by_nodes),
        ON_DEVICES(test_levels_of_every_algorithm),
        ON_DEVICES(test_timing_does_not_matter),
    };
    return MPI_RUN("collectives", tests);
}
