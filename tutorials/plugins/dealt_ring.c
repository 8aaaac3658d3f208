/* attention, dealt-ring: ring attention in which tokens are dealt like cards, two at a time.
 *
 * Source   a cut between those of `ring` (one run of tokens a device) and `ring-striped` (every Pth token)
 * Work     with a causal mask, nearly the same for each device at every step
 * All else as ring: a scheme that only cuts the sequence otherwise fills `cut`.
 *
 * A template for plug-ins (docs/plugins.md):
 *     orrery show attention dealt-ring --devices 3 --plugin dealt_ring.c
 *     orrery train --plugin dealt_ring.c --cp 4 --attention dealt-ring --check ref
 */
#include "emulated_devices/schemes/attention/ring.h"
#include "emulated_devices/schemes/plugin.h"

static void cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    for (int64_t first = 2 * member; first < cp->S; first += 2 * cp->devices)
        intervals_add(tokens, (struct interval){ first, cp->S - first < 2 ? 1 : 2 });
}

static const char *refuses(const struct context_parallel *cp, const struct model_config *c)
{
    return cp->S > 2 * (cp->devices - 1) ? ring_attention_refuses(cp, c) : "more than 2 (P-1) tokens";
}

static const struct attention_scheme attention_scheme_dealt_ring = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "dealt-ring",
              .description = "as ring; tokens are dealt like cards, two at a time", .source = "docs/plugins.md",
              RING_HEAD },
    .refuses = refuses, .cut = cut, .slots = 1, .kept = ring_attention_kept, .reads_input = true, .reads_output = true,
    .forward = ring_attention_forward, .backward_input = ring_attention_backward_input, .cost = ring_attention_cost,
};

PLUGIN(PLUGIN_SCHEME(attention_scheme_dealt_ring));
