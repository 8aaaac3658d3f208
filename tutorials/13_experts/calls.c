/* calls.c -- how the judge of lesson 13 reaches the functions route, plan_trip, experts_forward and
 * experts_backward.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "experts.h"
#include "worker/calls.h"

static void choose(struct call *c)
{
    route(c->buffer[0], c->number[0], (int)c->number[1], (int)c->number[2], c->buffer[1], c->buffer[2]);
}

static void plan(struct call *c)
{
    struct trip t = { c->buffer[1], c->buffer[2], c->buffer[3] };
    plan_trip(&c->group[0], (int)c->number[0], c->buffer[0], c->number[1], c->number[2], &t);
}

static struct experts experts(const struct call *c)
{
    return (struct experts){ (int)c->number[0], (int)c->number[1], c->number[2], c->number[3], c->buffer[0] };
}

static void forward(struct call *c)
{
    const struct experts m = experts(c);
    const struct trip t = { c->buffer[1], c->buffer[2], c->buffer[3] };
    struct kept kept = { 0 };
    experts_forward(&c->group[0], &m, &t, c->buffer[4], c->buffer[5], &kept, c->buffer[6]);
    release(kept.came);
    release(kept.results);
}

/* Both passes, as in a step. */
static void backward(struct call *c)
{
    const struct experts m = experts(c);
    const struct trip t = { c->buffer[1], c->buffer[2], c->buffer[3] };
    struct kept kept = { 0 };
    experts_forward(&c->group[0], &m, &t, c->buffer[4], c->buffer[5], &kept, c->buffer[6]);
    experts_backward(&c->group[0], &m, &t, c->buffer[5], &kept, c->buffer[7], c->buffer[8], c->buffer[9],
                     c->buffer[10]);
}

const struct callable callables[] = { { "route", choose }, { "plan_trip", plan }, { "experts_forward", forward },
                                      { "experts_backward", backward }, { 0 } };
