/* partial.h -- trainings whose sequences leave layers out, as microbatches of a partial pipeline do (N. Blagoev et al.,
 * SkipPipe, arXiv:2502.19913), beside a whole training, and what both lose if a model runs without some of its layers.
 *
 * One device trains by the rule of the schedule, which is what devices of a pipeline compute (train --schedule skippipe
 * --check ref).  cli/bench/partial.c and tests call these functions.
 */
#ifndef ORRERY_BENCH_PARTIAL_H
#define ORRERY_BENCH_PARTIAL_H

#include "ref/io/text.h"
#include "ref/model/config.h"
#include "emulated_devices/schemes/pipeline/schedule.h"

/** This holds what all trainings of a comparison share. */
struct partial_setting {
    struct model_config model;          /**< Model that is trained. */
    const struct text *text;            /**< trained on, and held out */
    int pp, micro;                      /**< stages of a layer each, or of several; microbatches of a step */
    int64_t batch, steps, held;         /**< sequences of a step; steps; batches of held-out text */
    double lr;                          /**< learning rate of AdamW */
};

/** This holds what one training comes to. */
struct partial_found {
    double span;                        /**< time of a step over that of a pipeline without skips: F, I, W of 1 each */
    double layers;                      /**< computed of all, on average over microbatches */
    double loss;                        /**< of held-out text by the whole model */
    double half;                        /**< by the model without half of its layers (partial_half) */
};

/** Note in passes_by [L, B] which sequences of a step leave which layers out: those of microbatch m the layers of the
 *  stages where m has no place.  Local. */
void partial_rule(const struct schedule *, int64_t layers, int64_t batch, bool *passes_by);

/** Leave half of the layers out for all sequences, at most those of the stages that a microbatch may skip, spread
 *  evenly over them.  Local. */
void partial_half(int stages, int64_t layers, int64_t batch, bool *passes_by);

/**
 * Train from the same start on the same batches, with so many of the middle stages skipped.  Local.
 * @param skip  stages that each microbatch leaves out; 0: none, by 1F1B.
 * @return OK; ERR_PLAN: the schedule refuses the setting; ERR_USAGE of the model; ERR_MEMORY.
 */
enum error_code partial_train(const struct partial_setting *, int skip, struct partial_found *, struct error *);

#endif
