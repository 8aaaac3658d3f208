/* layer_memory.h -- what one layer keeps between forward and backward, term by term, beside the published formula.
 *
 * Source  V. Korthikanti et al., "Reducing activation recomputation in large transformer models", arXiv:2205.05198,
 *         section 4: 16 bits, dropout, F = 4 D, one byte per element of a mask.  Bytes, for s b tokens of width h, a
 *         heads, t devices:
 *           no parallelism             s b h (34 + 5 a s/h)
 *           tensor parallelism         s b h (10 + 24/t + 5 a s/(h t))
 *           and sequence parallelism   s b h (34/t + 5 a s/(h t))
 *           selective recomputation    without the 5 a s/h
 *           full recomputation         2 s b h
 * Called  bench/claims/memory.c and cli/bench/schemes/tensor_tables.c call these functions.
 */
#ifndef ORRERY_LAYER_MEMORY_H
#define ORRERY_LAYER_MEMORY_H

#include "emulated_devices/model/link/link.h"

struct layer_memory_term {
    const char *what;                   /* the tensor, in the paper's words */
    double paper;                       /* bytes by the paper, which assumes 16-bit numbers */
    uint64_t kept;                      /* bytes in this device's arena */
    const char *why;                    /* the reason why the two differ, or NULL */
};
enum { LAYER_MEMORY_TERMS = 9 };

/** The terms of the first layer, for N tokens, under --tensor 1d or 1d-sp.  Pure.  @return OK, or as link_layer. */
enum error_code layer_memory(const struct tensor_parallel *, int64_t N, const char *recompute,
                             struct layer_memory_term out[LAYER_MEMORY_TERMS], struct error *);

#endif
