/* calls.c -- how the judge of lesson 08 reaches the functions cut_columns, cut_rows, cut_heads, mlp_forward and
 * mlp_backward.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "tensor.h"
#include "worker/calls.h"

static void columns(struct call *c)
{
    cut_columns(&c->group[0], c->buffer[0], c->number[0], c->number[1], c->buffer[1]);
}

static void rows(struct call *c) { cut_rows(&c->group[0], c->buffer[0], c->number[0], c->number[1], c->buffer[1]); }

static void heads(struct call *c)
{
    cut_heads(&c->group[0], c->buffer[0], c->number[0], c->number[1], c->number[2], c->buffer[1]);
}

static struct mlp mlp(const struct call *c)
{
    return (struct mlp){ c->number[0], c->number[1], c->number[2], c->buffer[0], c->buffer[1], c->buffer[2],
                         c->buffer[3] };
}

static void forward(struct call *c)
{
    const struct mlp m = mlp(c);
    mlp_forward(&c->group[0], &m, c->buffer[4], c->buffer[5], c->buffer[6]);
}

static void backward(struct call *c)
{
    const struct mlp m = mlp(c);
    const struct mlp_gradients d = { c->buffer[8], c->buffer[9], c->buffer[10], c->buffer[11] };
    mlp_backward(&c->group[0], &m, c->buffer[4], c->buffer[5], c->buffer[6], c->buffer[7], &d);
}

const struct callable callables[] = { { "cut_columns", columns }, { "cut_rows", rows }, { "cut_heads", heads },
                                      { "mlp_forward", forward }, { "mlp_backward", backward }, { 0 } };
