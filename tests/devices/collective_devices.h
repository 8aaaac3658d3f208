/* collective_devices.h -- what the tests of collectives share: devices, what each operation starts from and ends with,
 * guarded buffers.
 *
 * Inputs are small integers that depend only on (device, index), so every sum is exact in any order, every device knows
 * the right answer without asking, and results are compared with ==.  The group lists the devices in reverse, so that
 * an algorithm that confuses world ranks with members fails.  ONLY=allreduce/ring runs that algorithm alone.  Tests
 * in tests/devices/ call these functions.
 */
#ifndef TESTS_COLLECTIVE_DEVICES_H
#define TESTS_COLLECTIVE_DEVICES_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"
#include <math.h>

enum { PAD = 64, MAX_P = 64, LONG = 1 << 14, CUT = 1 << 15 };     /* CUT: bytes of segments */
static const unsigned char PAD_BYTE = 0x5a, POISON_BYTE = 0xff;       /* 0xff..: NaN in all formats, -1 as an integer */

static struct device device;
static struct comm comm;
static struct group group;

/* Clusters on which only a message's use of the ports takes time, and always the same: the clock counts rounds. */
#define ONE_ROUND .gap = 1000000, .eager = ALWAYS_EAGER
static const struct cluster one_port = { .name = "one port", .levels = 1, .link = { { ONE_ROUND } } };

static inline struct cluster nodes_of(int devices)
{
    return (
        struct cluster){ .name = "nodes", .levels = 2, .link = { { .devices = devices, ONE_ROUND }, { ONE_ROUND } } };
}

/* ---- numbers in any format --------------------------------------------------------------------------------------- */

static inline void put(enum dtype t, void *array, int64_t i, double x)
{
    switch (t) {
    case F32: case F64: case BF16: case F16: case EXACT: tensor_set(tensor_1d(array, t, i + 1), i, x); break;
    case I32: ((int32_t *)array)[i] = (int32_t)x; break;
    case I64: ((int64_t *)array)[i] = (int64_t)x; break;
    case U8:  ((uint8_t *)array)[i] = (uint8_t)(int)x; break;
    case DTYPE_COUNT: break;
    }
}

static inline double get(enum dtype t, const void *array, int64_t i)
{
    switch (t) {
    case F32: case F64: case BF16: case F16: case EXACT: return tensor_get(tensor_1d((void *)array, t, i + 1), i);
    case I32: return ((const int32_t *)array)[i];
    case I64: return (double)((const int64_t *)array)[i];
    case U8:  return ((const uint8_t *)array)[i];
    case DTYPE_COUNT: break;
    }
    return NAN;
}

/* What a device contributes at index i. */
static inline double value(const struct collective *c, int rank, int64_t i)
{
    if (c->reduction == PRODUCT)
        return (rank + i) % 5 == 0 ? 2 : (rank * 3 + i) % 7 == 0 ? (c->dtype == U8 ? 3 : -1) : 1;
    const double x = (double)((rank * 31 + i * 7) % 61);
    return c->dtype == U8 ? x : c->dtype == BF16 ? trunc((x - 30) / 2) : x - 30;       /* bf16 counts up to 256 */
}

/* Members first .. last-1 reduced, as the format would have it. */
static inline double reduced_anew(const struct collective *c, int first, int last, int64_t i)
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
static inline double reduced(const struct collective *c, int first, int last, int64_t i)
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

static inline bool has_blocks(enum operation op)
{
    return op == REDUCE_SCATTER || op == ALLGATHER || op == GATHER || op == SCATTER || op == SPARSE_ALLGATHER ||
           op == SPARSE_REDUCE_SCATTER;
}

static inline int64_t length(const struct collective *c, int b)
{
    return c->counts != NULL ? c->counts[b]
                             : block_start(c->count, group.size, b + 1) - block_start(c->count, group.size, b);
}

static inline int64_t first(const struct collective *c, int b)
{
    int64_t n = 0;
    if (c->counts == NULL) return block_start(c->count, group.size, b);
    for (int i = 0; i < b; i++) n += length(c, i);
    return n;
}

