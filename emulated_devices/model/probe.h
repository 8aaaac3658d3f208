/* probe.h -- where the distributed model shows what it has just computed, under the names of its serial twin.
 *
 * A stage calls its probe for each activation and each activation's gradient, in the moment in which the serial model
 * of ref/model announces the same tensor to its observer; a device shows its part of it, a microbatch at a time.  Which
 * part that is follows from the plan alone (plan_part), so that a comparison can cut it for any device.
 */
#ifndef ORRERY_PROBE_H
#define ORRERY_PROBE_H

#include "emulated_devices/device/part.h"
#include "emulated_devices/plan/plan.h"

/* Sees (and may change) each tensor just after it was computed.  name, layer: as in struct observer. */
struct probe {
    void (*see)(void *context, const char *name, int layer, bool gradient, int micro, struct tensor t);
    void *context;
};

/** How the columns of an activation are cut.  @return whether the model has one of this name that a device shows. */
bool activation_width_of(const struct model_config *, const char *name, enum activation_width *);

/** The operation that makes an activation, or its gradient, in words; empty for a name that the model has not. */
void activation_made_by(char *out, size_t size, const struct model_config *, const char *name, int layer,
                        bool gradient);

/** The stage that computes an activation, or its gradient: the gradient of a block's output is the
 * next block's work. */
int plan_stage_of(const struct plan *, const char *name, int layer, bool gradient);

/** The columns that a device has of an activation: of the stream its channels, else its heads, feed-forward columns or
 *  tokens; or of its gradient, see plan_part. */
struct intervals activation_columns(const struct tensor_parallel *, enum activation_width, bool gradient);

/**
 * A device's part of an activation (or its gradient) in one microbatch.
 * @param cols  columns of the whole.
 * @return the part, for part_free; rows are those of the global batch, sequence by sequence.  Keys and values that
 *     several devices have are
 *         no part of the gradient: each has a share of it, which only added up is what the model has.
 */
struct part plan_part(const struct plan *, int rank, enum activation_width, int64_t cols, int micro, bool gradient);

/** Columns of the tensor that such a device shows: those of its part, then perhaps others that are no part. */
int64_t plan_columns(const struct plan *, int rank, enum activation_width);

#endif
