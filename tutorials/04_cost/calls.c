/* calls.c -- how the judge of lesson 04 reaches the functions half_round_trip, fit, ring_time, other_time and
 * crossover.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "cost.h"
#include "worker/calls.h"

static void call_half(struct call *c) { c->real = half_round_trip(&c->group[0], c->number[0]); }
static void call_fit(struct call *c)
{
    double *out = c->buffer[0];
    out[0] = out[1] = -1;
    fit(&c->group[0], &out[0], &out[1]);
}
static void call_ring(struct call *c) { c->real = ring_time((int)c->number[0], c->given[0], c->given[1], c->given[2]); }
static void call_other(struct call *c)
{
    c->real = other_time((int)c->number[0], c->given[0], c->given[1], c->given[2]);
}
static void call_crossover(struct call *c) { c->result = crossover((int)c->number[0], c->given[0], c->given[1]); }

const struct callable callables[] = {
    { "half_round_trip", call_half }, { "fit", call_fit }, { "ring_time", call_ring }, { "other_time", call_other },
    { "crossover", call_crossover }, { 0 }
};
