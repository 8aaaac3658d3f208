/* Collectives on codes: bits as a serial program makes them, errors against their proven bounds, messages and bytes.
 * ranks: 2 3 4 8
 *
 * Sums of fp16 rows in two steps have the bits of DeepSpeed's kernels (golden/make_quantised.py).  Inputs depend only
 * on member and place, so that each member can compute all by itself, with block_quantise and loops.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/quantised.h"
#include "ref/numeric/distance.h"
#include "emulated_devices/device/compute.h"
#include "ref/io/safetensors.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <math.h>

#define NODES_OF(n) { .name = "nodes of " #n, .levels = 2, \
    .flop_rate = { [F32] = 1000000 }, \
    .link = { { .level = "node", .devices = n, .latency = 1000, .rate = 50000, .eager = ALWAYS_EAGER }, \
              { .level = "cluster", .latency = 10000, .rate = 5000, .eager = ALWAYS_EAGER } } }
static const struct cluster machines[] = { NODES_OF(8), NODES_OF(2), NODES_OF(4) };
enum { ONE_NODE, PAIRS, FOURS, MACHINES };

static struct device device;
static struct comm comm;
static struct error err;

static void open_world(const struct cluster *m)
{
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    clock_open(&device.clock, m, F32);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
}

static void close_world(void)
{
    ASSERT_ALL(device.arena.now.total == 0, "%llu bytes are left in the arena",
               (unsigned long long)device.arena.now.total);
    comm_close(&comm);
    device_close(&device);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* RANDOM of both signs; ONE_SIGN; TIES, halfway between codes and of one sign, so that every error is half a scale and
 * none cancels; LONE, a large element in each block of small ones;
 * SCALES, a member's numbers 10^4 times those of the one before. */
enum input { RANDOM, ONE_SIGN, TIES, LONE, SCALES, INPUTS };
static const char *const input_name[] = { "random", "of one sign", "ties", "a lone large one", "of all scales" };

static double input(enum input how, int member, int64_t i, struct block_format f)
{
    const double u = random_uniform(7, (uint64_t)member, (uint64_t)i);
    const int Q = f.bits == 8 ? 127 : 7;
    switch (how) {
    case RANDOM: return 2 * u - 1;
    case ONE_SIGN: return 1 + u;
    /* scale 1: 0.5, 0.5, 2.5, 2.5: all go down */
    case TIES: return i % f.block == 0 ? -Q - 1 : (double)(i % (Q - 1)) - (i % (Q - 1)) % 2 + 0.5;
    case LONE: return i % f.block == 1 ? 1000 : u - 0.5;
    default: return (2 * u - 1) * pow(10, 4 * member % 16);
    }
}

static struct tensor row_of(enum input how, int member, int64_t n, enum dtype t, struct block_format f)
{
    struct tensor x = tensor_1d(malloc((size_t)n * dtype_size(t) + 1), t, n);
    assert_non_null(x.data);
    for (int64_t i = 0; i < n; i++) tensor_set(x, i, input(how, member, i, f));
    return x;
}

/* By how much a value may be off: half a scale, a whole one for the largest code, and rounding;
 * nothing in a block of zeros. */
static double allowed(const float *y, int64_t n, int64_t i, float scale, struct block_format f)
{
    const int64_t first = i / f.block * f.block, end = first + f.block < n ? first + f.block : n;
    bool zeros = scale == 1;
    for (int64_t j = first; j < end; j++) zeros = zeros && y[j] == 0;
    const bool largest = y[i] == (float)(f.bits == 8 ? 127 : 7) * scale;
    return zeros ? 0 : (double)scale * ((largest ? 1 : 0.5) + ldexp(1, f.bits - 22));
}

/* Quantise a vector and take it back; bound[i], if wanted, is how far element i may be off. */
static struct tensor there_and_back(struct tensor x, struct block_format f, enum dtype to, double *bound)
{
    const int64_t n = tensor_count(x);
    void *code = malloc((size_t)block_quantised_bytes(f, n) + 1);
    struct tensor y = tensor_1d(malloc((size_t)n * dtype_size(to) + 1), to, n);
    assert_true(code && y.data);
    block_quantise(code, x, f);
    block_dequantise(y, code, f);
    float *wide = malloc(((size_t)n + 1) * sizeof *wide);
    assert_non_null(wide);
    block_dequantise(tensor_1d(wide, F32, n), code, f);
    for (int64_t i = 0; i < n && bound; i++) bound[i] = allowed(wide, n, i, ((const float *)code)[i / f.block], f);
    free(code), free(wide);
    return y;
}

