/* experts.h -- the seam for expert parallelism: which device runs which expert of a mixture, and how rows get to their
 * experts and back.
 *
 * A router has chosen k experts and their weights for each row of the stream.  A scheme sends rows to their experts,
 * sorted by expert, runs the experts (struct expert_body), and returns each row's weighted sum.  The model defines what
 * an expert computes, the scheme on which device.
 *
 * `here` is the trivial scheme: all experts are on each device, and tensor parallelism cuts F inside each.  The results
 * are partial sums, which the caller reduces.  The other schemes cut the list of experts, and an expert is whole on its
 * device, or its F is cut over neighbours, along etp.  If devices along tp have the same rows, each sends only its
 * share of them, and has zeros for the others: the results are partial sums again.  With sequence parallelism each has
 * rows of its own, and sends them all.
 *
 * Schemes are found by name (schemes/registry.c).  model/run/run_mixture.c announces choices and runs the passes;
 * link_memory.c asks for the slots; trainer_open.c opens, trainer.c ends steps.
 */
#ifndef ORRERY_EXPERT_SCHEME_H
#define ORRERY_EXPERT_SCHEME_H

#include "emulated_devices/schemes/experts/placement.h"
#include "emulated_devices/schemes/tensor/tensor.h"

enum { EXPERT_SLOTS = 7, EXPERT_GRADIENT_SLOTS = 2 };   /* tensors that a call keeps, at most */
enum { EXPERT_HOPS = 3, EXPERT_GROUPS = 16 };            /* exchanges on a row's way; groups that a scheme opens */

struct expert_scheme;

/* The experts that some rows have chosen: [rows, each], in the host's memory.  What is none of the E experts is sent
 * nowhere and computed by none: a dropped choice (choice_dropped). */
struct choices {
    const int32_t *expert;              /* NULL: nobody lists them */
    int64_t rows, each;
    const int32_t *pooled;              /* on devices without numbers: how often the rows of all members of the ep
                                         * group, or those that have come, choose each of E experts; NULL: not known */
};

/* An exchange on the way of rows to their experts. */
struct expert_hop {
    struct group *group;                /* among whose members rows move */
    enum operation operation;           /* ALLTOALL; ALLGATHER: all rows go to all members, results are summed */
    int64_t *sent, *got;                /* [members] rows to and from each; for an all-gather only got, those of each */
    struct tensor order;                /* I32: which of the rows at hand are sent, in this order; none: all of them */
};

/* Weights of experts that a scheme brings to other devices for a pass, or gradients on their way to the owners. */
struct moved_experts {
    struct tensor own, all;             /* what this device sends, or gets as owner; all that it computes with */
    struct tensor *matrix;              /* [2, E] where each matrix lies; tensor_none: not here */
    picoseconds done;                   /* when they have arrived */
    bool open;                          /* they are here, or on their way */
};

/* Moments of a pass in virtual time, for invariants: what travels beside what. */
struct expert_pace {
    picoseconds chosen;                 /* the router has chosen */
    picoseconds moved;                  /* weights of copies left for the forward pass; 0: none did */
    picoseconds again, reached;         /* they left once more for the backward pass, 0: none did; the layer's backward
                                         * pass began */
    picoseconds left, brought;          /* all rows have left, if a pass is one call, else -1; how long weights of this
                                         * pass were then waited for */
    picoseconds came, began, ended;     /* of a part: its rows came; the experts began, and were done */
};

/* The rows' ways in one layer and microbatch, known when its router has chosen.  In the host's memory. */
struct expert_routing {
    int64_t sent, pool, received;       /* rows that this device sends; that come; and the choices of its own experts
                                         * among them, each a row to compute.  0 until the router has chosen */
    int32_t *table;                     /* [P, told] what each member has told all others */
    int hops;                           /* exchanges on the way, the scheme's */
    struct expert_hop hop[EXPERT_HOPS]; /* in the order of the forward pass; results go back in reverse */
    struct tensor order;                /* I32 [received]: the place of each among the choices of the pool's rows */
    int32_t *counts;                    /* I32 [E]: rows of each expert that is computed here; others have none */
    int32_t *row;                       /* [received] their places in the batch, if rows_trace has followed them; else
                                         * NULL */
    struct interval experts, columns;   /* those that are computed here, and of F */
    int degree;                         /* of a scheme that chooses one: tutel.c */
    int32_t *told;                      /* likewise: [ep x etp, E] what all these devices have told; else NULL */
    int32_t *owner;                     /* of a scheme that copies experts: [E] members */
    bool *held;                         /* [E, P] which members have which */
    int64_t *copied;                    /* [E] numbers of each expert that has copies; 0 of the others */
    bool placed;                        /* copies were placed before the router's choice, which comes next */
    struct moved_experts weights, gradients;
    struct expert_pace pace;            /* of the last pass */
    int parts;                          /* in which rows travel and are computed; 0 and 1: at once */
    struct expert_routing *part;        /* [parts] each with its share of every device's rows for every expert; their
                                         * moved experts are the whole's.  NULL: one part */
    struct expert_routing *whole;       /* of a part; else NULL */
    struct { struct tensor sent, pool; picoseconds done; } way;     /* of a pass that has begun: rows as sent, as they
                                         * come, and when those that were sent last have arrived */
};

