/* calls.c -- how the judge of lesson 06 reaches the functions mean_loss, batch_gradient and clip.  Each call takes
 * its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by name and runs it.
 * course/compile/build.c compiles this file with the student's file.  No function returns an error code. */
#include "accumulation.h"
#include "worker/calls.h"

static void mean(struct call *c) { c->real = mean_loss(c->buffer[0], c->buffer[1], (int)c->number[0]); }

static void gradient(struct call *c)
{
    const struct batch b = { (int)c->number[0], c->buffer[0], c->buffer[1], c->buffer[2], c->number[1] };
    c->real = batch_gradient(&c->group[0], &b, c->buffer[3]);
}

static void clipped(struct call *c) { c->real = clip(c->buffer[0], c->number[0], c->given[0]); }

const struct callable callables[] = {
    { "mean_loss", mean }, { "batch_gradient", gradient }, { "clip", clipped }, { 0 }
};
