#include "emulated_devices/verify/cases/collectives.h"
#include "emulated_devices/verify/cases/exact.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the places of in and out ------------------------------------------------------------------------------------ */

static size_t bytes_of(const struct exact_call *c, int64_t elements)
{
    return dtype_size(c->args.dtype) * (size_t)elements;
}

static bool in_place(const struct exact_call *c)
{
    const char *in = c->args.in, *out = c->args.out;
    return out < in + bytes_of(c, exact_in_length(c)) && in < out + bytes_of(c, exact_out_length(c));
}

/* One after the other; or in place: if the operation has blocks, the shorter is this member's block of the longer. */
static void lay_out(struct exact_call *c, char *memory, bool in_place)
{
    const int64_t in = exact_in_length(c), out = exact_out_length(c);
    const enum operation op = c->operation;
    const bool blocks = op == REDUCE_SCATTER || op == ALLGATHER || op == GATHER || op == SCATTER ||
                        op == SPARSE_ALLGATHER || op == SPARSE_REDUCE_SCATTER;
    const size_t place = blocks ? bytes_of(c, block_start(c->args.count, c->P, c->rank)) : 0;
    c->args.in = in_place && in < out ? memory + place : memory;
    c->args.out = !in_place ? memory + bytes_of(c, in) : out < in ? memory + place : memory;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

struct described { char text[160]; };

/* "allreduce ring of 257 fp32, average, root 0, in place" */
static struct described describe(const struct exact_call *c, const char *name)
{
    struct described d;
    snprintf(d.text, sizeof d.text, "%s %s of %lld %s%s%s, root %d%s", operation_name(c->operation), name,
             (long long)c->args.count, dtype_name(c->args.dtype), c->args.reduction == AVERAGE ? ", average" : "",
             c->uneven ? ", blocks of unequal lengths" : "", c->args.root, in_place(c) ? ", in place" : "");
    return d;
}

static enum error_code check_values(const struct exact_call *c, const char *name, struct error *err)
{
    for (int64_t i = 0; i < exact_out_length(c); i++) {
        const double got = exact_get(c->args.dtype, c->args.out, i), want = exact_out(c, i);
        if (!(got == want))
            return fail(err, ERR_CHECK, "%s: member %d has %.9g at %lld; it must be %.9g", describe(c, name).text,
                        c->rank, got, (long long)i, want);
    }
    return OK;
}

static enum error_code check_cost(const struct group *g, const struct exact_call *c, const struct algorithm *a,
                                  const struct traffic *before, const struct traffic *after, struct error *err)
{
    struct collective call = c->args;
    call.segment = group_segment(g, a, &call);
    const struct collective_cost want = collective_cost(a, c->rank, c->P, &call);
    const uint64_t messages = after->messages_sent - before->messages_sent,
                   bytes = after->bytes_sent - before->bytes_sent, additions = after->additions - before->additions;
    if (messages == want.messages && bytes == want.bytes && additions == want.additions) return OK;
    return fail(
        err, ERR_CHECK,
        "%s: member %d counted %llu messages, %llu bytes, %llu additions; cost says %llu, %llu, %llu",
        describe(c, a->name).text, c->rank, (unsigned long long)messages, (unsigned long long)bytes,
        (unsigned long long)additions,
        (unsigned long long)want.messages, (unsigned long long)want.bytes, (unsigned long long)want.additions);
}

static enum error_code run_call(struct group *g, const struct algorithm *a, struct exact_call *c, struct error *err)
{
    const struct traffic *now = &g->comm->counted.of[g->kind].of[a->operation], before = *now;
    enum error_code e = collective_run(g, a->operation, a->name, &c->args, err);
    messages_have_ended(g->comm, "at the end of the call");
    if (!e) e = check_values(c, a->name, err);
    if (!e) e = check_cost(g, c, a, &before, now, err);
    return e;
}

/* Run one call in a buffer that is filled with the input, and with NaN elsewhere. */
static enum error_code one_call(struct group *g, const struct algorithm *a, struct exact_call *c, bool in_place,
                                struct algorithm_outcome *o, struct error *err)
{
    const size_t bytes = bytes_of(c, exact_in_length(c) + exact_out_length(c));
    char *memory = malloc(bytes + 1);
    enum error_code e = memory ? OK : fail(err, ERR_MEMORY, "no memory for a vector of %lld", (long long)c->args.count);
    e = group_agree(g, e, err);
    if (!e) {
        memset(memory, 0xff, bytes);
        lay_out(c, memory, in_place);
        for (int64_t i = 0; i < exact_in_length(c); i++)
            exact_put(c->args.dtype, (void *)(uintptr_t)c->args.in, i, exact_in(c, i));
        e = run_call(g, a, c, err);
        /* if all devices are members, they also agree on what comm has to report */
        e = g->size == g->comm->size ? comm_agree(g->comm, e, err) : group_agree(g, e, err);
        o->calls++;
        o->elements += exact_out_length(c);
    }
    free(memory);
    return e;
}

static bool has_root(enum operation op) { return op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER; }

static bool reduces(enum operation op)
{
    return op == REDUCE || op == ALLREDUCE || op == REDUCE_SCATTER || op == SCAN || op == SPARSE_REDUCE_SCATTER;
}

/* ---- the calls of one algorithm ---------------------------------------------------------------------------------- */

/* With in and out apart, and in place; blocks that differ both ways can only be apart. */
static enum error_code both_places(struct group *g, const struct algorithm *a, struct exact_call c,
                                   struct algorithm_outcome *o, struct error *err)
{
    const char *refused = algorithm_refuses(a, c.P, &c.args);
    if (refused) return o->refused = refused, OK;
    const enum error_code e = one_call(g, a, &c, false, o, err);
    return e || c.uneven ? e : one_call(g, a, &c, true, o, err);
}

static enum error_code lengths(struct group *g, const struct algorithm *a, enum dtype t, struct algorithm_outcome *o,
                               struct error *err)
{
    const int P = g->size;
    const int64_t counts[] = { 0, 1, P - 1, P, P + 1, 13, 257, 20011 };
    enum error_code e = OK;
    for (int i = 0; i < 8 && !e; i++)
        e = both_places(g, a, (struct exact_call){ a->operation, P, g->rank,
                        { .count = counts[i], .dtype = t, .root = has_root(a->operation) ? i % P : 0,
                          .nodes = group_nodes(g) }, false }, o, err);
    return e;
}

/* The division at the end. */
static enum error_code average(struct group *g, const struct algorithm *a, enum dtype t, struct algorithm_outcome *o,
                               struct error *err)
{
    const int P = g->size;
    return both_places(g, a, (struct exact_call){ a->operation, P, g->rank,
                       { .count = 257, .dtype = t, .reduction = AVERAGE, .root = a->operation == REDUCE ? P - 1 : 0,
                         .nodes = group_nodes(g) }, false }, o, err);
}

static enum error_code uneven_blocks(struct group *g, const struct algorithm *a, enum dtype t,
                                     struct algorithm_outcome *o, struct error *err)
{
    const int P = g->size;
    int64_t *to = calloc(2 * (size_t)P, sizeof *to), *from = to + P;
    enum error_code e = to ? OK : fail(err, ERR_MEMORY, "no memory for the lengths of %d blocks", P);
    e = group_agree(g, e, err);
    struct exact_call c = { ALLTOALL, P, g->rank, { .dtype = t, .counts = to, .recvcounts = from,
                                                    .nodes = group_nodes(g) }, true };
    for (int64_t count = 1; count < 3000 && !e; count = count * 13 + 4) {
        c.args.count = count;
        for (int b = 0; b < P; b++) to[b] = exact_between(&c, g->rank, b), from[b] = exact_between(&c, b, g->rank);
        e = both_places(g, a, c, o, err);
    }
    free(to);
    return e;
}

enum error_code verify_algorithm(struct group *g, const struct algorithm *a, struct algorithm_outcome *o,
                                 struct error *err)
{
    static const enum dtype formats[] = { F32, F64 };
    enum error_code e = OK;
    *o = (struct algorithm_outcome){ 0 };
    for (int f = 0; f < 2 && !e; f++) {
        e = lengths(g, a, formats[f], o, err);
        if (!e && reduces(a->operation)) e = average(g, a, formats[f], o, err);
        if (!e && a->operation == ALLTOALL) e = uneven_blocks(g, a, formats[f], o, err);
    }
    if (o->calls) o->refused = NULL;
    if (e != ERR_CHECK && e != ERR_USAGE) return e;
    o->verdict = (struct error){ .code = ERR_CHECK };           /* a refused call is also a failure */
    memcpy(o->verdict.text, err->text, sizeof err->text);
    return OK;
}

/* ---- what `auto` chooses ----------------------------------------------------------------------------------------- */

/* The virtual time of a call by devices that start together: that of the last one to end; known on rank 0. */
static enum error_code time_call(struct group *g, const char *name, enum operation op, struct collective c,
                                 picoseconds *time, struct error *err)
{
    struct comm *const comm = g->comm;
    struct clock *const clock = &comm->device->clock;
    picoseconds all[MESH_MOST_DEVICES];
    const struct cluster cluster = clock->cluster;
    clock_restart(clock, &cluster, c.dtype);
    enum error_code e = collective_run(g, op, name, &c, err);
    if (!e) e = comm_bring(comm, &clock->now, sizeof clock->now, all, err);
    *time = 0;
    for (int r = 0; r < comm->size && comm->rank == 0 && !e; r++) *time = all[r] > *time ? all[r] : *time;
    return e;
}

/* Time a call by `auto` and by each algorithm that takes it.  The verdict is on rank 0. */
static enum error_code compare_choice(struct group *g, enum operation op, struct collective c,
                                      struct algorithm_outcome *o, struct error *err)
{
    picoseconds chosen, time;
    enum error_code e = time_call(g, ALGORITHM_AUTO, op, c, &chosen, err);
    for (int i = 0; algorithms[i] && !e; i++) {
        const struct algorithm *const a = algorithms[i];
        if (a->operation != op || a->cost_formula[0] == '\0' || algorithm_refuses(a, g->size, &c)) continue;
        e = time_call(g, a->name, op, c, &time, err);
        o->calls++;
        if (!e && g->comm->rank == 0 && time < chosen && !o->verdict.code)
            fail(&o->verdict, ERR_CHECK, "%s of %lld %s: auto takes %s, %s only %s", operation_name(op),
                 (long long)c.count, dtype_name(c.dtype), time_format(chosen).text, a->name, time_format(time).text);
    }
    return e;
}

enum error_code verify_choice(struct group *g, enum operation op, struct algorithm_outcome *o, struct error *err)
{
    static const int64_t counts[] = { 1, 24, 1000, 30030 };
    enum error_code e = OK;
    *o = (struct algorithm_outcome){ 0 };
    for (int i = 0; i < 4 && !e; i++) {
        struct exact_call c = { op, g->size, g->rank, { .count = counts[i], .dtype = F32, .nodes = group_nodes(g) },
                                false };
        const size_t bytes = bytes_of(&c, exact_in_length(&c) + exact_out_length(&c));
        char *const memory = calloc(bytes + 1, 1);
        e = group_agree(g, memory ? OK : fail(err, ERR_MEMORY, "no memory for %zu bytes", bytes), err);
        if (!e) lay_out(&c, memory, false), e = compare_choice(g, op, c.args, o, err);
        free(memory);
    }
    return e;
}
