/* checked_kinds.h -- which tensors of each kind a check has judged, and whether they are enough.
 * emulated_devices/cli/check_found.c counts with it and decides its exit status. */
#ifndef ORRERY_CHECKED_KINDS_H
#define ORRERY_CHECKED_KINDS_H

#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"

/* X(id, name after --require, what it is) */
#define CHECKED_KINDS(X)                                             \
    X(KIND_LOSS,     "loss",     "losses and norms")                 \
    X(KIND_ACT,      "act",      "activations")                      \
    X(KIND_ACT_GRAD, "act-grad", "gradients of activations")         \
    X(KIND_GRAD,     "grad",     "gradients of weights")             \
    X(KIND_STEP,     "step",     "weights and states after steps")

enum checked_kind {
#define X(id, name, words) id,
    CHECKED_KINDS(X)
#undef X
    CHECKED_KIND_COUNT
};
const char *checked_kind_name(enum checked_kind);

/** The kind of a golden tensor, by its name. */
enum checked_kind checked_kind_of(const char *name);

/* The verdict on a tensor.  It is right if it is what its own inputs give, or within a bound below 1 of the golden
 * one; loosely, if it is only within a bound above LOOSE_BOUND. */
enum judgement { NOT_JUDGED, JUDGED_RIGHT, JUDGED_LOOSELY, JUDGED_WRONG, CANNOT_BE_JUDGED, JUDGEMENTS };
#define LOOSE_BOUND 0.1

/** @param by_itself  what the tensor's own inputs give; NULL: it was not recomputed. */
enum judgement judgement_of(const struct checked *, const struct single_result *by_itself);
const char *judgement_words(enum judgement);

/* Tensors that cannot be judged, of one kind and step: "act", "adamw/2/grad", "adamw/loss". */
enum { OPEN_GROUPS = 6 };
struct open_group { char name[48]; int tensors; };

/* These count the tensors of each kind. */
struct checked_kinds {
    int all[CHECKED_KIND_COUNT], of[CHECKED_KIND_COUNT][JUDGEMENTS];
    int undeclared[CHECKED_KIND_COUNT]; /* those that are not judged, and not declared as not recorded */
    int absent;                         /* wrong ones that are missing, incomplete, or do not fit */
    int declared;                       /* of those that are not judged: declared as not recorded */
    int beside;                         /* results that are wrong by themselves, and are not in the golden file */
    struct open_group group[OPEN_GROUPS]; /**< First kinds of tensors that cannot be judged. */
    int groups;                         /* in all; only the first are kept */
    int alone;                          /* of those that cannot be judged: of later passes, without golden numbers */
    const char *first_open, *lacks;     /* the first tensor that cannot be judged, and what it could be recomputed from;
                                         * NULL: none, nothing */
    double loosest;                     /* bound of those that are right loosely */
};

/** Why the tensors that are open cannot be judged; empty: there are several reasons. */
const char *checked_kinds_why_open(const struct checked_kinds *);

struct checked_kinds checked_kinds_count(const struct check_result *, const struct singles *);

/** Those of all kinds. */
int checked_kinds_of(const struct checked_kinds *, enum judgement);

/** Read kinds, "act,grad", as a set: bit k stands for kind k.
 *  @param list  NULL: the empty set.  @return OK; ERR_USAGE if a kind does not exist. */
enum error_code checked_kinds_read(const char *list, unsigned *set, struct error *);

/**
 * Whether enough was judged: a tensor of each required kind, and all that the dump has.
 * @param required  set; empty: one of any kind but loss, because many errors hardly change the first losses.
 * @return OK; ERR_CHECK, naming what was not judged, and how it can be.
 */
enum error_code checked_kinds_enough(const struct checked_kinds *, const struct check_result *, enum dtype,
                                     unsigned required, struct error *);

#endif
