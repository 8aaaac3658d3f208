#include "emulated_devices/verify/collectives.h"
#include "emulated_devices/verify/exact.h"
#include <stdlib.h>
#include <string.h>

/* ---- one call ---------------------------------------------------------------------------------------------------------------- */

static enum error_code check_values(const struct exact_call *c, const char *name, struct error *err)
{
    for (int64_t i = 0; i < exact_out_length(c); i++) {
        const double got = exact_get(c->args.dtype, c->args.out, i), want = exact_out(c, i);
        if (!(got == want))
            return fail(err, ERR_CHECK, "%s %s of %lld %s, root %d: member %d has %.9g at %lld; it must be %.9g", operation_name(c->operation), name,
                        (long long)c->args.count, dtype_name(c->args.dtype), c->args.root, c->rank, got, (long long)i, want);
    }
    return OK;
}

static enum error_code check_cost(const struct exact_call *c, const struct algorithm *a, const struct traffic *before, const struct traffic *after, struct error *err)
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

static enum error_code run_call(struct group *g, const struct algorithm *a, struct exact_call *c, struct error *err)
{
    const struct traffic *now = &g->comm->traffic[g->axes][a->operation], before = *now;
    enum error_code e = collective_run(g, a->operation, a->name, &c->args, err);
    if (!e) e = check_values(c, a->name, err);
    if (!e) e = check_cost(c, a, &before, now, err);
    return e;
}

/* Buffers for a call, filled with input and with NaN. */
static enum error_code one_call(struct group *g, const struct algorithm *a, struct exact_call *c, struct algorithm_outcome *o, struct error *err)
{
    const size_t each = dtype_size(c->args.dtype), in_bytes = each * (size_t)exact_in_length(c), out_bytes = each * (size_t)exact_out_length(c);
    void *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1);
    enum error_code e = in && out ? OK : fail(err, ERR_MEMORY, "no memory for a vector of %lld", (long long)c->args.count);
    e = group_agree(g, e, err);
    if (!e) {
        memset(out, 0xff, out_bytes);
        for (int64_t i = 0; i < exact_in_length(c); i++) exact_put(c->args.dtype, in, i, exact_in(c, i));
        c->args.in = in, c->args.out = out;
        e = group_agree(g, run_call(g, a, c, err), err);
        o->calls++;
        o->elements += exact_out_length(c);
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
            struct exact_call c = { a->operation, P, g->rank, { .count = counts[i], .dtype = formats[f], .root = has_root(a->operation) ? i % P : 0,
                                                                  .nodes = group_nodes(g) } };
            const char *refused = algorithm_refuses(a, P, &c.args);
            if (refused) o->refused = refused;
            else e = one_call(g, a, &c, o, err);
        }
    if (o->calls) o->refused = NULL;
    if (e != ERR_CHECK && e != ERR_USAGE) return e;
    o->verdict = (struct error){ .code = ERR_CHECK };           /* a call that was not taken is a wrong answer too */
    memcpy(o->verdict.text, err->text, sizeof err->text);
    return OK;
}
