/* offload.h -- the engine's copies of what lies on the slow tier.  Private to this folder.
 *
 * Weights        own_w lies there.  Three uses ahead of the one that computes, a unit's part of them is on its way from the drive to
 *                the host; two ahead, from the host to the device (shard); one ahead, it is gathered with the others' (w).
 * Gradients      own_g lies there.  After each pass a copy (sum) is made on the device, of zeros or of what is there already, the
 *                pass's gradient is added, and it goes back.  Where they are not shared, the pass itself adds to the copy.
 * Optimizer      master and state lie there.  The step goes through slices of them: while one is stepped, the next is read and
 *                the one before is written, so that there are OFFLOAD_BUFFERS on the device.
 */
#ifndef ORRERY_OFFLOAD_H
#define ORRERY_OFFLOAD_H

#include "emulated_devices/schemes/data/gather.h"

enum { OFFLOAD_BUFFERS = 3 };

/* The list of slices, for units that have been laid out; and the tier, in which homes are then placed. */
enum error_code offload_list_slices(struct data_parallel *, struct error *);
enum error_code offload_open_tier(struct data_parallel *, struct error *);
void offload_close(struct data_parallel *);

/* ---- weights --------------------------------------------------------------------------------------------------------------- */

/* From the drive to the host; from there to the device, unless it is there or gathered already; and away again.  Nothing where
 * weights are not offloaded. */
void offload_announce_weights(struct data_parallel *, struct unit *);
enum error_code offload_fetch_weights(struct data_parallel *, struct unit *, struct error *);
void offload_drop_weights(struct data_parallel *, struct unit *);

/* ---- gradients ------------------------------------------------------------------------------------------------------------- */

/* A unit's sum on the device, with what has been added to it in this step; and back where it lies, all of it, or when no pass will
 * add to it any more what this device steps.  Nothing where gradients are not offloaded. */
enum error_code offload_take_sum(struct data_parallel *, struct unit *, struct error *);
enum error_code offload_put_sum(struct data_parallel *, struct unit *, bool last, struct error *);

/* ---- the step -------------------------------------------------------------------------------------------------------------- */

/* Who steps a slice, and how many the device does. */
static inline bool stepped_by_host(const struct data_parallel *dp, int slice)
{
    const int k = dp->request.offload_stride;
    return k > 1 && slice % k != k - 1;
}

static inline int slices_of_device(const struct data_parallel *dp)
{
    return dp->request.offload_stride > 1 ? dp->slices / dp->request.offload_stride : dp->slices;
}

static inline int buffers_of_step(const struct data_parallel *dp)
{
    return slices_of_device(dp) < OFFLOAD_BUFFERS ? slices_of_device(dp) : OFFLOAD_BUFFERS;
}

/* What is stepped of one slice: where it lies, or copies of it.  weight: of a model with masters, what the master is rounded to. */
struct operands { struct tensor gradient, master, weight, state[OPTIMIZER_MAX_STATES]; };

/* A step on its way through the slices. */
struct stepping {
    struct data_parallel *dp;
    struct step step;
    struct operands buffer[OFFLOAD_BUFFERS];    /* on the device, of what lies on the slow tier */
    picoseconds start;                          /* virtual times: of the step; at which a buffer has been read, and written back; at
                                                   which all weights that the host has stepped so far have landed */
    picoseconds filled[OFFLOAD_BUFFERS], emptied[OFFLOAD_BUFFERS], landed;
};

enum error_code stepping_open(struct stepping *, struct data_parallel *, struct step, struct error *);
void stepping_close(struct stepping *);

/* Read what will be stepped by the device while slices from this one on are; step one, and write it back. */
enum error_code slice_fetch_ahead(struct stepping *, int slice, struct error *);
enum error_code slice_step(struct stepping *, int slice, struct error *);

/* What stepping so many elements takes: the master and the states are read and written, the gradient read; and the master rounded. */
struct op_cost slice_step_cost(const struct data_parallel *, int64_t elements);
struct op_cost slice_round_cost(const struct data_parallel *, int64_t elements);

/* Of the weights that this device keeps, those that it steps. */
struct tensor stepped_weights(const struct data_parallel *, const struct unit *);

/* sum += this device's part of a unit's squared norm; g: what it steps of the gradient. */
void unit_add_squares(struct data_parallel *, const struct unit *, struct tensor g, struct exact_sum *sum);

#endif
