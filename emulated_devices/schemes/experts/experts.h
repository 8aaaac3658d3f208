/* experts.h -- the seam for expert parallelism: which device runs which expert of a mixture, and how rows get there and
 * back.
 *
 * A router has chosen k experts for each row of the stream, and their weights.  A scheme brings rows to their experts,
 * sorted by expert, has them run (struct expert_body), and brings back each row's weighted sum.  What an expert
 * computes is the model's affair, where it is the scheme's.  Tensor parallelism cuts F inside each expert: what comes
 * back is then a part of a sum, which the caller adds up.
 *
 * `here` is the trivial scheme: all experts are on each device.
 */
#ifndef ORRERY_EXPERT_SCHEME_H
#define ORRERY_EXPERT_SCHEME_H

#include "emulated_devices/schemes/tensor/tensor.h"

enum { EXPERT_SLOTS = 6, EXPERT_GRADIENT_SLOTS = 2 };   /* tensors that a call keeps, at most */

struct expert_scheme;

/* How experts are shared out on this device.  Without a group: geometry alone. */
struct expert_parallel {
    const struct expert_scheme *scheme;
    const struct tensor_parallel *tp;   /* which columns of each expert are here */
    struct group *group;                /* along ep */
    int devices, rank;
};

/* Rows sorted by expert, on their way through the experts of this device.  counts: int32 [E], rows of each;
 * the host's. */
struct expert_rows { struct tensor rows, up, act, results; const int32_t *counts; };
struct expert_gradients { struct tensor rows, up, act, results; };

/* What experts do with the rows they are given.  Local. */
struct expert_body {
    const void *context;
    void (*forward)(const void *context, struct expert_rows);
    void (*input)(const void *context, struct expert_rows, struct expert_gradients);
    void (*weight)(const void *context, struct expert_rows, struct expert_gradients);
};

/* What a call works on.  Rows of the stream: x, y [n,D]; weights [n,k]; experts I32 [n,k].  Recomputation has no y:
 * forward then makes only what is kept. */
struct mixture_call {
    struct expert_parallel *ep;
    struct expert_body body;
    struct tensor x, y, weights, experts;
    struct tensor dx, dy, d_weights;    /* of backward for the inputs */
    struct tensor kept[EXPERT_SLOTS];   /* from forward to the end of backward */
    struct tensor left[EXPERT_GRADIENT_SLOTS];          /* from backward for the inputs to that for the weights */
};

struct expert_scheme {
    struct scheme head;
    /* Whether P devices can share a model's experts.  @return NULL, or what it needs, in words. */
    const char *(*refuses)(const struct model_config *, int P);
    /* What a call with so many rows of the stream keeps, slot by slot: a tensor without memory. */
    int slots, gradient_slots;
    struct tensor (*kept)(const struct expert_parallel *, int slot, int64_t rows);
    struct tensor (*left)(const struct expert_parallel *, int slot, int64_t rows);
    /* Collective over the ep group.  @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on. */
    enum error_code (*forward)(struct mixture_call *, struct error *);
    enum error_code (*input)(struct mixture_call *, struct error *);
    enum error_code (*weight)(struct mixture_call *, struct error *);
};

SCHEME_CASTS(EXPERT_SCHEME, expert_scheme)              /* expert_scheme_at, expert_scheme_find */

#endif
