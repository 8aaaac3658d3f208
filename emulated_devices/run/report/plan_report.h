/* plan_report.h -- what `orrery plan` says besides what a run does: the critical path, waits, the peak's moment.
 * cli/train/search.c, run/plan.c and report_json.c call these functions.  Only
 * planned_step_open returns an error code. */
#ifndef ORRERY_TRAIN_PLAN_REPORT_H
#define ORRERY_TRAIN_PLAN_REPORT_H

#include "emulated_devices/run/report/report.h"
#include "emulated_devices/search/search.h"
#include "emulated_devices/train/dry_run/step_path.h"
#include "emulated_devices/train/memory_of/memory_of.h"
#include <stdio.h>

/* Memory of a device at its peak. */
struct plan_peak { struct arena_use use; struct doing doing; uint32_t blocks[ARENA_TAG_COUNT]; };

/* More that a command says of its plan, behind the report and in its JSON. */
struct plan_more {
    void (*print)(FILE *, const void *context); /**< Prints the text behind the report. */
    void (*json)(cJSON *root, const void *context); /**< Adds the fields to the document. */
    const void *context;                /* last argument of both */
};

/* All that a plan says besides. */
struct plan_findings {
    const struct plan_more *more;       /* NULL: nothing */
    struct plan_path path;              /* which work and messages the step's time consists of */
    struct plan_peak *peak;             /* [classes] */
    int room;                           /* classes that these, and the record's reports, have room for */
    int fewest_micros, most_micros;     /* of a copy, in the last step, with samples; where the scheme chooses them */
    int fullest;                        /* the class whose devices need most */
    const struct memory_profile *profile;       /* of --memory-of; NULL: none */
    struct memory_of *memory;           /* [classes] with a profile: a framework's memory */
    int fullest_of;                     /* the class whose devices need most of it */
};

/* A planned step with all that was found. */
struct planned_step { struct train_record record; struct plan_findings findings; };

/** Plan a step as plan_step does, and print nothing (run/plan.c).  planned_step_close in any case.
 *  @param planned  stays where it is.  @return OK or the first error of the plan. */
enum error_code planned_step_open(struct planned_step *planned, const struct train_options *, struct error *);
void planned_step_close(struct planned_step *);

void plan_report_path(const struct train_record *);
void plan_report_waits(const struct train_record *);
void plan_report_peak(const struct train_record *);

/** Everything of these, and the folding, as one object. */
void plan_report_json(cJSON *root, const struct train_record *);

/** Print a line for each of n changes: the memory and the time of the plan with it, and its words.  n may be 0. */
void report_changes_print(FILE *out, const struct change *change, int n);

#endif
