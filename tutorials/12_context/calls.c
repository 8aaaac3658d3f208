/* calls.c -- how the judge of lesson 12 reaches the functions tokens_of, token_of, attend, ring_attention and
 * ulysses_attention.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "context.h"
#include "worker/calls.h"

/* Of all devices, one after another. */
static void count(struct call *c)
{
    int64_t *to = c->buffer[0];
    for (int r = 0; r < c->number[1]; r++) to[r] = tokens_of(c->number[0], (int)c->number[1], r);
}

static void token(struct call *c)
{
    int64_t *to = c->buffer[0];
    const int64_t *const tokens = c->buffer[1];
    for (int r = 0; r < c->number[1]; r++)
        for (int64_t i = 0; i < tokens[r]; i++) *to++ = token_of(c->number[0], (int)c->number[1], r, i);
}

/* Queries of one device meet the keys of several, which lie one after another. */
static void meet(struct call *c)
{
    const int64_t S = c->number[0], A = c->number[3], *const visits = c->buffer[3];
    struct sofar so = { c->buffer[4], c->buffer[5], c->buffer[6] };
    const float *k = c->buffer[1], *v = c->buffer[2];
    for (int64_t i = 0; i < c->number[4]; i++) {
        attend(S, (int)c->number[1], (int)c->number[2], (int)visits[2 * i], c->buffer[0], k, v, A, A, &so);
        k += visits[2 * i + 1] * A, v += visits[2 * i + 1] * A;
    }
}

static void ring(struct call *c)
{
    ring_attention(&c->group[0], c->buffer[0], c->buffer[1], c->buffer[2], c->number[0], c->number[1], c->buffer[3]);
}

static void ulysses(struct call *c)
{
    ulysses_attention(&c->group[0], c->buffer[0], c->buffer[1], c->buffer[2], c->number[0], c->number[2], c->number[1],
                      c->buffer[3]);
}

const struct callable callables[] = { { "tokens_of", count }, { "token_of", token }, { "attend", meet },
                                      { "ring_attention", ring }, { "ulysses_attention", ulysses }, { 0 } };
