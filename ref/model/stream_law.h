/* stream_law.h -- what is published of parallel streams: parameters, losses, and the law that fits them.
 *
 * A model with P streams runs P times on one input, each time with other learned keys and values before the first
 * token, and adds up the results with learned weights (ParScale).
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475.  Losses, numbers of parameters
 *         and how the law is fitted are those of its released code: QwenLM/ParScale, parametric_fit.py.
 * Called  cli/bench/streams.c calls these functions.  No function returns an error code.
 */
#ifndef ORRERY_STREAM_LAW_H
#define ORRERY_STREAM_LAW_H

#include <stdint.h>

enum { STREAM_SIZES = 6, STREAM_COUNTS = 4, STREAM_RUNS = STREAM_SIZES * STREAM_COUNTS, STREAM_CORPORA = 2 };

/* All published models have these numbers. */
enum { STREAM_LAYERS = 36, STREAM_PREFIX = 48, STREAM_KEY_SHARE = 8 };      /* keys are D / STREAM_KEY_SHARE wide */

extern const int stream_counts[STREAM_COUNTS];          /* P of the published runs; the first is 1 */
extern const int64_t stream_widths[STREAM_SIZES];       /* D, found from the numbers of parameters */
extern const int64_t stream_parameters[STREAM_COUNTS][STREAM_SIZES];        /* without embeddings */

/* The final losses on one corpus. */
struct stream_losses {
    const char *corpus;                 /* "Stack-V2 (Python)" or "Pile" */
    double loss[STREAM_COUNTS][STREAM_SIZES];   /* final loss, by number of streams and size of the model */
};
extern const struct stream_losses stream_losses[STREAM_CORPORA];

/**
 * Parameters that P streams add to a model of width D: two layers that weigh the streams, P D -> D -> P with biases,
 * and the prefixes.  Local; no errors.
 * @param L  layers.  @param prefix  tokens of a prefix.  @param keys  width of all keys of a token.
 * @return 0 if P is 1: one stream has neither.
 */
int64_t stream_extra_parameters(int64_t P, int64_t D, int64_t L, int64_t prefix, int64_t keys);

/* loss = E + (A 10^9 / (N (k ln P + 1)))^alpha, N parameters. */
struct stream_law { double E, A, alpha, k; };

/** The loss by the law.  Local; no errors. */
double stream_law_loss(const struct stream_law *, double N, double P);

/** The misfit that a fit minimizes: the sum of Huber losses, delta 0.001, of the differences of logarithms.  Local;
 *  no errors. */
double stream_law_misfit(const struct stream_law *, const struct stream_losses *);

/** The part of the losses' variance that the law explains, R^2.  Local; no errors. */
double stream_law_explained(const struct stream_law *, const struct stream_losses *);

/** The law with the least misfit to these losses.  Local; no errors; takes milliseconds. */
struct stream_law stream_law_fit(const struct stream_losses *);

#endif
