/* calls.c -- how the judge of lesson 05 reaches the functions make_buckets, data_gradients and data_train.  Each
 * call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables` by name and
 * runs it.  course/compile/build.c compiles this file with the student's file.  No function returns an
 * error code. */
#include "data.h"
#include "worker/calls.h"

static struct model model(struct call *c)
{
    return (struct model){ (int)c->number[0], c->buffer[0], c->buffer[1], c->buffer[2], c->buffer[3], c->buffer[4] };
}

static void buckets(struct call *c)
{
    c->result = make_buckets(c->buffer[0], (int)c->number[0], c->number[1], c->buffer[1]);
}

static void gradients(struct call *c)
{
    struct model m = model(c);
    data_gradients(&c->group[0], &m, c->number[1]);
}

static void train(struct call *c)
{
    struct model m = model(c);
    data_train(&c->group[0], &m, c->number[1], (int)c->number[2], (float)c->given[0]);
}

const struct callable callables[] = {
    { "make_buckets", buckets }, { "data_gradients", gradients }, { "data_train", train }, { 0 }
};