static bool same_bits(struct tensor a, struct tensor b) { return memcmp(a.data, b.data, tensor_bytes(b)) == 0; }

static const struct block_format formats[] = { { 8, 64 }, { 4, 64 }, { 8, 3 }, { 4, 7 }, { 4, 1 } };
enum { FORMATS = sizeof formats / sizeof *formats };
static const enum dtype dtypes[] = { F32, F64, BF16, F16 };

/* What was sent since `before`, in all operations but CONTROL. */
static struct collective_cost counted(void)
{
    const struct traffic t = ledger_kind(&comm.counted, TRAFFIC_OTHER);
    return (struct collective_cost){ .messages = t.messages_sent, .bytes = t.bytes_sent, .additions = t.additions };
}

static void expect_cost(const char *what, struct collective_cost before, struct account cost)
{
    const struct traffic want = account_total(&cost);
    const struct collective_cost now = counted();
    const uint64_t did[] = { now.messages - before.messages, now.bytes - before.bytes,
                             now.additions - before.additions };
    ASSERT_ALL(did[0] == want.messages_sent && did[1] == want.bytes_sent && did[2] == want.additions,
               "%s: counted %llu messages, %llu bytes, %llu additions; cost says %llu, %llu, %llu", what,
               (unsigned long long)did[0], (unsigned long long)did[1], (unsigned long long)did[2],
               (unsigned long long)want.messages_sent, (unsigned long long)want.bytes_sent,
               (unsigned long long)want.additions);
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */

static void gather_once(struct group *g, const char *algorithm, int64_t n, enum dtype t, struct block_format f)
{
    char what[128];
    snprintf(what, sizeof what, "all-gather, %lld elements of %s in int%d blocks of %lld, %s", (long long)n,
             dtype_name(t), f.bits, (long long)f.block, algorithm ? algorithm : "default");
    struct tensor all = tensor_1d(malloc((size_t)(g->size * n) * dtype_size(t) + 1), t, g->size * n),
                  own = quantised_block(all, n, g->rank);
    memset(all.data, 0xff, tensor_bytes(all));
    struct tensor x = row_of(RANDOM, g->rank, n, t, f);
    memcpy(own.data, x.data, tensor_bytes(x));
    free(x.data);
    const struct collective_cost before = counted();
    ASSERT_ALL(quantised_allgather(g, algorithm, own, all, f, &err) == OK, "%s: %s", what, err.text);
    expect_cost(what, before, quantised_allgather_cost(g, algorithm, n, f));
    int wrong = -1;
    bool raw = false;
    for (int m = g->size - 1; m >= 0; m--) {
        struct tensor theirs = row_of(RANDOM, m, n, t, f), want = there_and_back(theirs, f, t, NULL);
        if (!same_bits(quantised_block(all, n, m), want))
            wrong = m, raw = same_bits(quantised_block(all, n, m), theirs);
        free(theirs.data), free(want.data);
    }
    ASSERT_ALL(wrong < 0, "%s: member %d's piece is not what its codes stand for%s", what, wrong,
               raw ? ": it was not quantised" : "");
    free(all.data);
}

/* Every member has what the codes stand for, of its own piece too: all have the same bits. */
static void test_gathered_weights_are_their_codes(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 0, 1, 2, 63, 64, 65, 1031 };
    open_world(&machines[ONE_NODE]);
    struct group g;
    ASSERT_ALL(group_world(&g, &comm, &err) == OK, "%s", err.text);
    for (int k = 0; k < FORMATS; k++)
        for (int l = 0; l < 7; l++)
            gather_once(&g, (k + l) % 2 ? "direct" : NULL, lengths[l], dtypes[(k + l) % 4], formats[k]);
    group_close(&g);
    close_world();
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */

/* What member `owner` must have: value and bound of each element, the sum without quantising, and that of all sizes. */
struct expected { struct tensor value; double *exact, *bound, *size; };

/* x_m into a sum in the format of sums. */
static void add_quantised(struct tensor sum, bool first, struct tensor x, struct block_format f, double *bound,
                          enum dtype wide)
{
    const int64_t n = tensor_count(x);
    double *off = malloc(((size_t)n + 1) * sizeof *off);
    struct tensor y = there_and_back(x, f, wide, off);
    for (int64_t i = 0; i < n; i++) {
        /* two fp32 add exactly enough in double to be rounded once */
        tensor_set(sum, i, (first ? 0 : tensor_get(sum, i)) + tensor_get(y, i));
        bound[i] += off[i];
    }
    free(off), free(y.data);
}

/* q members a node: those of a node first, in order; then the nodes.  One node of all: q = P. */
static struct expected expect(enum input how, int P, int q, int owner, int64_t n, enum dtype t, struct block_format f)
{
    const enum dtype wide = quantised_sum_format(t);
    double *const room = calloc(3 * (size_t)n + 1, sizeof *room);
    struct expected e = { tensor_1d(calloc((size_t)n + 1, 8), wide, n), room, room + n, room + 2 * n };
    struct tensor node = tensor_1d(calloc((size_t)n + 1, 8), wide, n);
    assert_true(e.value.data && room && node.data);
    for (int first = 0; first < P; first += q) {
        for (int m = first; m < first + q; m++) {
            struct tensor x = row_of(how, m, P * n, t, f), part = quantised_block(x, n, owner);
            add_quantised(q == P ? e.value : node, m == first, part, f, e.bound, wide);
            for (int64_t i = 0; i < n; i++) e.exact[i] += tensor_get(part, i), e.size[i] += fabs(tensor_get(part, i));
            free(x.data);
        }
        if (q < P) add_quantised(e.value, first == 0, node, f, e.bound, wide);
    }
    free(node.data);
    return e;
}

static void expect_free(struct expected *e) { free(e->value.data), free(e->exact); }

/* What rounding may add to it: some 2^-24 of all sizes for each of P + 1 roundings, twice;
 * and 2^-8 where the result has 16 bits. */
static double slack(enum dtype t, double size) { return (dtype_size(t) == 2 ? 0x1p-6 : 0x1p-18) * size; }

static void reduce_once(struct group *g, int q, enum input how, int64_t n, enum dtype t, struct block_format f)
{
    char what[160];
    const int P = g->size, r = g->rank;
    struct quantised_group two;
    snprintf(what, sizeof what, "reduce-scatter in nodes of %d, %s, %lld elements of %s in int%d blocks of %lld", q,
             input_name[how], (long long)n, dtype_name(t), f.bits, (long long)f.block);
    ASSERT_ALL(quantised_group_open(&two, g, &err) == OK && two.two_steps == (q < P), "%s: %d steps", what,
               1 + two.two_steps);
    struct tensor row = row_of(how, r, P * n, t, f), untouched = row_of(how, r, P * n, t, f),
                  own = quantised_block(row, n, r);
    struct tracking track;
    assert_int_equal(tracking_open(&track, P * n, &err), OK);
    tracking_start(&device, track, row);
    const struct collective_cost before = counted();
    ASSERT_ALL(quantised_reduce_scatter(&two, row, f, track, &err) == OK, "%s: %s", what, err.text);
    expect_cost(what, before, quantised_reduce_scatter_cost(&two, n, f));

    struct expected want = expect(how, P, q, r, n, t, f);
    struct tensor stored = tensor_1d(malloc((size_t)n * dtype_size(t) + 1), t, n);
    tensor_convert(stored, want.value);
    int64_t bad = -1, loose = -1, far = -1;
    for (int64_t i = n - 1; i >= 0; i--) {
        const double got = tensor_get(own, i), sum = want.exact[i], b = track.bound[r * n + i],
                     size = want.size[i] + want.bound[i];
        if (!(memcmp(quantised_block(own, 1, i).data, quantised_block(stored, 1, i).data, dtype_size(t)) == 0)) bad = i;
        if (!(fabs(got - sum) <= b)) far = i;
        if (!(b >= want.bound[i] && b <= want.bound[i] + slack(t, size) + (t == F16 ? 1e-6 : 0)) ||
            !(fabs(track.exact[r * n + i] - sum) <= 1e-12 * size))
            loose = i;
    }
    /* what a message shows is evaluated without one, too */
    const int64_t x = bad < 0 ? 0 : bad, y = loose < 0 ? 0 : loose, z = far < 0 ? 0 : far;
    ASSERT_ALL(bad < 0, "%s: element %lld is %.9g; the serial sum of what its codes stand for is %.9g", what,
               (long long)x, tensor_get(own, x), tensor_get(stored, x));
    ASSERT_ALL(loose < 0, "%s: element %lld is tracked as %.9g within %.9g; it is %.9g, and the rules say %.9g", what,
               (long long)y, track.exact[r * n + y], track.bound[r * n + y], want.exact[y], want.bound[y]);
    ASSERT_ALL(far < 0, "%s: element %lld is %.9g, the exact sum %.9g; the bound is %.9g", what, (long long)z,
               tensor_get(own, z), want.exact[z], track.bound[r * n + z]);
    memcpy(own.data, quantised_block(untouched, n, r).data, tensor_bytes(own));
    ASSERT_ALL(same_bits(row, untouched), "%s: blocks of others have changed", what);
    expect_free(&want);
    tracking_close(&track);
    free(row.data), free(untouched.data), free(stored.data);
    quantised_group_close(&two);
}

/* Members in one node, or in q of a node: two steps where there are several nodes of as many. */
static void test_sums_are_those_of_the_codes(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 64, 129 };
    static const int per_node[MACHINES] = { 8, 2, 4 };
    for (int m = 0; m < MACHINES; m++) {
        /* 3 devices on pairs: 2 and 1, one step */
        const int q = test_size > per_node[m] && test_size % per_node[m] == 0 ? per_node[m] : test_size;
        struct group g;
        open_world(&machines[m]);
        ASSERT_ALL(group_world(&g, &comm, &err) == OK, "%s", err.text);
        for (int k = 0; k < FORMATS; k++)
            for (int how = 0; how < INPUTS; how++)
                reduce_once(&g, q, (enum input)how, lengths[(k + how + m) % 3],
                            how == SCALES ? F32 : dtypes[(k + how + 2 * m) % 4], formats[k]);
        group_close(&g);
        close_world();
    }
}

