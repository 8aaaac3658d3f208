/* compare.h -- one plan beside others: with every data scheme, or beside another plan's memory.  plan.c calls on
 * rank 0. */
#ifndef ORRERY_TRAIN_COMPARE_H
#define ORRERY_TRAIN_COMPARE_H

#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/run.h"

/** `orrery plan --zero-table`.  @return OK; ERR_CHECK if no row fits; ERR_USAGE; the error of a plan. */
enum error_code zero_table(const struct train_options *, struct error *);

/**
 * `orrery plan --against WORDS`: which tensors at the peaks of the fullest devices differ, and why.
 * @param words  in which the other plan differs from this one.
 * @return OK; ERR_USAGE, ERR_PLAN or others of the other plan's words, and of both plans.
 */
enum error_code compare_against(const struct train_options *, const char *words, struct error *);

#endif
