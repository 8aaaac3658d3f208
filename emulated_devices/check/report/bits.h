/* bits.h -- holds a dump whose sums do not round to the rule of docs/checking/exact.md: every tensor has the bits that
 * the operation before it gives of the dump's own inputs.
 *
 * Serial.  The one-device model runs with exact sums (ref/exact/).  After each operation its result is compared with
 * the dump's, and then replaced by the dump's, which the next operation reads.  So a wrong tensor makes no later one
 * wrong.  Memory is that of the one-device model, and of one tensor.
 *
 * cli/check_exact.c calls bits_check, and prints what it found.
 */
#ifndef ORRERY_BITS_H
#define ORRERY_BITS_H

#include "emulated_devices/check/dump/assembly.h"
#include "ref/golden/golden_list.h"

enum bits_finding {
    BITS_SAME,
    BITS_DIFFER,                        /* from what its own inputs give */
    BITS_COPIES,                        /* ranks have different copies */
    BITS_MISFIT,                        /* pieces do not fit, or elements are on no rank */
    BITS_NOT_JUDGED                     /* the dump has numbers that have been rounded since */
};
const char *bits_finding_words(enum bits_finding);

/* The check has found this of one tensor. */
struct bits_tensor {
    char name[RECORD_NAME];             /**< Name of the tensor. */
    enum bits_finding finding;          /**< Result of the comparison. */
    int64_t dim[2];                     /**< Rows and columns. */
    int64_t differing;                  /* elements; of BITS_COPIES those with other copies */
    int64_t at;                         /* the first of them, row by row; of BITS_COPIES one of them */
    double have, want;                  /* its numbers; of BITS_COPIES those of both ranks */
    int unit;                           /* a unit of the grid is 2^unit: the last place of `want` in the format */
    double units;                       /* have - want, in these */
    char on[160];                       /* who has it: "rank 2 (dp=1 tp=0)"; empty: there is one rank */
    char why[300];                      /* of BITS_MISFIT and BITS_NOT_JUDGED */
};

struct bits_found {
    struct bits_tensor *all;            /* [count] in order of execution */
    int count;                          /**< Number of tensors. */
    int first;                          /* the first that differs, has other copies or does not fit; -1: none */
    int of[BITS_NOT_JUDGED + 1];        /* tensors, by finding */
    int numbers;                        /* of the tensors: losses and norms */
    int declared;                       /* golden tensors that are declared as not recorded, or left out */
    int missing;                        /* golden tensors that are not there, though others of their kind are */
    char first_missing[RECORD_NAME];    /**< Name of the first missing tensor. */
    int unknown;                        /* tensors of the dump that this check has no rule for */
    char first_unknown[96];             /**< Name of the first unknown tensor. */
};

/**
 * Hold a dump to the rule.
 * @param dtype  the format of the computation.
 * @return OK when there is a result, whatever was found; ERR_FORMAT: the dump cannot be held to the rule, naming why;
 *         ERR_FILE, ERR_MEMORY.  Nothing to free on failure.
 */
enum error_code bits_check(const struct golden *, const struct actual *, enum dtype dtype, struct bits_found *,
                           struct error *);
void bits_found_free(struct bits_found *);

#endif
