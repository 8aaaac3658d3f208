/* program.h -- a model is a table: nodes over named slots, for the embedding, a block and the loss.
 *
 * A node is one operation.  It reads slots, has perhaps parameters, and makes one slot.  A slot is an activation; its
 * name is also the name under which it is compared with the one-device model.  Nothing else is said about a model here:
 * what is kept for backward, the order of the backward pass, memory, prefetching, recomputation and the words of a
 * diagnosis all follow from the table (link.h).
 *
 * A new architecture is a file in programs/ and a line in program.c.
 */
#ifndef ORRERY_PROGRAM_H
#define ORRERY_PROGRAM_H

#include "emulated_devices/schemes/tensor/tensor.h"

enum op {
    OP_END,                             /* ends a table */
    OP_EMBED,                           /* a row of a matrix for each of "ids" */
    OP_POSITIONS,                       /* in[0] plus a row of a matrix for each position */
    OP_NORM,                            /* the model's kind of norm */
    OP_MATRIX,                          /* in[0] times a matrix, plus its bias */
    OP_ROTARY,                          /* queries and keys of in[0], turned by their positions */
    OP_ATTENTION,                       /* of fused queries, keys and values */
    OP_GELU,
    OP_SWIGLU,                          /* of a gate and what is gated, side by side */
    OP_DROPOUT,
    OP_ADD,                             /* in[0] + in[1]: the stream, then a branch made by a dropout */
    OP_ROUTE,                           /* of in[0], logits of experts, the k largest of each row and their weights */
    OP_MIXTURE,    /* the feed-forward of in[0]'s rows by the experts that in[1], a route, has chosen, weighted by it */
    OP_LOSS,                            /* cross-entropy of in[0], the logits, with "labels" */
    OP_COUNT
};

enum { NODE_INPUTS = 2 };

struct node {
    enum op op;
    const char *out;                    /* the slot that it makes; NULL: a number, not a tensor */
    const char *in[NODE_INPUTS];        /* slots that it reads: of this table, or "in", what the part before has made */
    const char *param;             /* its parameters in the model's list: this with ".weight" and ".bias"; NULL: none */
    enum param_role role;               /* of a matrix: how tensor parallelism cuts it */
    const char *place;                  /* of a dropout: names its stream of random numbers */
    bool unseen;                        /* the one-device model does not announce the slot: no probe compares it */
};

/* Activations that the one-device model announces and devices do not show: their rows are sorted by expert over all
 * tokens at hand, which are others on each device.  What is made of them is compared. */
extern const char *const sorted_by_expert[];            /* ends with NULL */

/* A model: its parts, in order.  A part is what is acquired, recomputed and given to a pipeline stage as a whole. */
struct program {
    const struct node *embedding, *block, *loss;        /* each ends with OP_END */
    const char *block_prefix;           /* what stands before the names of a block's parameters; %d: the layer */
};

extern const struct node llama_embedding[], llama_loss[];       /* a Mixtral's too */

/** The program of a model, or NULL if devices have none for it. */
const struct program *program_of(const struct model_config *);

/** A node's parameter in a layer, by its place in the model's list: its weight, or its bias.
 * @return -1 if the model has none. */
int program_weight(const struct model_config *, const struct node *, int layer);
int program_bias(const struct model_config *, const struct node *, int layer);

/* ---- what is known of each operation, for all models: operations.c ----------------------------------------------- */

/* Which values a backward pass of an operation reads besides the gradient of what it made. */
enum { READS_IN = 1, READS_OUT = 2, READS_STATISTICS = 4, READS_WEIGHTS = 8 };     /* IN: in[0]; WEIGHTS: in[1] */

/* What an operation keeps beside its output, for each row: statistics in the wide format, integers,
 * or activations of its own. */
enum statistic_shape {
    NO_STATISTIC,
    ROW,                                /* one a row of the stream */
    ROW_OF_LAYERNORM,                   /* the same, but an rmsnorm has none */
    INNER_ROW,                          /* one a row of the inner side */
    TWO_INNER_ROWS,
    ATTENTION_KEPT,                     /* what the attention scheme keeps, tensor by tensor */
    EXPERT_CHOICES,                     /* I32, the experts that a token goes to */
    EXPERTS_KEPT, EXPERTS_LEFT,         /* what the expert scheme keeps, and what its backward for the inputs leaves,
                                         * tensor by tensor */
};
enum { NODE_STATISTICS = 6, NODE_GRADIENTS = 2 };

struct operation_info {
    const char *words;                  /* what it is, for a diagnosis; %s: its parameters, or the block */
    bool has_input_pass, has_weight_pass;
    unsigned input_reads, weight_reads; /* READS_...: by backward for the input, and for the weights */
    int over;                     /* the input whose memory the output may take if it is no longer needed; -1: none */
    bool gradient_over;                 /* the gradient of in[0] may take the memory of the gradient of the output */
    bool gradient_over_value;           /* the gradient of in[0] may take the memory of in[0] itself */
    bool passes_on;                     /* the gradient of the output is that of the inputs */
    enum statistic_shape statistic[NODE_STATISTICS];
    enum statistic_shape gradient[NODE_GRADIENTS];      /* what backward for the inputs leaves for that for the weights,
                                                         * besides dY */
};

/** What is known of an operation. */
const struct operation_info *operation_info(enum op);

/** Columns of what a node makes, given those of what it reads. */
enum activation_width operation_width(const struct node *, enum activation_width in);

#endif
