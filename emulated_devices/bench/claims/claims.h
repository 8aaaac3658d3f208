/* claims.h -- what papers printed, as files of text: a reader, and a comparer with what this program computes.
 *
 *     # A comment.
 *     title: Memory of a layer's activations
 *     source: V. Korthikanti et al., arXiv:2205.05198, figure 7
 *     calibrated on: nothing
 *     unit: per cent of tensor parallelism alone
 *     quantity: activations
 *     digits: 2
 *     must: each within 1.15 %: the paper leaves out what is smaller
 *     orders: 3 % --tp
 *     words: --tp 8
 *     columns: name --heads --width "tensor, sequence"[--tensor 1d-sp]
 *     22B 64 6144 66.84
 *
 * A row has one published number for each column that is neither a flag nor one of the names below.  The words of a
 * number are those of the file, of its row and of its column; the quantity takes them as a command takes its flags.
 *
 *     name   begins the text of each number of the row         why    why ours is known to differ; "-": not known to
 *     when   "always"; "every": long to compute, only if all are wanted; "quick": only if not all are wanted
 *     at-least, at-most   what ours must be                     says   the claim in words
 *     assumed   what the source does not print and the words have; "-": nothing is assumed
 *     fitted    "yes": a constant of ours was fitted to this number, so it is no test; "fitted: yes" heads such a file
 *     not-counted   why no plan can say the setting; such a row is listed, not computed; "-": it is counted
 *
 * With `orders`, rows with equal values of the flags are pairs if their numbers differ by at least so many per cent:
 * a pair is right if ours has the same order.  `must: mean within` and `must: each within` are the gate of a file.
 *
 * `sample: 36` has one row of 36 computed, and the others only if all are wanted.
 *
 * A cell "-" in a column of numbers is not published.  Cells are separated by blanks or commas; one with blanks stands
 * in quotation marks.  The files are golden/published/NAME.txt; the program has them all.
 * cli/bench/claims_table.c, cli/bench/published.c and cli/bench/schedules.c call these functions.
 */
#ifndef ORRERY_CLAIMS_H
#define ORRERY_CLAIMS_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>

enum { CLAIM_COLUMNS = 28, CLAIM_WORDS = 64, CLAIM_TEXT = 200, CLAIM_MUSTS = 2 };

/** One published number, and ours. */
struct claim {
    const char *word[CLAIM_WORDS];      /**< flags and values of its setting, as on a command line */
    int words, line;                    /**< entries of `word`; its line in the file, from 1 */
    char what[CLAIM_TEXT];              /**< what was published; the quantity may say more */
    double published;                   /**< NAN: the source has no number, only a direction */
    double least, most;                 /**< bounds of ours; NAN: none */
    const char *why, *says;             /**< why ours is known to differ, or NULL; the claim in words, or NULL */
    const char *assumed, *uncounted;    /**< what the source does not print; why ours is not computed; or NULL */
    bool seldom, quick;                 /**< only if all are wanted; only if not all are */
    bool fitted;                        /**< a constant of ours was fitted to it: no test */
    double measured, predicted;         /**< seconds of a planned step, or GiB, that both numbers amount to; 0: none */
    double ours, error;                 /**< from claims_compute(); error in per cent, NAN without a number */
    bool computed, holds;               /**< holds: within its own bounds and those of each claim of the file */
};

/** A column of the rows. */
struct claim_column {
    const char *title;                  /**< "name", "--heads", or the text of a published number */
    const char *word[CLAIM_WORDS];      /**< words that its numbers have besides */
    int words;                          /**< entries of `word` */
};

/** This holds what all claims of a file, or their mean, must be within. */
struct claims_must { bool mean; double within; const char *why; };

enum { ORDER_FLAGS = 4 };

/** This says which rows of a file are pairs: all flags are equal, and the published numbers are far enough apart. */
struct claims_orders { double apart; const char *flag[ORDER_FLAGS]; int flags; };

