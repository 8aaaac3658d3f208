/* probe.h -- callbacks with each activation that the distributed model has just computed, under the serial model's
 * names.
 *
 * A stage calls its probe for each activation and each activation's gradient, at the point where the serial model of
 * ref/model calls its observer with the same tensor.  A device passes its part of the tensor, one microbatch at a time.
 * The part depends on the plan alone (plan_part), so a comparison can compute it for any device.  Files of
 * verify/reference/, check/recompute/ and verify/cases/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_PROBE_H
#define ORRERY_PROBE_H

#include "emulated_devices/device/part.h"
#include "emulated_devices/plan/plan.h"

/* Rows that a device computes of a mixture's experts, or their gradients: choices of tokens, sorted by expert. */
struct sorted_rows {
    const char *name;                   /* of sorted_by_expert */
    int layer;                          /**< Layer of the experts. */
    bool gradient;                      /* the tensor is a gradient */
    int micro;                          /* the microbatch */
    struct tensor t;                    /* [rows, columns] */
    const int32_t *counts;              /* [E] rows of each expert */
    const int32_t *row;                 /* [rows] the places of their tokens in the batch */
    struct interval columns;            /* of F, or of the results */
    const struct group *summed;         /* the devices whose results add up; NULL, or of one device: none */
};

/* Called with each tensor just after it was computed; may change it.  name, layer: as in struct observer. */
struct probe {
    /* Gradient: the tensor is a gradient; micro: the microbatch. */
    void (*see)(void *context, const char *name, int layer, bool gradient, int micro, struct tensor t);
    /* Rows of experts, if `sorted`: all devices want them, or none. */
    bool sorted;                        /**< Rows of experts are wanted. */
    void (*see_sorted)(void *context, const struct sorted_rows *); /**< Called with rows of experts. */
    void *context;                      /* first argument of see */
};

/** How the columns of an activation are cut.  @return false if devices show no activation of this name. */
bool activation_width_of(const struct model_config *, const char *name, enum activation_width *);

/** The operation that makes an activation, or its gradient, as text; empty if the model has no such name. */
void activation_made_by(char *out, size_t size, const struct model_config *, const char *name, int layer,
                        bool gradient);

/** The stage that computes an activation, or its gradient.  The next block computes the gradient of a block's
 *  output. */
int plan_stage_of(const struct plan *, const char *name, int layer, bool gradient);

/** The columns that a device has of an activation: its channels of the stream; else its heads, feed-forward columns or
 *  vocabulary entries.  For a gradient see plan_part. */
struct intervals activation_columns(const struct tensor_parallel *, enum activation_width, bool gradient);

/**
 * A device's part of an activation (or its gradient) in one microbatch.
 * @param cols  columns of the whole activation.
 * @return the part, for part_free; rows are those of the global batch, sequence by sequence, of each stream.
 *         A gradient's part leaves out keys and values of which several devices have copies: each has only a
 *         summand of that gradient.
 */
struct part plan_part(const struct plan *, int rank, enum activation_width, int64_t cols, int micro, bool gradient);

/** The part of a gradient that plan_part leaves out: keys and values of which several devices have copies.  In a
 *  device's tensor their columns are behind those of its queries.
 *  @return the part, for part_free; empty: nothing is left out. */
struct part plan_copied_part(const struct plan *, int rank, enum activation_width, int64_t cols, int micro);

/** Columns of the tensor that a device passes to its probe: those of its part, then possibly others that are not in
 *  it. */
int64_t plan_columns(const struct plan *, int rank, enum activation_width);

#endif
