/* calls.c -- how the judge of lesson 07 reaches the functions zero_memory, zero1_step and zero3_step.  Each call
 * takes its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by name and runs
 * it.  course/compile/build.c compiles this file with the student's file.  No function returns an error
 * code. */
#include "zero.h"
#include "worker/calls.h"

static struct optimizer optimizer(const struct call *c)
{
    return (struct optimizer){ (float)c->given[0], (float)c->given[1] };
}

static void memory(struct call *c) { c->real = zero_memory(c->given[0], (int)c->number[0], (int)c->number[1]); }

static void zero1(struct call *c)
{
    const struct optimizer o = optimizer(c);
    for (int64_t i = 0; i < c->number[1]; i++)
        zero1_step(&c->group[0], &o, c->buffer[0], c->buffer[1], c->buffer[2], c->buffer[3], c->number[0]);
}

static void zero3(struct call *c)
{
    const struct optimizer o = optimizer(c);
    struct shared_model m = { .layers = (int)c->number[0], .count = c->buffer[0], .target = c->buffer[1],
                              .weights = c->buffer[2], .v = c->buffer[3], .seen = c->buffer[4] };
    for (int64_t i = 0; i < c->number[1]; i++) zero3_step(&c->group[0], &o, &m);
}

const struct callable callables[] = {
    { "zero_memory", memory }, { "zero1_step", zero1 }, { "zero3_step", zero3 }, { 0 }
};
