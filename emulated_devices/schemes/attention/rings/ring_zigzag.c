/* attention, ring-zigzag: ring attention in which device r has chunks r and 2P-1-r of 2P.
 *
 * Source   the balanced cut of Z. Zhu's ring-flash-attention (zigzag_ring_flash_attn) and of Llama 3, arXiv:2407.21783,
 *          section 3.3.2
 * Called   schemes/registry.c lists the scheme; schemes/attention/attention.c calls its cut, which cannot fail.
 *          model/run/run_attention.c runs the passes, which are ring.c's.
 * Work     with a causal mask and chunks of equal length, every device computes exactly the same: chunk c sees c chunks
 *          in whole and half of itself, and r + (2P-1-r) = 2P-1 for each r
 * All else as ring.c
 */
#include "emulated_devices/schemes/attention/rings/ring.h"

void ring_zigzag_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    /* The early chunk comes first, so a member's positions ascend. */
    const int chunks = 2 * cp->devices;
    intervals_add(tokens, block_at(cp->S, chunks, member));
    intervals_add(tokens, block_at(cp->S, chunks, chunks - 1 - member));
}

const struct attention_scheme attention_scheme_ring_zigzag = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "ring-zigzag",
              .description = "as ring; a device has an early and a late chunk, so that all have the same work",
              .source = "ring-flash-attention; Llama 3, arXiv:2407.21783", RING_HEAD },
    .cut = ring_zigzag_cut, RING_SCHEME,
};
