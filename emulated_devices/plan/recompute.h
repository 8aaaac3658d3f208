/* recompute.h -- which layers drop activations after forward and recompute them before backward.
 *
 * Source  T. Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174; selective: V. Korthikanti
 *         et al., "Reducing activation recomputation in large transformer models", arXiv:2205.05198, section 5;
 *         selective++: D. Gu et al., "LoongTrain", arXiv:2406.18485, Selective Checkpoint++; selective_checkpoint in
 *         InternLM/InternEvo
 *
 *   none         everything is kept
 *   selective    attention's output and softmax denominators are recomputed from Q, K and V
 *   full         only the block's input is kept; the rest is recomputed, except the product with the last matrix: its
 *                output is not needed
 *   selective++  as full, but attention's output and softmax denominators are kept too, so that attention, which takes
 *                long for long sequences, is not computed again.  Schemes that exchange tokens for heads exchange Q, K,
 *                V and the output again
 *
 * Dropout draws the same masks again from its counters, and the collectives within a block run again.
 *
 * Callers: check.c, model/link/link.c and model/link/layer_memory.c.
 */
#ifndef ORRERY_PLAN_RECOMPUTE_H
#define ORRERY_PLAN_RECOMPUTE_H

#include "ref/error.h"
#include <stdint.h>

enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_BUT_ATTENTION };

#define RECOMPUTE_CHOICES "none, selective, selective++, full, or a list of layers"

/** Check a choice: a name above, or a list of layers (from 0) that use full, such as 0,2-5.
 *  @return OK, or ERR_USAGE saying what would fit. */
enum error_code recompute_check(const char *choice, int64_t layers, struct error *);

/** The mode of a layer under a choice that has been checked; NULL: none. */
enum recompute recompute_of(const char *choice, int64_t layer);

#endif
