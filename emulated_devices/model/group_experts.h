/* group_experts.h -- experts and tokens of a mixture in groups, for `--dispatch speculative`.
 * cli/affinity.c (`orrery affinity`) calls group_check, then group_experts. */
#ifndef ORRERY_MODEL_GROUP_EXPERTS_H
#define ORRERY_MODEL_GROUP_EXPERTS_H

#include "ref/error.h"
#include <stdint.h>

struct model_config;
struct text;

struct grouping {
    const char *out;                    /* the folder to write */
    int ep, batches;                    /* parts; batches to look at */
    int batch, seq;                     /* sequences of a batch; tokens of a sequence, 0: the model's */
    uint64_t seed;                      /* of the batches, and of weights that are drawn */
    int parts;                          /* result: of experts and tokens */
    double local, checked;              /* choices inside a part: of this text, and of other text */
    double checked_pairs;               /* the same of other text, with pairs of tokens */
    int64_t pairs;                      /* that are listed */
    double imbalance;                   /* experts of the part with most choices, over the mean */
};

/** Set the usual length, and check that the model can be grouped.  @return OK or ERR_USAGE. */
enum error_code group_check(const struct model_config *, struct grouping *, struct error *);

/** Run a model on the text, group its experts, put them in order, and write the folder.
 *  @param dir  of its weights; NULL: drawn from the seed.  @return OK, ERR_MEMORY or ERR_FILE. */
enum error_code group_experts(const struct model_config *, const char *dir, const struct text *, struct grouping *,
                              struct error *);

#endif