/* A scheme that copies experts may do this. */
struct expert_copying {
    int slots;                          /* experts of others that a device has room for in each layer; 0: one */
    int top;                            /* if at most `slots`: so many with the most load go to all devices; else, and
                                         * 0: each slot in proportion to load */
    bool again;                         /* copies are dropped after the forward pass, and sent again for the backward */
};

/* This device's share of the experts.  group may be NULL if only extents are needed. */
struct expert_parallel {
    const struct expert_scheme *scheme; /* of the plan */
    const struct tensor_parallel *tp;   /* this device's columns of each expert */
    struct group *group;                /* along ep */
    struct group *part;                 /* [EXPERT_GROUPS] that the scheme has opened */
    int devices, rank;                  /* size of the ep group; this device's place in it */
    struct group *along_etp;            /* the devices that share F of the same experts */
    int slices, slice;                  /* parts into which F of each expert is cut; this device's */
    int node;                           /* members on each node: neighbours; 0: not as many on each */
    int degree;                         /* that the plan asks for; -1: the scheme chooses */
    int parts;                          /* of rows, likewise; 0: one */
    struct expert_copying copying;      /* of --dispatch fssdp */
    const int32_t *owner;               /* [L, E] members, if experts have other owners than experts_of; else NULL */
    struct expert_loads *loads;         /* [L] of a scheme that expects the loads of earlier steps */
    int64_t layer;                      /* of the call */
    bool hides;                         /* a mixture on a shortcut exchanges rows while the blocks beside it compute */
    const struct expert_routing *routing;               /* of the call; NULL: all devices get the mean */
};

/* The values, and gradients, of rows sorted by expert in this device's experts.  counts: int32 [E], rows of each
 * expert, in host memory.  weights: [2, E] matrices to use, or, in the pass for the weights, their gradients; NULL:
 * this device's pieces.  first: where the rows begin among all that are computed here.  columns: of F. */
struct expert_rows {
    struct tensor rows, up, act, results;
    const int32_t *counts;              /**< Rows of each expert, [E], in host memory. */
    const struct tensor *weights;       /**< Matrices or gradients, [2, E]; NULL: this device's pieces. */
    int64_t first;                      /**< Index of the first row among all rows computed here. */
    struct interval columns;            /**< Columns of the width F that are computed. */
};
struct expert_gradients { struct tensor rows, up, act, results; };

/* The computation of the experts on the rows that they get.  Local, but for sums over columns of F that must be exact:
 * then collective over the devices that have other columns (terms.h).  @return OK; ERR_FILE if weights cannot be read;
 * ERR_MEMORY or ERR_COMM of such a sum. */
struct expert_body {
    const void *context;                /* first argument of the functions */
    enum error_code (*forward)(const void *context, struct expert_rows, struct error *); /**< Computes the results. */
    /* Gradients of the rows, from gradients of the results. */
    enum error_code (*input)(const void *context, struct expert_rows, struct expert_gradients, struct error *);
    /* Adds to the gradients of the weights. */
    enum error_code (*weight)(const void *context, struct expert_rows, struct expert_gradients, struct error *);
    /* This device's piece of the first or second matrix of one of its experts, or of its gradient. */
    struct tensor (*piece)(const void *context, int64_t expert, int matrix, bool gradient);
    /* Shows the results of these rows, or their gradients.  NULL: nobody looks. */
    void (*show)(const void *context, const struct expert_rows *, struct tensor results, bool gradient);
};

static inline void expert_body_show(const struct expert_body *body, const struct expert_rows *rows,
                                    struct tensor results, bool gradient)
{
    if (body->show) body->show(body->context, rows, results, gradient);
}

/* The parts of a pass forward or for the inputs, in this order.  What is exchanged in one is needed in the next. */
enum expert_phase { SEND_ROWS = 1, COMPUTE_ROWS = 2, RETURN_ROWS = 4, ALL_PHASES = 7 };

/* The arguments of a call.  Rows of the stream: x, y [n,D]; weights [n,k]; experts I32 [n,k].  In recomputation y is
 * absent: forward then computes only what is kept. */
