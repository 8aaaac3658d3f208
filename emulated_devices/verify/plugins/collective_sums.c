/* collective_sums.c -- laws of sums that round, of the order of additions, and of NaNs.  collective.c calls this file.
 * Functions return ERR_MEMORY, and errors of a call.
 */
#include "emulated_devices/verify/plugins/collective_laws.h"
#include "emulated_devices/verify/hash.h"
#include <math.h>
#include <stdlib.h>

enum { ORDERED = 103 };

static double drawn(int member, int64_t i)
{
    return (float)(sin((double)(member * 1000 + i) * 12.9898) * (i % 3 == 0 ? 1e6 : 1));
}

/* A number of a member that is the same for every element: only the order can make elements differ. */
static double ordered(enum dtype dtype, int member, int trial)
{
    _Alignas(16) char number[16];
    const double size = (member + trial) % 3 == 0 ? 50 : 1;
    call_put(dtype, number, 0, sin((double)(member * 97 + trial * 1009 + 1) * 12.9898) * size);
    return call_get(dtype, number, 0);
}

/* ((x0 + x1) + x2) + .., rounded after each addition. */
static double folded(const struct law_member *m, enum dtype dtype, int last, int trial)
{
    _Alignas(16) char sum[16], next[16];
    struct exchange none = { .group = m->group, .operation = CONTROL };
    call_put(dtype, sum, 0, ordered(dtype, 0, trial));
    for (int r = 1; r < last; r++) {
        call_put(dtype, next, 0, ordered(dtype, r, trial));
        reduce_local(&none, SUM, dtype, sum, next, 1);
    }
    return call_get(dtype, sum, 0);
}

/* A call with memory of its own: x for everything that comes in, y for what goes out. */
struct loose { struct guarded in, out; };

static enum error_code loose_make(struct loose *buffers, struct law_call *call, struct error *err)
{
    const size_t each = dtype_size(call->args.dtype);
    if (!guarded_make(&buffers->in, each * (size_t)call_in_length(call)) ||
        !guarded_make(&buffers->out, each * (size_t)call_out_length(call)))
        return fail(err, ERR_MEMORY, "no memory for a call");
    call->args.in = buffers->in.data, call->args.out = buffers->out.data;
    return OK;
}

static void loose_free(struct loose *buffers) { free(buffers->in.memory), free(buffers->out.memory); }

enum error_code member_order(const struct law_member *m, enum dtype dtype, struct error *err)
{
    struct member_saw *const saw = &m->crew->saw[m->group->rank];
    struct law_call call = member_call(m, ORDERED, dtype, SUM);
    enum error_code e = OK;
    if (!call_reduces(call.operation) || !member_accepts(m, &call)) return OK;
    for (int trial = 0; trial < TRIALS && !e; trial++) {
        struct loose b = { { NULL, NULL, 0 }, { NULL, NULL, 0 } };
        e = loose_make(&b, &call, err);
        if (e) return e;
        for (int64_t i = 0; i < call_in_length(&call); i++)
            call_put(dtype, b.in.data, i, ordered(dtype, call.rank, trial));
        e = collective_run(m->group, call.operation, m->crew->algorithm->name, &call.args, err);
        const double want = folded(m, dtype, call.operation == SCAN ? call.rank + 1 : call.P, trial);
        saw->lowest[trial] = INFINITY, saw->highest[trial] = -INFINITY, saw->not_the_fold[trial] = false;
        for (int64_t i = 0; i < call_out_length(&call); i++) {
            const double x = call_get(dtype, b.out.data, i);
            saw->lowest[trial] = fmin(saw->lowest[trial], x), saw->highest[trial] = fmax(saw->highest[trial], x);
            saw->not_the_fold[trial] = saw->not_the_fold[trial] || !(x == want);
        }
        loose_free(&b);
    }
    saw->took = true;
    return e;
}

/* Compare what all members saw of the order, when the crew is done with it. */
void member_judge_order(const struct law_member *m, enum dtype dtype)
{
    const struct algorithm *const a = m->crew->algorithm;
    for (int trial = 0; trial < TRIALS && m->crew->saw[0].took; trial++) {
        double lowest = INFINITY, highest = -INFINITY;
        bool folds = true, alike = true;
        for (int r = 0; r < m->crew->P; r++) {
            const struct member_saw *const s = &m->crew->saw[r];
            lowest = fmin(lowest, s->lowest[trial]), highest = fmax(highest, s->highest[trial]);
            folds = folds && !s->not_the_fold[trial];
            alike = alike && (s->lowest[trial] >= s->highest[trial]);
        }
        if (a->operation != SCAN) alike = lowest >= highest;
        law_judge(m->crew->book, ORDER, alike || a->order == BY_POSITION,
                  "%s %s, %s, %d devices: elements with the same terms have different sums; .order says %s",
                  operation_name(a->operation), a->name, dtype_name(dtype), m->crew->P, adding_order_name(a->order));
        law_judge(m->crew->book, ORDER, folds || a->order != BY_RANK,
                  "%s %s, %s, %d devices: a sum is not that in the order of ranks; .order says %s",
                  operation_name(a->operation), a->name, dtype_name(dtype), m->crew->P, adding_order_name(a->order));
    }
}

