/* program.h -- a model is a table (ref/model/node.h): what devices read of its nodes.
 *
 * The table is all that a model defines: what is kept for backward, the order of the backward pass, memory,
 * prefetching, recomputation and the texts of a diagnosis follow from it (link.h).  Each family of models has its table
 * in its file of ref/model/families/.  No function returns an error code.  Files of model/, check/ and verify/ call
 * these functions.
 */
#ifndef ORRERY_PROGRAM_H
#define ORRERY_PROGRAM_H

#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/op.h"

struct model_config;
struct node;                    /* node.h */
struct program;

/* Activations that the one-device model observes but devices do not show.  Their rows are sorted by expert, and each
 * device has other tokens to sort, so rows cannot be compared.  The results computed from them are compared. */
extern const char *const sorted_by_expert[];            /* ends with NULL */

/** The probability with which a node drops a number; 0 if it is no dropout of the stream. */
double node_drops(const struct model_config *, const struct node *);

/** Whether a node does nothing in this layer, so that devices do not run it: a dropout that drops nothing, an option or
 *  a factor that the model does not have, rotary positions in a layer without them. */
bool node_does_nothing(const struct model_config *, const struct node *, int layer);

/** The table of a part: a layer's block, of the kind that this layer has; of -1 the embedding, of L the loss. */
const struct node *program_part(const struct program *, const struct model_config *, int layer);

/** The index of a node's weight, or bias, in the model's list of parameters; -1 if the model has none.  layer: of the
 *  node's part, as in program_part. */
int program_weight(const struct model_config *, const struct node *, int layer);
int program_bias(const struct model_config *, const struct node *, int layer);

/** Whether a node has a matrix that neither trains nor has an adapter, whose gradients come from the matrix's. */
bool program_stands_still(const struct model_config *, const struct node *, int layer);

/* ---- properties of each operation, for all models: operations.c -------------------------------------------------- */

/* This says which values a backward pass of an operation reads besides the gradient of its output. */
enum { READS_IN = 1, READS_OUT = 2, READS_STATISTICS = 4, READS_WEIGHTS = 8 };     /* IN: in[0]; WEIGHTS: in[1] */

/* An operation keeps, besides its output, statistics in the wide format, integers, or activations of its own. */
enum statistic_shape {
    NO_STATISTIC,
    ROW,                                /* one per row of the stream */
    ROW_OF_LAYERNORM,                   /* the same, but none for an rmsnorm */
    INNER_ROW,                          /* one per row of the logits */
    INNER_HEADS,                        /* one per row of the heads and what norms of heads norm */
    TWO_INNER_ROWS,
    ATTENTION_KEPT,                     /* the tensors that the attention scheme keeps */
    STREAM_WEIGHTS,                     /* P for each token */
    SINK_GRADIENT,                      /* of the sinks of this device's heads */
    PREFIX_GRADIENT,                    /* of the keys and values of this device's streams */
    EXPERT_CHOICES,                     /* I32, the experts that a token goes to */
    EXPERTS_KEPT, EXPERTS_LEFT,         /* the tensors that the expert scheme keeps, and those that its backward for
                                         * the inputs leaves for that for the weights */
};
enum { NODE_STATISTICS = 7, NODE_GRADIENTS = 2 };

struct operation_info {
    const char *words;                  /* its description, most often: node_words; %s: its parameters, or the block */
    bool has_input_pass, has_weight_pass;       /* whether backward computes gradients of inputs, of weights */
    unsigned input_reads, weight_reads; /* READS_...: by backward for the input, and for the weights */
    int over;                           /* the input whose memory the output may reuse once nothing else needs it;
                                         * -1: none */
    bool gradient_over;                 /* the gradient of in[0] may reuse the memory of the gradient of the output */
    bool gradient_over_value;           /* the gradient of in[0] may reuse the memory of in[0] */
    bool passes_on;                     /* the gradient of each input is the gradient of the output */
    enum statistic_shape statistic[NODE_STATISTICS];    /* what forward keeps besides the output */
    enum statistic_shape gradient[NODE_GRADIENTS];      /* besides dY, what backward for the inputs leaves for backward
                                                         * for the weights */
};

static inline bool is_attention(enum op op)
{
    return op == OP_ATTENTION || op == OP_SINK_ATTENTION || op == OP_PREFIXED_ATTENTION;
}

/** The properties of an operation. */
const struct operation_info *operation_info(enum op);

/** The description of a node in a diagnosis, which depends on the model's kind of norm and activation; %s: as in
 *  operation_info. */
const char *node_words(const struct model_config *, const struct node *);

/** The columns of a node's output, given those of its input. */
enum activation_width operation_width(const struct node *, enum activation_width in);

#endif
