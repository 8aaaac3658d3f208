/* stage.h -- one pipeline stage of the model on one device: consecutive layers; the first stage also has the embedding,
 * the last one the loss.
 *
 * It computes the same as the serial model of ref/model/transformer.h, and calls a scheme at each seam.  Forward,
 * backward for the input and backward for the weights are separate functions of one microbatch, so that any schedule
 * can order them.  Every tensor comes from the device's arena: with the tag ACTIVATIONS if a microbatch keeps it
 * between forward and backward, with BUFFERS if it lives only within one of them.  Files of model/run/, model/,
 * verify/cases/ and verify/reference/ call these functions.
 */
#ifndef ORRERY_STAGE_H
#define ORRERY_STAGE_H

#include "emulated_devices/device/tier.h"
#include "emulated_devices/model/answering.h"
#include "emulated_devices/model/link/link.h"
#include "emulated_devices/model/probe.h"
#include "emulated_devices/schemes/attention/streams.h"
#include "emulated_devices/schemes/pipeline/execute.h"
#include "ref/model/operands.h"

/* A linked part of the model: the embedding, a layer, or the loss. */
struct model_part {
    int index;                                  /* as the data scheme counts parts: 0, 1 + layer, 1 + L */
    int layer;                                  /* -1 for the embedding, L for the loss */
    struct linked linked;                       /* nodes and buffers for this plan's schemes */
    int weight[LINK_NODES], bias[LINK_NODES];   /* each node's parameters, as indices in the model's list; -1: none */
    int first_buffer;                           /* index of its first buffer among a microbatch's tensors */
};

/* A stage counts here what the routers of a microbatch choose, and keeps the slopes of balance losses: balance.h. */
struct balance_sums {
    double *sums;                               /* [losses, 2E+1]; NULL: the model is no mixture */
    double *slope;                              /* [losses, E] by each row's probabilities, times the loss scale */
};

/* One microbatch in flight. */
struct microbatch {
    struct interval sequences;                  /* of the global batch */
    struct intervals rows;                      /* this device's tokens of it, as rows of the global batch */
    int64_t N;                                  /* the number of rows */
    int64_t first_row;                          /* of rows that are computed by themselves (row_cuts); else 0 */
    struct intervals tokens;                    /* the rows of the global batch whose losses it computes: these rows,
                                                 * unless streams are cut */
    struct tensor ids, positions;               /* I32 [N]; those the stage needs */
    struct tensor labels;                       /* I32 [tokens] */
    bool borrows;                               /* ids, positions and labels are those of the microbatch before */
    struct tensor sorted;                       /* I32 [N] the places of rows in the order of the batch, in which
                                                 * attention needs them; tensor_none: they are so */
    struct balance_sums balance;                /* of a mixture's routers */
    struct expert_routing *routing;             /* [parts] of a mixture's layers; NULL: the model is none */
    struct context_plan plan;                   /* of an attention scheme that makes plans */
    struct tensor mask;                         /* I32 [sequences*S, 2 ranges]: what a token of packed samples sees, or
                                                 * under the model's mask; with a plan always, and all sequences are
                                                 * numbered as one */
    double pairs[2];                            /* with a mask: what attention without a window, and with one, sees,
                                                 * as attention_pairs; negative: not counted yet */
    struct tensor *tensor;                      /* [buffers of all parts] */
    int32_t *patch;                             /* [STREAM rows] of each row of the first stage that is a patch its
                                                 * place in the next two, else -1; NULL: none is */
    struct tensor patches, d_patches;           /* [patches of this device, D]: encoders.h */
    uint64_t place;                             /* of its first byte on the stage's tier */
    struct tensor gradient;                     /* of the stream, at the current point of backward: [stream] */
};

/* The routers of a step's microbatches add these losses, without their coefficients: first those of this device's
 * tokens and layers, after the all-reduce those of all devices of the replica. */
