/* calls.c -- how the judge of lesson 23 reaches the functions box_of, box_common, least_numbers, plan_moves and
 * reshard.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in `callables`
 * by name and runs it.  course/compile/build.c compiles this file with the student's file.  No function returns an
 * error code. */
#include "reshard.h"
#include "worker/calls.h"

static struct mesh mesh(const struct call *c, int i)
{
    return (struct mesh){ (int)c->number[i], (int)c->number[i + 1], (int)c->number[i + 2] };
}

static struct change change(const struct call *c)
{
    return (struct change){ mesh(c, 0), mesh(c, 3), c->number[6], c->number[7], (int)c->number[8] };
}

static void boxes(struct call *c)
{
    const struct mesh m = mesh(c, 0);
    *(struct box *)c->buffer[0] = box_of(&m, c->number[6], c->number[7], c->group[0].rank);
}

static void common(struct call *c)
{
    const struct box *const pair = c->buffer[0];
    *(struct box *)c->buffer[1] = box_common(pair[0], pair[1]);
}

static void numbers(struct call *c)
{
    const struct change all = change(c);
    c->result = least_numbers(&all, c->group[0].rank);
}

static void moves(struct call *c)
{
    const struct change all = change(c);
    c->result = plan_moves(&all, c->group[0].rank, c->buffer[0]);
}

static void run(struct call *c)
{
    const struct change all = change(c);
    c->result = reshard(&c->group[0], &all, c->buffer[0], c->buffer[1]);
}

const struct callable callables[] = {
    { "box_of", boxes }, { "box_common", common }, { "least_numbers", numbers }, { "plan_moves", moves },
    { "reshard", run }, { 0 }
};
