/* two_dimensional.h -- attention in two dimensions: an exchange of tokens for heads, and a ring inside it.
 *
 * P devices along cp are h x C (attention.h, struct context_split).  The h devices at one place of their rings exchange
 * tokens for heads, so that each has all tokens of that place, of its heads; the C devices with the same heads are a
 * ring.  h = P is ulysses, h = 1 ring-zigzag.
 *
 *          P = 8, h = 2        head-first                      context-first
 *          ring of heads 0     devices 0 2 4 6                 devices 0 1 2 3
 *          ring of heads 1     devices 1 3 5 7                 devices 4 5 6 7
 *          exchange            0-1  2-3  4-5  6-7              0-4  1-5  2-6  3-7
 *
 * ulysses.c, usp.c and loongtrain.c are made of these functions.  Passes report ERR_MEMORY or ERR_COMM; open reports
 * ERR_MEMORY, and the caller closes the groups.
 */
#ifndef ORRERY_ATTENTION_TWO_DIMENSIONAL_H
#define ORRERY_ATTENTION_TWO_DIMENSIONAL_H

#include "emulated_devices/schemes/attention/attention.h"

const char *two_dimensional_refuses(const struct context_parallel *, const struct model_config *);
void two_dimensional_cut(struct intervals *, const struct context_parallel *, int member);
enum error_code two_dimensional_open(struct context_parallel *, struct error *);
struct tensor two_dimensional_kept(const struct context_parallel *, int slot, int64_t rows);
enum error_code two_dimensional_forward(struct attention_call *, struct error *);
enum error_code two_dimensional_backward_input(struct attention_call *, struct error *);
enum error_code two_dimensional_exchange(struct attention_call *, struct error *);
void two_dimensional_cost(struct forecast *, const struct context_parallel *, enum tensor_pass, int64_t rows);

#define TWO_DIMENSIONAL_SCHEME                                                                                      \
    .exact = true, .refuses = two_dimensional_refuses, .cut = two_dimensional_cut, .open = two_dimensional_open,    \
    .slots = 3, .exchanged = 2, .kept = two_dimensional_kept, .forward = two_dimensional_forward,                   \
    .backward_input = two_dimensional_backward_input, .exchange = two_dimensional_exchange,                         \
    .cost = two_dimensional_cost

#endif
