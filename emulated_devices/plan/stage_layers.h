/* stage_layers.h -- how many layers each stage of a pipeline has, if the user says so: --stage-layers.
 *
 * Source  Megatron-LM, core_v0.16.1: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers,
 *         --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split; the pipeline of Llama 3
 *         405B has a layer less on the first and the last stage (A. Dubey et al., arXiv:2407.21783, section 3.3.2)
 *
 *   even       all stages have equally many layers, as nearly as possible; the same as no choice
 *   embedding  the embedding counts as a layer, so the first stage has one layer less
 *   loss       likewise the loss, on the last stage
 *   ends       both
 *   7,8,8,7    the layers of each stage, in the order of the model
 *   7,..,5     the same of some stages; stages in place of .. share the other layers equally
 *
 * Callers: check.c alone.
 */
#ifndef ORRERY_PLAN_STAGE_LAYERS_H
#define ORRERY_PLAN_STAGE_LAYERS_H

#include "emulated_devices/device/interval.h"
#include "ref/error.h"

/** Cut layers over stages by a choice.
 *  @param[out] first_layer  [stages + 1]: of each stage, then the end of the layers.
 *  @return OK; ERR_USAGE for what is no choice; ERR_PLAN if the stages cannot have these layers. */
enum error_code stage_layers_cut(const char *choice, struct interval layers, int stages, int *first_layer,
                                 struct error *);

#endif
