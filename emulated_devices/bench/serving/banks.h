/* banks.h -- a matrix times a vector inside memory, as PIM-GPT maps it: which rows of DRAM open, and how often.
 *
 * Output rows of W [N, K] go round the channels and banks in turn.  A bank reads its outputs one after another, in
 * bursts of 32 bytes from an open row of 2 KB; a burst in another row closes this one and opens that.
 *
 *   packed   a bank's outputs follow each other without a gap
 *   padded   each begins a row
 *   naive    as the host has the transposed matrix: a bank's outputs lie side by side, number k of all before number
 *            k + 1 of any, so each output passes through all rows
 *
 * Source  Y. Wu et al., "PIM-GPT: a hybrid process-in-memory accelerator for autoregressive transformers",
 *         arXiv:2310.09385, of 8 channels with 16 banks each, fp16.
 *
 * banks_claims.c and tests call these functions.  The code is pure: it counts, and no speed is claimed.
 */
#ifndef ORRERY_BANKS_H
#define ORRERY_BANKS_H

#include <stdint.h>

enum { BANKS_CHANNELS = 8, BANKS_OF_CHANNEL = 16, BANKS = BANKS_CHANNELS * BANKS_OF_CHANNEL, BANKS_ROW = 2048,
       BANKS_BURST = 32, BANKS_NUMBER = 2 };

enum banks_mapping { BANKS_PACKED, BANKS_PADDED, BANKS_NAIVE };

struct banks_counts {
    int64_t activations;                /* rows that a bank has opened: the most of all banks */
    int64_t bursts;                     /* that this bank has read */
    int64_t all_activations, all_bursts;        /* of all banks */
    int64_t products;                   /* multiplications and additions of all banks */
    int64_t channel_bytes;              /* of the vector to each channel, and of the outputs back */
};

/** Read all bursts of y = W x, and count. */
struct banks_counts banks_multiply(int64_t N, int64_t K, enum banks_mapping);

/** Rows that a bank opens, by the formula; naive: of at most 1024 outputs, which a row holds side by side. */
int64_t banks_formula(int64_t N, int64_t K, enum banks_mapping);

/** Bursts that found their row open, of all. */
double banks_hit_rate(const struct banks_counts *);

#endif
