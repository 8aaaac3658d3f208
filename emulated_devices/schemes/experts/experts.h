/* experts.h -- the seam for expert parallelism: which device runs which expert of a mixture, and how rows get to their
 * experts and back.
 *
 * A router has chosen k experts and their weights for each row of the stream.  A scheme sends rows to their experts,
 * sorted by expert, runs the experts (struct expert_body), and returns each row's weighted sum.  The model defines what
 * an expert computes, the scheme on which device.  If tensor parallelism cuts F inside each expert, the results are
 * partial sums, which the caller reduces.
 *
 * `here` is the trivial scheme: all experts are on each device.
 */
#ifndef ORRERY_EXPERT_SCHEME_H
#define ORRERY_EXPERT_SCHEME_H

#include "emulated_devices/schemes/tensor/tensor.h"

enum { EXPERT_SLOTS = 6, EXPERT_GRADIENT_SLOTS = 2 };   /* tensors that a call keeps, at most */

struct expert_scheme;

/* This device's share of the experts.  group may be NULL if only extents are needed. */
struct expert_parallel {
    const struct expert_scheme *scheme;
    const struct tensor_parallel *tp;   /* this device's columns of each expert */
    struct group *group;                /* along ep */
    int devices, rank;
};

/* The values, and gradients, of rows sorted by expert in this device's experts.  counts: int32 [E], rows of each
 * expert, in host memory. */
struct expert_rows { struct tensor rows, up, act, results; const int32_t *counts; };
struct expert_gradients { struct tensor rows, up, act, results; };

/* The computation of the experts on the rows that they get.  Local. */
struct expert_body {
    const void *context;
    void (*forward)(const void *context, struct expert_rows);
    void (*input)(const void *context, struct expert_rows, struct expert_gradients);
    void (*weight)(const void *context, struct expert_rows, struct expert_gradients);
};

/* The arguments of a call.  Rows of the stream: x, y [n,D]; weights [n,k]; experts I32 [n,k].  In recomputation y is
 * absent: forward then computes only what is kept. */
struct mixture_call {
    struct expert_parallel *ep;
    struct expert_body body;
    struct tensor x, y, weights, experts;
    struct tensor dx, dy, d_weights;    /* for backward for the inputs */
    struct tensor kept[EXPERT_SLOTS];   /* from forward to the end of backward */
    struct tensor left[EXPERT_GRADIENT_SLOTS];          /* kept from backward for the inputs to that for the weights */
};

struct expert_scheme {
    struct scheme head;
    /* Whether P devices can share a model's experts.  @return NULL, or what the scheme needs, as text. */
    const char *(*refuses)(const struct model_config *, int P);
    /* kept, left: the shape of a slot for `rows` rows of the stream, as a tensor without memory. */
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
