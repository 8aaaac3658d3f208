/* checked_kinds.h -- which kinds of tensors a check has compared, and whether they are enough. */
#ifndef ORRERY_CHECKED_KINDS_H
#define ORRERY_CHECKED_KINDS_H

#include "emulated_devices/verify/check/checker.h"

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

/* Numbers of tensors of each kind. */
struct checked_kinds { int all[CHECKED_KIND_COUNT], compared[CHECKED_KIND_COUNT]; };

/** Count.  A tensor that rounding may change in any way is not compared; one that is wrong is. */
struct checked_kinds checked_kinds_count(const struct check_result *);

/** Read kinds, "act,grad", as a set: bit k stands for kind k.
 *  @param list  NULL: the empty set.  @return OK; ERR_USAGE if a kind does not exist. */
enum error_code checked_kinds_read(const char *list, unsigned *set, struct error *);

/**
 * Whether enough was compared: a tensor of each required kind.
 * @param required  set; empty: one of any kind but loss, because many errors hardly change the first losses.
 * @return OK; ERR_CHECK, naming the first kind of which nothing was compared.
 */
enum error_code checked_kinds_enough(const struct checked_kinds *, unsigned required, struct error *);

#endif
