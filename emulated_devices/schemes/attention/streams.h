/* streams.h -- parallel streams of a model: which of them a device has, and their rows side by side.
 *
 * A device computes its streams one after the other: the rows of a microbatch are the tokens of its first stream, then
 * those of the second, ...  From the place where streams are weighed on, a row is a token, and devices along cp have
 * different tokens of all streams.
 *
 * model/run/run_streams.c calls streams_beside and streams_apart; plan/context.c and model/link/ ask for counts and
 * shapes.  Every device of the cp group has to call both exchanges, in the same order.
 */
#ifndef ORRERY_ATTENTION_STREAMS_H
#define ORRERY_ATTENTION_STREAMS_H

#include "emulated_devices/schemes/attention/attention.h"

/** The streams of a member. */
struct interval streams_of(const struct context_parallel *, int member);

/** Say which of T tokens of a microbatch a member has where streams are weighed. */
struct interval stream_tokens_of(const struct context_parallel *, int64_t T, int member);

/** Do the same of this device, as a number.  @param N  its rows of the microbatch: T for each of its streams. */
int64_t stream_tokens(const struct context_parallel *, int64_t N);

/** The shape of the keys and values, or their gradient, of this device's streams and heads: [streams T, 2 K A]. */
struct tensor prefix_shape(const struct context_parallel *, enum dtype);

/**
 * Place the streams of a token side by side: X[n, d P + i] = row n of stream i, column d.
 * Collective over the cp group, if it cuts streams: an all-to-all of rows.
 * @param H       [N,D]: this device's streams, all tokens.
 * @param[out] X  [stream_tokens,DP]: this device's tokens, all streams.
 * @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on.
 */
enum error_code streams_beside(const struct context_parallel *, struct tensor X, struct tensor H, struct error *);

/** The way back, for gradients: dH from dX.  Collective, and returns, as above. */
enum error_code streams_apart(const struct context_parallel *, struct tensor dH, struct tensor dX, struct error *);

/** Enter what one of both sends.  @param N  rows of this device.  beside: or apart. */
void streams_cost(struct forecast *, const struct context_parallel *, int64_t N, bool beside);

#endif
