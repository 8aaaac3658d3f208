/* positions.h -- who has which tokens of a sequence, for schemes whose devices compute attention in parts.
 *
 * pass.c opens the lists for every pass; model/whole_sequences.c uses the counts.  Positions are those of the causal
 * mask: places in a sequence, or in all samples of a planned microbatch.
 */
#ifndef ORRERY_ATTENTION_POSITIONS_H
#define ORRERY_ATTENTION_POSITIONS_H

#include "emulated_devices/schemes/attention/attention.h"

/* The positions of all members' tokens in attention, member after member. */
struct positions {
    const struct context_parallel *cp;          /* whose members the tokens are cut over */
    bool shared;                                /* `host` is the plan's, which is not changed */
    int32_t *host;                              /* [S] */
    struct tensor on_device;                    /* the same, I32 [S], in BUFFERS */
    int64_t start[MESH_MOST_LISTED + 1];       /* where each member's begin */
};

/**
 * List the positions of every member's tokens.
 * Local.
 * @return OK, or ERR_MEMORY with nothing to close.
 */
enum error_code positions_open(struct positions *, const struct context_parallel *, struct error *);
void positions_close(struct positions *);

/** The number of tokens of each sequence that a member has. */
int64_t positions_count(const struct positions *, int member);

/** A member's positions, I32 [positions_count], on the device. */
struct tensor positions_of(const struct positions *, int member);

/**
 * The pairs of a query of one member and a key of another that see each other, in B sequences.
 * @param attention  the mask, none is causal, and the window.
 */
double positions_pairs(const struct positions *, struct attention attention, int64_t B, int queries, int keys);

/** The number of tokens of a sequence that a member has, without a list. */
int64_t context_count(const struct context_parallel *, int member);

/** The number of whole sequences that `rows` rows of this device are parts of. */
int64_t context_sequences(const struct context_parallel *, int64_t rows);

#endif