enum {
    ROUTERS_Z,                          /* the z loss: router_losses_forward in ops.h */
    ROUTERS_SEQUENCE,                   /* the balance losses of sequences by themselves */
    ROUTERS_BALANCE,                    /* the balance loss: balance.h */
    ROUTERS_CHOICES                     /* of biased routers how often each expert was chosen: [L,E] */
};
struct routers {
    double *sums;                       /* [ROUTERS_CHOICES], then the choices */
    double *rows, *sequences;           /* [updates,L] of this replica that a layer computes for an optimizer step of
                                         * this step, without padding: what losses are means over */
    double *weight;                     /* [updates] of an optimizer step's losses in the step's: its part of the
                                         * replica's labels */
    int update_every;                   /* microbatches of an optimizer step */
    int64_t step;                       /* that a load deals rows for */
    int32_t *chosen;                    /* [L, rows of the batch, k] the choices of this device's rows, where they are
                                         * wanted (routers_bring); NULL: nowhere */
    double *lost;                       /* [1] layer * rows of the batch + row, of the first logits that are not
                                         * finite; INFINITY: none */
    double *bias;                       /* [L,E] corrections of a biased router: state, the same on all devices */
    struct pooled_choices *pooled;      /* on devices without numbers: pooled.h */
};

/* The first exact sum of a step that does not exist: ref/numeric/fixed_sum.h notes that there is one. */
enum { LOST_NAME = 64 };
struct lost_sum {
    double order;                               /* its place in the step; INFINITY: all exist */
    bool beyond;                                /* it went beyond the bits there are; else a term is not finite */
    char name[LOST_NAME];                       /* of the tensor; empty: none is known */
};

struct stage {
    const struct plan *plan;                    /* of the run */
    struct device *device;                      /* which computes the stage */
    struct tensor_parallel *tp;                 /* the trainer's */
    struct seams *seams;                        /* the trainer's schemes for matrices, tokens and experts */
    struct data_parallel *data;                 /* makes weights whole before a pass, and takes gradients after it */
    int rank;                                   /* the device's */
    int index;                                  /* 0 .. stages-1 */
    int first_layer, layers;                    /* the stage's layers: first, and how many */
    bool first, last;                           /* has the embedding; has the loss */
    struct parameters *parameters;              /* this device's pieces of all its stages */
    struct tensor rotary, local_rotary;         /* [S,R] the tables of rotary positions; tensor_none without.  The
                                                 * second: of layers with a window, if they have their own */
    uint64_t dropout_seed;                      /* of this step */
    struct routers routers;                     /* of a mixture */
    struct tier_traffic chosen;                 /* what has been read of experts by choice, by formula */
    struct account dispatched;                  /* what its expert scheme has sent, by formula, from the routings */
    int64_t counted;                            /* labels in the whole batch that are not ignored */
    double loss_scale;                          /* factor of the loss, and so of all gradients */
    struct lost_sum lost;                       /* of this step, with exact sums */
    double loss;                                /* sum over the tokens of the microbatches done in this step */
    struct model_part *part;                    /* [layers + 2]: embedding, layers, loss; linked if the stage has it */
    int buffers;                                /* of all parts */
    struct microbatch *micro;                   /* [M] */
    struct tier tier;                           /* with --offload activations: away.h */
    picoseconds *moved;                         /* [layers] when a layer that leaves, or comes back, has done so */
    const struct probe *probe;                  /* NULL: no probe */
    const struct row_loss *row_loss;            /* what rows are trained for; NULL: cross entropy of labels */
    const struct answering *answering;          /* its rows are tokens of requests (answering.h); NULL: of a batch */
};

/** Create a stage without microbatches in flight, on the device of this rank.  @return OK or ERR_MEMORY. */
enum error_code stage_open(struct stage *, const struct plan *, struct device *, struct tensor_parallel *,
                           struct seams *, struct data_parallel *, int index, int rank, struct error *);
void stage_close(struct stage *);

/** Set all microbatches to the plan's current ones; nothing may be in flight.
 *  @return OK; ERR_MEMORY, or ERR_PLAN if an attention scheme's plan is wrong. */
enum error_code stage_cut(struct stage *, struct error *);

