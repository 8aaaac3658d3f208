/* calls.c -- how the judge of lesson 24 reaches the functions place_of, attend, found_pages, release_pages and
 * plan_step.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No function
 * returns an error code. */
#include "pages.h"
#include "worker/calls.h"

static void place(struct call *c) { c->result = place_of(c->buffer[0], (int)c->number[0], (int)c->number[1]); }

static void attention(struct call *c)
{
    attend(c->buffer[0], c->buffer[1], c->buffer[2], (int)c->number[0], (int)c->number[1], (int)c->number[2],
           c->buffer[3]);
}

static void found(struct call *c)
{
    c->result = found_pages(c->buffer[0], (int)c->number[0], c->buffer[1], c->buffer[2], (int)c->number[1],
                            (int)c->number[2], c->buffer[3]);
}

static void released(struct call *c)
{
    c->result = release_pages(c->buffer[0], (int)c->number[0], c->buffer[1], c->buffer[2], (int)c->number[1]);
}

static void plan(struct call *c)
{
    c->result = plan_step((int)c->number[0], c->buffer[0], c->buffer[1], c->buffer[2], c->buffer[3],
                          (int)c->number[1], (int)c->number[2], c->buffer[4]);
}

const struct callable callables[] = {
    { "place_of", place }, { "attend", attention }, { "found_pages", found }, { "release_pages", released },
    { "plan_step", plan }, { 0 }
};
