/* attention, ring-striped: ring attention in which device r has every Pth token, from token r on.
 *
 * Source   W. Brandon et al., "Striped attention: faster ring attention for causal transformers", arXiv:2311.09431
 * Called   schemes/registry.c lists the scheme; schemes/attention/attention.c calls its cut, which cannot fail.
 *          model/run/run_attention.c runs the passes, which are ring.c's.
 * Work     with a causal mask each device computes nearly the same at every step: of n tokens a device and step, pairs
 *          differ by n between devices before and after the diagonal.  Cut in a row they differ by n^2
 * All else as ring.c
 */
#include "emulated_devices/schemes/attention/rings/ring.h"

static void ring_striped_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    /* Every token is an interval of its own, since neighbours are on other devices. */
    for (int64_t token = member; token < cp->S; token += cp->devices)
        intervals_add(tokens, (struct interval){ token, 1 });
}

const struct attention_scheme attention_scheme_ring_striped = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "ring-striped",
              .description = "as ring; a device has every Pth token, so that each step has the same work everywhere",
              .source = "Striped attention, arXiv:2311.09431", RING_HEAD },
    .cut = ring_striped_cut, RING_SCHEME,
};
