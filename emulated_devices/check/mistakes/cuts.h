/* cuts.h -- which sequences of a batch a data-parallel rank, or a microbatch, has: as ACTUAL's layout states it, else
 * by the usual rules.  Inside check/ only.
 *
 * loss.c, whose.c, sequences.c and model_copies.c ask for them.  Nothing can fail.
 */
#ifndef ORRERY_CUTS_H
#define ORRERY_CUTS_H

#include "emulated_devices/check/recompute/single.h"

enum { CUT_SEQUENCES = 64,              /* batches with more sequences have no cuts */
       CUTS_MOST = 20 };

struct batch_cut {
    const char *of;                     /* what a part is: "dp rank", "microbatch" */
    bool known;                         /* the layout or the mesh has so many parts; else it is a guess */
    int parts;                          /**< Number of parts that the batch is cut into. */
    int part[CUT_SEQUENCES];            /* of each sequence */
    int within;                         /* a coarser cut of the same list, whose parts have parts of this; -1: none */
};

struct batch_cuts { int B, count; struct batch_cut all[CUTS_MOST]; };

/**
 * List the cuts of a batch, the likeliest first: those that the layout states; where it states none, runs of sequences
 * and sequences in turn (rank r has r, r + n, ...), of as many parts as there are ranks; then of 2 to 8 parts.
 * @param part   [B S] as of struct single_source; NULL: nothing is stated.
 * @param owner  [parts] of each part.
 * @param dp     ranks that share out the batch.
 */
struct batch_cuts cuts_of(int64_t B, int64_t S, const int32_t *part, const struct single_owner *owner, int parts,
                          int dp);

/** Find the cut of the ranks that share out the batch; NULL: there is one rank, or it is not known. */
const struct batch_cut *cuts_of_ranks(const struct batch_cuts *);

/** Sequences of a part. */
int cut_size(const struct batch_cuts *, const struct batch_cut *, int part);

/** Sequence number i of a part, from the first again after its last. */
int cut_member(const struct batch_cuts *, const struct batch_cut *, int part, int i);

/** The sequence that is read in the place of another, if each part reads from where the part `by` further begins, on
 *  to its own length. */
int cut_turned(const struct batch_cuts *, const struct batch_cut *, int by, int sequence);

#endif
