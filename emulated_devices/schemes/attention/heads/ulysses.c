/* attention, ulysses: an exchange of tokens for heads gives each device whole sequences of some heads.
 *
 * Source   S. A. Jacobs et al., "DeepSpeed Ulysses: system optimizations for enabling training of extreme long sequence
 *          Transformer models", arXiv:2309.14509
 * Group    P devices, each with the r-th of P nearly equal ranges of every sequence's S tokens; P need not divide S
 *          or the heads
 * Layout   before and after: n tokens of all H heads; between: all S tokens of h of H query heads and of the k
 *          key/value heads that they use.  With more devices than key/value heads, several devices have a copy of a
 *          head, and its gradients are summed
 * Sends    forward   all-to-all of queries, keys, values; all-to-all of the output
 *          backward  the same for their gradients
 *          n (H + 2 K) A (P-1)/P and n H A (P-1)/P elements each, if all numbers divide; copied keys and values are
 *          extra
 * Memory   kept: queries, keys, values and output of this device's heads for all S tokens, and the log-sum-exp; during
 *          a pass: packed data to send and received data, of one exchange at a time
 * Equals   permutes: each head is computed on one device, as in the one-device run.  Gradients of copied keys and
 *          values reassociate, in the order of ranks
 *
 * Called by: model/run/run_attention.c, through two_dimensional.c, which has all functions and reports the errors.  The
 * plan gives this scheme h = P, so the ring has one device.
 */
#include "emulated_devices/schemes/attention/heads/two_dimensional.h"

const struct attention_scheme attention_scheme_ulysses = {
    .head = { .kind = ATTENTION_SCHEME, .equality = PERMUTES, .name = "ulysses",
              .description = "tokens exchanged for heads before attention, and back after it",
              .source = "DeepSpeed Ulysses, arXiv:2309.14509",
              .volume = "n (2 H + 2 K) A (P-1)/P elements a layer and microbatch, each way, n = B S/P",
              .memory = "queries, keys, values and output once more, in heads",
              .needs = "P <= H on each device of tp, P <= S" },
    TWO_DIMENSIONAL_SCHEME,
};
