/* whole_sequences.h -- the choices of whole sequences, of which devices along cp have parts: what is dropped, and a
 * balance loss of each sequence, depend on all of them.  model/link/link_cost.c and model/run/run_mixture.c call
 * these functions. */
#ifndef ORRERY_WHOLE_SEQUENCES_H
#define ORRERY_WHOLE_SEQUENCES_H

#include "emulated_devices/schemes/attention/attention.h"

struct whole_sequences {
    const struct context_parallel *cp;  /* whose members gather their choices */
    struct tensor experts, weights;     /* I32 and numbers [B S,k], sequence by sequence; weights may be none */
    int32_t *place;                     /* [B S] in these, of each member's rows in turn; NULL: one device */
    int64_t first, rows;                /* of these, this device's */
};

/**
 * Gather the choices of whole sequences.
 * Collective over the cp group; without other devices the tensors are those given.
 * @param experts  I32 [n,k] of this device's rows.  @param weights  [n,k], or none: they are not gathered.
 * @return OK, ERR_MEMORY or ERR_COMM; call whole_sequences_close in all cases.
 */
enum error_code whole_sequences_open(struct whole_sequences *, const struct context_parallel *, struct tensor experts,
                                     struct tensor weights, struct error *);

/** Put this device's rows of both back where they were gathered from.  Local. */
void whole_sequences_return(const struct whole_sequences *, struct tensor experts, struct tensor weights);
void whole_sequences_close(struct whole_sequences *);

/** Enter what gathering the choices of this device's `rows` rows sends, and their weights. */
void whole_sequences_cost(struct forecast *, const struct context_parallel *, int64_t rows, bool weights);

#endif
