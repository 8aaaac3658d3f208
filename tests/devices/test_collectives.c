/* Every algorithm of every collective, from the registry: results, guard bands, what was counted against its cost.
 * tier: check
 * ranks: 1 2 3 5 8
 * verify ranks: 7 9 13 16
 *
 * Inputs are small integers that depend only on (device, index), so every sum is exact in any order, every device knows
 * the right answer without asking, and results are compared with ==.  The group lists the devices in reverse, so that
 * an algorithm that confuses world ranks with members fails.  ONLY=allreduce/ring runs that algorithm alone.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAD = 64, MAX_P = 64, LONG = 1 << 14 };
static const unsigned char PAD_BYTE = 0x5a, POISON_BYTE = 0xff;       /* 0xff..: NaN in all formats, -1 as an integer */

static struct device device;
static struct comm comm;
static struct group group;

/* Clusters on which only a message's use of the ports takes time, and always the same: the clock counts rounds. */
#define ONE_ROUND .gap = 1000000, .eager = ALWAYS_EAGER
static const struct cluster one_port = { .name = "one port", .levels = 1, .link = { { ONE_ROUND } } };

static struct cluster nodes_of(int devices)
{
    return (
        struct cluster){ .name = "nodes", .levels = 2, .link = { { .devices = devices, ONE_ROUND }, { ONE_ROUND } } };
}

/* ---- numbers in any format --------------------------------------------------------------------------------------- */

static void put(enum dtype t, void *array, int64_t i, double x)
{
    switch (t) {
    case F32: case F64: case BF16: case F16: tensor_set(tensor_1d(array, t, i + 1), i, x); break;
    case I32: ((int32_t *)array)[i] = (int32_t)x; break;
    case I64: ((int64_t *)array)[i] = (int64_t)x; break;
    case U8:  ((uint8_t *)array)[i] = (uint8_t)(int)x; break;
    case DTYPE_COUNT: break;
    }
}

static double get(enum dtype t, const void *array, int64_t i)
{
    switch (t) {
    case F32: case F64: case BF16: case F16: return tensor_get(tensor_1d((void *)array, t, i + 1), i);
    case I32: return ((const int32_t *)array)[i];
    case I64: return (double)((const int64_t *)array)[i];
    case U8:  return ((const uint8_t *)array)[i];
    case DTYPE_COUNT: break;
    }
    return NAN;
}

/* What a device contributes at index i. */
static double value(const struct collective *c, int rank, int64_t i)
{
    if (c->reduction == PRODUCT)
        return (rank + i) % 5 == 0 ? 2 : (rank * 3 + i) % 7 == 0 ? (c->dtype == U8 ? 3 : -1) : 1;
    const double x = (double)((rank * 31 + i * 7) % 61);
    return c->dtype == U8 ? x : c->dtype == BF16 ? trunc((x - 30) / 2) : x - 30;       /* bf16 counts up to 256 */
}

/* Members first .. last-1 reduced, as the format would have it. */
static double reduced_anew(const struct collective *c, int first, int last, int64_t i)
{
    double all = value(c, first, i);
    for (int r = first + 1; r < last; r++) {
        const double x = value(c, r, i);
        switch (c->reduction) {
        case SUM: case AVERAGE: all += x; break;
        case PRODUCT: all *= x; break;
        case MAX: all = x > all ? x : all; break;
        case MIN: all = x < all ? x : all; break;
        case REDUCTION_COUNT: break;
        }
    }
    if (c->dtype == U8) all = (double)((int64_t)all & 255);
    if (c->reduction == AVERAGE) {
        all /= group.size;
        if (dtype_unit(c->dtype) == 0) all = trunc(all);
    }
    _Alignas(8) char number[8];
    put(c->dtype, number, 0, all);
    return get(c->dtype, number, 0);
}

/* value() repeats itself in i, so a long vector has few different answers;
 * working each out once saves most of the time. */
static double reduced(const struct collective *c, int first, int last, int64_t i)
{
    enum { PERIOD = 61, PRODUCT_PERIOD = 35 };
    static struct {
        enum dtype dtype;
        enum reduction reduction;
        int first, last;
        bool known[PERIOD];
        double x[PERIOD];
    } seen;
    const int64_t k = i % (c->reduction == PRODUCT ? PRODUCT_PERIOD : PERIOD);
    if (seen.dtype != c->dtype || seen.reduction != c->reduction || seen.first != first || seen.last != last) {
        memset(&seen, 0, sizeof seen);
        seen.dtype = c->dtype, seen.reduction = c->reduction, seen.first = first, seen.last = last;
    }
    if (!seen.known[k]) seen.x[k] = reduced_anew(c, first, last, k);
    seen.known[k] = true;
    return seen.x[k];
}

