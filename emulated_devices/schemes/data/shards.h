/* shards.h -- which device keeps which part of weights, gradients and optimizer state: three numbers, w | g | o.
 *
 * Of P devices along dp, w neighbours share one copy of the weights, g neighbours one of the gradients, o neighbours
 * one of the optimizer's state.  Each number divides the next, and o divides P.  All schemes of this folder are choices
 * of them:
 *
 *     w g o     ddp 1 1 1    zero1 1 1 P    zero2 1 P P    zero3 P P P    hsdp, mics N N N    hpz N P P
 *
 * A device's rank along dp is then a number with four digits, the first the fastest:
 *
 *     digit        size    devices that differ in it alone
 *     BY_WEIGHTS   w       gather weights from each other before use;  reduce-scatter gradients, first step
 *     BY_GRADIENTS g/w     reduce-scatter gradients, second step;      gather new weights, second step
 *     BY_OPTIMIZER o/g     reduce-scatter gradients, last step;        gather new weights, first step
 *     BY_COPIES    P/o     all-reduce gradients: they keep the same of everything
 *
 * A unit of n elements, padded to a multiple of o, is cut by the first digit into w equal parts, each of them by the
 * second digit, and so on: what a device steps lies inside what it keeps the gradient of, and that inside the weights
 * it keeps.
 *
 * Source   S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
 *          arXiv:1910.02054, for the three kinds of model state; that each may be shared among a different number of
 *          devices: G. Wang et al., "ZeRO++", arXiv:2306.10209 (hpZ)
 */
#ifndef ORRERY_SHARDS_H
#define ORRERY_SHARDS_H

#include "emulated_devices/device/interval.h"
#include "ref/error.h"

enum shard_level { BY_WEIGHTS, BY_GRADIENTS, BY_OPTIMIZER, BY_COPIES, SHARD_LEVELS };

struct shards {
    int P, rank;                        /* devices along dp; which of them */
    int weights, gradients, optimizer;  /* w | g | o */
    bool apart;                     /* the P/o groups are replicas that train apart (outer.c), and keep other numbers */
};

/** Whether w | g | o | P.  @return OK, or ERR_PLAN naming the number that does not divide. */
enum error_code shards_check(const struct shards *, struct error *);

/** Size and stride of a digit of the rank, and its value for this device. */
int shards_size(const struct shards *, enum shard_level);
int shards_stride(const struct shards *, enum shard_level);
int shards_digit(const struct shards *, enum shard_level);

/** How many replicas train apart, and which one a device along dp is part of; 1 and 0 where none do. */
int shards_replicas(const struct shards *);
int shards_replica_of(const struct shards *, int rank);

/** Devices along dp that work on the sequences of a replica: all of them where none train apart. */
struct interval shards_members(const struct shards *, int replica);

/** n rounded up so that it is cut without a remainder. */
int64_t shards_pad(const struct shards *, int64_t n);

/** This device's part of a unit of `padded` elements that has been cut by all digits up to this one: after BY_WEIGHTS
 *  the weights it keeps, after BY_GRADIENTS the gradients, after BY_OPTIMIZER what it steps. */
struct interval shards_range(const struct shards *, enum shard_level, int64_t padded);

/* ---- memory: what the arena is held to, and what papers have tables of ------------------------------------------- */

/* Bytes that one element takes.  Mixed precision with Adam as in arXiv:1910.02054:
 * 2, 2 and 12 (fp32 copy and two moments). */
struct state_bytes { uint64_t weight, gradient, optimizer; };

struct model_state { uint64_t weights, gradients, optimizer; };

/** Bytes that a device keeps of a unit from step to step, gathered copies not among them. */
struct model_state shards_state(const struct shards *, int64_t elements, struct state_bytes);

#endif
