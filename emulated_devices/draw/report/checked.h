/* checked.h -- the page of `orrery check --page`: a model in order of execution, and what is right and wrong in it.
 *
 * One file of HTML without scripts and without anything from outside.  Each step is a stack of layers.  Each layer
 * has its forward pass, its backward pass, gradients of weights, and the optimizer's step.  A tensor is a link to a row
 * with its evidence.  Colours are never alone: each has a sign.  Names come from foreign files; they are only ever
 * text.
 * emulated_devices/cli/check.c calls checked_page_write.
 */
#ifndef ORRERY_DRAW_REPORT_CHECKED_H
#define ORRERY_DRAW_REPORT_CHECKED_H

#include "emulated_devices/check/report/checked_kinds.h"
#include "ref/golden/golden.h"

/* A page is about one check. */
struct checked_page {
    const char *golden_path, *actual_path;
    const struct golden *golden;        /**< Golden file of the check. */
    const struct actual *actual;        /**< Dump of the program that was checked. */
    const struct check_result *whole;   /**< Comparison with the golden file. */
    const struct singles *single;       /**< Verdicts on single operations. */
    int64_t step;                       /* of a running program, whose step alone was judged; 0: all were */
    enum dtype format;                  /**< Format of the program's computation. */
    bool holds;                         /**< All is right. */
    const char *verdict;                /* the word: "OK" */
    const char *first;                  /* the tensor that is wrong first; NULL: none is */
    const char *why;                    /* the line that the command ends with; empty if all is right */
};

/** Write the page as a whole, or not at all.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code checked_page_write(const char *path, const struct checked_page *, struct error *);

#endif
