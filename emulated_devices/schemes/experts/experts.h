/* experts.h -- the seam for expert parallelism: which device runs which expert of a mixture, and how rows get to their
 * experts and back.
 *
 * A router has chosen k experts and their weights for each row of the stream.  A scheme sends rows to their experts,
 * sorted by expert, runs the experts (struct expert_body), and returns each row's weighted sum.  The model defines what
 * an expert computes, the scheme on which device.
 *
 * `here` is the trivial scheme: all experts are on each device, and tensor parallelism cuts F inside each.  The results
 * are partial sums, which the caller reduces.  The other schemes cut the list of experts, and an expert is whole on its
 * device.  Devices along tp have the same rows, so each sends only its share of them, and has zeros for the others: the
 * results are partial sums again.
 */
#ifndef ORRERY_EXPERT_SCHEME_H
#define ORRERY_EXPERT_SCHEME_H

#include "emulated_devices/schemes/tensor/tensor.h"

enum { EXPERT_SLOTS = 7, EXPERT_GRADIENT_SLOTS = 2 };   /* tensors that a call keeps, at most */

struct expert_scheme;

/* How many rows go where in one layer and microbatch, known when its router has chosen.  In the host's memory. */
struct expert_routing {
    int64_t received;                   /* rows that this device's experts get; 0 until the router has chosen */
    int32_t *sent;                      /* [P] rows to each member */
    int32_t *counts;                    /* [P, own experts] rows from each member, for each expert */
};

/* This device's share of the experts.  group may be NULL if only extents are needed. */
struct expert_parallel {
    const struct expert_scheme *scheme;
    const struct tensor_parallel *tp;   /* this device's columns of each expert */
    struct group *group;                /* along ep */
    int devices, rank;
    const struct expert_routing *routing;               /* of the call; NULL: all devices get the mean */
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
    bool cuts_experts;                  /* a device has some experts, whole; else all of them, cut over tp */
    /* Whether P devices can share a model's experts.  @return NULL, or what the scheme needs, as text. */
    const char *(*refuses)(const struct model_config *, int P);
    /* Tell the devices how many rows they will get.  Collective over the ep group.  NULL: nothing is sent.
     * @param experts  I32 [n,k] of this device's share of the rows.  @return OK or ERR_COMM. */
    enum error_code (*announce)(struct expert_routing *, const struct expert_parallel *, struct tensor experts,
                                struct error *);
    /* kept, left: the shape of a slot for `rows` rows of the stream, as a tensor without memory. */
    int slots, gradient_slots;
    struct tensor (*kept)(const struct expert_parallel *, int slot, int64_t rows);
    struct tensor (*left)(const struct expert_parallel *, int slot, int64_t rows);
    /* Collective over the ep group.  @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on. */
    enum error_code (*forward)(struct mixture_call *, struct error *);
    enum error_code (*input)(struct mixture_call *, struct error *);
    enum error_code (*weight)(struct mixture_call *, struct error *);
    /* Enter what announcing, or a pass, sends.  NULL: nothing. */
    void (*announce_cost)(struct forecast *, const struct expert_parallel *);
    void (*cost)(struct forecast *, const struct expert_parallel *, enum tensor_pass);
};

/* The experts of a member, and of this device. */
static inline struct interval experts_of(const struct expert_parallel *ep, int member)
{
    return block_at(ep->tp->config->mixture.E, ep->devices, member);
}

/* This device's share of the rows of the stream: others along tp have the same rows. */
static inline struct interval expert_share(const struct expert_parallel *ep, int64_t rows)
{
    return block_at(rows, ep->tp->devices, ep->tp->rank);
}

SCHEME_CASTS(EXPERT_SCHEME, expert_scheme)              /* expert_scheme_at, expert_scheme_find */

#endif
