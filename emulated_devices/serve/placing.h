/* placing.h -- which replica answers which request, where replicas share experts: the replica whose devices have most
 * of the experts that the tokens of the request probably need.
 *
 * Source   Semantic parallelism (Sem-MoE), arXiv:2503.04398: with data-parallel attention whole requests are sent to
 *          the device with the largest sum of affinities
 * Called   cli/train/serve.c; tests/devices/.  Pure functions.
 */
#ifndef ORRERY_PLACING_H
#define ORRERY_PLACING_H

#include "emulated_devices/serve/requests.h"

struct plan;

/* Longest requests.  With 1, 4 and 16 of them the bench's requests of 62 % send 35, 42 and 46 % fewer rows. */
enum { PLACING_SLACK = 4 };

/** The tokens of a prompt whose predicted part of the experts is on a replica's devices. */
int64_t placing_score(const struct plan *, const struct token_ids *prompt, int replica);

/**
 * Place requests in the order of their arrival, by what is known when each arrives.  A replica may take a request if
 * it has got no more tokens than the replica with the fewest, plus PLACING_SLACK times those of the longest request so
 * far.  Of these that with the largest score takes it, then that with the fewest tokens, then the first.  So no replica
 * ever has more than PLACING_SLACK + 1 of the longest requests above another.
 * @param plan          with a table (plan.affinity).
 * @param[out] replica  [requests].
 * @return OK or ERR_MEMORY.
 */
enum error_code placing_of_requests(const struct plan *plan, const struct requests *, int32_t *replica, struct error *);

#endif
