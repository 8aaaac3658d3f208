/* calls.c -- how the judge of lesson 21 reaches the functions grid_exponent, grid_sum, grid_round and exact_parts.
 * Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by
 * name and runs it.  course/compile/build.c compiles this file with the student's file.  No function returns an error
 * code. */
#include "exact.h"
#include "worker/calls.h"

static void exponent(struct call *c) { c->result = grid_exponent(c->buffer[0], (int)c->number[0]); }
static void sum(struct call *c) { c->result = grid_sum(c->buffer[0], (int)c->number[0], (int)c->number[1]); }
static void finish(struct call *c) { c->real = grid_round(c->number[0], (int)c->number[1]); }
static void parts(struct call *c) { c->real = exact_parts(c->buffer[0], (int)c->number[0], (int)c->number[1]); }

const struct callable callables[] = {
    { "grid_exponent", exponent }, { "grid_sum", sum }, { "grid_round", finish }, { "exact_parts", parts }, { 0 }
};
