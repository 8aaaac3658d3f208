/* published_formula.c -- formulas for bubbles, from papers and their authors' pages, and the bubbles of our
 * schedules.
 *
 * cli/bench/schedules.c prints each formula beside our idle time.  The errors are those of schedule_make and
 * schedule_validate, and ERR_MEMORY.
 */
#include "emulated_devices/schemes/pipeline/published.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <stdlib.h>
#include <string.h>

/* ---- the formulas ------------------------------------------------------------------------------------------------ */

/* B = I + W.  F&B, a forward and a backward side by side, is assumed to take as long as both one after the other. */
static int64_t idle_1f1b(struct published_case published_case)
{
    return (published_case.P - 1) * (published_case.F + published_case.I + published_case.W);
}
static int64_t idle_interleaved(struct published_case published_case)
{
    return (published_case.P - 1) * (published_case.F + published_case.I + published_case.W) / published_case.v;
}
static int64_t idle_zb_h1(struct published_case published_case)
{
    return (published_case.P - 1) * (published_case.F + published_case.I - published_case.W);
}
static int64_t idle_zb_h2(struct published_case published_case)
{
    return (published_case.P - 1) * (published_case.F + published_case.I - 2 * published_case.W);
}
static int64_t idle_none(struct published_case published_case) { return (void)published_case, 0; }
static int64_t idle_half(struct published_case published_case) { return idle_1f1b(published_case) / 2; }
static int64_t idle_two_thirds(struct published_case published_case) { return idle_1f1b(published_case) * 2 / 3; }
/* F&B + B - 3W with B = I + W, and F&B = F + B. */
static int64_t both_backward_less(struct published_case published_case)
{
    return published_case.F + 2 * (published_case.I + published_case.W) - 3 * published_case.W;
}
static int64_t idle_dualpipe(struct published_case published_case)
{
    return (published_case.P / 2 - 1) * both_backward_less(published_case);
}
static int64_t idle_dualpipev(struct published_case published_case)
{
    return (published_case.P - 1) * both_backward_less(published_case);
}

#define ZERO_BUBBLE "Qi et al., arXiv:2401.10241, table 2"
#define MEGATRON "Narayanan et al., arXiv:2104.04473"
#define CONTROLLABLE "Qi et al., arXiv:2405.15362"
#define DUALPIPE "README of deepseek-ai/DualPipe"
#define FORMULA(name, text, from, function, ...) { .schedule = name, .formula = text, .source = from, \
                                                   .idle = function, __VA_ARGS__ }

const struct published_formula published_formulas[] = {
    FORMULA("1f1b",        "(P-1)(F+B)",           ZERO_BUBBLE,  idle_1f1b,        .chunks = 1),
    FORMULA("interleaved", "(P-1)(F+B)/v",         MEGATRON,     idle_interleaved, .chunks = 2),
    FORMULA("zb-h1",       "(P-1)(F+B-2W)",        ZERO_BUBBLE,  idle_zb_h1,       .chunks = 1),
    FORMULA("zb-h2",       "(P-1)(F+B-3W)",        ZERO_BUBBLE,  idle_zb_h2,       .chunks = 1),
    FORMULA("dualpipe",    "(P/2-1)(F&B+B-3W)",    DUALPIPE,     idle_dualpipe,    .paired = true, .per_stage = true),
    FORMULA("dualpipev",   "(P-1)(F&B+B-3W)",      DUALPIPE,     idle_dualpipev,   .paired = true, .per_stage = true),
    FORMULA("zb-v",        "0",                    CONTROLLABLE, idle_none,        .equal_times = true),
    FORMULA("v-half",      "half of 1f1b's",       CONTROLLABLE, idle_half,        .equal_times = true,
            .at_most = true),
    FORMULA("v-min",       "two thirds of 1f1b's", CONTROLLABLE, idle_two_thirds,  .equal_times = true,
            .at_most = true),
    { .schedule = NULL }
};

/* ---- ours -------------------------------------------------------------------------------------------------------- */