/* ---- what each operation starts from and must end with ----------------------------------------------------------- */

static bool has_blocks(enum operation op)
{
    return op == REDUCE_SCATTER || op == ALLGATHER || op == GATHER || op == SCATTER || op == SPARSE_ALLGATHER ||
           op == SPARSE_REDUCE_SCATTER;
}

static int64_t length(const struct collective *c, int b)
{
    return c->counts != NULL ? c->counts[b]
                             : block_start(c->count, group.size, b + 1) - block_start(c->count, group.size, b);
}

static int64_t first(const struct collective *c, int b)
{
    int64_t n = 0;
    if (c->counts == NULL) return block_start(c->count, group.size, b);
    for (int i = 0; i < b; i++) n += length(c, i);
    return n;
}

/* The block that element i of all blocks is in, and *i within it.  Asked for 0, 1, 2, .. in turn. */
static int block_of(const struct collective *c, int64_t *i)
{
    static int b;
    static int64_t from, to;
    if (*i == 0) b = 0, from = 0, to = length(c, 0);
    while (*i >= to) from = to, to += length(c, ++b);
    *i -= from;
    return b;
}

/* From device s to device d, in an alltoall.  Mirrored: as much as from d to s, without which no
 * buffer can be both in and out. */
static bool mirrored;

static int64_t between(const struct collective *c, int s, int d)
{
    if (c->counts == NULL) return c->count;
    return (mirrored ? (s + d) * 3 + s * d : s * 3 + d * 5) % 7 * (c->count / 4);
}

static int64_t all_between(const struct collective *c, int r, bool sent)
{
    int64_t n = 0;
    for (int i = 0; i < group.size; i++) n += sent ? between(c, r, i) : between(c, i, r);
    return n;
}

static int64_t in_length(enum operation op, const struct collective *c, int r)
{
    switch (op) {
    case BARRIER: return 0;
    case BROADCAST: return r == c->root ? c->count : 0;
    case SCATTER: return r == c->root ? first(c, group.size) : 0;
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: return first(c, group.size);
    case ALLGATHER: case GATHER: case SPARSE_ALLGATHER: return length(c, r);
    case ALLTOALL: return all_between(c, r, true);
    default: return c->count;
    }
}

static int64_t out_length(enum operation op, const struct collective *c, int r)
{
    switch (op) {
    case BARRIER: return 0;
    case REDUCE: return r == c->root ? c->count : 0;
    case GATHER: return r == c->root ? first(c, group.size) : 0;
    case ALLGATHER: case SPARSE_ALLGATHER: return first(c, group.size);
    case REDUCE_SCATTER: case SCATTER: case SPARSE_REDUCE_SCATTER: return length(c, r);
    case ALLTOALL: return all_between(c, r, false);
    case SCAN: return c->exclusive && r == 0 ? 0 : c->count;
    default: return c->count;
    }
}

static double start(enum operation op, const struct collective *c, int r, int64_t i)
{
    if (op != ALLTOALL) return value(c, r, i);
    int d = 0;
    while (i >= between(c, r, d)) i -= between(c, r, d++);
    return value(c, r * 17 + d, i);
}

