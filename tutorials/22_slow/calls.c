/* calls.c -- how the judge of lesson 22 reaches the functions slow_outside, usual_delay, slow_part and who_hangs.
 * Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by
 * name and runs it.  course/compile/build.c compiles this file with the student's file.  No function returns an error
 * code. */
#include "slow.h"
#include "worker/calls.h"

static void outside(struct call *c) { c->result = slow_outside(c->buffer[0], (int)c->number[0]); }
static void usual(struct call *c) { c->real = usual_delay(c->buffer[0], (int)c->number[0]); }
static void part(struct call *c) { c->result = slow_part(c->buffer[0], (int)c->number[0], c->buffer[1]); }
static void hangs(struct call *c) { c->result = who_hangs(c->buffer[0], (int)c->number[0], (int)c->number[1]); }

const struct callable callables[] = {
    { "slow_outside", outside }, { "usual_delay", usual }, { "slow_part", part }, { "who_hangs", hangs }, { 0 }
};
