/* stage.h -- one pipeline stage of the model on one device: consecutive layers, perhaps the embedding, perhaps the
 * loss.
 *
 * The serial model of ref/model/transformer.h with a scheme called at each seam.  Forward, backward for the input and
 * backward for the weights are separate, per microbatch, so that any schedule can order them.  Every tensor comes from
 * the device's arena: what a microbatch keeps between forward and backward is ACTIVATIONS, what lives only within one
 * of them BUFFERS.
 */
#ifndef ORRERY_STAGE_H
#define ORRERY_STAGE_H

#include "emulated_devices/model/link.h"
#include "emulated_devices/model/probe.h"
#include "ref/model/transformer.h"

/* A part of the model as a stage runs it: the embedding, a layer, or the loss. */
struct model_part {
    int index;                                  /* as the data scheme counts parts: 0, 1 + layer, 1 + L */
    int layer;                                  /* -1 for the embedding, L for the loss */
    struct linked linked;
    int weight[LINK_NODES], bias[LINK_NODES];   /* of each node, its parameters in the model's list; -1: none */
    int first_buffer;                           /* of its buffers among a microbatch's tensors */
};

/* One microbatch in flight. */
struct microbatch {
    struct interval sequences;
    struct intervals rows;                      /* its tokens that are this device's, as rows of the global batch */
    int64_t N;                                  /* how many */
    struct tensor ids, positions, labels;       /* I32 [N]; those the stage needs */
    struct tensor *tensor;                      /* [buffers of all parts] */
    struct tensor gradient;                     /* of the stream, where backward is: [stream] */
};

/* What the routers of a step's microbatches add to the loss: see router_losses_forward in ref/ops/ops.h.  It depends on
 * all tokens of the batch in all layers, so that it and its slope are known only when all forward passes are done. */
struct routers {
    double *sums;                       /* [2E+1] of this device's tokens and layers, then of all */
    double *slope;                      /* [E] of the balance loss by each row's probabilities, the loss scale in it */
    double z_slope;                     /* the same of the z loss */
};

struct stage {
    const struct plan *plan;
    struct device *device;
    struct tensor_parallel *tp;
    struct seams *seams;
    struct data_parallel *data;
    int rank;                                   /* the device's */
    int index;                                  /* 0 .. stages-1 */
    int first_layer, layers;
    bool first, last;                           /* has the embedding; has the loss */
    struct parameters *parameters;
    struct tensor rotary;                /* [S,R] the table of rotary positions, which all devices know; none without */
    uint64_t dropout_seed;                      /* of this step */
    struct routers routers;                     /* of a mixture */
    int64_t counted;                            /* labels in the whole batch that are not ignored */
    double loss_scale;                          /* gradients are those of so many times the loss */
    double loss;                                /* sum over the tokens of the microbatches done in this step */
    struct model_part *part;            /* [layers + 2]: embedding, layers, loss; those that the stage has are linked */
    int buffers;                                /* of all parts */
    struct microbatch *micro;                   /* [M] */
    const struct probe *probe;                  /* NULL: no probe */
};

/** A stage with nothing in flight, on the device of this rank.  @return OK or ERR_MEMORY. */
enum error_code stage_open(struct stage *, const struct plan *, struct device *, struct tensor_parallel *,
                           struct seams *, struct data_parallel *, int index, int rank, struct error *);
void stage_close(struct stage *);

/** Cut all microbatches anew, as the plan has them now; nothing may be in flight.  @return OK or ERR_MEMORY. */
enum error_code stage_cut(struct stage *, struct error *);

/** A parameter's weight, or gradient, by its place in the model's list; none for -1. */
struct tensor stage_weight(const struct stage *, int index);
struct tensor stage_gradient(const struct stage *, int index);

/** Where a buffer of a part is.  What leaves a part is what enters the next. */
struct tensor *stage_buffer(const struct stage *, struct microbatch *, const struct model_part *, int buffer);

/** The name of what enters a part: the output of the part before. */
const char *stage_entering(const struct model_part *);

/** Show the probe a tensor that was just computed, or the gradient of one. */
void stage_show(struct stage *, const struct microbatch *, const char *name, int layer, bool gradient, struct tensor);

/* The operations a schedule is made of.  Collective over the tp group.  After an error the step cannot go on. */
enum error_code stage_forward(struct stage *, int micro, struct error *);
enum error_code stage_backward(struct stage *, int micro, bool input, bool weight, struct error *);

/** The weights and gradients that a pass uses, in order, for data_set_uses.  @param[out] use  room for (layers + 2)
 *  part_uses_most().
 *  @return how many. */
int stage_uses_forward(const struct stage *, struct use *use);
int stage_uses_backward(const struct stage *, bool input, bool weight, struct use *use);

/** The most uses of one part in a forward and a backward pass. */
int part_uses_most(const struct plan *);

/* Places for the executor: see execute.h. */
struct tensor stage_input(struct stage *, int micro);
struct tensor stage_output_gradient(struct stage *, int micro);
struct tensor stage_take_output(struct stage *, int micro);
struct tensor stage_take_input_gradient(struct stage *, int micro);

/** Bytes of ACTIVATIONS, followed through one operation: what is held at its end, and the most on the way.
 *  Before forward, what another stage sent is held already.
 *  Beside them there are BUFFERS that the operation makes and drops, and weights or gradients that are made for its
 *  pass: of all three together `together` is the least that the most on the way can be. */
struct held { uint64_t now, peak, buffers, made, together; };
static inline void held_note(struct held *h)
{
    const uint64_t all = h->now + h->buffers + h->made;
    if (h->now > h->peak) h->peak = h->now;
    if (all > h->together) h->together = all;
}
static inline void held_more(struct held *h, uint64_t bytes)
{
    h->now += bytes;
    held_note(h);
}
void stage_forward_held(const struct stage *, int micro, struct held *);
void stage_backward_held(const struct stage *, int micro, bool input, bool weight, struct held *);

/** What a microbatch's passes through the stage send on the tp group, exactly. */
struct account stage_cost(const struct stage *, int micro);

/** The same on the cp group. */
struct account stage_attention_cost(const struct stage *, int micro);

/** Bytes of its piece of the stream, which goes from stage to stage. */
uint64_t stage_message_bytes(const struct stage *, int micro);

#endif
