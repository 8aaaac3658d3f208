/* data parallelism, half-states: gradients and optimizer state over two neighbours, whatever the number of devices.
 *
 * Source   ZeRO-2 (arXiv:1910.02054) in groups of two, as MiCS (arXiv:2205.00119) has ZeRO-3
 * Shares   1 | 2 | 2
 * Sends    a reduce-scatter and an all-gather in pairs, an all-reduce of the halves across pairs: all of it follows
 *          from the three numbers (schemes/data/shards.h), as do memory and its prediction.
 *
 * A template for plug-ins (docs/authors/plugins.md):
 *     orrery train --plugin half_states.c --dp 4 --data-parallel half-states --check ref
 */
#include "emulated_devices/schemes/plugin.h"

static const char *share(struct shards *s, const struct data_request *q)
{
    (void)q;
    if (s->P % 2 != 0) return s->P == 1 ? NULL : "P even";
    s->gradients = s->optimizer = 2;
    return NULL;
}

static const struct data_scheme data_scheme_half_states = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES, .name = "half-states",
              .description = "gradients and optimizer state in halves, over two neighbours",
              .source = "ZeRO-2 in groups of two", .volume = "n for each pair, n (P-2)/P between pairs",
              .memory = "weights n, gradients n/2, optimizer state k n/2", .needs = "P even" },
    .share = share,
};

PLUGIN(PLUGIN_SCHEME(data_scheme_half_states));
