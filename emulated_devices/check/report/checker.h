/* checker.h -- compares a program's tensors with a golden file: the first wrong tensor, its ranks, the factor.
 * emulated_devices/cli/check_judged.c calls check_files; first.c calls the parts of it.  A tensor that differs is a
 * finding in the result, not an error. */
#ifndef ORRERY_CHECKER_H
#define ORRERY_CHECKER_H

#include "emulated_devices/check/dump/assembly.h"
#include "emulated_devices/check/report/diagnose.h"
#include "ref/golden/golden_list.h"

/* X(id, text, whether the check then fails) */
#define FINDINGS(X)                                                     \
    X(HOLDS,     "holds",                                               false)  \
    X(OPEN,      "cannot be judged as a whole: rounding explains anything there", false) \
    X(ELSEWHERE, "cannot be judged as a whole: rounding has sent a token to another expert", false) \
    X(LEFT_OUT,  "left out, as is all of its kind",                     false)  \
    X(DECLARED,  "declared not recorded",                               false)  \
    X(GIVEN,     "begun with, taken as given: not held to the golden file", false) \
    X(ALONE,     "of later passes, judged by what their own inputs give", false) \
    X(RESUMED,   "is not what the program must go on with",             true)   \
    X(DIFFERS,   "differs",                                             true)   \
    X(NOT_FINITE, "has NaN or infinity",                                true)   \
    X(MISSHAPED, "does not fit",                                        true)   \
    X(INCOMPLETE, "is not complete on all ranks together",              true)   \
    X(COPIES,    "has copies that differ by more than rounding",        true)   \
    X(MISSING,   "is missing, though others of its kind are there",     true)

enum finding {
#define X(id, words, fails) id,
    FINDINGS(X)
#undef X
    FINDING_COUNT
};
const char *finding_words(enum finding);
bool finding_fails(enum finding);

/* This says what was found of one golden tensor. */
struct checked {
    const char *name;                   /* in the golden list */
    enum finding finding;               /**< Result of the comparison. */
    double error, bound;                /* norm over norm; of the worst rank */
    int rank;                           /* the worst rank */
    bool compared;                      /**< The tensor was compared with the golden file's. */
    struct evidence *on;                /* of the ranks, if it is compared and fails; else NULL */
    char why[300];                      /* the reason, if it is misshaped or incomplete, or its copies differ */
    char copies[240];                   /* copies of its elements that are not the same; empty: there are none */
    double distance;                    /* of a group's copies, norm over norm; of the group that is furthest apart */
    bool apart;                         /* they differ by more than rounding */
    char micros[160];                   /* which microbatches are wrong, if some are and some are not */
};

/** Error over bound. */
double checked_ratio(const struct checked *);

/* The golden file has no activations of passes after the first: "adamw/2/act/h.0.ln_1". */
struct later_name { char text[RECORD_NAME]; };

struct check_result {
    int count;                          /**< Entries of `all`. */
    struct checked *all;                /* [count] in order of execution */
    int found[FINDING_COUNT];           /* the number of each finding */
    int first, worst;                   /* indices: the first that fails; the largest error/bound; -1: none */
    struct later_name *later;           /* [laters] names of ACTUAL's activations of later passes, which `all` has */
    int laters;                         /**< Entries of `later`. */
    struct later_name *adapted;         /* [adapteds] names of adapters' tensors, which `all` has */
    int adapteds;                       /**< Entries of `adapted`. */
    char (*extra)[96];                  /* [extras] ACTUAL's names that match no golden tensor */
    int extras;                         /**< Entries of `extra`. */
    int unknown;                        /* of ACTUAL's tensors: of golden kinds of which it has no golden name */
    char first_unknown[96];             /**< Name of the first unknown tensor. */
    struct golden_list list;            /**< List of golden tensors, whose names `all` uses. */
};

/**
 * Compare all tensors.
 * @return OK when there is a result, also if tensors differ; ERR_CHECK if nothing could be compared; ERR_FILE,
 *         ERR_FORMAT, ERR_MEMORY.
 */
enum error_code check_files(const struct golden *, const struct actual *, enum dtype, struct check_result *,
                            struct error *);
void check_result_free(struct check_result *);

