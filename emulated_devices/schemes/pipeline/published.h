/* published.h -- bubble rates of settings that papers printed, to check schedules and timer.
 *
 * The numbers of P. Qi et al., arXiv:2401.10241, table 5, are in golden/published/zero-bubble.txt.
 * cli/bench/schedules.c, bench/claims/bubble.c and tests/devices/test_schedule_tables.c call these functions.
 */
#ifndef ORRERY_PIPELINE_PUBLISHED_H
#define ORRERY_PIPELINE_PUBLISHED_H

#include "emulated_devices/schemes/pipeline/schedule.h"

struct published_setting {
    int P, M;                           /* devices and microbatches */
    int64_t f, i, w, comm;              /* in microseconds: F, B (for the input), W and T_comm */
    int v;                              /* chunks of the interleaved schedule */
    int heads, width;                   /* of the model; sequences have 1024 tokens */
};

/** The request to a generator for a schedule in a setting. */
struct schedule_request published_request(const struct published_setting *, const char *schedule);

/**
 * The bubble rate of our schedule by the timer.
 *
 * For the interleaved schedule the paper has a closed form with (2vP-P-2) T_comm of waiting.  In the timer a device
 * waits T_comm for 2(vP-1) messages, so its rate is equal to the table's or higher.
 * @return OK, or the error that prevented it; ERR_PLAN if the schedule is not valid.
 */
enum error_code published_bubble(const struct published_setting *, const char *schedule, double *bubble,
                                 struct error *);

/** The paper's closed form for the interleaved schedule, which its table uses. */
double published_interleaved_formula(const struct published_setting *);

/** A rate as it is printed: rounded to four decimals. */
double published_digits(double bubble);

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

/* P devices, M microbatches, v chunks; times of a device's layers. */
struct published_case { int P, M, v; int64_t F, I, W; };

/* A source's formula for a device's idle time between its first action and its last. */
struct published_formula {
    const char *schedule, *formula, *source;    /* name of ours; the formula as printed; paper and place */
    int64_t (*idle)(struct published_case);
    int chunks;                         /* chunks in the request; 0: the schedule's */
    bool paired;                        /* counts a forward and a backward done side by side as one action */
    bool equal_times;                   /* valid for F = I = W only */
    bool at_most;                       /* an upper bound: our idle time may be lower */
    bool per_stage;                     /* times are those of one stage; a device has several */
};
extern const struct published_formula published_formulas[];     /* ends with a NULL schedule */

/** The idle time from our schedule and timer, for P even, M >= 2P and a multiple of P, W <= F <= I.
 *  @return OK, or the error that prevented it. */
enum error_code published_idle(const struct published_formula *, struct published_case, int64_t *idle, struct error *);

#endif
