#include "emulated_devices/verify/collectives.h"
#include <stdlib.h>
#include <string.h>

/* ---- what goes in and what must come out ---------------------------------------------------------------------------------- */

/* One call as one member sees it; P members. */
struct call { enum operation operation; int P, rank; struct collective args; };

static double given(int member, int64_t i) { return (double)((member * 31 + i * 7) % 61) - 30; }

static double sum_of(int members, int64_t i)
{
    double sum = 0;
    for (int m = 0; m < members; m++) sum += given(m, i);
    return sum;
}

static int64_t first_of(const struct call *c, int b) { return block_start(c->args.count, c->P, b); }
static int64_t length_of(const struct call *c, int b) { return first_of(c, b + 1) - first_of(c, b); }

/* Elements that this member passes in. */
static int64_t length_in(const struct call *c)
{
    switch (c->operation) {
    case BARRIER: return 0;
    case BROADCAST: case SCATTER: return c->rank == c->args.root ? c->args.count : 0;
    case ALLGATHER: case GATHER: return length_of(c, c->rank);
    case ALLTOALL: return c->args.count * c->P;
    default: return c->args.count;
    }
}

static int64_t length_out(const struct call *c)
{
    switch (c->operation) {
    case BARRIER: return 0;
    case REDUCE: case GATHER: return c->rank == c->args.root ? c->args.count : 0;
    case REDUCE_SCATTER: case SCATTER: return length_of(c, c->rank);
    case ALLTOALL: return c->args.count * c->P;
    default: return c->args.count;
    }
}

/* Where a vector is gathered or scattered, element i of the whole one is the same number whoever holds it. */
static double in_value(const struct call *c, int64_t i)
{
    if (c->operation == ALLGATHER || c->operation == GATHER) return given(0, first_of(c, c->rank) + i);
    return given(c->rank, i);
}

static double out_value(const struct call *c, int64_t i)
{
    const int64_t n = c->args.count;
    switch (c->operation) {
    case BROADCAST: return given(c->args.root, i);
    case SCATTER: return given(c->args.root, first_of(c, c->rank) + i);
    case REDUCE: case ALLREDUCE: return sum_of(c->P, i);
    case REDUCE_SCATTER: return sum_of(c->P, first_of(c, c->rank) + i);
    case SCAN: return sum_of(c->rank + 1, i);
    case ALLTOALL: return given((int)(i / n), c->rank * n + i % n);
    default: return given(0, i);
    }
}

static void put(enum dtype t, void *array, int64_t i, double x)
{
    if (t == F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

static double get(enum dtype t, const void *array, int64_t i) { return t == F32 ? ((const float *)array)[i] : ((const double *)array)[i]; }

/* ---- one call ---------------------------------------------------------------------------------------------------------------- */

static enum error_code check_values(const struct call *c, const char *name, struct error *err)
{
    for (int64_t i = 0; i < length_out(c); i++) {
        const double got = get(c->args.dtype, c->args.out, i), want = out_value(c, i);
        if (!(got == want))
            return fail(err, ERR_CHECK, "%s %s of %lld %s, root %d: member %d has %.9g at %lld; it must be %.9g", operation_name(c->operation), name,
                        (long long)c->args.count, dtype_name(c->args.dtype), c->args.root, c->rank, got, (long long)i, want);
    }
    return OK;
}

static enum error_code check_cost(const struct call *c, const struct algorithm *a, const struct traffic *before, const struct traffic *after, struct error *err)
{
    const struct collective_cost want = collective_cost(a, c->rank, c->P, &c->args);
    const uint64_t messages = after->messages_sent - before->messages_sent, bytes = after->bytes_sent - before->bytes_sent,
                   additions = after->additions - before->additions;
    if (messages == want.messages && bytes == want.bytes && additions == want.additions) return OK;
    return fail(err, ERR_CHECK, "%s %s of %lld %s: member %d counted %llu messages, %llu bytes, %llu additions; cost says %llu, %llu, %llu",
                operation_name(c->operation), a->name, (long long)c->args.count, dtype_name(c->args.dtype), c->rank, (unsigned long long)messages,
                (unsigned long long)bytes, (unsigned long long)additions, (unsigned long long)want.messages, (unsigned long long)want.bytes,
                (unsigned long long)want.additions);
}

static enum error_code run_call(struct group *g, const struct algorithm *a, struct call *c, struct error *err)
{
    const struct traffic *now = &g->comm->traffic[g->axes][a->operation], before = *now;
    enum error_code e = collective_run(g, a->operation, a->name, &c->args, err);
    if (!e) e = check_values(c, a->name, err);
    if (!e) e = check_cost(c, a, &before, now, err);
    return e;
}

/* Buffers for a call, filled with input and with NaN. */
static enum error_code one_call(struct group *g, const struct algorithm *a, struct call *c, struct algorithm_outcome *o, struct error *err)
{
    const size_t each = dtype_size(c->args.dtype), in_bytes = each * (size_t)length_in(c), out_bytes = each * (size_t)length_out(c);
    void *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1);
    enum error_code e = in && out ? OK : fail(err, ERR_MEMORY, "no memory for a vector of %lld", (long long)c->args.count);
    e = group_agree(g, e, err);
    if (!e) {
        memset(out, 0xff, out_bytes);
        for (int64_t i = 0; i < length_in(c); i++) put(c->args.dtype, in, i, in_value(c, i));
        c->args.in = in, c->args.out = out;
        e = group_agree(g, run_call(g, a, c, err), err);
        o->calls++;
        o->elements += length_out(c);
    }
    free(in), free(out);
    return e;
}

static bool has_root(enum operation op) { return op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER; }

enum error_code verify_algorithm(struct group *g, const struct algorithm *a, struct algorithm_outcome *o, struct error *err)
{
    static const enum dtype formats[] = { F32, F64 };
    const int P = g->size;
    const int64_t counts[] = { 0, 1, P - 1, P, P + 1, 13, 257, 20011 };
    enum error_code e = OK;
    *o = (struct algorithm_outcome){ 0 };
    for (int f = 0; f < 2 && !e; f++)
        for (int i = 0; i < 8 && !e; i++) {
            struct call c = { a->operation, P, g->rank, { .count = counts[i], .dtype = formats[f], .root = has_root(a->operation) ? i % P : 0 } };
            const char *refused = a->refuses ? a->refuses(P, &c.args) : NULL;
            if (refused) o->refused = refused;
            else e = one_call(g, a, &c, o, err);
        }
    if (o->calls) o->refused = NULL;
    if (e != ERR_CHECK && e != ERR_USAGE) return e;
    o->verdict = (struct error){ .code = ERR_CHECK };           /* a call that was not taken is a wrong answer too */
    memcpy(o->verdict.text, err->text, sizeof err->text);
    return OK;
}
