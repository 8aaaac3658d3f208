/* check_found.h -- what `orrery check` is asked, and what it has found: of a dump, or of a step of a running program.
 * check_found.c finds, and check.c says what was found.  check_watch.c does both for each step. */
#ifndef ORRERY_CHECK_FOUND_H
#define ORRERY_CHECK_FOUND_H

#include "emulated_devices/cli/check_judged.h"
#include "emulated_devices/cli/check_verdict.h"
#include <stdio.h>

struct check_options {
    const char *golden, *actual, *against, *dtype, *sums, *map, *require, *not_recorded, *as, *json, *page;
    int parts;                          /**< Parts of a product that are stored and then added; 0: not given. */
    bool fused, stored_norms, stored_states, first, exact, all, help;
    unsigned required;                  /**< Kinds of tensors of --require, one bit each. */
    bool watch, go_on;                  /* judge each step as it is written; also those after a wrong one */
    int steps;                          /* the last step to be watched; 0: the golden file's */
    double timeout;                     /* seconds that a step may take */
    bool steps_given, timeout_given;
};

/* A check has decided this, from all that was judged. */
struct verdicts {
    const struct golden *golden;        /**< Golden file of the check. */
    enum dtype format;                  /* of the computation */
    const struct check_result *whole;   /* these three are of the struct check_judged */
    const struct singles *single;       /**< Verdicts on single operations. */
    const struct first_found *first;    /* of --first; NULL: without it */
    struct single_result copy;          /* the first that is wrong by itself on ranks whose copies are; without a name:
                                         * there is none, or the first tensor that differs has no other copies */
    int copy_of;                        /* which tensor that is */
    char first_is[300];                 /* the first tensor that differs, as far as numbers of all explain it */
    struct checked_kinds kinds;         /**< Number of tensors of each kind and judgement. */
    const struct single_result *first_by_itself;        /* that is named; NULL: the first of `whole` is */
    enum check_verdict verdict;         /**< Verdict of the whole check. */
    struct error lacking;               /* of CHECK_NOT_ENOUGH: what could not be judged */
};

/** Say how a dump's program computes: by options, or else as the dump says.  @param golden  NULL: none. */
struct check_setting check_setting_of(const struct check_options *, const struct golden *golden,
                                      const struct actual *);

/**
 * Judge a dump, and decide.
 * @param step  judge this step's tensors only, 1, 2, ...; 0: all.
 * @param[out] judged  the caller frees it when the verdicts are not needed any more.
 * @return OK, whatever the verdict; else as check_judge.  Nothing to free on failure.
 */
enum error_code check_find(const struct check_options *, const struct golden *, struct actual *, int64_t step,
                           struct check_judged *judged, struct verdicts *, struct error *);

/** Print all that was found, for people. */
void check_print(FILE *, const struct check_options *, const struct verdicts *, const struct actual *);

/** Make a document of all that was found, for programs.  The caller deletes it. */
cJSON *check_document(const struct verdicts *, const struct actual *);

/** Fail with the first thing that is wrong, or with what could not be judged.  @return OK if all is right. */
enum error_code check_conclude(const struct verdicts *, const struct actual *, struct error *);

/** Write the page of --page, if it is asked for.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code check_write_page(const struct check_options *, const struct verdicts *, const struct actual *,
                                 int64_t step, struct error *);

#endif