static double end(enum operation op, const struct collective *c, int r, int64_t i)
{
    int b = 0;
    switch (op) {
    case BROADCAST: return value(c, c->root, i);
    case SCATTER: return value(c, c->root, first(c, r) + i);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: return reduced(c, 0, group.size, first(c, r) + i);
    case SCAN: return reduced(c, 0, c->exclusive ? r : r + 1, i);
    case ALLGATHER: case GATHER: case SPARSE_ALLGATHER:
        b = block_of(c, &i);
        return value(c, b, i);
    case ALLTOALL:
        while (i >= between(c, b, r)) i -= between(c, b++, r);
        return value(c, b * 17 + r, i);
    default: return reduced(c, 0, group.size, i);
    }
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

struct buffer { unsigned char *memory, *data; size_t bytes; };

static struct buffer buffer_make(size_t bytes)
{
    struct buffer b = { .memory = malloc(bytes + 2 * PAD), .bytes = bytes };
    assert_non_null(b.memory);
    b.data = b.memory + PAD;
    memset(b.memory, PAD_BYTE, bytes + 2 * PAD);
    memset(b.data, POISON_BYTE, bytes);
    return b;
}

static bool buffer_intact(struct buffer b)
{
    for (int i = 0; i < PAD; i++)
        if (b.memory[i] != PAD_BYTE || b.data[b.bytes + (size_t)i] != PAD_BYTE) return false;
    return true;
}

static const char *describe(const struct algorithm *a, const struct collective *c, bool in_place)
{
    static char text[200];
    snprintf(text, sizeof text, "%s %s, P=%d, count %lld%s, %s, %s, root %d%s%s", operation_name(a->operation), a->name,
             group.size, (long long)c->count, c->counts != NULL ? " (uneven)" : "", dtype_name(c->dtype),
             reduction_name(c->reduction), c->root, c->exclusive ? ", exclusive" : "", in_place ? ", in place" : "");
    return text;
}

/* The first complaint of this device, or an empty text. */
struct complaint { char text[500]; };

#define COMPLAIN(...) do { if (bad->text[0] == '\0') snprintf(bad->text, sizeof bad->text, __VA_ARGS__); } while (0)

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
    patience_settle(&request);
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
    c.nodes = group_nodes(&group);
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

static bool selected(const struct algorithm *a)
{
    const char *only = getenv("ONLY");
    char name[100];
    snprintf(name, sizeof name, "%s/%s", operation_name(a->operation), a->name);
    return only == NULL || strncmp(only, name, strlen(only)) == 0;
}

static bool reduces(enum operation op)
{
    return op == REDUCE || op == ALLREDUCE || op == REDUCE_SCATTER || op == SCAN || op == SPARSE_REDUCE_SCATTER;
}
static bool rooted(enum operation op) { return op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER; }

static void run_both_places(const struct algorithm *a, struct collective c)
{
    c.nodes = group_nodes(&group);
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
    c.nodes = group_nodes(&group);
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

/* ---- sums that round: all members of an allreduce hold the same bits, within the bound of summation -------------- */

static double rounded_value(int rank, int64_t i)
{
    return (float)(sin((double)(rank * 1000 + i) * 12.9898) * (i % 3 == 0 ? 1e6 : 1));
}

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static bool same_everywhere(uint64_t x)
{
    uint64_t all[2], mine[2] = { x, ~x };
    MPI_Request request;
    MPI_Iallreduce(mine, all, 2, MPI_UINT64_T, MPI_BAND, harness, &request);
    patience_settle(&request);
    return all[0] == x && all[1] == ~x;
}

static void test_same_bits_everywhere(void **state)
{
    enum { N = 103 };
    (void)state;
    for (int a = 0; algorithms[a] != NULL; a++) {
        float x[N];
        struct error err;
        struct collective c = { .in = x, .out = x, .count = N, .dtype = F32 };
        if (algorithms[a]->operation != ALLREDUCE || !selected(algorithms[a])) continue;
        if (algorithm_refuses(algorithms[a], group.size, &c) != NULL) continue;
        for (int i = 0; i < N; i++) x[i] = (float)rounded_value(group.rank, i);
        const enum error_code code = collective_run(&group, ALLREDUCE, algorithms[a]->name, &c, &err);
        ASSERT_ALL(code == OK, "allreduce %s: %s", algorithms[a]->name, err.text);
        ASSERT_ALL(same_everywhere(hash_of(x, sizeof x)), "allreduce %s: the members hold different bits",
                   algorithms[a]->name);

        /* A sum of P terms in any order: |error| <= (P-1) u sum|x|, to first order in u; 1.01 covers the rest. */
        int bad = -1;
        double sum = 0, bound = 0;
        for (int i = 0; i < N && bad < 0; i++) {
            sum = bound = 0;
            for (int r = 0; r < group.size; r++) {
                sum += rounded_value(r, i);
                bound += fabs(rounded_value(r, i)) * 1.01 * (group.size - 1) * dtype_unit(F32);
            }
            if (!(fabs(x[i] - sum) <= bound)) bad = i;
        }
        ASSERT_ALL(bad < 0, "allreduce %s: x[%d] = %.9g, want %.9g within %.3g", algorithms[a]->name, bad,
                   x[bad < 0 ? 0 : bad], sum, bound);

        /* The larger of 0 and -0 is whichever is the left operand: members that disagree about the order show here. */
        c.reduction = MAX;
        for (int i = 0; i < N; i++) x[i] = (group.rank + i) % 3 == 0 ? 0.0f : -0.0f;
        const enum error_code again = collective_run(&group, ALLREDUCE, algorithms[a]->name, &c, &err);
        ASSERT_ALL(again == OK, "allreduce %s: %s", algorithms[a]->name, err.text);
        ASSERT_ALL(same_everywhere(hash_of(x, sizeof x)), "allreduce %s: the members hold different zeros",
                   algorithms[a]->name);
    }
}

/* ---- the order of additions: what struct algorithm says of it, held to what sums that round show ----------------- */

enum { ORDER_TRIALS = 8 };

/* A trial's number of a device, in the format; the same for every element, so that only the order
 * can make elements differ. */
static double order_value(enum dtype t, int rank, int trial)
{
    _Alignas(8) char number[8];
    put(t, number, 0, sin((double)(rank * 97 + trial * 1009 + 1) * 12.9898) * ((rank + trial) % 3 == 0 ? 50 : 1));
    return get(t, number, 0);
}

/* ((x0 + x1) + x2) + .. + x(last-1), rounded to the format after each addition. */
static double folded(enum dtype t, int last, int trial)
{
    _Alignas(8) char sum[8], next[8];
    struct exchange none = { .group = &group, .operation = CONTROL };
    put(t, sum, 0, order_value(t, 0, trial));
    for (int r = 1; r < last; r++) {
        put(t, next, 0, order_value(t, r, trial));
        reduce_local(&none, SUM, t, sum, next, 1);
    }
    return get(t, sum, 0);
}

struct order_seen { bool alike, by_rank; };

/* One call: whether all elements of all members have the same bits, and those of the fold in the order of ranks. */
static struct order_seen see_order(const struct algorithm *a, struct collective c, int trial, bool in_place)
{
    struct error err;
    const enum operation op = a->operation;
    const int64_t ni = in_length(op, &c, group.rank), no = out_length(op, &c, group.rank), n = ni > no ? ni : no;
    struct buffer in = buffer_make(dtype_size(c.dtype) * (size_t)n), out = buffer_make(dtype_size(c.dtype) * (size_t)n);
    const int64_t shift = in_place && has_blocks(op) ? first(&c, group.rank) : 0;
    c.in = in.data, c.out = in_place ? in.data + (size_t)shift * dtype_size(c.dtype) : out.data;
    for (int64_t i = 0; i < ni; i++) put(c.dtype, in.data, i, order_value(c.dtype, group.rank, trial));
    const enum error_code code = collective_run(&group, op, a->name, &c, &err);
    ASSERT_ALL(code == OK, "%s: %s", describe(a, &c, in_place), err.text);

    struct order_seen seen = { true, true };
    const double want = folded(c.dtype, op == SCAN ? group.rank + 1 : group.size, trial);
    double lowest = INFINITY, highest = -INFINITY;
    for (int64_t i = 0; i < no; i++) {
        const double x = get(c.dtype, c.out, i);
        lowest = x < lowest ? x : lowest, highest = x > highest ? x : highest;
        if (!(x == want)) seen.by_rank = false;
    }
    /* Of all members' elements: the lowest, the highest, and whether any is not the fold.
     * A scan's members have different sums. */
    double mine[3] = { -lowest, highest, !seen.by_rank }, all[3] = { 0 };
    MPI_Request request;
    MPI_Iallreduce(mine, all, 3, MPI_DOUBLE, MPI_MAX, harness, &request);
    patience_settle(&request);
    seen.by_rank = all[2] == 0;
    seen.alike = op == SCAN ? no == 0 || lowest == highest : -all[0] == all[1];
    free(in.memory), free(out.memory);
    return seen;
}

static void expect_order(const struct algorithm *a, struct collective c, bool in_place, struct order_seen *ever)
{
    c.nodes = group_nodes(&group);
    if (algorithm_refuses(a, group.size, &c) != NULL) return;
    for (int trial = 0; trial < ORDER_TRIALS; trial++) {
        const struct order_seen seen = see_order(a, c, trial, in_place);
        ASSERT_ALL(seen.alike || a->order == BY_POSITION,
                   "%s: elements with the same terms have different sums, but it says that it adds %s",
                   describe(a, &c, in_place), adding_order_name(a->order));
        ASSERT_ALL(seen.by_rank || a->order != BY_RANK,
                   "%s: a sum is not the fold in the order of ranks, but it says that it adds %s",
                   describe(a, &c, in_place), adding_order_name(a->order));
        ever->alike = ever->alike && seen.alike;
        ever->by_rank = ever->by_rank && seen.by_rank;
    }
}

/* An order that depends on the place, but not with so many devices:
 * a hypercube's sums are one tree for all its corners. */
static bool alike_here(const struct algorithm *a, int P)
{
    static const struct { enum operation op; const char *name; int P; } hypercube[] = {
        { ALLREDUCE, "swing", 7 }, { REDUCE_SCATTER, "circulant", 8 },
    };
    for (size_t i = 0; i < sizeof hypercube / sizeof *hypercube; i++)
        if (a->operation == hypercube[i].op && P == hypercube[i].P && strcmp(a->name, hypercube[i].name) == 0)
            return true;
    return false;
}

/* What says that all elements have one order has, in every format, at uneven counts and in place.  The other way round,
 * 7 and 8 devices are enough: what says that the order depends on the place, or is not that of
 * ranks, shows it there. */
static void test_order_of_additions(void **state)
{
    static const enum dtype formats[] = { F32, F64, BF16, F16 };
    (void)state;
    const int P = group.size;
    int64_t uneven[MAX_P];
    struct complaint bad_here = { "" }, *bad = &bad_here;
    for (int b = 0; b < P; b++) uneven[b] = (b * 5 + 1) % 4;
    for (int i = 0; algorithms[i] != NULL; i++) {
        const struct algorithm *a = algorithms[i];
        const struct collective one = { .count = 1 };
        struct order_seen ever = { true, true };
        if (reduces(a->operation) != (a->order != ADDS_NOTHING))
            COMPLAIN("%s %s: adds %s", operation_name(a->operation), a->name, adding_order_name(a->order));
        if (!reduces(a->operation) || !selected(a) || algorithm_refuses(a, P, &one) != NULL) continue;
        for (int k = 0; k < 8; k++) {
            struct collective c = { .count = 2 * P + 3,
                                    .dtype = formats[k / 2],
                                    .root = a->operation == REDUCE ? P - 1 : 0 };
            expect_order(a, c, k % 2, &ever);
            c.counts = uneven;
            if (a->operation == REDUCE_SCATTER) expect_order(a, c, k % 2, &ever);
        }
        if ((P == 7 || P == 8) && a->order == BY_POSITION && ever.alike != alike_here(a, P))
            COMPLAIN("%s %s: P=%d, all elements are%s alike, and it says that it adds %s", operation_name(a->operation),
                     a->name, P, ever.alike ? "" : " not", adding_order_name(a->order));
        if (P == 8 && a->order == BY_TREE && ever.by_rank)
            COMPLAIN("%s %s: P=%d, all sums are folds in the order of ranks, and it says that it adds %s",
                     operation_name(a->operation), a->name, P, adding_order_name(a->order));
    }
    ASSERT_ALL(bad->text[0] == '\0', "%s", bad->text);
}

/* ---- the optima that the literature proves, for the algorithms said to reach them -------------------------------- */

static int rounds_at_least(int P)
{
    int bits = 0;
    while (1 << bits < P) bits++;
    return bits;
}

static void test_optima(void **state)
{
    enum { EACH = 12 };
    static const struct {
        enum operation op;
        const char *name;
        bool fewest_bytes, fewest_steps, powers_only;
    } best[] = {
        { ALLREDUCE, "ring", true, false, false },
        { ALLREDUCE, "bidirectional_ring", true, false, true },
        { ALLREDUCE, "two_shot", true, false, false },
        { ALLREDUCE, "torus_2d", true, false, false },
        { ALLREDUCE, "rabenseifner", true, false, true },
        { ALLREDUCE, "swing", true, false, true },
        { ALLREDUCE, "doubling", false, true, true },
        { REDUCE_SCATTER, "ring", true, false, false },
        { REDUCE_SCATTER, "halving", true, true, true },
        { REDUCE_SCATTER, "pat", true, true, false },
        { REDUCE_SCATTER, "circulant", true, true, false },
        { REDUCE_SCATTER, "two_level", true, false, false },
        { ALLGATHER, "ring", true, false, false },
        { ALLGATHER, "doubling", true, true, true },
        { ALLGATHER, "bruck", true, true, false },
        { ALLGATHER, "circulant", true, true, false },
        { ALLGATHER, "pat", true, true, false },
        { ALLGATHER, "sparbit", true, false, false },
        { ALLTOALL, "pairwise_shift", true, false, false },
        { ALLTOALL, "bruck", false, true, false },
        { BROADCAST, "circulant", false, true, false },
        { BROADCAST, "binomial", false, true, false },
        { REDUCE, "binomial", false, true, false },
        { GATHER, "binomial", false, true, false },
        { SCATTER, "binomial", false, true, false },
        { BARRIER, "dissemination", false, true, false },
        { SCAN, "doubling", false, true, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof best / sizeof best[0]; i++)
        for (int P = 2; P <= 16; P++) {
            if (best[i].powers_only && (P & (P - 1)) != 0) continue;
            const struct algorithm *a = algorithm_find(best[i].op, best[i].name);
            assert_non_null(a);
            const struct collective c = { .count = best[i].op == ALLTOALL ? EACH : EACH * 2 * P, .dtype = F32 };
            const uint64_t once = 4 * (uint64_t)(best[i].op == ALLTOALL ? EACH : EACH * 2) * (uint64_t)(P - 1);
            for (int r = 0; r < P; r++) {
                const struct collective_cost cost = collective_cost(a, r, P, &c);
                if (best[i].fewest_bytes) assert_int_equal(cost.bytes, best[i].op == ALLREDUCE ? 2 * once : once);
                if (best[i].fewest_steps) assert_int_equal(cost.steps, rounds_at_least(P));
            }
        }
}

/* S segments reach P devices in no less than S-1 + ceil(log2 P) rounds, and each device receives every byte once. */
static void test_circulant_broadcast_is_optimal(void **state)
{
    enum { SEGMENT = 8192 };                                    /* floats */
    const struct algorithm *a = algorithm_find(BROADCAST, "circulant");
    (void)state;
    for (int P = 2; P <= 40; P++)
        for (int S = 1; S <= 21; S += 4) {
            const struct collective c = { .count = (int64_t)S * SEGMENT, .dtype = F32, .root = P / 3 };
            uint64_t bytes = 0;
            for (int r = 0; r < P; r++) {
                const struct collective_cost cost = collective_cost(a, r, P, &c);
                assert_int_equal(cost.steps, S - 1 + rounds_at_least(P));
                assert_true(cost.messages <= cost.steps);
                bytes += cost.bytes;
            }
            assert_int_equal(bytes, 4 * (uint64_t)c.count * (uint64_t)(P - 1));
        }
}

/* ---- counts whose bytes no int holds ----------------------------------------------------------------------------- */

/* Where everything divides, K times the elements are K times the bytes and additions;
 * terabytes cost nothing in arithmetic. */
static void test_costs_of_large_counts(void **state)
{
    (void)state;
    for (int i = 0; algorithms[i] != NULL; i++)
        for (int P = 2; P <= 16; P++) {
            const struct algorithm *a = algorithms[i];
            const struct cluster m = nodes_of(2);
            const int64_t few = 2 * 720720, K = 1 << 12;    /* all of 1 .. 16 divide half of it */
            struct collective small = { .count = few, .dtype = F64, .nodes = nodes_on(&m, NULL, P) }, large = small;
            large.count = few * K;
            if (a->operation == BARRIER || algorithm_refuses(a, P, &small) != NULL) continue;
            /* other segments go other ways */
            if (a->operation == BROADCAST && strcmp(a->name, "circulant") == 0) continue;
            for (int r = 0; r < P; r++) {
                const struct collective_cost one = collective_cost(a, r, P, &small),
                                             many = collective_cost(a, r, P, &large);
                /* no segments */
                if (strstr(a->cost_formula, "S") == NULL) assert_int_equal(many.messages, one.messages);
                if (many.bytes != K * one.bytes || many.additions != K * one.additions)
                    print_error("%s %s, P=%d, member %d\n", operation_name(a->operation), a->name, P, r);
                assert_int_equal(many.bytes, (uint64_t)K * one.bytes);
                assert_int_equal(many.additions, (uint64_t)K * one.additions);
            }
        }
}

/* So many bytes of address space on one and the same piece of a file. */
static unsigned char *repeated_mapping(FILE *piece, size_t piece_bytes, size_t bytes)
{
    unsigned char *all = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fileno(piece), 0);
    for (size_t at = 0; all != MAP_FAILED && at < bytes; at += piece_bytes)
        if (mmap(all + at, bytes - at < piece_bytes ? bytes - at : piece_bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fileno(piece), 0) == MAP_FAILED)
            return NULL;
    return all == MAP_FAILED ? NULL : all;
}

/* More than 2^31 bytes in one message, really sent: from and to memory in which one piece lies behind every part. */
static void test_a_message_beyond_int(void **state)
{
    const size_t piece = 1 << 24, bytes = ((size_t)1 << 31) + piece + 4096;
    struct error err = { .code = OK, .text = "" };
    FILE *file = tmpfile();
    (void)state;
    if (group.size != 2) skip();
    const bool room = file != NULL && ftruncate(fileno(file), (off_t)piece) == 0;
    unsigned char *x = room ? repeated_mapping(file, piece, bytes) : NULL;
    ASSERT_ALL(x != NULL, "%zu bytes cannot be mapped", bytes);
    for (size_t i = 0; i < piece; i++) x[i] = group.rank == 1 ? (unsigned char)(i * 7 + (i >> 8)) : 0;
    const struct collective c = { .in = x, .out = x, .count = (int64_t)bytes, .dtype = U8, .root = 1 };
    const uint64_t before = comm.counted.of[TRAFFIC_OTHER].of[BROADCAST].bytes_sent;
    const enum error_code code = collective_run(&group, BROADCAST, "binomial", &c, &err);
    size_t wrong = 0;
    for (size_t i = 0; i < piece; i++) wrong += x[i] != (unsigned char)(i * 7 + (i >> 8));
    ASSERT_ALL(code == OK && wrong == 0, "%zu bytes: %s; %zu of them differ", bytes, err.text, wrong);
    ASSERT_ALL(comm.counted.of[TRAFFIC_OTHER].of[BROADCAST].bytes_sent - before == (group.rank == 1 ? bytes : 0),
               "counted %llu bytes",
               (unsigned long long)(comm.counted.of[TRAFFIC_OTHER].of[BROADCAST].bytes_sent - before));
    munmap(x, bytes);
    fclose(file);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static void expect_refusal(enum operation op, const char *name, struct collective c, const char *text)
{
    struct error err = { .code = OK, .text = "" };
    const enum error_code code = collective_run(&group, op, name, &c, &err);
    ASSERT_ALL(code == ERR_USAGE && strstr(err.text, text) != NULL, "%s: got code %d, \"%s\"; want \"%s\"",
               operation_name(op), (int)code, err.text, text);
}

static void test_wrong_arguments(void **state)
{
    float x[4] = { 7, 7, 7, 7 };
    const struct collective good = { .in = x, .out = x, .count = 4, .dtype = F32 };
    struct collective c;
    (void)state;
    expect_refusal(ALLREDUCE, "no-such", good, "allreduce no-such: must be one of auto, two_shot");
    c = good; c.count = -1;             expect_refusal(ALLREDUCE, NULL, c, "count -1 is negative");
    c = good; c.dtype = DTYPE_COUNT;    expect_refusal(ALLREDUCE, NULL, c, "dtype 7 does not exist");
    c = good; c.reduction = 99;         expect_refusal(ALLREDUCE, NULL, c, "reduction 99 does not exist");
    if (group.size > 1)
        expect_refusal(ALLREDUCE, "two_level", good,
                       "allreduce two_level needs a group on several nodes of the cluster; this group has P=");
    if (group.size == 5) {
        const struct cluster m = nodes_of(2);
        clock_restart(&device.clock, &m, F32);
        expect_refusal(ALLREDUCE, "torus_2d", good,
                       "allreduce torus_2d needs as many members on every node of the cluster; this group has P=5");
    }
    c = good; c.root = group.size;      expect_refusal(BROADCAST, NULL, c, "is not in a group of");
    ASSERT_ALL(x[0] == 7 && x[3] == 7, "a refused call changed data");
}

/* Where calls are checked, what one member alone does wrong is everybody's error: here what the first does. */
static void test_wrong_buffers(void **state)
{
    int64_t counts[MAX_P], others[MAX_P];
    const int P = group.size, r = group.rank;
    float *x = malloc(sizeof *x * (size_t)(8 * P)), *y = malloc(sizeof *y * (size_t)(8 * P));
    (void)state;
    assert_true(x != NULL && y != NULL);
    for (int i = 0; i < 8 * P; i++) x[i] = y[i] = 7;
    for (int b = 0; b < P; b++) counts[b] = others[b] = 2;
    const struct collective good = { .in = x, .out = y, .count = 2 * P, .dtype = F32 };
    struct collective c;
    comm.checks_calls = true;
    c = good; c.in = r == 0 ? NULL : x;         expect_refusal(ALLREDUCE, NULL, c, "in is NULL for ");
    c = good;
    c.out = r == 0 ? x + 1 : y;
    expect_refusal(ALLREDUCE, NULL, c, "allreduce: in and out overlap on device ");
    expect_refusal(BROADCAST, NULL, c, "in place is in == out");
    expect_refusal(REDUCE_SCATTER, NULL, c, "in place is out as block 0 of in");
    expect_refusal(SCATTER, NULL, c, "in place is out as block 0 of in");
    expect_refusal(SCAN, NULL, c, "scan: in and out overlap on device ");
    c.count = 2;
    expect_refusal(ALLTOALL, NULL, c, "alltoall: in and out overlap on device ");
    c = good; c.in = r == 0 ? y + 1 : x;        expect_refusal(ALLGATHER, NULL, c, "in place is in as block 0 of out");
                                                expect_refusal(GATHER, NULL, c, "in place is in as block 0 of out");
    c = good; c.counts = counts, c.recvcounts = others;
    others[0] = r == 0 ? 3 : 2;
    expect_refusal(ALLTOALL, NULL, c, "alltoall: counts[0] = 2, but recvcounts[0] = 3 on device ");
    others[0] = r == 0 ? -1 : 2;                expect_refusal(ALLTOALL, NULL, c, "recvcounts[0] = -1 is negative");
    others[0] = 2, others[P - 1] = r == 0 ? 1 : 2;
    c.in = r == 0 ? y : x;                      expect_refusal(ALLTOALL, NULL, c, "alltoall in place: counts[");
    for (int i = 0; i < 8 * P; i++) ASSERT_ALL(x[i] == 7 && y[i] == 7, "a refused call changed element %d", i);
    free(x), free(y);
}

/* ---- calls that differ between members, where the job checks them ------------------------------------------------ */

static void expect_difference(enum operation op, const char *name, struct collective c, const char *text)
{
    struct error err = { .code = OK, .text = "" };
    const enum error_code code = collective_run(&group, op, name, &c, &err);
    ASSERT_ALL(code == ERR_USAGE && strstr(err.text, text) != NULL, "got code %d, \"%s\"; want \"%s\"", (int)code,
               err.text, text);
}

static void test_calls_that_differ(void **state)
{
    float x[300] = { 7 };
    int64_t counts[MAX_P] = { 0 };
    const struct collective good = { .in = x, .out = x, .count = 4, .dtype = F32 };
    const bool last = group.rank == group.size - 1;                 /* which is device 0 */
    struct collective c;
    char text[200];
    (void)state;
    if (group.size == 1) skip();
    comm.checks_calls = true;
    snprintf(text, sizeof text, "allreduce over all devices: count is 4 on device %d, but 5 on device 0",
             group.size - 1);
    c = good; c.count += last;                          expect_difference(ALLREDUCE, "ring", c, text);
    c = good; c.dtype = last ? F64 : F32;               expect_difference(ALLREDUCE, NULL, c, "but fp64 on device 0");
    c = good; c.reduction = last ? MAX : SUM;           expect_difference(ALLREDUCE, "auto", c, "reduction is sum");
    c = good; c.root = last;                            expect_difference(BROADCAST, NULL, c, "root is 0");
    c = good;
    c.counts = counts;
    counts[0] = last;
    expect_difference(REDUCE_SCATTER, NULL, c, "the sum of counts is 0");
    c = good;
    expect_difference(ALLREDUCE, last ? "doubling" : "ring", c, "but doubling on device 0");
    c = good;
    expect_difference(last ? REDUCE : ALLREDUCE, NULL, c, "but reduce on device 0");
    ASSERT_ALL(x[0] == 7, "a refused call changed data");
    struct error err;
    const enum error_code code = collective_run(&group, ALLREDUCE, NULL, &good, &err);
    ASSERT_ALL(code == OK && x[0] == 7 * (float)group.size, "after all that, a right call gives %g", x[0]);
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

static void group_open(void)
{
    int reversed[MAX_P];
    struct error err;
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    for (int i = 0; i < comm.size; i++) reversed[i] = comm.size - 1 - i;
    assert_int_equal(group_of(&group, &comm, reversed, comm.size, TRAFFIC_OTHER, 0, &err), OK);
}

static void group_shut(void)
{
    group_close(&group);
    comm_close(&comm);
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

static int open_devices(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    device.arena.poison = true;
    clock_open(&device.clock, &one_port, F32);
    group_open();
    return harness_before(state);
}

static int close_devices(void **state)
{
    (void)state;
    group_shut();
    device_close(&device);
    return 0;
}

#define ON_DEVICES(f) cmocka_unit_test_setup_teardown(f, open_devices, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_every_algorithm), ON_DEVICES(test_algorithms_by_nodes), ON_DEVICES(test_same_bits_everywhere),
            ON_DEVICES(test_order_of_additions),
        ON_DEVICES(test_levels_of_every_algorithm),
        ON_DEVICES(test_optima),
        ON_DEVICES(test_circulant_broadcast_is_optimal), ON_DEVICES(test_costs_of_large_counts),
            ON_DEVICES(test_a_message_beyond_int),
        ON_DEVICES(test_wrong_arguments), ON_DEVICES(test_wrong_buffers), ON_DEVICES(test_calls_that_differ),
        ON_DEVICES(test_timing_does_not_matter),
    };
    return MPI_RUN("collectives", tests);
}
