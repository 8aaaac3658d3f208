/* balance.h -- the balance loss of a mixture of experts: of which tokens and layers one loss is, and its slope.
 *
 * A loss of T rows is E sum_e f_e P_e: f_e is expert e's share of the rows' choices, P_e the mean of its probabilities.
 * The tokens of a batch are divided into groups (balance-over): each microbatch of a replica, each sequence, or all.
 * The rows of a loss are those of a group in all layers together, or in one layer (balance-layers); then losses of
 * layers are added.  The loss of a step is the mean of its groups' losses, each counted by its rows: as Megatron Core
 * counts them with calculate_per_token_loss, and as the cross entropy is a mean over labels.  So with equal
 * microbatches and no padding it is the mean over microbatches.  Padding belongs to no group.  The z loss has no
 * groups: it is the mean over the rows of the batch in all layers together, or the sum of such means of each layer.
 *
 * The batch is that of one optimizer step.  A token has a row in a layer only if the layer computes it: where sequences
 * skip layers (partial.h), a loss and the batch have fewer rows in some layers than in others, perhaps none.  The loss
 * of each sequence by itself is a mean over the sequences that a layer computes, added over layers.
 *
 * Source  balance-over, balance-layers, balance-choices of conventions.h; held to the released code of transformers,
 *         Megatron Core and DeepSpeed by tests/ref/test_balance.c
 * Called  Files of model/, check/, verify/ and other rooms call these functions.
 * Errors  none
 */
#ifndef ORRERY_BALANCE_H
#define ORRERY_BALANCE_H

#include "ref/model/config.h"
#include "ref/optim/conventions.h"

/** Take the three conventions of a package.  Pure. */
struct balance_rule balance_rule_of(const struct conventions *);

/** How many of a row's k choices an expert's share counts: the first, or all k.  Pure. */
int64_t balance_counted(const struct mixture_config *);

/** The number of balance losses that a group of tokens has: one, or one of each of L layers.  Pure. */
static inline int64_t balance_losses(const struct mixture_config *config, int64_t L)
{
    return config->balance.layers == LAYERS_EACH ? L : 1;
}

/** Say which of them a layer's rows are of. */
static inline int64_t balance_loss_of(const struct mixture_config *config, int64_t layer)
{
    return config->balance.layers == LAYERS_EACH ? layer : 0;
}

/* The rows that a slope depends on: of one loss, and of all losses of the batch that its rows are weighed among. */
struct balance_rows { double of_loss, of_batch; };

/**
 * The rows of a loss whose group has `tokens` tokens without padding, in a batch that has `all`.  Pure.
 * @param layers  the layers of the model that have a router.
 */
struct balance_rows balance_rows_of(const struct mixture_config *, int64_t tokens, int64_t all, int64_t layers);

/**
 * The rows of a batch that the losses of a layer's rows are weighed among: those in the layer, or in all.  Pure.
 * @param rows  [L] of each layer, without padding; 0 of a layer without a router.
 */
double balance_rows_among(const struct mixture_config *, const double *rows, int64_t L, int64_t layer);

/**
 * The derivative of the step's balance loss by the probability that one row of a loss has for an expert:
 * E f_e / (rows of the batch), without the coefficient; 0 of a loss without rows.  The loss itself is the sum of these
 * slopes times the rows' probabilities.  Pure.
 * @param chosen  the choices of the expert that count, of all rows of the loss.
 */
double balance_slope(const struct mixture_config *, struct balance_rows, double chosen);

#endif
