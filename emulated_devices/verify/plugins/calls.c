/* calls.c -- inputs and right results of collectives, for the laws of plug-ins.  collective.c of this folder calls this
 * file.  No function returns an error code.
 */
#include "emulated_devices/verify/plugins/calls.h"
#include <math.h>

/* Products repeat after 35 indices, all other numbers after 61: a long vector has few different results. */
enum { PERIOD = 61, PRODUCT_PERIOD = 35 };

bool call_reduces(enum operation op)
{
    return op == REDUCE || op == ALLREDUCE || op == REDUCE_SCATTER || op == SCAN || op == SPARSE_REDUCE_SCATTER;
}

bool call_has_root(enum operation op) { return op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER; }

bool call_has_blocks(enum operation op)
{
    return op == REDUCE_SCATTER || op == ALLGATHER || op == GATHER || op == SCATTER || op == SPARSE_ALLGATHER ||
           op == SPARSE_REDUCE_SCATTER;
}

/* Some pairs exchange nothing, and the two ways differ. */
int64_t call_between(const struct law_call *call, int from, int to)
{
    return call->args.counts ? (from * 3 + to * 5) % 7 * ((call->args.count + 3) / 4) : call->args.count;
}

static int64_t block_count(const struct law_call *call, int b)
{
    if (call->args.counts) return call->args.counts[b];
    return block_start(call->args.count, call->P, b + 1) - block_start(call->args.count, call->P, b);
}

int64_t call_block_start(const struct law_call *call, int b)
{
    int64_t n = 0;
    for (int i = 0; i < b; i++) n += block_count(call, i);
    return n;
}

/* The elements that a member sends to those before `to`. */
static int64_t sent_before(const struct law_call *call, int from, int to)
{
    int64_t n = 0;
    for (int d = 0; d < to; d++) n += call_between(call, from, d);
    return n;
}

static int64_t received(const struct law_call *call)
{
    int64_t n = 0;
    for (int s = 0; s < call->P; s++) n += call_between(call, s, call->rank);
    return n;
}

int64_t call_in_length(const struct law_call *call)
{
    const bool is_root = call->rank == call->args.root;
    switch (call->operation) {
    case BARRIER: return 0;
    case BROADCAST: return is_root ? call->args.count : 0;
    case SCATTER: return is_root ? call_block_start(call, call->P) : 0;
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: return call_block_start(call, call->P);
    case ALLGATHER: case GATHER: case SPARSE_ALLGATHER: return block_count(call, call->rank);
    case ALLTOALL: return sent_before(call, call->rank, call->P);
    default: return call->args.count;
    }
}

int64_t call_out_length(const struct law_call *call)
{
    const bool is_root = call->rank == call->args.root;
    switch (call->operation) {
    case BARRIER: return 0;
    case REDUCE: return is_root ? call->args.count : 0;
    case GATHER: return is_root ? call_block_start(call, call->P) : 0;
    case ALLGATHER: case SPARSE_ALLGATHER: return call_block_start(call, call->P);
    case REDUCE_SCATTER: case SCATTER: case SPARSE_REDUCE_SCATTER: return block_count(call, call->rank);
    case ALLTOALL: return received(call);
    case SCAN: return call->args.exclusive && call->rank == 0 ? 0 : call->args.count;
    default: return call->args.count;
    }
}

void call_put(enum dtype dtype, void *array, int64_t i, double x)
{
    switch (dtype) {
    case I32: ((int32_t *)array)[i] = (int32_t)x; break;
    case I64: ((int64_t *)array)[i] = (int64_t)x; break;
    case U8:  ((uint8_t *)array)[i] = (uint8_t)(int)x; break;
    default: tensor_set(tensor_1d(array, dtype, i + 1), i, x);
    }
}

