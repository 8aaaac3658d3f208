/* calls.c -- how the judge of lesson 09 reaches the functions gather_tokens, reduce_tokens, layer_forward and
 * layer_backward.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "sequence.h"
#include "worker/calls.h"

static void gather(struct call *c)
{
    gather_tokens(&c->group[0], c->buffer[0], c->number[0], c->number[1], c->buffer[1]);
}

static void reduce(struct call *c)
{
    reduce_tokens(&c->group[0], c->buffer[0], c->number[0], c->number[1], c->buffer[1]);
}

static struct layer layer(const struct call *c)
{
    return (struct layer){ c->number[0], c->number[1], c->number[2], c->buffer[0], c->buffer[1], c->buffer[2] };
}

static void forward(struct call *c)
{
    const struct layer l = layer(c);
    struct kept k = { 0 };
    layer_forward(&c->group[0], &l, c->buffer[3], &k, c->buffer[4]);
    release(k.normed);
    release(k.hidden);
}

/* Both passes, as in a step. */
static void backward(struct call *c)
{
    const struct layer l = layer(c);
    struct kept k = { 0 };
    layer_forward(&c->group[0], &l, c->buffer[3], &k, c->buffer[4]);
    layer_backward(&c->group[0], &l, c->buffer[3], &k, c->buffer[5], c->buffer[6], c->buffer[7], c->buffer[8],
                   c->buffer[9]);
}

const struct callable callables[] = { { "gather_tokens", gather }, { "reduce_tokens", reduce },
                                      { "layer_forward", forward }, { "layer_backward", backward }, { 0 } };
