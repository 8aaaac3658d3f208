/* attention, loongtrain: 2D-Attention: as usp, with rings in rings, so that few messages leave a node.
 *
 * Source   D. Gu et al., "LoongTrain: efficient training of long-sequence LLMs with head-context parallelism",
 *          arXiv:2406.18485; InternLM/InternEvo, zigzag_ring_flash_attn_with_sliding_window.py
 * Group    P devices, h x C, as usp; --ring-window w: the ring of C is C/w windows of w neighbours, double_ring.c
 * Layout   as usp.  Head-first: neighbours exchange tokens for heads.  --context-first: neighbours are on one ring
 * Sends    as usp, over other links: between windows C/w - 1 messages of each device instead of C - 1 of one in w; and
 *          2 n K A C/w gradients more, because those of a window come home before they go to the next
 * Memory   as usp; with windows two blocks of keys and values more
 * Equals   reassociates, in another order than usp with windows; with one window, or windows of 1, the bits of usp
 * Differs  from the released code: gradients of keys and values, and of queries, are in the wide format until all
 *          windows are done; there they are rounded after each window
 *
 * Called by: model/run/run_attention.c, through two_dimensional.c, which has all functions and reports the errors.
 */
#include "emulated_devices/schemes/attention/heads/two_dimensional.h"

const struct attention_scheme attention_scheme_loongtrain = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "loongtrain",
              .description = "as usp; a ring of C is C/w windows of w, and few messages leave a window",
              .source = "LoongTrain, arXiv:2406.18485",
              .volume = "as usp; with windows 2 n K A C/w elements more backward",
              .memory = "as usp; with windows 2 blocks more", .needs = "h <= H on each device of tp, P <= S" },
    .splits = true, .windows = true, TWO_DIMENSIONAL_SCHEME,
};