/* An all-reduce of numbers that round, and of zeros of both signs. */
enum error_code member_rounding(const struct law_member *m, struct error *err)
{
    struct law_call call = member_call(m, ORDERED, F32, SUM);
    if (call.operation != ALLREDUCE || !member_accepts(m, &call)) return OK;
    for (int k = 0; k < 2; k++) {
        struct loose b = { { NULL, NULL, 0 }, { NULL, NULL, 0 } };
        enum error_code e = loose_make(&b, &call, err);
        if (e) return e;
        call.args.reduction = k ? MAX : SUM;
        for (int64_t i = 0; i < ORDERED; i++)
            call_put(F32, b.in.data, i, k ? ((call.rank + i) % 3 == 0 ? 0.0 : -0.0) : drawn(call.rank, i));
        e = collective_run(m->group, ALLREDUCE, m->crew->algorithm->name, &call.args, err);
        if (e) return e;
        m->crew->saw[call.rank].bits[k][0] = hash_bytes(HASH_START, b.out.data, ORDERED * sizeof(float));
        for (int64_t i = 0; i < ORDERED && k == 0; i++) {
            double sum = 0, bound = 0;
            for (int r = 0; r < call.P; r++) sum += drawn(r, i), bound += fabs(drawn(r, i));
            bound *= 1.01 * (call.P - 1) * dtype_unit(F32);    /* the rest of the bound is of second order in u */
            const double got = call_get(F32, b.out.data, i);
            law_judge(m->crew->book, ROUNDING, fabs(got - sum) <= bound, "allreduce %s, %d devices: %.9g at %lld; the "
                      "sum is %.9g, within %.3g", m->crew->algorithm->name, call.P, got, (long long)i, sum, bound);
        }
        loose_free(&b);
    }
    comm_barrier(m->group->comm);
    for (int k = 0; k < 2; k++)
        law_judge(m->crew->book, ALIKE, m->crew->saw[0].bits[k][0] == m->crew->saw[call.rank].bits[k][0],
                  "allreduce %s, %d devices, %s: members 0 and %d have different bits", m->crew->algorithm->name,
                  call.P, k ? "max of zeros" : "sum", call.rank);
    return OK;
}

/* The last member has a NaN at element 1 of a vector of 5 P; the others have ones. */
enum error_code member_nans(const struct law_member *m, struct error *err)
{
    enum { AT = 1 };
    const bool reduces = call_reduces(m->crew->algorithm->operation);
    for (enum reduction how = 0; how < (reduces ? REDUCTION_COUNT : 1); how++) {
        struct law_call call = member_call(m, 5 * m->group->size, F32, how);
        struct loose b = { { NULL, NULL, 0 }, { NULL, NULL, 0 } };
        const int P = call.P, r = call.rank;
        if (call.operation == BARRIER || !member_accepts(m, &call)) return OK;
        call.args.root = call_has_root(call.operation) && !call_reduces(call.operation) ? P - 1 : 0;
        enum error_code e = loose_make(&b, &call, err);
        if (e) return e;
        for (int64_t i = 0; i < call_in_length(&call); i++)
            call_put(F32, b.in.data, i, r == P - 1 && i == AT ? NAN : 1);
        e = collective_run(m->group, call.operation, m->crew->algorithm->name, &call.args, err);
        if (e) return e;
        int64_t found = 0, right = 0;
        const int64_t n = call_out_length(&call);
        for (int64_t i = 0; i < n; i++) found += isnan(call_get(F32, b.out.data, i)) != 0;
        /* Where element AT of the last member goes. */
        if (call.operation == ALLTOALL) right = r == 0;
        else if (call.operation == SCAN) right = r == P - 1;
        else if (call.operation == REDUCE_SCATTER || call.operation == SPARSE_REDUCE_SCATTER
                 || call.operation == SCATTER) right = r == 0;
        else right = n > 0;
        law_judge(m->crew->book, NANS, found == right, "%s: member %d has %lld NaNs of a NaN of the last member; it "
                  "must have %lld", call_describe(&call, m->crew->algorithm->name, false).text, r, (long long)found,
                  (long long)right);
        loose_free(&b);
    }
    return OK;
}
