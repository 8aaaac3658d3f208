/* report_failures.h -- what failures cost a whole training of the planned step, and how often checkpoints should be
 * saved.
 *
 * A checkpoint has the fp32 (or fp64) weights and the optimizer's states, an equal share of them on each device.  It is
 * copied to the host's memory by the copy engine, then written.  A synchronous save holds the devices for both.  An
 * asynchronous one is copied during the next forward and backward passes, which change no state: it holds the devices
 * only if the copy is not done before the update.  goodput.h has the model of failures.
 *
 * Source   DataStates-LLM, arXiv:2406.10707: stall = max(0, copy - forward - backward) and the wait for the buffer
 * Callers  run/plan.c checks, prints and counts; report_json.c writes; cli/train/options/ fills in what is asked.
 */
#ifndef ORRERY_REPORT_FAILURES_H
#define ORRERY_REPORT_FAILURES_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stdint.h>

struct train_options;
struct train_record;

/* The values of --mtbf and of the options beside it. */
struct failures_asked {
    double between, device_between;     /* hours between failures of the job, of one device; at most one is not 0 */
    double restart;                     /* seconds; negative: RESTART_ASSUMED */
    uint64_t storage;                   /* bytes a second that all devices write together; 0: each its host's drive */
    const char *checkpoint;             /* how it is saved: sync, async; NULL: nobody can ask */
    uint64_t every;                     /* steps between saves; 0: as many as are best */
};

/* Seconds from a failure until the job has started again, if nobody says: our assumption. */
enum { RESTART_ASSUMED = 300 };

/** Whether a plan asks for the cost of failures. */
static inline int failures_are_asked(const struct failures_asked *asked)
{
    return asked->between > 0 || asked->device_between > 0;
}

/** @return OK; ERR_USAGE: options that contradict each other, options without --mtbf, a rate that is not known, or an
 *  optimizer whose states have other sizes than the weights. */
enum error_code report_failures_check(const struct train_options *, struct error *);

/** Print the cost of failures; nothing if nobody asks, or if a step takes no time.  Local. */
void report_failures_print(const struct train_record *);

/** Add the same numbers as "failures", in seconds, bytes and shares of 1. */
void report_failures_json(cJSON *root, const struct train_record *);

/** The share of time that makes progress, with the interval that is asked for or the best one; 0: nobody asks. */
double report_goodput(const struct train_record *);

#endif