struct mixture_call {
    struct expert_parallel *ep;         /* this device's share, with the layer of the call */
    struct expert_routing *routing;     /* of the call */
    int64_t first;                      /* of a part: where its rows begin among all that are computed here */
    unsigned phases;                    /* to run; if not all, exchanges take place beside what is computed until the
                                         * next: SENDS_ROWS of streams.h */
    struct expert_body body;            /* computes experts on rows that have arrived */
    struct tensor x, y, weights, experts;       /* as above: rows in, mixture's result, router's weights and choices */
    struct tensor dx, dy, d_weights;    /* for backward for the inputs */
    struct tensor kept[EXPERT_SLOTS];   /* from forward to the end of backward */
    struct tensor left[EXPERT_GRADIENT_SLOTS];          /* kept from backward for the inputs to that for the weights */
};

struct expert_scheme {
    struct scheme head;                 /* name, description, source; first, for casts */
    bool exact;                         /* results of a row are added without rounding where a device computes exactly:
                                         * the same bits as without messages */
    bool cuts_experts;                  /* a device has some experts, whole; else all of them, cut over tp */
    bool turns;                         /* with as many rows for each expert on every device, and as many experts on
                                         * each, member r does to member q what r + 1 does to q + 1 (comm/folding.h) */
    bool predicts;                      /* rows are ordered by where their experts are likely to be: affinity.h */
    /* Whether these devices can share a model's experts.  @return NULL, or what the scheme needs, as text. */
    const char *(*refuses)(const struct expert_parallel *, const struct model_config *); /**< Unmet need, or NULL. */
    /* Create groups in ep->part, and what the scheme remembers of a layer.  Local.  NULL: the scheme needs none.
     * @return OK or ERR_MEMORY; close frees it, not the groups. */
    enum error_code (*open)(struct expert_parallel *, struct error *); /**< Creates the scheme's groups and memory. */
    void (*close)(struct expert_parallel *);                           /**< Frees the scheme's memory. */
    /* A training step has ended.  Local.  NULL: nothing to remember. */
    void (*step)(struct expert_parallel *);                            /**< Called at the end of a training step. */

    /* Schemes that move rows say how (dispatch.h).  weighs_there: a row goes once to all its experts on a device, with
     * its weights, and their weighted sum comes back; else k copies of it go, and the results come back one by one. */
    bool weighs_there; /**< Results are weighted on the devices of the experts. */
    /* Each device tells all others this of its choices: how many numbers, and which.  NULL: [E] choices of each
     * expert. */
    int64_t (*told)(const struct expert_parallel *);                   /**< Numbers that a device tells the others. */
    void (*tell)(const struct expert_parallel *, const struct choices *, int32_t *own); /**< Writes these numbers. */
    /* Plan a hop.  held: the choices of the rows at hand; only if weighs_there.  Local.  @return OK or ERR_MEMORY. */
    int hops;                           /* exchanges on the way to the experts */
    enum error_code (*hop)(const struct expert_parallel *, const struct expert_routing *, const struct choices *held,
                           int index, struct expert_hop *, struct error *); /**< Plans an exchange. */

    /* A scheme that moves weights too.  choose: how, by what the devices have told: sets the routing's experts, and its
     * degree and columns, or its copies.  Local; @return OK or ERR_MEMORY.  has_degrees: all devices of ep x etp have
     * told, whose group is ep->part[0], and choose leaves the table of the ep group.  rows_to: how many of a member's
     * rows for an expert go to another; NULL: all to its owner.  slices: along which rows are gathered before they are
     * computed.  NULL: weights stay. */
    bool has_degrees, copies;
    bool has_parts;                     /* rows may travel in parts, each computed while the next one travels */
    enum error_code (*choose)(const struct expert_parallel *, struct expert_routing *, struct error *);
    int64_t (*rows_to)(const struct expert_parallel *, const struct expert_routing *, int64_t expert, int from, int to);
    struct group *(*slices)(const struct expert_parallel *, const struct expert_routing *); /**< Gathering group. */
    /* Its passes of the experts, in place of the body's.  bring: begin to move the weights that the pass reads, which
     * compute waits for; again: nothing.  compute: the pass on rows that are here; several times, on some rows each.
     * end: free the weights, or begin to move gradients to their owners; the matrices are then of no use.  finish:
     * wait for the gradients and add them, where a layer's gradients must be whole.  bring, end and finish are
     * collective over the devices that move; @return OK, ERR_MEMORY or ERR_COMM.  cost: of all these together. */
    enum error_code (*bring)(struct mixture_call *, enum tensor_pass, struct error *); /**< Begins to move weights. */
    enum error_code (*compute)(struct mixture_call *, enum tensor_pass, struct expert_rows, struct expert_gradients,
                               struct error *); /**< Computes the rows that are here. */
    enum error_code (*end)(struct mixture_call *, enum tensor_pass, struct error *); /**< Ends the pass. */
    void (*finish)(struct mixture_call *);      /**< Waits for gradients and adds them. */
    void (*compute_cost)(struct forecast *, const struct expert_parallel *, enum tensor_pass);
    /* Place copies by the loads of earlier steps, before the layer computes: bring can then begin before the router
     * has chosen.  Local; @return OK or ERR_MEMORY.  NULL: weights are brought when the router has chosen. */
    enum error_code (*place)(const struct expert_parallel *, struct expert_routing *, struct error *);
    /* Whether a pass moves weights, so that it is worth to bring them early. */
    bool (*brings)(const struct expert_parallel *, enum tensor_pass); /**< Whether the pass moves weights. */

