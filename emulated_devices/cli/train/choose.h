/* choose.h -- what `orrery plan` is asked besides the step of one plan: which mesh, how few devices, which data scheme,
 * and why another plan needs more.  plan.c calls on rank 0.
 */
#ifndef ORRERY_TRAIN_CHOOSE_H
#define ORRERY_TRAIN_CHOOSE_H

#include "emulated_devices/cli/train/train.h"

/* Its options; --devices, --like, --seconds and --top are stored in search_asked. */
struct plan_asked {
    bool devices_given, like_given, seconds_given, top_given;
    bool fewest;                        /* --fewest */
    bool zero_table;                    /* --zero-table */
    const char *against;                /* words of another plan; NULL: not given */
};
extern struct plan_asked plan_asked;
extern const struct option plan_options[];

/** Whether the words ask for a plan to be chosen, so that axes and schemes are lists. */
bool choose_is_asked(int argc, char *const argv[]);

/** `orrery plan --devices` and --fewest.  @return OK; ERR_CHECK if no plan fits; errors of the words and of a
 *  search. */
enum error_code choose_plan(int argc, char **argv, struct error *);

/** Refuse options that belong to a choice in the words of one plan.  @return OK or ERR_USAGE. */
enum error_code choose_check(struct error *);

#endif
