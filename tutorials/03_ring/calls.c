/* calls.c -- how the judge of lesson 03 reaches the functions ring_reduce_scatter, ring_all_gather and
 * ring_all_reduce.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "ring.h"
#include "worker/calls.h"

static void scatter(struct call *c) { ring_reduce_scatter(&c->group[0], c->buffer[0], c->number[0]); }
static void gather(struct call *c) { ring_all_gather(&c->group[0], c->buffer[0], c->number[0]); }
static void reduce(struct call *c) { ring_all_reduce(&c->group[0], c->buffer[0], c->number[0]); }

const struct callable callables[] = {
    { "ring_reduce_scatter", scatter }, { "ring_all_gather", gather }, { "ring_all_reduce", reduce }, { 0 }
};