/** The claims of a file. */
struct claims {
    char *text, *rows;                  /**< of the file and of the one that replaces its rows, cut into words; owned */
    char name[64], where[200];          /**< of the file, without its ending; in messages */
    const char *title, *source, *calibrated, *unit, *quantity;
    int digits;                         /**< printed after the point */
    bool fitted;                        /**< its rows are fits, unless they say otherwise */
    int sample;                         /**< one row of so many is computed unless all are wanted; 0: all are */
    bool brief;                         /**< its rows are printed only if all are wanted */
    struct claims_must must[CLAIM_MUSTS]; /**< Bounds for the errors, [musts]. */
    int musts;                            /**< Entries of `must`. */
    struct claims_orders orders;        /**< flags 0: there are no pairs */
    const char *word[CLAIM_WORDS];      /**< of all rows */
    int words;                          /**< Entries of `word`. */
    struct claim_column column[CLAIM_COLUMNS]; /**< Columns of the rows, [columns]. */
    int columns;                               /**< Entries of `column`. */
    struct claim *claim;                /**< [count]; owned */
    int count, room;

    /* From claims_compute(). */
    int computed, broken;               /**< claims with a value of ours; those that do not hold, without `why` */
    double mean, median, worst;         /**< of the absolute errors of published numbers, in per cent */
    int pairs, ordered;                 /**< pairs of rows that are computed; those that ours orders as published */
};

/** This holds what errors amount to: of rows that are tests, or of rows that constants were fitted to. */
struct claims_errors { int rows; double sum, worst; };

/** Add the computed rows of one kind to errors. */
void claims_add_errors(const struct claims *, bool fitted, struct claims_errors *);

/** Whether each claim compares two plans: how large the factor between both is, is then no error. */
bool claims_are_orders(const struct claims *claims);

/** How many rows are listed and not computed, because no plan can say them. */
int claims_uncounted(const struct claims *);

/** The files of golden/published, made by the Makefile: name and text in turn; ends with NULL. */
extern const char *const claims_texts[];

/**
 * Read the claims of a file.
 * @param folder  where NAME.txt is; NULL: the program's own.
 * @return OK; ERR_FILE; ERR_FORMAT naming file and line; ERR_MEMORY.  On failure it is empty.
 */
enum error_code claims_find(struct claims *, const char *name, const char *folder, struct error *);

/**
 * Replace the rows of claims by those of a file without a heading: lines that do not begin with a digit are skipped,
 * and a first number more is passed over (the public files of vTrain have one).
 * @return as claims_find.  On failure the claims are empty.
 */
enum error_code claims_replace(struct claims *, const char *path, struct error *);

void claims_free(struct claims *);

/** The value of a flag among a claim's words; "" if it is not there. */
const char *claim_word(const struct claim *, const char *flag);

struct comm;
struct plan_numbers;

/** Plan a step with words of `orrery plan`.  The tables of these words are those of cli/, which has such a function.
 *  @return OK, or the error of the words or of the plan. */
typedef enum error_code claims_plan_fn(struct plan_numbers *, int words, const char *const word[], struct error *);

/** This holds what quantities need besides the words of a claim. */
struct claims_setting {
    bool every;                         /**< also claims that take long */
    const char *word[CLAIM_WORDS];      /**< words that all claims have besides: of the command that asks */
    int words;                          /**< Entries of `word`. */
    char *program;                      /**< argv[0], for quantities that start devices; NULL: none does */
    claims_plan_fn *plan;               /* for quantities of planned steps; NULL: there is none */
    struct comm *alone;                 /**< a device of its own, for quantities that compute on one; NULL: none */
    int *status;                        /**< exit status of such devices, which have printed their own errors */
};

/**
 * Compute each claim by the quantity that its file names, and compare.
 * @return OK, also if claims do not hold: `broken` counts them.  ERR_FORMAT naming file and line: words that the
 *         quantity does not take, an unknown quantity.  Or the error of the computation.
 */
enum error_code claims_compute(struct claims *, const struct claims_setting *, struct error *);

/** Whether the claims hold as a whole: none broken, and the mean within what it must.
 *  @return OK or ERR_CHECK with a line that names the first that does not. */
enum error_code claims_hold(const struct claims *, struct error *);

#endif
