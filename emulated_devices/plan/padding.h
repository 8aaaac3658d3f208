/* padding.h -- rows of no token that make a vocabulary divide.
 *
 * Megatron-LM adds such rows to the embedding and the output matrix (--make-vocab-size-divisible-by, 128 by default, in
 * `_vocab_size_with_padding` of its tokenizers).  They are rows as all others: they are drawn, and their logits are
 * part of every softmax, because `VocabParallelCrossEntropy` masks only the targets of other devices.  So a model with
 * padding is a model with more tokens.  run/words/take.c and bench/plan_speed.c call.  No function returns an error
 * code.
 */
#ifndef ORRERY_PADDING_H
#define ORRERY_PADDING_H

#include <stdint.h>

/** The least multiple of n times tp that is at least V, for V tokens; V itself if n is 0. */
int64_t padded_vocabulary(int64_t V, int n, int tp);

#endif
