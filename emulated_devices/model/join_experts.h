/* join_experts.h -- a mixture whose experts are the feed-forwards of dense models that were trained apart.
 *
 * Source   Uni-MoE, arXiv:2405.11273: in its second stage each expert is trained alone, on the data of one modality;
 *          then the experts are put into the mixture, whose router is new
 * Called   cli/mixture.c (`orrery mixture`).
 */
#ifndef ORRERY_MODEL_JOIN_EXPERTS_H
#define ORRERY_MODEL_JOIN_EXPERTS_H

#include "ref/model/config.h"

enum { JOINED_MOST = 64 };                      /* models */

/* Dense models, in folders, and what their mixture is. */
struct joining {
    int models;                                 /* experts of the mixture: one of each */
    const char *dir[JOINED_MOST];               /* [models] their folders; a folder may be there several times */
    struct model_config dense;                  /* of the first */
    struct model_config mixture;                /* joining_config makes it */
    enum dtype dtype;                           /* of the mixture's file */
    uint64_t seed;                              /* of its routers */
    int64_t joined, shared, drawn;              /* result: numbers of experts, of all else, of routers */
    int encoders;                               /* result: of clips, which the models have, too */
};

/** The mixture of these models, with the routers and the names of another model's: its family.
 *  @return OK; ERR_USAGE, naming what does not fit; errors of reading a config. */
enum error_code joining_config(struct joining *, const struct model_config *like, struct error *);

/** Write the mixture to a folder, which exists.  Every number of the models keeps its bits.
 *  @return OK; ERR_USAGE if the models differ in more than their feed-forwards, with the first tensor, or if the format
 *          would round a number; ERR_FILE, ERR_FORMAT, ERR_MEMORY. */
enum error_code join_experts(struct joining *, const char *out, struct error *);

#endif
