/* pass.h -- one pass of one call of attention in parts: what schemes that compute with parts of a sequence share.
 *
 *     struct cp_pass p;
 *     enum error_code e = cp_begin(&p, call, FORWARD_PASS, err);
 *     if (e || p.B == 0) return e;                an empty microbatch: no messages
 *     ...                                         buffers, messages, operations on parts
 *     cp_end(&p);
 *
 * Input: an attention_call with qkv [n, (H+2K) A] of this device's tokens.  Output: positions, buffers and messages,
 * with which a scheme fills the call's out or d_qkv.  Callers: rings/, allgather_kv.c, blocks.c and planned/.  Without
 * memory cp_prepare, cp_begin and cp_open report ERR_MEMORY; a failed message ends the job (cp_arrive).
 */
#ifndef ORRERY_ATTENTION_PASS_H
#define ORRERY_ATTENTION_PASS_H

#include "emulated_devices/schemes/attention/positions.h"

struct cp_pass {
    struct attention_call *call;        /* arguments of the running pass */
    struct context_parallel *cp;        /* the call's */
    struct device *device;              /* the call's */
    struct attention shape;             /* the call's */
    struct exchange exchange;           /* for this pass's messages, if there is more than one device */
    struct positions at;                /* of all members' tokens, member after member */
    int64_t B;                          /* sequences */
    int64_t longest;                    /* rows of the largest share of a member */
    enum dtype own, wide;               /* formats of the device's numbers, and of statistics */
    enum dtype sums;                    /* of partial results and gradients: the wide one, or exact sums */
};

/**
 * Prepare a pass: list the positions.  Enough for a pass that sends by collectives, which enter their own cost.
 * Local.
 * @return OK, or ERR_MEMORY with nothing to end.
 */
enum error_code cp_prepare(struct cp_pass *, struct attention_call *, struct error *);

/**
 * Prepare a pass that sends messages: also begin an exchange, and enter what the scheme's cost says of this pass's
 * messages from one device to another.  Collectives enter theirs themselves.
 * Local.
 * @return OK, or ERR_MEMORY with nothing to end.
 */
enum error_code cp_begin(struct cp_pass *, struct attention_call *, enum tensor_pass, struct error *);
void cp_end(struct cp_pass *);

/**
 * n buffers of rows x cols numbers.
 * Local.
 * @return OK, or ERR_MEMORY; either way cp_close frees those that were opened (the rest: tensor_none).
 */
enum error_code cp_open(struct cp_pass *, struct tensor *tensor, int n, enum dtype, int64_t rows, int64_t cols,
                        struct error *);
void cp_close(struct cp_pass *, struct tensor *tensor, int n);

/** The first rows of a buffer: as many as a member's share has. */
struct tensor cp_rows(const struct cp_pass *, struct tensor buffer, int member);

/** A tensor of one number for each row and head of this device, such as the log-sum-exp, as [B H, n]. */
struct tensor cp_by_heads(const struct cp_pass *, struct tensor);

/** Numbers of a token in a block of keys and values: 2 K A. */
int64_t cp_keys_width(const struct context_parallel *);

/** Copy some columns of all rows. */
void cp_copy_columns(struct cp_pass *, struct tensor to, int64_t to_first, struct tensor from, int64_t from_first,
                     int64_t width);

/** Copy keys and values, or their gradients: the last columns of one tensor to the last columns of another. */
void cp_copy_keys(struct cp_pass *, struct tensor to, struct tensor from);

/** Wait for a message.  A failed one ends the job, because other devices wait for the messages that would follow. */
void cp_arrive(struct cp_pass *, struct message);

/* Two messages on their way, in and out. */
struct cp_turn { struct message in, out; };

/** On the ring of all members: send the block of this step, in buffer[step % 2], to the right, and receive that of the
 *  next step into the other buffer. */
struct cp_turn cp_turn(struct cp_pass *, struct tensor buffer[2], int step);

/** The member `steps` before this device on the ring of members. */
int cp_before(const struct context_parallel *, int steps);

/** The shape for a part with a member's keys, of which this device's own has the sinks. */
struct attention cp_shape(const struct cp_pass *, int member);

/** The pairs of a query of this device and a key of a member that see each other. */
double cp_pairs(const struct cp_pass *, int member);

#endif
