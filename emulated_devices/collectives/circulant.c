/* circulant.c -- computes the distances of a circulant graph: how far messages go in each step.  The all-gather,
 * reduce-scatter and broadcast named circulant call this file; no function here can fail.
 * collectives/allgather/circulant.c, collectives/broadcast/circulant.c and collectives/reduce_scatter/circulant.c
 * call circulant_skips(). */
#include "emulated_devices/collectives/algorithm.h"

struct skips circulant_skips(int P)
{
    struct skips s = { .rounds = ceil_log2(P) };
    s.skip[s.rounds] = P;
    for (int k = s.rounds - 1; k >= 0; k--) s.skip[k] = (s.skip[k + 1] + 1) / 2;
    return s;
}