static void test_nothing_to_reduce(void **state)
{
    (void)state;
    struct group g;
    struct quantised_group q;
    open_world(&machines[PAIRS]);
    ASSERT_ALL(group_world(&g, &comm, &err) == OK && quantised_group_open(&q, &g, &err) == OK, "%s", err.text);
    const struct collective_cost before = counted();
    ASSERT_ALL(quantised_reduce_scatter(&q, tensor_1d(NULL, F32, 0), formats[0], (struct tracking){ 0 }, &err) == OK,
               "%s", err.text);
    expect_cost("reduce-scatter of nothing", before, quantised_reduce_scatter_cost(&q, 0, formats[0]));
    quantised_group_close(&q);
    group_close(&g);
    close_world();
}

/* What is not finite stays so in its block, and only there: an overflow is found on the other side. */
static void test_nan_goes_through(void **state)
{
    (void)state;
    enum { N = 8, BLOCK = 4 };
    struct group g;
    struct quantised_group q;
    open_world(&machines[PAIRS]);
    ASSERT_ALL(group_world(&g, &comm, &err) == OK && quantised_group_open(&q, &g, &err) == OK, "%s", err.text);
    const struct block_format f = { 4, BLOCK };
    struct tensor row = row_of(RANDOM, g.rank, g.size * N, F32, f), own = quantised_block(row, N, g.rank);
    if (g.rank == g.size - 1) tensor_set(row, 1, INFINITY);             /* in member 0's first block */
    ASSERT_ALL(quantised_reduce_scatter(&q, row, f, (struct tracking){ 0 }, &err) == OK, "%s", err.text);
    int wrong = -1;
    for (int i = 0; i < N; i++)
        if (isnan(tensor_get(own, i)) != (g.rank == 0 && i < BLOCK)) wrong = i;
    ASSERT_ALL(wrong < 0, "element %d is %g", wrong, tensor_get(own, wrong < 0 ? 0 : wrong));
    free(row.data);
    quantised_group_close(&q);
    group_close(&g);
    close_world();
}

