/* attention.h -- the seam for context parallelism: attention over sequences whose tokens are cut over cp.
 *
 * A scheme defines which tokens of a sequence each device has.  All other operations work on each row alone, so a
 * device needs only its own tokens.  Attention needs the keys and values of other devices; the scheme exchanges what is
 * needed.  Tensor parallelism has already cut the heads: a call gets this device's tokens of this device's heads.
 *
 * `whole` is the trivial scheme: each sequence is on one device.
 *
 * Schemes are chosen by name from a plan (schemes/registry.c).  model/run/run_attention.c runs their passes,
 * plan/context.c places tokens by `cut` or `plan`, link_cost.c and link_memory.c ask for `cost` and `kept`.  A pass
 * reports ERR_MEMORY or ERR_COMM; a planner reports ERR_PLAN or ERR_MEMORY.
 */
#ifndef ORRERY_ATTENTION_SCHEME_H
#define ORRERY_ATTENTION_SCHEME_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include "emulated_devices/schemes/tensor/tensor.h"

enum { ATTENTION_SLOTS = 4 };           /* tensors that a call keeps, at most */
enum { ATTENTION_GROUPS = 13 };         /* groups of some of the devices along cp, at most: one for each power of two */

struct attention_scheme;

/* How a scheme of two dimensions arranges the devices along cp.  In a plan 0 means the default; in a share all are
 * set. */
struct context_split {
    int heads;                          /* devices that exchange tokens for heads; the others are on a ring */
    int window;                         /* devices of an inner ring */
    bool context_first;                 /* neighbours are on one ring; else they exchange tokens for heads */
};

/* This device's share of attention.  group may be NULL if only extents are needed. */
struct context_parallel {
    const struct attention_scheme *scheme;      /* of the plan */
    const struct tensor_parallel *tp;   /* the same device's part of heads and columns */
    const struct heads *heads;          /* this device's, of which its group shares the sequences: those of tp */
    struct group *group;                /* along cp: members have the same heads and sequences, and different tokens */
    struct group *part;                 /* [ATTENTION_GROUPS] that the scheme has opened */
    int devices, rank;                  /* devices that share each sequence; index of this one */
    struct context_split split;         /* of a scheme with two dimensions */
    int64_t S;                          /* tokens of a whole sequence */
    int64_t streams;                    /* parallel ones of the model, at least 1 */
    const struct context_plan *plan;    /* of this microbatch, if the scheme plans: all its tokens are one sequence
                                         * then, and S is their number */
};

/* The arguments of a call.  Rows: this device's tokens, sequence by sequence, in the order of the scheme's cut. */
struct attention_call {
    struct context_parallel *cp;        /* this device's share */
    struct attention shape;             /* S and dropout of whole sequences; heads and width */
    struct tensor qkv, out;             /* [n, (H+2K) A], [n, H A] */
    struct tensor d_qkv, d_out;         /* for backward; d_qkv may be EXACT: sums that the caller finishes */
    struct tensor d_sinks;              /* [H], zeros; backward adds the gradient of the shape's sinks; none: there are
                                         * none */
    struct tensor kept[ATTENTION_SLOTS];        /* from forward to backward; shapes: the scheme's `kept` */
};

/* A part of what a scheme that plans does.  --attention-without leaves it out, as the ablation of a paper does; results
 * stay right. */
struct planned_part { const char *name, *sentence; };     /* the sentence says what is done without it */

struct attention_scheme {
    struct scheme head;                 /* name, description, source; first, for casts */
    bool cuts_streams;                  /* devices along cp have different parallel streams of all tokens */
    bool takes_prefix;                  /* its first slot is the log-sum-exp, [rows, H]; then attention to a prefix can
                                         * be merged with its result */
    bool splits, windows;               /* whether it reads heads and context_first of a split; window */
    bool exact;                         /* with exact sums its results have the bits of one device's: a query's sums are
                                         * finished before they round, with the top of all of its keys */
    /* Whether a model's sequences can be cut so.  @return NULL, or what the scheme needs, as text. */
    const char *(*refuses)(const struct context_parallel *, const struct model_config *); /**< Unmet need, or NULL. */
    bool plans_steps;                   /* `plan` is given the samples of all microbatches of a step, and chooses those
                                         * of each: load.micros */
    bool chooses_micros;                /* with load.room `plan` also chooses how many of these have samples */
    unsigned steps_part;                /* the bit of the part without which each microbatch is planned by itself */
    const struct planned_part *parts; /* that may be left out, in the order of load.without's bits, then one without
                                         * a name; NULL: none */
    /* One of both.  cut: add the tokens of a sequence that a member has, in the order of its rows, ascending.
     * plan: place the tokens of a microbatch by the lengths of its samples.  Pure.
     * @return as context_plan_finish. */
    void (*cut)(struct intervals *tokens, const struct context_parallel *, int member); /**< Adds a member's tokens. */
    enum error_code (*plan)(struct context_plan *, const struct context_load *, struct error *); /**< Places tokens. */
    /* Open groups of some of the cp group's devices, in the same order on each.  NULL: there are none.  Local.
     * @return OK or ERR_MEMORY; the caller closes part. */
    enum error_code (*open)(struct context_parallel *, struct error *); /**< Opens groups of devices. */
    /* kept: the shape of slot `slot` of what a call keeps besides its output, as a tensor without memory.
     * exchanged: how many of them, the first ones, `exchange` makes again from qkv and out; its cost is EXCHANGE_PASS.
     * 0: none, and exchange is NULL. */
    int slots, exchanged;
    bool reads_input, reads_output;     /* whether backward also reads queries, keys and values; the output */
    struct tensor (*kept)(const struct context_parallel *, int slot, int64_t rows); /**< Shape of a kept slot. */
    /* Collective over the cp group.  @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on. */
    enum error_code (*forward)(struct attention_call *, struct error *);            /**< Forward pass. */
    enum error_code (*backward_input)(struct attention_call *, struct error *);     /**< Backward pass. */
    enum error_code (*exchange)(struct attention_call *, struct error *);           /**< Repeats the exchanges. */
    /* Enter what a pass over `rows` rows sends.  NULL: nothing. */
    void (*cost)(struct forecast *, const struct context_parallel *, enum tensor_pass, int64_t rows); /**< Costs. */
};

SCHEME_CASTS(ATTENTION_SCHEME, attention_scheme)        /* attention_scheme_at, attention_scheme_find */

/** The tokens of each sequence that a member has, of this device and of any.  For intervals_free. */
struct intervals context_tokens(const struct context_parallel *);
struct intervals context_tokens_of(const struct context_parallel *, int member);

#endif
