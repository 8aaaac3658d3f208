/* execution.h -- puts names of tensors in the order in which a program computes them.
 *
 * Serial.  first.c asks which tensors come before a wrong one.  pairs.c orders the tensors of two dumps, also where no
 * golden file is known.  Names are those of golden/README.md; any other name has a place, too.  No function can fail.
 */
#ifndef ORRERY_EXECUTION_H
#define ORRERY_EXECUTION_H

#include "ref/golden/golden_list.h"

enum execution_phase {
    PHASE_START,                        /* weights that a run begins with */
    PHASE_FORWARD,
    PHASE_LOSS,
    PHASE_BACKWARD,                     /* gradients of activations and of weights, from the last layer on */
    PHASE_NUMBERS,                      /* norms, and what is known after the last step only */
    PHASE_STATES,
    PHASE_WEIGHTS
};

/* Where a tensor is in the order of execution.  Fields that stand first decide first. */
struct execution {
    char optimizer[24];                 /* empty: the first pass */
    int pass;                           /* from 1; INT_MAX: after the last step */
    enum execution_phase phase;         /**< Part of the pass. */
    int layer;                          /* EXECUTION_BEFORE, EXECUTION_AFTER, or a block */
    bool is_parameter;                  /* gradients of weights stand behind those of the layer's activations */
    int place;                          /* in the layer */
};
enum { EXECUTION_BEFORE = -1, EXECUTION_AFTER = 1 << 30 };

/**
 * Find the place of a tensor.
 * @param list  the golden tensors, whose order decides inside a layer; NULL: the usual order of names does.
 */
struct execution execution_of(const char *name, const struct golden_list *list);

/** Compare places: below 0 if `a` comes first, 0 if the names must decide. */
int execution_compare(const struct execution *a, const struct execution *b);

/** The name that a tensor of a later pass has in the first: "act/ln_f" of "adamw/2/act/ln_f".  NULL: it is of the first
 *  pass, or of a step. */
const char *execution_first_name(const char *name);

#endif
