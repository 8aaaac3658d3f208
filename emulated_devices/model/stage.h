/* stage.h -- one pipeline stage of the model on one device: consecutive layers, perhaps the embedding, perhaps the loss.
 *
 * The serial model of ref/model/transformer.h with a scheme called at each seam.  Forward, backward for the input and backward for
 * the weights are separate, per microbatch, so that any schedule can order them.  Every tensor comes from the device's
 * arena: what a microbatch keeps between forward and backward is ACTIVATIONS, what lives only within one of them BUFFERS.
 */
#ifndef ORRERY_STAGE_H
#define ORRERY_STAGE_H

#include "emulated_devices/model/probe.h"
#include "ref/model/transformer.h"

/* What the backward pass for the input leaves for the one for the weights: the gradient of each linear layer's output. */
struct block_gradients { struct tensor out, up, ln2, attention_out, qkv, ln1; };

/* One microbatch in flight. */
struct microbatch {
    struct sequences sequences;
    int64_t N;                                  /* its tokens */
    struct rows stream, inner, input, gradient; /* those this device has of each kind of activation: tensor.h */
    struct tensor ids, positions, labels;       /* I32 [N]; those the stage needs */
    struct block_activations *block;            /* [layers] */
    struct block_gradients *d_block;            /* [layers] while the weights' part is outstanding */
    struct tensor out;                          /* stream: what the next stage needs, or the last layer's output */
    struct tensor lnf_mean, lnf_rstd, lnf, logits, top, sums;   /* the last stage's; sums: total, then hit */
    struct tensor d_lnf, d_out, d_in;           /* stream */
};

struct stage {
    const struct plan *plan;
    struct device *device;
    struct tensor_parallel *tp;
    struct data_parallel *data;
    int index;                                  /* 0 .. stages-1 */
    int first_layer, layers;
    bool first, last;                           /* has the embedding; has the loss */
    struct parameters *parameters;
    struct tensor rotary;                       /* [S,A] the table of rotary positions, which all devices know; none without */
    uint64_t dropout_seed;                      /* of this step */
    int64_t counted;                            /* labels in the whole batch that are not ignored */
    double loss_scale;                          /* gradients are those of so many times the loss */
    double loss;                                /* sum over the tokens of the microbatches done in this step */
    struct microbatch *micro;                   /* [M] */
    const struct probe *probe;                  /* NULL: nobody looks */
};

/** A stage with nothing in flight.  @return OK or ERR_MEMORY. */
enum error_code stage_open(struct stage *, const struct plan *, struct device *, struct tensor_parallel *, struct data_parallel *,
                           int index, int dp, struct error *);
void stage_close(struct stage *);

/** A parameter's weight, or gradient, by its place in the model's list; none for -1. */
struct tensor stage_weight(const struct stage *, int index);
struct tensor stage_gradient(const struct stage *, int index);

/** A device's rows of one of the microbatch's tables of integers. */
struct tensor rows_of(struct tensor table, struct rows);

/** Show the probe a tensor that was just computed, or the gradient of one. */
void stage_show(struct stage *, const struct microbatch *, const char *name, int layer, struct tensor);
void stage_show_gradient(struct stage *, const struct microbatch *, const char *name, int layer, struct tensor);

/* The operations a schedule is made of.  Collective over the tp group.  After an error the step cannot go on. */
enum error_code stage_forward(struct stage *, int micro, struct error *);
enum error_code stage_backward(struct stage *, int micro, bool input, bool weight, struct error *);

/** The parts of the model that a pass uses, in order, for data_set_uses.  @param[out] use  room for (layers + 2) part_uses_most().
 *  @return how many. */
int stage_uses_forward(const struct stage *, struct use *use);
int stage_uses_backward(const struct stage *, bool input, bool weight, struct use *use);

/* Places for the executor: see execute.h. */
struct tensor stage_input(struct stage *, int micro);
struct tensor stage_output_gradient(struct stage *, int micro);
struct tensor stage_take_output(struct stage *, int micro);
struct tensor stage_take_input_gradient(struct stage *, int micro);

/** Bytes of ACTIVATIONS, followed through one operation: what is held at its end, and the most on the way.
 *  Before forward, what another stage sent is held already. */
struct held { uint64_t now, peak; };
void stage_forward_held(const struct stage *, int micro, struct held *);
void stage_backward_held(const struct stage *, int micro, bool input, bool weight, struct held *);

/** Bytes of its piece of the stream, which goes from stage to stage. */
uint64_t stage_message_bytes(const struct stage *, int micro);

#endif
