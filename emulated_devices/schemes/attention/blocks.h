/* blocks.h -- attention with one block of keys and values after another: results that are merged, gradients that are
 * added up.  What schemes in which blocks travel share; they differ in the way.
 *
 * Callers: allgather_kv.c, rings/ring.c, rings/double_ring.c and rings/tokenring.c.  The functions are local; the
 * caller moves the blocks between devices.  Both open functions report ERR_MEMORY, after which close is still due.
 */
#ifndef ORRERY_ATTENTION_BLOCKS_H
#define ORRERY_ATTENTION_BLOCKS_H

#include "emulated_devices/schemes/attention/pass.h"

/* The result so far, and that of one more block.  With exact sums there is one, to which each block adds: o [n, H A]
 * and total [B H, n], for the top [B H, n] over the keys of all blocks. */
struct block_results { struct tensor o[2], lse[2], total, top; };

/** Buffers for results.  Local.  @return OK, or ERR_MEMORY; either way block_results_close. */
enum error_code block_results_open(struct cp_pass *, struct block_results *, struct error *);

/** With exact sums, before block_attend: find the tops of all queries, while keys travel around a ring of all members.
 *  Else nothing is sent.  Collective.  @return OK, or ERR_MEMORY before anything is sent. */
enum error_code block_find_tops(struct cp_pass *, struct block_results *, struct error *);

/** Raise the tops to those of one member's keys, which are columns from `first` on; the device's own come first.  For
 *  schemes whose devices have all keys.  `results` is a struct block_results. */
void block_raise_tops(struct cp_pass *, void *results, struct tensor keys, int64_t first, int owner);

/** Round the result to the call's output. */
void block_results_finish(struct cp_pass *, struct block_results *);
void block_results_close(struct cp_pass *, struct block_results *);

/** Attention with the keys and values of a member, which are in the last columns of keys; the device's own first.  A
 *  block of which no query sees a key adds nothing. */
void block_attend(struct cp_pass *, struct block_results *, struct tensor keys, int owner);

struct block_gradients {
    struct tensor delta;                /* [B H, n] */
    struct tensor all;                  /* [rows, (H+2K) A] sums: queries' add up in the first columns */
};

/** Buffers for gradients, set to zero, and delta.  Local.  @return OK, or ERR_MEMORY; either way
 *  block_gradients_close. */
enum error_code block_gradients_open(struct cp_pass *, struct block_gradients *, struct error *);

/** Round all gradients to the call's. */
void block_gradients_finish(struct cp_pass *, struct block_gradients *);
void block_gradients_close(struct cp_pass *, struct block_gradients *);

/** Add this device's share of the gradients of a member's keys and values to the last columns of d_keys, and of its own
 *  queries to those of all. */
void block_add_share(struct cp_pass *, const struct block_gradients *, struct tensor d_keys, struct tensor keys,
                     int owner);

#endif
