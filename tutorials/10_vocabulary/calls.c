/* calls.c -- how the judge of lesson 10 reaches the functions vocabulary_max and vocabulary_loss.  Each call takes
 * its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by name and runs it.
 * course/compile/build.c compiles this file with the student's file.  No function returns an error code. */
#include "vocabulary.h"
#include "worker/calls.h"

static void max(struct call *c)
{
    vocabulary_max(&c->group[0], c->buffer[0], (int)c->number[0], c->number[2], c->buffer[3]);
}

static void loss(struct call *c)
{
    c->real = vocabulary_loss(&c->group[0], c->buffer[0], c->buffer[1], (int)c->number[0], c->number[1], c->number[2],
                              c->given[0], c->buffer[2]);
}

const struct callable callables[] = { { "vocabulary_max", max }, { "vocabulary_loss", loss }, { 0 } };
