/* megatron.h -- what a training step of Megatron-LM takes on a described cluster: for published measurements.
 *
 * Our own devices run our own kernels.  Published times are of a GPT-2 in 16 bits by Megatron-LM: its kernels for a
 * layer, one by one (kernel.h), with its recomputation, its two all-reduces of a layer in each direction, its pipeline
 * schedule, the sum of its gradients and its optimizer.  Stages are timed, put into a schedule of schemes/pipeline and
 * run through its timer; collectives take the time that auto.c predicts on the cluster's links.
 *
 * `orrery plan` has the same steps by measured kernels (docs/plans/published.md says what this model has beyond it).
 *
 * Callers: bench/claims/megatron.c and bench/claims/fit.c, for `orrery bench published`; tests/devices/test_kernel.c.
 */
#ifndef ORRERY_MEGATRON_H
#define ORRERY_MEGATRON_H

#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/pipeline/schedule.h"

enum megatron_recompute { MEGATRON_KEEPS_ALL, MEGATRON_SELECTIVE, MEGATRON_FULL };

struct megatron {
    int devices, batch, micro;          /* sequences: of a step, of a microbatch */
    int width, heads, layers, tokens, vocabulary;       /* D, H, L, S, V of docs/words.md */
    int tp, dp, pp, chunks;             /* ranks in this order, tp side by side */
    enum megatron_recompute recompute;  /* what backward computes again */
    bool sequence_parallel;             /* norms and dropout work on a part of the tokens */
    bool scattered;                     /* stages send each tp rank's part, not all of it */
};

/** Floating-point operations of a step, with a second forward: 96 B s L h^2 (1 + s/6h + V/16Lh), arXiv:2104.04473. */
double megatron_flops(const struct megatron *);

/** Parameters: 12 L h^2 (1 + 13/12h + (V+s)/12Lh), the same paper. */
double megatron_parameters(const struct megatron *);

/** The schedule of the step's pipeline.  @return OK; ERR_PLAN: sizes that do not divide; ERR_MEMORY. */
enum error_code megatron_schedule(struct schedule *, const struct megatron *, struct error *);

/** The time of a step.  @param schedule  from megatron_schedule.  @return OK or ERR_MEMORY. */
enum error_code megatron_time(picoseconds *, const struct megatron *, const struct schedule *schedule,
                              const struct cluster *, struct error *);

#endif
