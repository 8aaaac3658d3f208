/* zero_groups.h -- which weights can be zero together without changing what a model computes, and the smaller model.
 *
 * A zero-invariant group is some rows of a matrix, with their biases: if all of them are 0, the matrix's outputs at
 * these rows are 0, whatever the input is, and so is what the operations behind them make of it, up to the next matrix.
 * The columns of that matrix then meet zeros only.  So rows and columns can be left out together.  A group is a unit of
 * a feed-forward, or the heads that share a key head.  cli/prune.c trains groups to 0 (half_space.h) and leaves them
 * out.
 *
 * Source  T. Chen et al., "OTOv2: automatic, generic, user-friendly", arXiv:2303.06862
 */
#ifndef ORRERY_MODEL_ZERO_GROUPS_H
#define ORRERY_MODEL_ZERO_GROUPS_H

#include "ref/model/params.h"
#include "ref/model/transformer.h"

enum zero_group_kind { ZERO_FEED_FORWARD, ZERO_HEADS, ZERO_GROUP_KINDS };
extern const char *const zero_group_names[];    /* "feed-forward", "heads"; ends with NULL */

enum { ZERO_PIECES = 3 };

/* Groups of each layer. Group j has the rows start[p] + j rows[p] and the rows[p] - 1 behind them, of each piece p. */
struct zero_groups {
    enum zero_group_kind kind;          /**< Kind of the groups. */
    enum block_param from, into;        /* the matrix whose rows they are; the one whose columns meet them */
    int64_t count;                      /* of a layer */
    int pieces;                         /**< Pieces of a group, at most ZERO_PIECES. */
    int64_t start[ZERO_PIECES], rows[ZERO_PIECES];
    int64_t columns;                    /* of `into` that a group has, side by side */
};

/** Find the groups of a kind in the table of a model's block.
 *  @return OK; ERR_PLAN: the model has none, or its block does something between the matrices that does not keep 0. */
enum error_code zero_groups_find(struct zero_groups *, const struct model_config *, enum zero_group_kind,
                                 struct error *);

/** The config of a model that keeps so many groups a layer; model_config_check says whether its family can have it. */
struct model_config zero_groups_config(const struct zero_groups *, const struct model_config *, int64_t count);

/** Numbers of a group: its rows, and their biases. */
int64_t zero_groups_size(const struct zero_groups *, const struct model_config *);

/** Copy the numbers of all groups of a layer from weights or gradients, [count][size], or back into them. */
void zero_groups_take(const struct zero_groups *, const struct transformer *, const struct tensor *of, int64_t layer,
                      double *numbers);
void zero_groups_give(const struct zero_groups *, struct transformer *, int64_t layer, const double *numbers);

/**
 * Make the model without its zero groups.  Each layer must have as many as the first.
 * @param[out] smaller  opened here; transformer_close.
 * @return OK; ERR_PLAN: another number of them in a layer, none left, or sizes that the family cannot have;
 *         ERR_MEMORY.
 */
enum error_code zero_groups_leave_out(const struct zero_groups *, const struct transformer *,
                                      struct transformer *smaller, struct error *);

#endif
