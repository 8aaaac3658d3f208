/* exact.c -- inputs of collectives for which every sum is exact. */
#include "emulated_devices/verify/cases/exact.h"

static double given(int member, int64_t i) { return (double)((member * 31 + i * 7) % 61) - 30; }

static double sum_of(int members, int64_t i)
{
    double sum = 0;
    for (int m = 0; m < members; m++) sum += given(m, i);
    return sum;
}

/* Of some members, or their average over all P: rounded once. */
static double reduced(const struct exact_call *c, int members, int64_t i)
{
    const double sum = sum_of(members, i);
    if (c->args.reduction != AVERAGE) return sum;
    return c->args.dtype == F32 ? (double)(float)(sum / c->P) : sum / c->P;
}

static int64_t first_of(const struct exact_call *c, int b) { return block_start(c->args.count, c->P, b); }
static int64_t length_of(const struct exact_call *c, int b) { return first_of(c, b + 1) - first_of(c, b); }

/* Not the same both ways, so that lengths to send and to receive are told apart. */
int64_t exact_between(const struct exact_call *c, int from, int to)
{
    return c->uneven ? (from * 3 + to * 5) % 7 * ((c->args.count + 3) / 4) : c->args.count;
}

/* What a member sends to those before another one; before P: all of it. */
static int64_t sent_before(const struct exact_call *c, int from, int to)
{
    int64_t n = 0;
    for (int d = 0; d < to; d++) n += exact_between(c, from, d);
    return n;
}

static int64_t received(const struct exact_call *c)
{
    int64_t n = 0;
    for (int s = 0; s < c->P; s++) n += exact_between(c, s, c->rank);
    return n;
}

int64_t exact_in_length(const struct exact_call *c)
{
    switch (c->operation) {
    case BARRIER: return 0;
    case BROADCAST: case SCATTER: return c->rank == c->args.root ? c->args.count : 0;
    case ALLGATHER: case GATHER: case SPARSE_ALLGATHER: return length_of(c, c->rank);
    case ALLTOALL: return sent_before(c, c->rank, c->P);
    default: return c->args.count;
    }
}

int64_t exact_out_length(const struct exact_call *c)
{
    switch (c->operation) {
    case BARRIER: return 0;
    case REDUCE: case GATHER: return c->rank == c->args.root ? c->args.count : 0;
    case REDUCE_SCATTER: case SCATTER: case SPARSE_REDUCE_SCATTER: return length_of(c, c->rank);
    case ALLTOALL: return received(c);
    default: return c->args.count;
    }
}

/* For gather and scatter, element i of the whole vector is the same number on every member. */
double exact_in(const struct exact_call *c, int64_t i)
{
    if (c->operation == ALLGATHER || c->operation == GATHER || c->operation == SPARSE_ALLGATHER)
        return given(0, first_of(c, c->rank) + i);
    return given(c->rank, i);
}

/* Element i of what this member receives. */
static double taken(const struct exact_call *c, int64_t i)
{
    int from = 0;
    for (int64_t n; i >= (n = exact_between(c, from, c->rank)); from++) i -= n;
    return given(from, sent_before(c, from, c->rank) + i);
}

double exact_out(const struct exact_call *c, int64_t i)
{
    switch (c->operation) {
    case BROADCAST: return given(c->args.root, i);
    case SCATTER: return given(c->args.root, first_of(c, c->rank) + i);
    case REDUCE: case ALLREDUCE: return reduced(c, c->P, i);
    case REDUCE_SCATTER: case SPARSE_REDUCE_SCATTER: return reduced(c, c->P, first_of(c, c->rank) + i);
    case SCAN: return reduced(c, c->rank + 1, i);
    case ALLTOALL: return taken(c, i);
    default: return given(0, i);
    }
}

void exact_put(enum dtype t, void *array, int64_t i, double x) { tensor_set(tensor_1d(array, t, i + 1), i, x); }

double exact_get(enum dtype t, const void *array, int64_t i)
{
    return tensor_get(tensor_1d((void *)array, t, i + 1), i);
}
