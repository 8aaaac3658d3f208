/* exact.c -- inputs of collectives for which every sum is exact.  Callers: collectives.c of this folder,
 * bench/schemes/collectives_device.c, tests.  The functions keep no state.  No function returns an error code. */
#include "emulated_devices/verify/cases/exact.h"

/* Element i of a member's input is a whole number from -30 to 30. */
static double given(int member, int64_t i) { return (double)((member * 31 + i * 7) % 61) - 30; }

static double exact_sum_of(int members, int64_t i)
{
    double sum = 0;
    for (int m = 0; m < members; m++) sum += given(m, i);
    return sum;
}

/* The result is a sum over some members, or their average over all P, which is rounded once. */
static double reduced(const struct exact_call *call, int members, int64_t i)
{
    const double sum = exact_sum_of(members, i);
    if (call->args.reduction != AVERAGE) return sum;
    return call->args.dtype == F32 ? (double)(float)(sum / call->P) : sum / call->P;
}

static int64_t first_of(const struct exact_call *call, int b) { return block_start(call->args.count, call->P, b); }
static int64_t length_of(const struct exact_call *call, int b) { return first_of(call, b + 1) - first_of(call, b); }

/* Not the same both ways, so that lengths to send and to receive are told apart. */
int64_t exact_between(const struct exact_call *call, int from, int to)
{
    return call->uneven ? (from * 3 + to * 5) % 7 * ((call->args.count + 3) / 4) : call->args.count;
}

/* The result is how much a member sends to those before `to`; before P this is all. */
static int64_t sent_before(const struct exact_call *call, int from, int to)
{
    int64_t n = 0;
    for (int d = 0; d < to; d++) n += exact_between(call, from, d);
    return n;
}

/* This member receives so many elements from all members. */
static int64_t received(const struct exact_call *call)
{
    int64_t n = 0;
    for (int s = 0; s < call->P; s++) n += exact_between(call, s, call->rank);
    return n;
}

int64_t exact_in_length(const struct exact_call *call)
{
    switch (call->operation) {
    case BARRIER: return 0;
    case BROADCAST: case SCATTER: return call->rank == call->args.root ? call->args.count : 0;
    case ALLGATHER: case GATHER: case SPARSE_ALLGATHER: return length_of(call, call->rank);
    case ALLTOALL: return sent_before(call, call->rank, call->P);
    default: return call->args.count;
    }
}

int64_t exact_out_length(const struct exact_call *call)
{
    switch (call->operation) {
    case BARRIER: return 0;
    case REDUCE: case GATHER: return call->rank == call->args.root ? call->args.count : 0;
    case REDUCE_SCATTER: case SCATTER: case SPARSE_REDUCE_SCATTER: return length_of(call, call->rank);
    case ALLTOALL: return received(call);
    default: return call->args.count;
    }
}

/* For gather and scatter, element i of the whole vector is the same number on every member. */
double exact_in(const struct exact_call *call, int64_t i)
{
    if (call->operation == ALLGATHER || call->operation == GATHER || call->operation == SPARSE_ALLGATHER)
        return given(0, first_of(call, call->rank) + i);
    return given(call->rank, i);
}

/* Element i of what this member receives. */
static double taken(const struct exact_call *call, int64_t i)
{
    int from = 0;
    for (int64_t n; i >= (n = exact_between(call, from, call->rank)); from++) i -= n;
    return given(from, sent_before(call, from, call->rank) + i);
}

double exact_out(const struct exact_call *call, int64_t i)
{
    switch (call->operation) {
    case BROADCAST: return given(call->args.root, i);
    case SCATTER: return given(call->args.root, first_of(call, call->rank) + i);
    case REDUCE: case ALLREDUCE: return reduced(call, call->P, i);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: return reduced(call, call->P, first_of(call, call->rank) + i);
    case SCAN: return reduced(call, call->rank + 1, i);
    case ALLTOALL: return taken(call, i);
    default: return given(0, i);
    }
}

void exact_put(enum dtype dtype, void *array, int64_t i, double x) { tensor_set(tensor_1d(array, dtype, i + 1), i, x); }

double exact_get(enum dtype dtype, const void *array, int64_t i)
{
    return tensor_get(tensor_1d((void *)array, dtype, i + 1), i);
}
