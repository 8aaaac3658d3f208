/* pairs.h -- compares two dumps of the same program: which tensor first differs by more than rounding.
 *
 * Serial.  Where the model is known, each operation of both dumps has been recomputed from its own inputs (singles.h).
 * Two results that are both what their own inputs give differ by rounding only, however far it has grown.  If one of
 * them is not, the dumps differ there.  Where the model is not known, only the same bits are the same.
 * emulated_devices/cli/check_against.c calls pairs_make, prints, and frees.
 */
#ifndef ORRERY_PAIRS_H
#define ORRERY_PAIRS_H

#include "emulated_devices/check/report/checked_kinds.h"
#include "emulated_devices/check/report/difference.h"

/* One of the two dumps, and what was found of it.  whole, single: NULL if the model is not known. */
struct pair_dump {
    const struct actual *actual;        /**< Opened dump. */
    enum dtype format;                  /**< Format of the numbers. */
    const struct check_result *whole;   /**< Comparison with golden results, or NULL. */
    const struct singles *single;       /**< Results recomputed one by one, or NULL. */
};

/* X(id, words, whether the dumps then differ, whether it is left open) */
#define PAIR_VERDICTS(X)                                                                    \
    X(PAIR_SAME,      "the same bits",                                      false, false)   \
    X(PAIR_ROUNDED,   "the same within rounding",                           false, false)   \
    X(PAIR_A_WRONG,   "only B's is right",                                  true,  false)   \
    X(PAIR_B_WRONG,   "only A's is right",                                  true,  false)   \
    X(PAIR_OTHER_START, "other weights to begin with",                      true,  false)   \
    X(PAIR_MISFIT,    "not whole in one of them, or of another shape",      true,  false)   \
    X(PAIR_MISSING,   "missing in one of them, though others of its kind are there", true, false) \
    X(PAIR_NEITHER,   "different, and neither is right",                    false, true)    \
    X(PAIR_OPEN,      "different, and cannot be judged",                    false, true)    \
    X(PAIR_ONLY_A,    "in A only",                                          false, false)   \
    X(PAIR_ONLY_B,    "in B only",                                          false, false)

enum pair_verdict {
#define X(id, words, differs, open) id,
    PAIR_VERDICTS(X)
#undef X
    PAIR_VERDICT_COUNT
};
const char *pair_words(enum pair_verdict);
bool pair_differs(enum pair_verdict);
bool pair_is_open(enum pair_verdict);

/* This is the judgement on one dump's tensor by itself. */
enum pair_side { SIDE_ABSENT, SIDE_RIGHT, SIDE_LOOSE, SIDE_WRONG, SIDE_OPEN };

/* One tensor of both dumps.  Index 0 is A, 1 is B. */
struct pair {
    char *name;                                 /**< Name of the tensor. */
    enum pair_verdict verdict;                  /**< Verdict about both tensors. */
    enum pair_side side[2];                     /**< Verdict about A and about B. */
    const struct checked *whole[2];             /* NULL: not a golden tensor, or the model is not known */
    const struct single_result *by_itself[2];   /* NULL: it was not recomputed */
    int64_t dim[2];                             /* rows and columns of the whole */
    int64_t elements, different;
    double distance;                            /* norm of the difference over the larger norm; if both have it */
};

struct pairs {
    int count;                                  /**< Number of tensors. */
    struct pair *all;                           /* [count] in order of execution */
    int found[PAIR_VERDICT_COUNT];              /**< Tensors of each verdict. */
    int first, first_open, first_different;     /* indices: that differs, that is open, of other bits; -1: none */
    int farthest;                               /* the largest distance; -1: none is above 0 */
    int wrong_in_both;                          /* of the same bits that are not what their inputs give */
    int first_wrong_in_both;                    /**< Index of the first such tensor; -1: none. */
    int loose;                                  /* within bounds above LOOSE_BOUND only */
    int judged[CHECKED_KIND_COUNT];             /* those that are the same, of each kind */
    int neither;                                /* golden tensors that no dump has */
    const char *first_neither;                  /**< Name of the first such tensor. */
};

/**
 * Compare all tensors of two dumps.
 * @param golden  NULL: the model is not known.
 * @return OK, whatever differs; ERR_CHECK if the dumps have no tensor of the same name; ERR_FORMAT, ERR_FILE,
 *         ERR_MEMORY.  Nothing to free on failure.
 */
enum error_code pairs_make(struct pairs *, const struct golden *golden, const struct pair_dump dump[2],
                           struct error *);
void pairs_free(struct pairs *);

/** The tensor's rows of both dumps, compared again: where it first differs, and who has that. */
enum error_code pairs_look(const struct pair *, const struct pair_dump dump[2], struct difference *, struct error *);

#endif