/* ---- DeepSpeed's sums -------------------------------------------------------------------------------------------- */

static struct tensor stored(const struct safetensors *file, const char *name)
{
    const struct safetensors_entry *e = safetensors_find(file, name);
    assert_non_null(e);
    struct tensor x = tensor_1d(malloc((size_t)e->dim[0] * dtype_size(F16)), F16, e->dim[0]);
    assert_non_null(x.data);
    assert_int_equal(safetensors_read(file, e, F16, x.data, &err), OK);
    return x;
}

static void expect_deepspeeds_sum(struct quantised_group *q, const struct safetensors *file, int bits)
{
    char in[32], out[32];
    const struct block_format f = { bits, 16 };
    const int rank = q->whole->rank;
    snprintf(in, sizeof in, "in/%d", rank), snprintf(out, sizeof out, "int%d.out/%d", bits, rank);
    struct tensor row = stored(file, in), want = stored(file, out),
                  own = quantised_block(row, tensor_count(want), rank);
    ASSERT_ALL(quantised_reduce_scatter(q, row, f, (struct tracking){ 0 }, &err) == OK, "%s", err.text);
    int64_t wrong = -1;
    for (int64_t i = tensor_count(want) - 1; i >= 0; i--)
        if (tensor_get(own, i) != tensor_get(want, i)) wrong = i;
    const int64_t x = wrong < 0 ? 0 : wrong;
    ASSERT_ALL(wrong < 0, "int%d: element %lld is %.9g, DeepSpeed's is %.9g", bits, (long long)x, tensor_get(own, x),
               tensor_get(want, x));
    free(row.data), free(want.data);
}