/* A pair in a list: a forward and a backward of another chunk, each with its messages. */
enum { PARTS = 6 };
static const enum action_kind part[PARTS] = { RECEIVE_ACTIVATION, FORWARD,  SEND_ACTIVATION,
                                              RECEIVE_GRADIENT,   BACKWARD, SEND_GRADIENT };

/* @return the number of actions of the pair that begins at `list`; 0 if none does. */
static int pair_at(const struct action *list, int count, struct action found[PARTS], bool have[PARTS])
{
    int n = 0;
    /* Each part may be missing at the pipeline's ends, except for F and B themselves.  B must be of another chunk
     * than F. */
    for (int k = 0; k < PARTS; k++) {
        have[k] = n < count && list[n].kind == part[k] && (part[k] != BACKWARD || list[n].chunk != found[1].chunk);
        if (have[k]) found[k] = list[n++];
        if (k == 1 && !have[k]) return 0;
    }
    return have[4] ? n : 0;
}

/* Reorder messages for pairs done side by side: both begin when both inputs have arrived, and send when both are
 * done. */
static enum error_code pair_device(struct schedule *schedule, int device, struct error *err)
{
    /* The new order is: both receives, F and B, both sends. */
    static const int order[PARTS] = { 0, 3, 1, 4, 2, 5 };
    const int count = schedule->count[device];
    struct action *list = schedule->actions[device], *out = malloc(((size_t)count + 1) * sizeof *out),
        found[PARTS] = { 0 };
    bool have[PARTS];
    int n = 0;
    /* The new list has the same actions, so the schedule stays valid in length. */
    if (out == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory for %d actions", schedule->name, count);
    for (int i = 0; i < count;) {
        /* A pair gets the new order.  Any other action keeps its place. */
        const int length = pair_at(list + i, count - i, found, have);
        for (int k = 0; k < PARTS && length > 0; k++)
            if (have[order[k]]) out[n++] = found[order[k]];
        if (length == 0) out[n++] = list[i];
        i += length > 0 ? length : 1;
    }
    memcpy(list, out, (size_t)n * sizeof *out);
    free(out);
    return OK;
}

/* The idle time of the formulas is span - work of the busiest device. */
static int64_t idle_of(const struct timing *timing)
{
    int64_t most = 0;
    for (int d = 0; d < timing->devices; d++) most = timing->busy[d] > most ? timing->busy[d] : most;
    return timing->span - most;
}

/* Times are for all layers of a device.  Everything is multiplied by chunks, so that a chunk's times are integers. */
static enum error_code time_formula(const struct published_formula *formula, const struct schedule *schedule,
                                    struct published_case published_case, int64_t *idle, struct error *err)
{
    /* Each chunk is timed with the times of a whole device, so the idle time is divided by chunks. */
    const int64_t share = formula->per_stage ? 1 : schedule->chunks;
    struct timing t;
    const enum error_code e = schedule_time_evenly(&t, schedule,
                                                   (struct even_times){ published_case.F, published_case.I,
                                                                       published_case.W, 0, 0 }, err);
    if (e) return e;
    *idle = idle_of(&t) / share;
    timing_free(&t);
    return OK;
}

enum error_code published_idle(const struct published_formula *formula, struct published_case published_case,
                               int64_t *idle, struct error *err)
{
    struct schedule s;
    const struct schedule_request q = { .devices = published_case.P,
                                        .micros = published_case.M,
                                        .chunks = formula->chunks,
                                        .forward = published_case.F,
                                        .backward_input = published_case.I,
                                        .backward_weight = published_case.W };
    enum error_code e = schedule_make(&s, formula->schedule, &q, err);
    if (e) return e;
    /* A formula with F&B counts a pair as one action, so its schedule is timed with messages around pairs. */
    for (int d = 0; d < s.devices && formula->paired && !e; d++) e = pair_device(&s, d, err);
    if (!e) e = schedule_validate(&s, err);
    if (!e) e = time_formula(formula, &s, published_case, idle, err);
    schedule_free(&s);
    return e;
}
