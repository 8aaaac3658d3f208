/* calls.c -- how the judge of lesson 14 reaches the functions narrow_bf16, narrow_fp16, half_all_reduce and
 * mixed_step.  Each call takes its arguments from struct call.  tutorials/worker/worker.c finds a function in
 * `callables` by name and runs it.  course/compile/build.c compiles this file with the student's file.  No
 * function returns an error code. */
#include "precision.h"
#include "worker/calls.h"

static void bf16(struct call *c)
{
    for (int64_t k = 0; k < c->number[0]; k++) ((uint16_t *)c->buffer[1])[k] = narrow_bf16(((float *)c->buffer[0])[k]);
}

static void fp16(struct call *c)
{
    for (int64_t k = 0; k < c->number[0]; k++) ((uint16_t *)c->buffer[1])[k] = narrow_fp16(((float *)c->buffer[0])[k]);
}

static void sum(struct call *c) { half_all_reduce(&c->group[0], c->buffer[0], c->number[0]); }

/* Several steps; of each its result, and the scaler after it. */
static void step(struct call *c)
{
    const struct optimizer o = { (float)c->given[0], (float)c->given[1] };
    struct scaler s = { (float)c->given[2], (int)c->number[2], (int)c->number[3] };
    struct half_model m = { c->number[0], c->buffer[0], c->buffer[1], c->buffer[2] };
    float *trace = c->buffer[4];
    for (int i = 0; i < c->number[1]; i++) {
        trace[3 * i] = (float)mixed_step(&c->group[0], &o, &s, &m, (uint16_t *)c->buffer[3] + i * c->number[0]);
        trace[3 * i + 1] = s.scale, trace[3 * i + 2] = (float)s.good;
    }
}

const struct callable callables[] = {
    { "narrow_bf16", bf16 }, { "narrow_fp16", fp16 }, { "half_all_reduce", sum }, { "mixed_step", step }, { 0 }
};