/* The block that element i of all blocks is in, and *i within it.  Asked for 0, 1, 2, .. in turn. */
static inline int block_of(const struct collective *c, int64_t *i)
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

static inline int64_t between(const struct collective *c, int s, int d)
{
    if (c->counts == NULL) return c->count;
    return (mirrored ? (s + d) * 3 + s * d : s * 3 + d * 5) % 7 * (c->count / 4);
}

static inline int64_t all_between(const struct collective *c, int r, bool sent)
{
    int64_t n = 0;
    for (int i = 0; i < group.size; i++) n += sent ? between(c, r, i) : between(c, i, r);
    return n;
}

static inline int64_t in_length(enum operation op, const struct collective *c, int r)
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

static inline int64_t out_length(enum operation op, const struct collective *c, int r)
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

static inline double start(enum operation op, const struct collective *c, int r, int64_t i)
{
    if (op != ALLTOALL) return value(c, r, i);
    int d = 0;
    while (i >= between(c, r, d)) i -= between(c, r, d++);
    return value(c, r * 17 + d, i);
}

static inline double end(enum operation op, const struct collective *c, int r, int64_t i)
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

/* ---- buffers and complaints -------------------------------------------------------------------------------------- */

struct buffer { unsigned char *memory, *data; size_t bytes; };

static inline struct buffer buffer_make(size_t bytes)
{
    struct buffer b = { .memory = malloc(bytes + 2 * PAD), .bytes = bytes };
    assert_non_null(b.memory);
    b.data = b.memory + PAD;
    memset(b.memory, PAD_BYTE, bytes + 2 * PAD);
    memset(b.data, POISON_BYTE, bytes);
    return b;
}

static inline bool buffer_intact(struct buffer b)
{
    for (int i = 0; i < PAD; i++)
        if (b.memory[i] != PAD_BYTE || b.data[b.bytes + (size_t)i] != PAD_BYTE) return false;
    return true;
}

static inline const char *describe(const struct algorithm *a, const struct collective *c, bool in_place)
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

/* ---- which algorithms -------------------------------------------------------------------------------------------- */

static inline bool selected(const struct algorithm *a)
{
    const char *only = getenv("ONLY");
    char name[100];
    snprintf(name, sizeof name, "%s/%s", operation_name(a->operation), a->name);
    return only == NULL || strncmp(only, name, strlen(only)) == 0;
}

static inline bool reduces(enum operation op)
{
    return op == REDUCE || op == ALLREDUCE || op == REDUCE_SCATTER || op == SCAN || op == SPARSE_REDUCE_SCATTER;
}
/* ---- sums that round --------------------------------------------------------------------------------------------- */

static inline double rounded_value(int rank, int64_t i)
{
    return (float)(sin((double)(rank * 1000 + i) * 12.9898) * (i % 3 == 0 ? 1e6 : 1));
}

static inline uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static inline bool same_everywhere(uint64_t x)
{
    uint64_t all[2], mine[2] = { x, ~x };
    MPI_Request request;
    MPI_Iallreduce(mine, all, 2, MPI_UINT64_T, MPI_BAND, harness, &request);
    patience_meet(&request);
    return all[0] == x && all[1] == ~x;
}

/* ---- the devices ------------------------------------------------------------------------------------------------- */

static inline void group_open(void)
{
    int reversed[MAX_P];
    struct error err;
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    for (int i = 0; i < comm.size; i++) reversed[i] = comm.size - 1 - i;
    assert_int_equal(group_of(&group, &comm, reversed, comm.size, TRAFFIC_OTHER, 0, &err), OK);
}

static inline void group_shut(void)
{
    group_close(&group);
    comm_close(&comm);
}

static inline int open_devices(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    device.arena.poison = true;
    clock_open(&device.clock, &one_port, F32);
    group_open();
    return harness_before(state);
}

static inline int close_devices(void **state)
{
    (void)state;
    group_shut();
    device_close(&device);
    return 0;
}

#define ON_DEVICES(f) cmocka_unit_test_setup_teardown(f, open_devices, close_devices)

#endif
