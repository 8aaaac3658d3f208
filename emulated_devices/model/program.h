/* program.h -- a model is a table: nodes over named slots, for the embedding, a block and the loss.
 *
 * A node is one operation.  It reads slots, may have parameters, and writes one slot.  A slot is an activation.  Its
 * name is also used to compare it with the one-device model.  The table is all that a model defines: what is kept for
 * backward, the order of the backward pass, memory, prefetching, recomputation and the texts of a diagnosis follow from
 * it (link.h).
 *
 * A new architecture is a file in programs/ and a line in program.c.
 */
#ifndef ORRERY_PROGRAM_H
#define ORRERY_PROGRAM_H

#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"
#include "ref/model/operands.h"

enum op {
    OP_END,                             /* ends a table */
    OP_EMBED,                           /* a row of a matrix for each of "ids" */
    OP_POSITIONS,                       /* in[0] plus a row of a matrix for each position */
    OP_NORM,                            /* the model's kind of norm */
    OP_MATRIX,                          /* in[0] times a matrix, plus its bias */
    OP_HEAD_NORM,                       /* in[0], each head of queries and keys normed */
    OP_LATENT_NORM,                     /* an rmsnorm of in[0], a latent: of as many columns as it has weights */
    OP_JOIN,                            /* queries of in[0], keys without positions and values of in[1], and the key
                                         * that all heads share, at the end of in[2]: as attention reads them */
    OP_NARROW,                          /* in[0], heads' results, without the zeros beside values */
    OP_ROTARY,                          /* queries and keys of in[0], rotated by their positions, in layers that do */
    OP_ATTENTION,                       /* of fused queries, keys and values */
    OP_SINK_ATTENTION,                  /* the same, and each query sees the sink of its head, a parameter */
    OP_PREFIXED_ATTENTION,              /* as OP_ATTENTION, and of the queries to the keys and values of their stream */
    OP_GELU,                            /* the model's activation of a feed-forward without a gate */
    OP_SILU,
    OP_SWIGLU,                          /* in[0]: the gate and the gated values, side by side */
    OP_GEGLU,                           /* the same */
    OP_SCALE,                           /* in[0] times a factor of the model, if the model has that factor */
    OP_CAP,                             /* in[0], the logits, capped */
    OP_DROPOUT,
    OP_ADD,                             /* in[0] + in[1]: the stream, then a branch that ends in a dropout */
    OP_ROUTE,                           /* in[0]: logits of experts; chooses the k largest of each row, and weights */
    OP_MIXTURE,                         /* the feed-forward of in[0]'s rows by the experts that in[1], the route's
                                         * output, has chosen, weighted by it */
    OP_GATE,                            /* in[0] times the sigmoid of in[1], a number for each row */
    OP_BESIDE,                          /* the streams of in[0], one beside the other in a row for each token */
    OP_MIX,                             /* the mean of the streams in in[0], weighted by the softmax of in[1] */
    OP_LOSS,                            /* cross-entropy of in[0], the logits, with "labels" */
    OP_COUNT
};

enum { NODE_INPUTS = 3 };

struct node {
    enum op op;                         /* the operation */
    const char *out;                    /* the slot that it writes; NULL: the result is a number, not a tensor */
    const char *in[NODE_INPUTS];        /* slots that it reads: of this table, or "in", the output of the part before */
    const char *param;                  /* its parameters' name in the model's list, without ".weight" or ".bias";
                                         * NULL: none */
    enum param_role role;               /* for a matrix: how tensor parallelism cuts it */
    enum activation_width width;        /* of a latent */
    enum model_factor factor;           /* for a scale */
    const char *place;                  /* for a dropout: the name of its stream of random numbers */
    bool second;                        /* of the second block of a layer with a shortcut: other random numbers */
    const char *before;                 /* a mixture on a shortcut: it may compute just before the node with this
                                         * output, and exchange rows while the nodes beside it compute; NULL: not */
    bool unseen;                        /* the one-device model does not observe the slot, so no probe compares it */
};

/* Activations that the one-device model observes but devices do not show.  Their rows are sorted by expert, and each
 * device has other tokens to sort, so rows cannot be compared.  The results computed from them are compared. */
extern const char *const sorted_by_expert[];            /* ends with NULL */

/* A model: its parts, in order.  A part is the unit of acquiring weights, of recomputation and of pipeline stages. */
struct program {
    const struct node *embedding, *block, *loss;        /* each ends with OP_END */
    const char *block_prefix;           /* of the names of a block's parameters; %d: the layer */
    const struct node *dense_block;     /* of a mixture's dense layers; NULL: it can have none */
};

extern const struct node llama_embedding[], llama_loss[],       /* also Mixtral's and ScMoE's */
                         gemma_embedding[];                     /* of all Gemmas */

/** The program of a model, or NULL if devices have none for it. */
const struct program *program_of(const struct model_config *);

/** The probability with which a node drops a number; 0 if it is no dropout of the stream. */
double node_drops(const struct model_config *, const struct node *);

/** Whether a node does nothing in this layer, so that devices do not run it: a dropout that drops nothing, a factor
 *  that the model does not have, rotary positions in a layer without them. */
bool node_does_nothing(const struct model_config *, const struct node *, int layer);

/** The table of a part: a layer's block, of the kind that this layer has; of -1 the embedding, of L the loss. */
const struct node *program_part(const struct program *, const struct model_config *, int layer);

/* The parameters of a layer that nodes name, which are neighbours in the model's list. */
struct layer_names { int first, count; char prefix[32], name[BLOCK_PARAMS][PARAM_NAME]; };

/** Those of a layer; of -1 of the embedding, of L of the loss. */
struct layer_names program_names(const struct model_config *, int layer);

/** The index of a node's weight, or bias, in the model's list of parameters; -1 if the model has none. */
int program_weight(const struct model_config *, const struct node *, const struct layer_names *);
int program_bias(const struct node *, const struct layer_names *);

/* ---- properties of each operation, for all models: operations.c -------------------------------------------------- */

/* Which values a backward pass of an operation reads besides the gradient of its output. */
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