/* This says of each golden tensor whether it is compared. */
struct check_wanted { bool (*is)(const void *context, const char *name); const void *context; };

/** Begin as check_files: compare the weights that ACTUAL begins with.  Those that are wrong are in the result.
 *  @return as check_files; nothing to free on failure. */
enum error_code check_files_begin(const struct golden *, const struct actual *, enum dtype, struct check_result *,
                                  struct error *);

/** Add some golden tensors to a result that has begun.  @param wanted  NULL: all.  @return as check_files; on failure
 *  the result is freed. */
enum error_code check_files_some(const struct golden *, const struct actual *, enum dtype,
                                 const struct check_wanted *wanted, struct check_result *, struct error *);

/** Add all tensors to a result that has begun: then it is that of check_files.  @return as check_files_some. */
enum error_code check_files_rest(const struct golden *, const struct actual *, enum dtype, struct check_result *,
                                 struct error *);

/**
 * Compare a tensor with other numbers than the golden file's, and set its finding anew.
 * @param truth    F64, all elements.
 * @param checked  its name and bound are set; what was found before is forgotten.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code checker_compare(const struct golden *, const struct actual *, struct tensor truth,
                                struct checked *checked, enum dtype format, struct error *);

/**
 * Find whether ACTUAL has a tensor whole, in the shape of another: one of a later pass, in that of the first.
 * @param first  the golden name of the first pass's.
 * @param checked  its name is set; its finding becomes MISSHAPED or INCOMPLETE, or stays.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code checker_fit(const struct golden *, const struct actual *, const char *first, struct checked *checked,
                            struct error *);

/** Count the findings, and find the first that fails and the one nearest to its bound, again: some have changed. */
void check_result_count(struct check_result *);

/**
 * The step that a tensor of ACTUAL is of, by its name.
 * @return 1, 2, ...; 0: weights before the first, "start/NAME"; -1: the name is of no step.  A number behind an
 *         optimizer is returned whatever the golden file has; without one it is the last step.
 */
int64_t checker_step_of(const struct golden *, const char *name);

/** Forget what is not of a step; what a program begins with, after step `begins`, is of its first.  Counts are made
 *  again. */
void check_result_keep_step(const struct golden *, int64_t begins, struct check_result *, int64_t step);

/** Refuse a pattern of tensors that are not recorded which is of no golden tensor: it has a slip in it.
 *  @return OK; ERR_FORMAT, naming the pattern. */
enum error_code checker_check_declared(const struct golden *, const struct actual *, const struct golden_list *,
                                       struct error *);

/** Leave out the tensors that are declared as not recorded, and those of each kind of which ACTUAL has none: they are
 *  not missing.  Rows that experts compute are a
 *  kind of their own, because programs that fuse experts do not have them.  What a dump says that its program
 *  cannot show is left out one by one. */
void checker_forgive_left_out(const struct golden *, const struct actual *, struct check_result *);

/** How many tensors of ACTUAL are compared in all: golden ones, and those of later passes. */
int checker_count(const struct golden *, const struct actual *, const struct golden_list *);

/** Add ACTUAL's activations of later passes and their gradients, as ALONE, or as MISSHAPED or INCOMPLETE.
 *  @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY. */
enum error_code checker_list_later(const struct golden *, const struct actual *, struct check_result *, struct error *);

/** Whether a name is of a step that the dump begins after: "adamw/1/weight/NAME" if it begins after step 2. */
bool checker_is_before(const struct golden *, const struct actual *, const char *name);

/** Check that the golden file has the step that the dump begins after, and one behind it, and that ACTUAL has nothing
 *  of steps before.  @return OK, also if the dump begins at the start; ERR_FORMAT. */
enum error_code checker_check_begins(const struct golden *, const struct actual *, struct error *);

/** List ACTUAL's tensors that are not golden.  @return OK; ERR_FORMAT: one is of a step that the file does not have. */
enum error_code checker_list_extras(const struct golden *, const struct actual *, struct check_result *,
                                    struct error *);

/**
 * Whether ACTUAL's router logits choose the golden experts in a layer.
 * @param[out] same  also true if ACTUAL has no such logits, or with another shape.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code checker_same_route(const struct golden *, const struct actual *, int layer, bool *same, struct error *);

#endif
