/* calls.c -- how the judge of lesson 02 reaches the functions shift, swap_pairs and running_sum.  Each call takes
 * its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by name and runs it.
 * course/compile/build.c compiles this file with the student's file.  No function returns an error code. */
#include "messages.h"
#include "worker/calls.h"

static void call_shift(struct call *c)
{
    shift(&c->group[0], c->buffer[0], c->buffer[1], c->number[0], (int)c->number[1]);
}
static void call_swap(struct call *c) { swap_pairs(&c->group[0], c->buffer[0], c->number[0]); }
static void call_sum(struct call *c) { running_sum(&c->group[0], c->buffer[0], c->number[0]); }

const struct callable callables[] = {
    { "shift", call_shift }, { "swap_pairs", call_swap }, { "running_sum", call_sum }, { 0 }
};
