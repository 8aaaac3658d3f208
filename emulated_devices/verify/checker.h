/* checker.h -- compare a program's tensors with a golden file: which is the first wrong one, on
 * which ranks, by which factor. */
#ifndef ORRERY_CHECKER_H
#define ORRERY_CHECKER_H

#include "emulated_devices/verify/actual.h"
#include "emulated_devices/verify/diagnose.h"
#include "emulated_devices/verify/golden_bounds.h"

/* X(id, in words, whether the check then fails) */
#define FINDINGS(X)                                                     \
    X(HOLDS,     "holds",                                               false)  \
    X(OPEN,      "cannot be judged: rounding alone may change all of it", false) \
    X(ELSEWHERE, "cannot be judged: rounding has sent a token to another expert before", false) \
    X(LEFT_OUT,  "left out, as is all of its kind",                     false)  \
    X(DIFFERS,   "differs",                                             true)   \
    X(NOT_FINITE, "has NaN or infinity",                                true)   \
    X(MISSHAPED, "has another shape",                                   true)   \
    X(INCOMPLETE, "is not complete on all ranks together",              true)   \
    X(MISSING,   "is missing, though others of its kind are there",     true)

enum finding {
#define X(id, words, fails) id,
    FINDINGS(X)
#undef X
    FINDING_COUNT
};
const char *finding_words(enum finding);
bool finding_fails(enum finding);

/* One golden tensor. */
struct checked {
    const char *name;                   /* the golden list's */
    enum finding finding;
    double error, bound;                /* norm over norm; of the worst rank */
    int rank;                           /* which has it */
    struct evidence *on;                /* of one that differs; NULL else */
    char why[300];                      /* of what is misshaped or incomplete */
};

struct check_result {
    int count;
    struct checked *all;                /* [count] in order of execution */
    int found[FINDING_COUNT];           /* how many of each */
    int first, worst;                   /* the first that fails; the largest error/bound; -1: none */
    char (*extra)[96];                  /* [extras] names of ACTUAL's that are no golden tensor's */
    int extras;
    struct golden_list list;
};

/**
 * Compare.
 * @return OK when there is a result, whatever it says; ERR_CHECK if nothing at all could be compared; ERR_FILE,
 *     ERR_FORMAT, ERR_MEMORY.
 */
enum error_code check_files(const struct golden *, const struct actual *, enum dtype, struct check_result *,
                            struct error *);
void check_result_free(struct check_result *);

/**
 * Whether ACTUAL's router logits choose the golden experts in a layer.
 * @param[out] same  true also if ACTUAL has no such logits, or not of that shape.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code checker_same_route(const struct golden *, const struct actual *, int layer, bool *same, struct error *);

#endif
