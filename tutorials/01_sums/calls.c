/* calls.c -- how the judge of lesson 01 reaches the functions sum_forward, sum_pairs, sum_parts, sum_bound and
 * sum_careful.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "sums.h"
#include "worker/calls.h"

static void forward(struct call *c) { c->real = sum_forward(c->buffer[0], (int)c->number[0]); }
static void pairs(struct call *c) { c->real = sum_pairs(c->buffer[0], (int)c->number[0]); }
static void parts(struct call *c) { c->real = sum_parts(c->buffer[0], (int)c->number[0], (int)c->number[1]); }
static void bound(struct call *c) { c->real = sum_bound(c->buffer[0], (int)c->number[0]); }
static void careful(struct call *c) { c->real = sum_careful(c->buffer[0], (int)c->number[0]); }

const struct callable callables[] = {
    { "sum_forward", forward }, { "sum_pairs", pairs }, { "sum_parts", parts }, { "sum_bound", bound },
    { "sum_careful", careful }, { 0 }
};
