/* planned_pass.h -- one pass of attention by a plan: what this device has of the plan's blocks, and its messages.  For
 * planned.c.
 *
 * Every function that sends or waits is collective over the cp group: all members call it with the same plan.  After a
 * failure ->e is set, and the functions that open do nothing.
 */
#ifndef ORRERY_ATTENTION_PLANNED_PASS_H
#define ORRERY_ATTENTION_PLANNED_PASS_H

#include "emulated_devices/schemes/attention/pass.h"
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include "emulated_devices/schemes/attention/planned/proxies.h"

/* This device's tensors of a block: of its own, or of one that was moved here.  tensor_none: nothing. */
struct here {
    struct tensor queries, keys;        /* [n, >= H A], [n, >= 2 K A]: first and last columns */
    struct tensor o, lse;               /* [n, H A] in the format of sums, [H, n] wide */
    struct tensor top, total;           /* with exact sums: [H, n] wide, [H, n] sums */
    bool begun;                         /* o and lse have a result */
    struct tensor d_out, delta;         /* [n, H A], [H, n] */
    struct tensor d_queries, d_keys;    /* [n, H A], [n, 2 K A], sums: this device's share, then the sum */
};

struct planned {
    struct cp_pass g;                   /* what every pass of attention has */
    const struct context_plan *plan;    /* of the microbatch */
    enum tensor_pass pass;              /* the running one */
    struct here *at;                    /* [planned_blocks] */
    struct tensor qkv, out;             /* those of the call, with the rows of attention */
    struct tensor o;                    /* the results of all own blocks, in the format of sums */
    struct tensor more[2];              /* one more result, or gradients that come, of the longest block */
    struct tensor *opened;              /* buffers */
    int buffers;                        /* entries of `opened`, closed together at the end */
    struct message *on_way;             /* [messages] sends and receives not waited for yet */
    int messages;                       /* begun since the last wait */
    struct tensor through;              /* parts of others' messages, which this device carries */
    uint64_t carried;                   /* bytes of it, at the running stage */
    struct tensor *came;                /* with proxies: gradients of own blocks from other devices, as they come */
    int comes, next;                    /* entries of `came`; the first that is not used yet */
    enum proxy_stage stage;             /* of messages between nodes, which proxies carry */
    enum error_code e;                  /* the first failure */
    struct error *err;                  /* the caller's */
};

/* The tokens of a block; whether this device is its home; numbers of a token's queries. */
static inline int64_t planned_tokens(const struct planned *planned, int block)
{
    return context_block_tokens(&planned->plan->block[block]);
}

static inline bool planned_owns(const struct planned *planned, int block)
{
    return planned->plan->block[block].home == planned->g.cp->rank;
}

/* Return what this device has of a block of its list. */
static inline struct here *planned_at(const struct planned *planned, int block)
{
    return &planned->at[context_index_here(planned->plan->index, planned->g.cp->rank, block)];
}

/* The blocks of this device's list, ascending: how many, and number i of them, of which ->at[i] has the tensors. */
static inline int planned_blocks(const struct planned *planned)
{
    return (int)context_list_count(&planned->plan->index->here, planned->g.cp->rank);
}

static inline int planned_block(const struct planned *planned, int i)
{
    return context_list_of(&planned->plan->index->here, planned->g.cp->rank)[i];
}

/* This device's own blocks: they follow one another. */
static inline struct interval planned_own(const struct planned *planned)
{
    const int *const first = planned->plan->index->first_block + planned->g.cp->rank;
    return (struct interval){ first[0], first[1] - first[0] };
}

static inline int64_t planned_width(const struct planned *planned) { return planned->g.shape.H * planned->g.shape.A; }

/** Open a pass: bring queries, keys and values into attention's rows, and open buffers for what is moved.
 *  @return OK, with the first failure in ->e, or cp_begin's error, with nothing to end. */
enum error_code planned_begin(struct planned *, struct attention_call *, enum tensor_pass, struct error *);

/** @return ->e, the first failure. */
enum error_code planned_end(struct planned *);

/** A buffer until the end; tensor_none after a failure. */
struct tensor planned_buffer(struct planned *, enum dtype, int64_t rows, int64_t cols);

/** Buffers for one more of the longest block: ->more. */
void planned_open_more(struct planned *, enum dtype, int64_t width0, int64_t width1);

/** Own blocks: rows of a tensor with attention's rows, the log-sum-exp [H, n]; positions of any block. */
struct tensor planned_rows(const struct planned *, struct tensor, int block);
struct tensor planned_lse(const struct planned *, int block);
struct tensor planned_positions(const struct planned *, int block);

/** Queries are the first columns of a tensor, in both formats. */
void planned_copy_queries(struct planned *, struct tensor to, struct tensor from);

/** Call f for every block and device that has worked with it and is not its home, if this device sends, receives or
 *  carries what it returns; in one order on all devices. */
void planned_each_guest(struct planned *, enum context_data,
                        void (*f)(struct planned *, enum context_data, int block, int device));

/** Send a tensor, or this device's parts of a message at one stage: t has memory on the devices it is from and to.
 *  Wait for all that was sent and is received so. */
void planned_send(struct planned *, int to, struct tensor t);
void planned_carry(struct planned *, int from, int to, struct tensor t, enum proxy_stage);
void planned_wait(struct planned *);

/** Run the divisions.  attend: one work of this device.  Collective over the cp group. */
void planned_divisions(struct planned *, bool backward,
                       void (*attend)(struct planned *, const struct context_work *));

/** A tensor of the call, or a buffer like it with attention's rows, filled; and the way back.  Collective. */
struct tensor planned_inside(struct planned *, struct tensor outside, bool fill);
void planned_remap(struct planned *, struct tensor inside, struct tensor outside, bool back);

#endif
