/* published.h -- bubble rates as printed in a paper, and the times they were computed from, to check schedules and
 * timer.
 *
 * P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241: rates of table 5, times of table 6, models of table
 * 3.
 */
#ifndef ORRERY_PIPELINE_PUBLISHED_H
#define ORRERY_PIPELINE_PUBLISHED_H

#include "emulated_devices/schemes/pipeline/schedule.h"

/* Columns of table 5, in its order.  X(id, schedule) */
#define PUBLISHED_SCHEDULES(X)          \
    X(PUBLISHED_1F1B,        "1f1b")    \
    X(PUBLISHED_INTERLEAVED, "interleaved") \
    X(PUBLISHED_ZB_H1,       "zb-h1")   \
    X(PUBLISHED_ZB_H2,       "zb-h2")   \
    X(PUBLISHED_ZB_1P,       "zb-1p")   \
    X(PUBLISHED_ZB_2P,       "zb-2p")

enum published_schedule {
#define X(id, name) id,
    PUBLISHED_SCHEDULES(X)
#undef X
    PUBLISHED_COLUMNS
};
extern const char *const published_schedule_name[PUBLISHED_COLUMNS];

struct published_setting {
    const char *model;                  /* "1.5B", as the tables name it */
    int P, M;                           /* devices and microbatches */
    int64_t f, i, w, comm;              /* table 6, in microseconds: F, B (for the input), W and T_comm */
    int v;                              /* chunks of the interleaved schedule */
    int heads, width;                   /* table 3; sequences have 1024 tokens */
    double bubble[PUBLISHED_COLUMNS];   /* table 5 */
};

enum { PUBLISHED_SETTINGS = 12 };
extern const struct published_setting published_settings[PUBLISHED_SETTINGS];

/** The request to a generator for the schedule of a column in a setting. */
struct schedule_request published_request(const struct published_setting *, enum published_schedule);

/** Our rate, from our schedule and timer.  For the interleaved schedule the paper has a closed form with (2vP-P-2)
 *  T_comm of waiting.  In the timer a device waits T_comm for 2(vP-1) messages, so its rate is equal to the table's
 *  or higher. @return OK, or the error that prevented the rate; ERR_PLAN if the schedule is not valid. */
enum error_code published_bubble(const struct published_setting *, enum published_schedule, double *bubble,
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
