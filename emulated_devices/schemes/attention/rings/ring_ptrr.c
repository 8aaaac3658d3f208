/* attention, ring-ptrr: ring attention in which blocks of tokens are dealt to devices 0 to P-1, and back; the last
 * block, which has the most work, is the first that is dealt.
 *
 * Source   PyTorch's torch.distributed.tensor.experimental._context_parallel, _PTRRLoadBalancer.ptrr_scheduling:
 *          "processing-time based round-robin", there with blocks of 128 tokens and gathered keys
 * Called   schemes/registry.c lists the scheme; schemes/attention/attention.c calls its cut, which cannot fail.
 *          model/run/run_attention.c runs the passes, which are ring.c's.
 * Blocks   of 128 tokens, or fewer, so that a device has at least four if S allows; PyTorch's 2 P divides their number
 * Work     with a causal mask that number of blocks gives every device the same; four blocks a device are dealt twice
 *          there and back.  ring-zigzag is two blocks a device
 * All else as ring.c
 */
#include "emulated_devices/schemes/attention/rings/ring.h"

static void ring_ptrr_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    const int64_t P = cp->devices, most = cp->S / (4 * P), size = most > 128 ? 128 : most < 1 ? 1 : most;
    const int64_t blocks = (cp->S + size - 1) / size;
    for (int64_t block = 0; block < blocks; block++) {
        /* The last block is dealt first; every second round goes back. */
        const int64_t dealt = blocks - 1 - block, place = dealt % P, first = block * size;
        if ((dealt / P % 2 == 0 ? place : P - 1 - place) == member)
            intervals_add(tokens, (struct interval){ first, cp->S - first < size ? cp->S - first : size });
    }
}

const struct attention_scheme attention_scheme_ring_ptrr = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "ring-ptrr",
              .description = "as ring; blocks of 128 tokens or fewer are dealt to the devices, and back, so that all "
                             "have the same work",
              .source = "PyTorch's context parallelism, _PTRRLoadBalancer", RING_HEAD },
    .cut = ring_ptrr_cut, RING_SCHEME,
};
