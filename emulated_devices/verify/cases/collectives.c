/* collectives.c -- runs every algorithm of a collective with exact numbers and holds `auto` to its promise.
 * Callers are verify/jobs/collectives.c and test_crew.c.  A wrong element or cost is a verdict; ERR_MEMORY and
 * ERR_COMM are errors. */
#include "emulated_devices/verify/cases/collectives.h"
#include "emulated_devices/verify/cases/exact.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the places of in and out ------------------------------------------------------------------------------------ */

static size_t collectives_bytes_of(const struct exact_call *call, int64_t elements)
{
    return dtype_size(call->args.dtype) * (size_t)elements;
}

/* Whether the memory of input and output overlaps, which is how calls say that they are in place. */
static bool in_place(const struct exact_call *call)
{
    const char *in = call->args.in, *out = call->args.out;
    return out < in + collectives_bytes_of(call, exact_in_length(call))
           && in < out + collectives_bytes_of(call, exact_out_length(call));
}

/* Lay out input and output one after the other, or in place.  If an operation in place has blocks, the shorter is
 * this member's block of the longer. */
static void collectives_lay_out(struct exact_call *call, char *memory, bool in_place)
{
    const int64_t in = exact_in_length(call), out = exact_out_length(call);
    const enum operation op = call->operation;
    const bool blocks = op == REDUCE_SCATTER || op == ALLGATHER || op == GATHER || op == SCATTER ||
                        op == SPARSE_ALLGATHER || op == SPARSE_REDUCE_SCATTER;
    const size_t place = blocks ? collectives_bytes_of(call, block_start(call->args.count, call->P, call->rank)) : 0;
    call->args.in = in_place && in < out ? memory + place : memory;
    call->args.out = !in_place ? memory + collectives_bytes_of(call, in) : out < in ? memory + place : memory;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

struct described { char text[160]; };

/* "allreduce ring of 257 fp32, average, root 0, in place" */
static struct described collectives_describe(const struct exact_call *call, const char *name)
{
    struct described d;
    snprintf(d.text, sizeof d.text, "%s %s of %lld %s%s%s, root %d%s", operation_name(call->operation), name,
             (long long)call->args.count, dtype_name(call->args.dtype), call->args.reduction == AVERAGE
                 ? ", average" : "",
             call->uneven ? ", blocks of unequal lengths" : "", call->args.root, in_place(call) ? ", in place" : "");
    return d;
}

/* Hold every element of this member's output to the exact result. */
static enum error_code check_values(const struct exact_call *call, const char *name, struct error *err)
{
    for (int64_t i = 0; i < exact_out_length(call); i++) {
        const double got = exact_get(call->args.dtype, call->args.out, i), want = exact_out(call, i);
        if (!(got == want))
            return fail(err, ERR_CHECK, "%s: member %d has %.9g at %lld; it must be %.9g",
                        collectives_describe(call, name).text, call->rank, got, (long long)i, want);
    }
    return OK;
}

/* Hold the messages, bytes and additions of one call to the algorithm's cost function; numbers must be equal. */
static enum error_code check_cost(const struct group *group, const struct exact_call *exact_call,
                                  const struct algorithm *algorithm,
                                  const struct traffic *before, const struct traffic *after, struct error *err)
{
    struct collective call = exact_call->args;
    call.segment = group_segment(group, algorithm, &call);
    const struct collective_cost want = collective_cost(algorithm, exact_call->rank, exact_call->P, &call);
    const uint64_t messages = after->messages_sent - before->messages_sent,
                   bytes = after->bytes_sent - before->bytes_sent, additions = after->additions - before->additions;
    if (messages == want.messages && bytes == want.bytes && additions == want.additions) return OK;
    return fail(
        err, ERR_CHECK,
        "%s: member %d counted %llu messages, %llu bytes, %llu additions; cost says %llu, %llu, %llu",
        collectives_describe(exact_call, algorithm->name).text, exact_call->rank, (unsigned long long)messages,
        (unsigned long long)bytes,
        (unsigned long long)additions,
        (unsigned long long)want.messages, (unsigned long long)want.bytes, (unsigned long long)want.additions);
}

/* Run one call and check its values, then its cost.  All messages must have ended when the call returns. */
static enum error_code run_call(struct group *group, const struct algorithm *algorithm, struct exact_call *call,
                                struct error *err)
{
    const struct traffic *now = &group->comm->counted.of[group->kind].of[algorithm->operation], before = *now;
    enum error_code e = collective_run(group, algorithm->operation, algorithm->name, &call->args, err);
    messages_have_ended(group->comm, "at the end of the call");
    if (!e) e = check_values(call, algorithm->name, err);
    if (!e) e = check_cost(group, call, algorithm, &before, now, err);
    return e;
}

/* Run one call in a buffer that is filled with the input, and with NaN elsewhere. */
static enum error_code one_call(struct group *group, const struct algorithm *algorithm, struct exact_call *call,
                                bool in_place, struct algorithm_outcome *outcome, struct error *err)
{
    const size_t bytes = collectives_bytes_of(call, exact_in_length(call) + exact_out_length(call));
    char *memory = malloc(bytes + 1);
    enum error_code e = memory ? OK
        : fail(err, ERR_MEMORY, "no memory for a vector of %lld", (long long)call->args.count);
    e = group_agree(group, e, err);
    if (!e) {
        /* Bytes of 0xff are NaN in both formats: an element that nobody writes is noticed. */
        memset(memory, 0xff, bytes);
        collectives_lay_out(call, memory, in_place);
        for (int64_t i = 0; i < exact_in_length(call); i++)
            exact_put(call->args.dtype, (void *)(uintptr_t)call->args.in, i, exact_in(call, i));
        e = run_call(group, algorithm, call, err);
        /* if all devices are members, they also agree on what comm has to report */
        e = group->size == group->comm->size ? comm_agree(group->comm, e, err) : group_agree(group, e, err);
        outcome->calls++;
        outcome->elements += exact_out_length(call);
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
static enum error_code both_places(struct group *group, const struct algorithm *algorithm, struct exact_call call,
                                   struct algorithm_outcome *outcome, struct error *err)
{
    /* A refusal depends on length, format and size of the group, not on the place of the buffers. */
    const char *refused = algorithm_refuses(algorithm, call.P, &call.args);
    if (refused) return outcome->refused = refused, OK;
    const enum error_code e = one_call(group, algorithm, &call, false, outcome, err);
    return e || call.uneven ? e : one_call(group, algorithm, &call, true, outcome, err);
}

/* Call with 0 elements, 1, numbers around P, and up to 20011; the root moves on from call to call. */
static enum error_code lengths(struct group *group, const struct algorithm *algorithm, enum dtype dtype,
                               struct algorithm_outcome *outcome, struct error *err)
{
    const int P = group->size;
    const int64_t counts[] = { 0, 1, P - 1, P, P + 1, 13, 257, 20011 };
    enum error_code e = OK;
    for (int i = 0; i < 8 && !e; i++)
        e = both_places(group, algorithm, (struct exact_call){ algorithm->operation, P, group->rank,
                        { .count = counts[i], .dtype = dtype, .root = has_root(algorithm->operation) ? i % P : 0,
                          .nodes = group_nodes(group) }, false }, outcome, err);
    return e;
}

/* Call once with the average: the division comes after the sum. */
static enum error_code average(struct group *group, const struct algorithm *algorithm, enum dtype dtype,
                               struct algorithm_outcome *outcome, struct error *err)
{
    const int P = group->size;
    return both_places(group, algorithm, (struct exact_call){ algorithm->operation, P, group->rank,
                       { .count = 257, .dtype = dtype, .reduction = AVERAGE,
                        .root = algorithm->operation == REDUCE ? P - 1 : 0,
                         .nodes = group_nodes(group) }, false }, outcome, err);
}

/* Call an all-to-all whose blocks differ in length, for growing lengths.  This member sends counts [P] and gets
 * recvcounts [P] elements. */
static enum error_code uneven_blocks(struct group *group, const struct algorithm *algorithm, enum dtype dtype,
                                     struct algorithm_outcome *outcome, struct error *err)
{
    const int P = group->size;
    int64_t *to = calloc(2 * (size_t)P, sizeof *to), *from = to + P;
    enum error_code e = to ? OK : fail(err, ERR_MEMORY, "no memory for the lengths of %d blocks", P);
    e = group_agree(group, e, err);
    struct exact_call c = { ALLTOALL, P, group->rank, { .dtype = dtype, .counts = to, .recvcounts = from,
                                                    .nodes = group_nodes(group) }, true };
    for (int64_t count = 1; count < 3000 && !e; count = count * 13 + 4) {
        c.args.count = count;
        for (int b = 0; b < P; b++)
            to[b] = exact_between(&c, group->rank, b), from[b] = exact_between(&c, b, group->rank);
        e = both_places(group, algorithm, c, outcome, err);
    }
    free(to);
    return e;
}

enum error_code verify_algorithm(struct group *group, const struct algorithm *algorithm,
                                 struct algorithm_outcome *outcome, struct error *err)
{
    static const enum dtype formats[] = { F32, F64 };
    enum error_code e = OK;
    *outcome = (struct algorithm_outcome){ 0 };
    for (int f = 0; f < 2 && !e; f++) {
        e = lengths(group, algorithm, formats[f], outcome, err);
        if (!e && reduces(algorithm->operation)) e = average(group, algorithm, formats[f], outcome, err);
        if (!e && algorithm->operation == ALLTOALL) e = uneven_blocks(group, algorithm, formats[f], outcome, err);
    }
    if (outcome->calls) outcome->refused = NULL;
    if (e != ERR_CHECK && e != ERR_USAGE) return e;
    outcome->verdict = (struct error){ .code = ERR_CHECK };           /* a refused call is also a failure */
    memcpy(outcome->verdict.text, err->text, sizeof err->text);
    return OK;
}

/* ---- what `auto` chooses ----------------------------------------------------------------------------------------- */

/* The virtual time of a call by devices that start together: that of the last one to end; known on rank 0. */
static enum error_code time_call(struct group *group, const char *name, enum operation op, struct collective collective,
                                 picoseconds *time, struct error *err)
{
    struct comm *const comm = group->comm;
    struct clock *const clock = &comm->device->clock;
    picoseconds all[MESH_MOST_LISTED];
    const struct cluster cluster = clock->cluster;
    /* All clocks start at 0, as if all members began together. */
    clock_restart(clock, &cluster, collective.dtype);
    enum error_code e = collective_run(group, op, name, &collective, err);
    if (!e) e = comm_bring(comm, &clock->now, sizeof clock->now, all, err);
    *time = 0;
    for (int r = 0; r < comm->size && comm->rank == 0 && !e; r++) *time = all[r] > *time ? all[r] : *time;
    return e;
}

/* Time a call by `auto` and by each algorithm that takes it.  The verdict is on rank 0. */
static enum error_code compare_choice(struct group *group, enum operation op, struct collective collective,
                                      struct algorithm_outcome *outcome, struct error *err)
{
    picoseconds chosen, time;
    enum error_code e = time_call(group, ALGORITHM_AUTO, op, collective, &chosen, err);
    for (int i = 0; algorithms[i] && !e; i++) {
        const struct algorithm *const a = algorithms[i];
        if (a->operation != op || a->cost_formula[0] == '\0' || algorithm_refuses(a, group->size, &collective))
            continue;
        e = time_call(group, a->name, op, collective, &time, err);
        outcome->calls++;
        if (!e && group->comm->rank == 0 && time < chosen && !outcome->verdict.code)
            fail(&outcome->verdict, ERR_CHECK, "%s of %lld %s: auto takes %s, %s only %s", operation_name(op),
                 (long long)collective.count, dtype_name(collective.dtype), time_format(chosen).text, a->name,
                 time_format(time).text);
    }
    return e;
}

enum error_code verify_choice(struct group *group, enum operation op, struct algorithm_outcome *outcome,
                              struct error *err)
{
    static const int64_t counts[] = { 1, 24, 1000, 30030 };
    enum error_code e = OK;
    *outcome = (struct algorithm_outcome){ 0 };
    for (int i = 0; i < 4 && !e; i++) {
        struct exact_call c = { op, group->size, group->rank,
                               { .count = counts[i], .dtype = F32, .nodes = group_nodes(group) },
                                false };
        const size_t bytes = collectives_bytes_of(&c, exact_in_length(&c) + exact_out_length(&c));
        char *const memory = calloc(bytes + 1, 1);
        e = group_agree(group, memory ? OK : fail(err, ERR_MEMORY, "no memory for %zu bytes", bytes), err);
        if (!e) collectives_lay_out(&c, memory, false), e = compare_choice(group, op, c.args, outcome, err);
        free(memory);
    }
    return e;
}
