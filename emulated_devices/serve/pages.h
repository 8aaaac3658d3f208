/* pages.h -- the keys and values of a device: the memory of the cache's blocks, and attention that reads them.
 *
 * Each layer of the device has memory for all blocks of the replica's cache, with the heads that this device has.  A
 * block is consecutive in memory; a sequence's blocks may be anywhere.  The kernels of this emulation read keys that
 * follow each other, so a sequence's blocks are copied side by side before attention; a GPU's kernel reads them where
 * they are, so the virtual clock has one attention kernel for a layer, without these copies.
 *
 * engine.c calls these functions.
 */
#ifndef ORRERY_PAGES_H
#define ORRERY_PAGES_H

#include "emulated_devices/device/tier.h"
#include "emulated_devices/model/answering.h"
#include "emulated_devices/model/stage.h"
#include "emulated_devices/serve/scheduler.h"

/* The cost of attention in an iteration: the same in all layers whose queries see equally far. */
struct attention_charge { bool known; int64_t window, H, K, A; struct op_cost cost; };

enum { CHARGES = 4 };                   /* kinds of layers in a model; more of them would be computed again */

struct pages {
    const struct stage *stage;          /* of the device */
    int64_t blocks, tokens, width;      /* blocks; tokens of each; numbers of a token in a layer: keys, then values */
    int64_t layers;                     /* as answering_attention counts them */
    struct tensor *kv;                  /* [layers] [blocks tokens, width]; without data where the device has none */
    const struct iteration *now;        /* whose rows attention is asked for */
    struct attention_charge charge[CHARGES];    /* of this iteration, as far as known */
    struct attention shape;             /* of the last layer that attention was asked for */
    int64_t charges;                    /* layers that it was asked for in this iteration */
    bool mixed;                         /* layers with different shapes have asked */
    struct group along;                 /* with cp: the devices that have the other rows of the same heads */
    int parts, part;                    /* rows are dealt to them in turn: row r to part r modulo parts */
    struct tier tier;                   /* of the host, for blocks of preempted sequences */
    struct tensor *home;                /* [layers] [host blocks tokens, width] on it; without data as kv */
};

/** Have memory for the blocks of a stage's layers.  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code pages_open(struct pages *, struct comm *, const struct stage *, const struct serving_limits *,
                           struct error *);
void pages_close(struct pages *);

/** From now on attention is asked for the rows of another iteration. */
void pages_begin(struct pages *, const struct iteration *);

/** Attention costs so many times as much in this iteration, after pages_begin. */
void pages_stretch(struct pages *, double times);

/** How long the attention of the iteration takes in each of the device's layers, in picoseconds; its room, in rows.
 *  @return false: layers differ, or the kernels are several. */
bool pages_time(struct pages *, picoseconds *kernel, int64_t *room);

/** Bytes of all blocks of a device: 2 x its layers x its key heads x width of a head x bytes of a number x tokens. */
uint64_t pages_bytes(const struct pages *);

/** Copy the iteration's blocks to the host and back, layer by layer; the device waits for them.  Local.
 *  @return OK. */
enum error_code pages_swap(struct pages *, const struct iteration *, struct error *);

/** The traffic with the host that copies of so many blocks are: an operation for each block of a layer. */
struct tier_traffic pages_swapped(const struct pages *, int64_t outs, int64_t ins);

/** Numbers of a layer's block: of its tokens, keys and values. */
static inline int64_t pages_block(const struct pages *pages) { return pages->tokens * pages->width; }

/** Copy blocks of a layer of the cache one behind the other.  Local.
 *  @param[out] list  [count blocks of numbers] */
void pages_gather(const struct pages *, int64_t layer, const int64_t *block, int64_t count, struct tensor list);
/** Copy such a list to blocks of the host.  Local.  @return OK. */
enum error_code pages_put_away(struct pages *, int64_t layer, const int64_t *away, int64_t count, struct tensor list,
                               struct error *);

/** Write the keys and values of the iteration's rows to their blocks, and attend.  For struct answering.  Local.
 *  @return OK or ERR_MEMORY. */
enum error_code pages_attend(struct pages *, const struct answering_attention *, struct error *);

#endif