double call_get(enum dtype dtype, const void *array, int64_t i)
{
    switch (dtype) {
    case I32: return ((const int32_t *)array)[i];
    case I64: return (double)((const int64_t *)array)[i];
    case U8:  return ((const uint8_t *)array)[i];
    default: return tensor_get(tensor_1d((void *)(uintptr_t)array, dtype, i + 1), i);
    }
}

double call_value(const struct collective *args, int member, int64_t i)
{
    if (args->reduction == PRODUCT)
        return (member + i) % 5 == 0 ? 2 : (member * 3 + i) % 7 == 0 ? (args->dtype == U8 ? 3 : -1) : 1;
    const double x = (double)((member * 31 + i * 7) % PERIOD);
    return args->dtype == U8 ? x : args->dtype == BF16 ? trunc((x - 30) / 2) : x - 30;     /* bf16 counts up to 256 */
}

/* Two numbers under a reduction. */
static double both(enum reduction how, double a, double b)
{
    switch (how) {
    case PRODUCT: return a * b;
    case MAX: return b > a ? b : a;
    case MIN: return b < a ? b : a;
    default: return a + b;
    }
}

/* Members 0 to last - 1 reduced at an index, as the format has it. */
static double reduced(const struct law_call *call, int last, int64_t i)
{
    _Alignas(16) char number[16];
    double all = call_value(&call->args, 0, i);
    for (int m = 1; m < last; m++) all = both(call->args.reduction, all, call_value(&call->args, m, i));
    if (call->args.dtype == U8) all = (double)((int64_t)all & 255);
    if (call->args.reduction == AVERAGE) {
        all /= call->P;
        if (dtype_unit(call->args.dtype) == 0) all = trunc(all);
    }
    call_put(call->args.dtype, number, 0, all);
    return call_get(call->args.dtype, number, 0);
}

/* A block of an all-to-all has numbers of its own. */
double call_input(const struct law_call *call, int64_t i)
{
    int to = 0;
    if (call->operation != ALLTOALL) return call_value(&call->args, call->rank, i);
    while (i >= call_between(call, call->rank, to)) i -= call_between(call, call->rank, to++);
    return call_value(&call->args, call->rank * 17 + to, i);
}

/* Write the results of indices first .. to out, of `last` members: each index of a period is computed once. */
static void write_reduced(const struct law_call *call, void *out, int last, int64_t first, int64_t n)
{
    const int period = call->args.reduction == PRODUCT ? PRODUCT_PERIOD : PERIOD;
    double x[PERIOD];
    for (int k = 0; k < period; k++) x[k] = reduced(call, last, k);
    for (int64_t i = 0; i < n; i++) call_put(call->args.dtype, out, i, x[(first + i) % period]);
}

/* Write the blocks of all members, or of an all-to-all those for this one. */
static void write_blocks(const struct law_call *call, void *out)
{
    int64_t at = 0;
    for (int b = 0; b < call->P; b++) {
        const bool all = call->operation == ALLTOALL;
        const int64_t n = all ? call_between(call, b, call->rank) : block_count(call, b);
        for (int64_t i = 0; i < n; i++)
            call_put(call->args.dtype, out, at++, call_value(&call->args, all ? b * 17 + call->rank : b, i));
    }
}

void call_write_output(const struct law_call *call, void *out)
{
    const int64_t n = call_out_length(call), own = call_block_start(call, call->rank);
    if (n == 0) return;
    switch (call->operation) {
    case REDUCE: case ALLREDUCE: write_reduced(call, out, call->P, 0, n); break;
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: write_reduced(call, out, call->P, own, n); break;
    case SCAN: write_reduced(call, out, call->rank + !call->args.exclusive, 0, n); break;
    case BROADCAST: case SCATTER:
        for (int64_t i = 0; i < n; i++)
            call_put(call->args.dtype, out, i, call_value(&call->args, call->args.root,
                                                          i + (call->operation == SCATTER ? own : 0)));
        break;
    default: write_blocks(call, out);
    }
}
