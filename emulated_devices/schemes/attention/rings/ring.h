/* ring.h -- ring attention: what its schemes share; they differ in how they cut a sequence.
 *
 * ring.c defines the first five functions; ring_zigzag.c defines the cut, which also allgather-kv, tokenring and
 * double_ring.c use.  model/run/run_attention.c reaches them by the schemes.  The passes report ERR_MEMORY without
 * room for blocks, and ERR_COMM of a failed message.
 */
#ifndef ORRERY_ATTENTION_RING_H
#define ORRERY_ATTENTION_RING_H

#include "emulated_devices/schemes/attention/attention.h"

const char *ring_attention_refuses(const struct context_parallel *, const struct model_config *);
struct tensor ring_attention_kept(const struct context_parallel *, int slot, int64_t rows);
enum error_code ring_attention_forward(struct attention_call *, struct error *);
enum error_code ring_attention_backward_input(struct attention_call *, struct error *);
void ring_attention_cost(struct forecast *, const struct context_parallel *, enum tensor_pass, int64_t rows);

/* rsa.c with exact sums: rsa_exact.c. */
enum error_code rsa_exact_forward(struct attention_call *, struct error *);
enum error_code rsa_exact_backward_input(struct attention_call *, struct error *);

void ring_zigzag_cut(struct intervals *, const struct context_parallel *, int member);

/* Schemes that two_dimensional.c runs inside its exchange; attention_double_ring is no scheme by itself. */
extern const struct attention_scheme attention_scheme_whole, attention_scheme_ring_zigzag, attention_double_ring;

#define RING_SCHEME                                                                                              \
    .exact = true, .refuses = ring_attention_refuses, .slots = 1, .kept = ring_attention_kept,                   \
    .reads_input = true, .reads_output = true, .forward = ring_attention_forward,                                \
    .backward_input = ring_attention_backward_input, .cost = ring_attention_cost
#define RING_HEAD                                                                                                \
    .volume = "2 n K A (P-1) elements a layer forward, n = B S/P; backward as many and 2 n K A P for gradients", \
    .memory = "log-sum-exp: H numbers a token; on their way 2 blocks of keys and values", .needs = "P <= S"

#endif
