/* attention, usp: Ulysses and a ring: tokens exchanged for heads among some devices, keys and values on rings of the
 * others.
 *
 * Source   J. Fang, S. Zhao, "USP: a unified sequence parallelism approach for long context generative AI",
 *          arXiv:2405.07719; feifeibear/long-context-attention (LongContextAttention with the zigzag ring)
 * Group    P devices, h x C: --head-parallel h, by default the largest divisor of P that the heads allow;
 *          two_dimensional.h
 * Layout   the C devices of a ring have two chunks of 2C each, as in ring-zigzag; the h devices at one place of their
 *          rings have the i-th of h nearly equal ranges of these tokens
 * Sends    all-to-alls as ulysses with h devices: n (2 H + 2 K) A (h-1)/h elements each way; messages as ring-zigzag
 *          with C devices, of 1/h of the heads of h n tokens: 2 n K A (C-1) forward; backward as many, and
 *          2 n K A C gradients; n = B S/P.  With h > K keys and values are copied: h for K
 * Memory   kept: as ulysses, of h n tokens; during a pass: as ring-zigzag
 * Equals   reassociates, as ring-zigzag; with h = P the bits of ulysses, with h = 1 those of ring-zigzag
 * Differs  from the released code: the exchange also cuts heads that h does not divide, and copies keys and values if
 *          there are fewer than h
 *
 * Called by: model/run/run_attention.c, through two_dimensional.c, which has all functions and reports the errors.
 */
#include "emulated_devices/schemes/attention/heads/two_dimensional.h"

const struct attention_scheme attention_scheme_usp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "usp",
              .description = "tokens exchanged for heads among h devices, keys and values on rings of C, P = h C",
              .source = "USP, arXiv:2405.07719",
              .volume = "as ulysses with h devices and ring-zigzag with C: n (2 H + 2 K) A (h-1)/h elements each way, "
                        "and 2 n K A (C-1) forward, 2 n K A (2 C - 1) backward",
              .memory = "as ulysses; on their way 2 blocks of keys and values",
              .needs = "h <= H on each device of tp, P <= S" },
    .splits = true, TWO_DIMENSIONAL_SCHEME,
};