    /* Take this device's choices, and tell the other devices how many rows they will get.  Collective over the ep
     * group; a scheme that moves no rows only counts.  @return OK, ERR_MEMORY or ERR_COMM. */
    enum error_code (*announce)(struct expert_routing *, const struct expert_parallel *, const struct choices *own,
                                struct error *);                      /**< Takes the choices and tells the others. */
    /* kept, left: the shape of a slot for `rows` rows of the stream, as a tensor without memory. */
    int slots, gradient_slots;
    struct tensor (*kept)(const struct expert_parallel *, int slot, int64_t rows); /**< Shape of a slot. */
    struct tensor (*left)(const struct expert_parallel *, int slot, int64_t rows); /**< Shape of a gradient slot. */
    /* Collective over the ep group.  A scheme without exchanges does all in RETURN_ROWS.  @return OK, ERR_MEMORY or
     * ERR_COMM; after an error the step cannot go on. */
    enum error_code (*forward)(struct mixture_call *, struct error *);             /**< Forward pass. */
    enum error_code (*input)(struct mixture_call *, struct error *);               /**< Backward pass for the input. */
    enum error_code (*weight)(struct mixture_call *, struct error *); /**< Backward pass for the weights. */
    /* Enter what announcing has sent, or what a pass sends.  EXCHANGE_PASS: forward without y.  NULL: nothing. */
    void (*announce_cost)(struct forecast *, const struct expert_parallel *); /**< Costs of announce. */
    void (*cost)(struct forecast *, const struct expert_parallel *, enum tensor_pass); /**< Costs of a pass. */
};

/** The experts of a member. */
struct interval experts_of(const struct expert_parallel *, int member);

/** This device's columns of F of its experts. */
struct interval expert_columns(const struct expert_parallel *);

/* Whether devices along tp have the same rows of the stream, else each has its own (sequence parallelism). */
static inline bool experts_share_rows(const struct expert_parallel *ep)
{
    return ep->tp->devices > 1 && ep->tp->scheme->stream.rows == 0;
}

/* The devices with slices of the same experts that compute the same rows, and add up their results. */
static inline struct group *experts_row_group(const struct expert_parallel *ep, const struct expert_routing *routing)
{
    return ep->scheme->slices ? ep->scheme->slices(ep, routing) : ep->along_etp;
}

/* The format of weights of experts, and of their gradients. */
static inline enum dtype expert_format(const struct expert_parallel *ep, bool gradient)
{
    const enum dtype own = ep->tp->device->dtype;
    return gradient && ep->tp->wide_gradients ? ep->tp->device->sums : own;
}

/* The rows of the stream at hand that this device sends to experts: all, or its share of those that others have too. */
static inline struct interval expert_share(const struct expert_parallel *ep, int64_t rows)
{
    return experts_share_rows(ep) ? block_at(rows, ep->tp->devices, ep->tp->rank) : (struct interval){ 0, rows };
}

/** Whether one of the E experts computes a choice; count how often each is chosen: adds to of_expert [E]. */
static inline bool choice_is_computed(int32_t choice, int64_t E) { return choice >= 0 && choice < E; }
void choices_count(const struct choices *, int64_t E, int32_t *of_expert);

/** The rows of a member for an expert that travel in a part, if it has so many in all. */
static inline int64_t expert_part_rows(int64_t rows, int parts, int part, int64_t expert, int from)
{
    return block_at(rows, parts, (int)((part + from + expert) % parts)).count;      /* longer parts go round */
}

/** List this device's rows, which are sorted by expert, by part: at place i the row that comes i-th. */
void expert_parts_order(const struct expert_parallel *, const struct expert_routing *whole, int32_t *order);

/** Where moved experts of a call are. */
static inline struct expert_routing *expert_whole(const struct mixture_call *call)
{
    return call->routing->whole ? call->routing->whole : call->routing;
}

/** Free all that announcing has allocated. */
void expert_routing_clear(struct expert_routing *);

SCHEME_CASTS(EXPERT_SCHEME, expert_scheme)              /* expert_scheme_at, expert_scheme_find */

#endif
