/* attention.h -- the seam for context parallelism: attention over sequences whose tokens are cut over cp.
 *
 * A scheme says which tokens of a sequence each device has.  All other operations work on rows one by one, so that a
 * device needs no more than its own; attention needs the keys and values of others, and the scheme sees to that.
 * Tensor parallelism has cut the heads before: what a call is given are this device's tokens of this device's heads.
 *
 * `whole` is the trivial scheme: each sequence is on one device.
 */
#ifndef ORRERY_ATTENTION_SCHEME_H
#define ORRERY_ATTENTION_SCHEME_H

#include "emulated_devices/schemes/tensor/tensor.h"

enum { ATTENTION_SLOTS = 4 };           /* tensors that a call keeps, at most */

struct attention_scheme;

/* How attention is shared out on this device.  Without a group: geometry alone. */
struct context_parallel {
    const struct attention_scheme *scheme;
    const struct tensor_parallel *tp;   /* whose heads are here */
    struct group *group;                /* along cp; its members have the same heads and sequences, and other tokens */
    int devices, rank;                  /* how many share each sequence, and which of them this is */
    int64_t S;                          /* tokens of a whole sequence */
};

/* What a call works on.  Rows: this device's tokens, sequence by sequence, in the order of the scheme's cut. */
struct attention_call {
    struct context_parallel *cp;
    struct attention shape;             /* S: of the whole sequence; heads and width; dropout by whole sequences */
    struct tensor qkv, out;             /* [n, (H+2K) A], [n, H A] */
    struct tensor d_qkv, d_out;         /* of backward */
    struct tensor kept[ATTENTION_SLOTS];        /* what the scheme keeps from forward to backward, as its `kept` says */
};

struct attention_scheme {
    struct scheme head;
    /* Whether a model's sequences of S tokens can be cut for P devices, each with the heads in h.  @return NULL, or
     * what it needs, in words. */
    const char *(*refuses)(const struct model_config *, struct heads h, int64_t S, int P);
    /* Add the tokens of a sequence of S that one of P devices has, in the order of its rows. */
    void (*cut)(struct intervals *tokens, int64_t S, int P, int rank);
    /* Slot `slot` of what a call with so many rows keeps besides its output: a tensor without memory.  slots:
     * how many there are. */
    int slots;
    bool reads_input, reads_output;     /* of backward: besides these, it reads queries, keys and values; the output */
    struct tensor (*kept)(const struct context_parallel *, int slot, int64_t rows);
    /* Collective over the cp group.  @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on. */
    enum error_code (*forward)(struct attention_call *, struct error *);
    enum error_code (*backward_input)(struct attention_call *, struct error *);
    /* Enter what a pass sends for so many rows.  NULL: nothing. */
    void (*cost)(struct forecast *, const struct context_parallel *, enum tensor_pass, int64_t rows);
};

SCHEME_CASTS(ATTENTION_SCHEME, attention_scheme)        /* attention_scheme_at, attention_scheme_find */

/** The tokens of each sequence that this device has.  For intervals_free. */
struct intervals context_tokens(const struct context_parallel *);

#endif