/** The seams for a part of a microbatch, whose plan decides the device's share of its sequences, and whose routing
 *  decides that of the experts' rows. */
struct seams stage_seams(const struct stage *, const struct microbatch *, const struct model_part *);

/** A parameter's weight, or gradient, by its index in the model's list; tensor_none for -1. */
struct tensor stage_weight(const struct stage *, int index);
struct tensor stage_gradient(const struct stage *, int index);

/** The tensor of a part's buffer.  The output of a part is the input of the next. */
struct tensor *stage_buffer(struct microbatch *, const struct model_part *, int buffer);

/** Rows of a microbatch in an activation of this width, before tensor parallelism cuts them. */
static inline int64_t stage_rows(const struct stage *stage, const struct microbatch *micro, enum activation_width width)
{
    return width_of_tokens(width) ? stream_tokens(&stage->seams->cp, micro->N) : micro->N;
}

/** The name of a part's input: the output of the part before. */
const char *stage_entering(const struct model_part *);

/** Call the probe with a tensor, or a gradient, that was just computed. */
void stage_show(struct stage *, const struct microbatch *, const char *name, int layer, bool gradient, struct tensor);

/** Forget the exact sums that a step before has lost. */
void stage_begin_sums(struct stage *);

/** Note that an operation has just lost an exact sum, if one has, and this stage has lost none before in this step.
 *  @param part  NULL: gradients were added over devices.  @param name  of the node's tensor. */
void stage_note_lost(struct stage *, const struct model_part *part, enum list which, const char *name);

/* The operations a schedule is made of.  Collective over the tp group.  After an error the step cannot go on. */
enum error_code stage_forward(struct stage *, int micro, struct error *);
enum error_code stage_backward(struct stage *, int micro, bool input, bool weight, struct error *);

/** The weights and gradients that a pass uses, in order, for data_set_uses.
 *  @param[out] use  room for (layers + 2) * part_uses_most().  @return how many. */
int stage_uses_forward(const struct stage *, struct use *use);
int stage_uses_backward(const struct stage *, bool input, bool weight, struct use *use);

/** The most uses of one part in a forward and a backward pass. */
int part_uses_most(const struct plan *);

/* The tensors that the executor sends and receives: see execute.h. */
struct tensor stage_input(struct stage *, int micro);
struct tensor stage_output_gradient(struct stage *, int micro);
struct tensor stage_take_output(struct stage *, int micro);
struct tensor stage_take_input_gradient(struct stage *, int micro);
struct stage_note stage_note(const struct stage *, int micro, bool gradient);

/** A count of memory, updated operation by operation, in bytes: ACTIVATIONS held now and at most, BUFFERS held now, and
 *  weights or gradients allocated for the current pass.  `together` is a lower bound of the peak of all three.
 *  A received input must have been added before forward. */
struct held { uint64_t now, peak, buffers, made, together; };
static inline void held_note(struct held *held)
{
    const uint64_t all = held->now + held->buffers + held->made;
    if (held->now > held->peak) held->peak = held->now;
    if (all > held->together) held->together = all;
}
static inline void held_more(struct held *held, uint64_t bytes)
{
    held->now += bytes;
    held_note(held);
}
void stage_forward_held(const struct stage *, int micro, struct held *);
void stage_backward_held(const struct stage *, int micro, bool input, bool weight, struct held *);

/** Whether no device of the copy has tokens of a microbatch, so that its operations are left out; weights are acquired
 *  and released all the same, because other copies may have tokens.  Experts and tiles are never left out: other copies
 *  wait for them. */
bool stage_skips(const struct stage *, const struct microbatch *);

/** Exactly what a microbatch's passes through the stage send on the tp group. */
struct account stage_cost(const struct stage *, int micro);

/** Exactly what they send on the cp group. */
struct account stage_attention_cost(const struct stage *, int micro);

/** Bytes of a microbatch's piece of the stream, which stages send to each other. */
uint64_t stage_message_bytes(const struct stage *, int micro);

#endif
