/* packing.h -- samples of different lengths in sequences of one length: best-fit decreasing.
 *
 * The samples are taken from the longest to the shortest.  Each goes into the sequence in which the fewest tokens stay
 * free, or into a new one (D. S. Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
 * algorithms", SIAM J. Comput. 3(4), 1974: at most 11/9 of the fewest possible sequences, and 4 more).
 *
 * samples.c packs samples with these functions; struct text keeps the result.
 */
#ifndef ORRERY_PACKING_H
#define ORRERY_PACKING_H

#include "ref/error.h"
#include <stdint.h>

struct packing {
    int64_t S;                          /* tokens of a sequence */
    int64_t samples, sequences;         /* samples that were packed; sequences that hold them */
    int64_t tokens;                     /* of all samples; sequences * S - tokens are padding */
    double pairs;                       /* of tokens that see each other: n (n + 1) / 2 of a sample of n */
    int64_t *length;                    /* [samples] */
    int64_t *start;                     /* [samples] sum of the lengths before */
    int64_t *order;                     /* [samples] sequence by sequence */
    int64_t *first;                     /* [sequences + 1] where each sequence's samples begin in `order` */
    int64_t *patches;                   /* [samples, MODALITIES] of each sample's clips (ref/model/modality.h); 0: there
                                         * is none.  NULL: nothing is said of clips */
};

/**
 * Pack samples.
 * Pure.
 * @param length  [samples], each at least 1.
 * @return OK; ERR_USAGE naming a sample that is longer than S or shorter than 1; ERR_MEMORY.  After an error the
 *     packing is empty.
 */
enum error_code packing_make(struct packing *, const int64_t *length, int64_t samples, int64_t S, struct error *);
void packing_free(struct packing *);

#endif