/* Two nodes of two devices, fp16. */
static void test_sums_are_deepspeeds(void **state)
{
    (void)state;
    struct group g;
    struct quantised_group q;
    struct safetensors file;
    if (test_size != 4) return;
    open_world(&machines[PAIRS]);
    ASSERT_ALL(safetensors_open(&file, "golden/quantised.safetensors", &err) == OK, "%s", err.text);
    ASSERT_ALL(group_world(&g, &comm, &err) == OK && quantised_group_open(&q, &g, &err) == OK && q.two_steps, "%s",
               err.text);
    for (int bits = 4; bits <= 8; bits += 4) expect_deepspeeds_sum(&q, &file, bits);
    quantised_group_close(&q);
    group_close(&g);
    safetensors_close(&file);
    close_world();
}

/* ---- once against at every hop ----------------------------------------------------------------------------------- */

struct losses { double squares, most, over_bound; };

static struct losses lose(struct group *g, bool ring, enum input how, struct block_format f)
{
    enum { N = 4096 };
    struct quantised_group all = { .whole = g };
    struct losses out = { 0 };
    struct tracking track;
    struct tensor row = row_of(how, g->rank, (int64_t)g->size * N, F32, f);
    ASSERT_ALL(tracking_open(&track, tensor_count(row), &err) == OK, "%s", err.text);
    tracking_start(&device, track, row);
    const struct collective_cost before = counted();
    ASSERT_ALL((ring ? quantised_ring_reduce_scatter(g, row, f, track, &err)
                     : quantised_reduce_scatter(&all, row, f, track, &err)) == OK,
               "%s", err.text);
    expect_cost(ring ? "ring" : "all to all", before,
                ring ? quantised_ring_reduce_scatter_cost(g, N, f) : quantised_reduce_scatter_cost(&all, N, f));
    for (int64_t i = g->rank * N; i < (g->rank + 1) * N; i++) {
        const double off = fabs(tensor_get(row, i) - track.exact[i]);
        out.squares += off * off;
        out.most = fmax(out.most, off);
        if (exceeds(off / track.bound[i], out.over_bound)) out.over_bound = off / track.bound[i];
    }
    tracking_close(&track);
    free(row.data);
    return out;
}

/* The same numbers, as many messages and bytes; with 3 devices and more quantising once loses less,
 * and the ring ever more. */
static void test_quantising_once_loses_less(void **state)
{
    (void)state;
    struct group g;
    open_world(&machines[ONE_NODE]);
    ASSERT_ALL(group_world(&g, &comm, &err) == OK, "%s", err.text);
    for (int how = RANDOM; how <= ONE_SIGN; how++)
        for (int k = 0; k < 2; k++) {
            const struct losses once = lose(&g, false, (enum input)how, formats[k]),
                                hops = lose(&g, true, (enum input)how, formats[k]);
            ASSERT_ALL(once.over_bound <= 1 && hops.over_bound <= 1, "int%d, %s: error/bound %g once, %g at every hop",
                       formats[k].bits, input_name[how], once.over_bound, hops.over_bound);
            ASSERT_ALL(once.squares > 0 && hops.squares > 0, "nothing is lost");
            ASSERT_ALL(test_size < 4 || once.squares < hops.squares,
                       "int%d, %s: squared error %g once, %g at every hop", formats[k].bits, input_name[how],
                       once.squares, hops.squares);
            ASSERT_ALL(test_size < 8 || how == RANDOM || 4 * once.squares < hops.squares,
                       "int%d, %s: squared error %g once, %g at every hop", formats[k].bits, input_name[how],
                       once.squares, hops.squares);
        }
    group_close(&g);
    close_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_gathered_weights_are_their_codes),
        MPI_TEST(test_sums_are_those_of_the_codes),
        MPI_TEST(test_sums_are_deepspeeds),
        MPI_TEST(test_nothing_to_reduce),
        MPI_TEST(test_nan_goes_through),
        MPI_TEST(test_quantising_once_loses_less),
    };
    return MPI_RUN("quantised", tests);
}
