/* shards.h -- which device keeps which part of weights, gradients and optimizer state: three numbers, w | g | o.
 *
 * Of P devices along dp, w adjacent ones share one copy of the weights, g adjacent ones one of the gradients, o
 * adjacent ones one of the optimizer's state.  Each number divides the next, and o divides P.  All schemes of this
 * folder are choices of these numbers:
 *
 *     w g o     ddp 1 1 1    zero1, zero1-overlap 1 1 P    zero2 1 P P    zero3, fsdp, fsdp-once P P P
 *               hsdp, mics N N N    hpz N P P
 *
 * A device's rank along dp is then a number with four digits, of which the first varies fastest:
 *
 *     digit        size    devices that differ only in this digit
 *     BY_WEIGHTS   w       gather weights from each other before use;  reduce-scatter gradients, first step
 *     BY_GRADIENTS g/w     reduce-scatter gradients, second step;      gather new weights, second step
 *     BY_OPTIMIZER o/g     reduce-scatter gradients, last step;        gather new weights, first step
 *     BY_COPIES    P/o     all-reduce gradients: they keep the same parts of everything
 *
 * A unit of n elements, padded to a multiple of o, is cut by the first digit into w equal parts, each of them by the
 * second digit, and so on.  So the elements that a device steps are among those whose gradients it keeps, and these are
 * among those whose weights it keeps.
 *
 * Source   S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
 *          arXiv:1910.02054, for the three kinds of model state; a different number of devices for each kind: G. Wang
 *          et al., "ZeRO++", arXiv:2306.10209 (hpZ)
 * Called   Files of schemes/, model/, plan/, verify/ and other rooms call these functions.
 */
#ifndef ORRERY_SHARDS_H
#define ORRERY_SHARDS_H

#include "emulated_devices/device/interval.h"
#include "ref/error.h"

enum shard_level { BY_WEIGHTS, BY_GRADIENTS, BY_OPTIMIZER, BY_COPIES, SHARD_LEVELS };

struct shards {
    int P, rank;                        /* number of devices along dp; index of this one */
    int weights, gradients, optimizer;  /* w | g | o */
    bool apart;                         /* the P/o groups are replicas that train apart (outer.c): no copies */
    bool late;                          /* new weights are gathered in the next step, before their first use (late.c):
                                         * between steps a device has only those that it steps */
    bool once;                          /* weights are gathered, and gradients reduced, once a step: those of all
                                         * microbatches are summed before */
};

/** Check that w | g | o | P.  @return OK, or ERR_PLAN naming the number that does not divide. */
enum error_code shards_check(const struct shards *, struct error *);

/** Size and stride of a digit of the rank, and its value for this device. */
int shards_size(const struct shards *, enum shard_level);
int shards_stride(const struct shards *, enum shard_level);
int shards_digit(const struct shards *, enum shard_level);

/** The number of replicas that train apart, and the replica of a device along dp; 1 and 0 if none do. */
int shards_replicas(const struct shards *);
int shards_replica_of(const struct shards *, int rank);

/** The devices along dp that work on the sequences of a replica; all devices if none train apart. */
struct interval shards_members(const struct shards *, int replica);

/** n rounded up so that it can be cut without a remainder. */
int64_t shards_pad(const struct shards *, int64_t n);

/** This device's part of a unit of `padded` elements after cutting by all digits up to this one: after BY_WEIGHTS the
 *  weights that it keeps, after BY_GRADIENTS the gradients, after BY_OPTIMIZER what it steps. */
struct interval shards_range(const struct shards *, enum shard_level, int64_t padded);

/* ---- memory: the formulas for the arena, as in the papers' tables ------------------------------------------------ */

/* Bytes per element.  Mixed precision with Adam as in arXiv:1910.02054: 2, 2 and 12 (fp32 copy and two moments). */
struct state_bytes { uint64_t weight, gradient, optimizer; };

/* Bytes of one device by kind; the optimizer's contain master weights. */
struct model_state { uint64_t weights, gradients, optimizer; };

/** Bytes of a unit that a device keeps from step to step, without gathered copies. */
struct model_state shards_state(const struct shards *, int64_t elements, struct state_bytes);

#endif
