/* adapters.h -- low-rank adapters of a model's matrices (LoRA): W + s B A, with s = alpha / rank.
 *
 * Source   E. Hu et al., "LoRA", arXiv:2106.09685; peft 0.17, class LoraLayer: names, initial values, the factor
 * Forward  each matrix W [out, in] that has an adapter is W + s B A while a pass reads it: x (W + s B A)^T is
 *          x W^T + s (x A^T) B^T
 * Gradient dA [rank, in] = s B^T dW, dB [out, rank] = s dW A^T, where dW is the gradient of the matrix with which a
 *          pass has computed; dW itself is dropped, for W does not train
 * Equals   peft's unmerged layers, which reassociate.  golden/lora.safetensors is peft's
 *
 * transformer.c and forward.c merge and split, backward.c folds; schemes/data/stages/adapters.c does the same with a
 * device's pieces.  Lists of sets that cannot be read are ERR_USAGE, adapters that a model cannot have ERR_PLAN.
 */
#ifndef ORRERY_ADAPTERS_H
#define ORRERY_ADAPTERS_H

#include "ref/model/config.h"

struct param_spec;
struct transformer;

/* Matrices that can have adapters: queries, keys and values as one, and what follows attention; both of a
 * feed-forward; both of each expert. */
enum adapted_set { LOW_ON_ATTENTION = 1, LOW_ON_FEED = 2, LOW_ON_EXPERTS = 4 };

/** Read a list of sets as --lora-of has it.  @return OK, or ERR_USAGE with the name that is none. */
enum error_code adapted_read(unsigned *sets, const char *list, struct error *);

/** The sets as such a list. */
struct adapted_text { char text[32]; };
struct adapted_text adapted_text(unsigned sets);

/** Whether a matrix has an adapter.  Pure. */
bool param_is_adapted(const struct model_config *, const struct param_spec *);

/** Check rank, factor and matrices, and that a matrix with an adapter does not train beside it.
 *  @return OK, or ERR_PLAN with the first problem. */
enum error_code adapters_check(const struct model_config *, struct error *);

/** The factor of B A. */
static inline double adapters_scale(const struct model_config *config)
{
    return config->adapters.alpha / (double)config->adapters.rank;
}

/** Memory of merged matrices.  @return whether there was some. */
bool adapters_open(struct transformer *);
void adapters_close(struct transformer *);

/** Put merged matrices in the place of those with adapters; take them back. */
void adapters_merge(struct transformer *);
void adapters_split(struct transformer *);

/** Add to the gradients of A and B what those of merged matrices say, and drop these and all of what does not train. */
void adapters_fold(struct transformer *);

#endif
