/* graph.h -- a computation on logical tensors, which says nothing about devices: forward and backward as one list.
 *
 * Each operation has its index letters, "nd,fd->nf" for Y = X W^T.  They give its legal signatures, on every axis of
 * the mesh one of:
 *   a letter    operands that have the letter are split there, the others are broadcast; an output without it is a
 *               partial sum.  Capital letters are never cut: a norm needs its row whole.
 *   partial     operands in which the operation is linear together are partial sums, and so is the output: one factor
 *               of a product, both terms of a sum
 *   B           every device does all of it.  Not for products of matrices: those are always divided.
 *
 * model/sbp/sbp_graph.c builds graphs of blocks, graph_file.c reads them; assign.c finds signatures, assign_run.c
 * computes.
 */
#ifndef ORRERY_SBP_GRAPH_H
#define ORRERY_SBP_GRAPH_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/schemes/sbp/signature.h"
#include "ref/model/config.h"

enum { SBP_OPERANDS = 4, SBP_MOST_TENSORS = 64, SBP_MOST_OPS = 48, SBP_NAME = 48, SBP_LETTERS = 24 };

struct sbp_operator {
    const char *name;                   /* for messages */
    bool product;                       /* of matrices: must be divided */
    unsigned partial[2];                /* sets of operands, one bit each, in which it is linear together; 0: none */
    /* Local: out and in are pieces, seen with the shapes of their boxes; the model is the graph's.
     * @return whether there was memory for it. */
    bool (*run)(struct device *, const struct model_config *, struct tensor out, const struct tensor in[]);
    /* Products have this, too, which adds to out what `run` writes.  NULL: there is none. */
    bool (*add)(struct device *, const struct model_config *, struct tensor out, const struct tensor in[]);
};
extern const struct sbp_operator sbp_linear, sbp_linear_dx, sbp_linear_dw, sbp_copy, sbp_add, sbp_add_bias, sbp_bias_dw,
    sbp_gelu, sbp_gelu_dx, sbp_swiglu, sbp_swiglu_dx, sbp_geglu, sbp_geglu_dx, sbp_norm, sbp_norm_dx, sbp_norm_dw,
    sbp_rotary, sbp_rotary_dx, sbp_attention, sbp_attention_dx;

struct sbp_op {
    const struct sbp_operator *operator;        /* what is computed */
    char letters[SBP_LETTERS];          /* "nd,fd->nf": an operand's letters are its dimensions */
    int inputs, in[SBP_OPERANDS], out;  /* tensors */
};

struct sbp_tensor {
    char name[SBP_NAME];                /* unique in the graph */
    struct shape shape;                 /* of the whole */
    int like;                           /* it must end up with the signature of this tensor, as a gradient with its
                                         * weight's; -1: free */
    int inner;                          /* the dimension that tensor parallelism cuts; -1: it lies outside of that */
    bool pinned;                        /* it has this signature */
    struct signature pin;               /* if pinned */
};

struct sbp_graph {
    struct model_config model;          /* numbers of the operations; S: tokens of a sequence */
    bool full;                          /* something did not fit: the graph is not whole */
    int tensors, ops;                   /* entries of both lists */
    struct sbp_tensor tensor[SBP_MOST_TENSORS]; /* inputs, weights and results of operations */
    struct sbp_op op[SBP_MOST_OPS];     /* in an order in which they can be done */
};

/** Add a tensor, the first one the stream that enters.
 * @param like  a tensor of the same shape, or -1.
 * @return its number; 0 if there is no room: the graph is then full. */
int graph_tensor(struct sbp_graph *, const char *name, struct shape shape, int like);

/** Add an operation; in: tensors, as many as the letters have operands.  Without room for it, the graph is full. */
void graph_op(struct sbp_graph *, const struct sbp_operator *, const char *letters, int out, const int in[]);

/** Whether an operation makes a tensor; else it enters the graph. */
bool graph_makes(const struct sbp_graph *, int tensor);

/** A tensor by its name, or -1. */
int graph_find(const struct sbp_graph *, const char *name);

/** Give a tensor a signature.  @return OK; ERR_USAGE for no such tensor; ERR_PLAN if the signature does not fit it. */
enum error_code graph_pin(struct sbp_graph *, const struct sbp_mesh *, const char *tensor, struct signature,
                          struct error *);

/* A rule is a way to do an operation: the signatures that the operands need, and that of the result. */
struct rule { struct signature in[SBP_OPERANDS], out; };

/** The letters of an operand, or for op->inputs of what is made.  @param[out] n  how many. */
const char *graph_letters(const struct sbp_op *, int operand, int *n);

/** Every legal way on a mesh.  @param[out] rule  room for SBP_MOST_RULES.  @return how many. */
enum { SBP_MOST_RULES = 100 };
int graph_rules(const struct sbp_graph *, const struct sbp_op *, const struct sbp_mesh *, struct rule rule[]);

/** The last operation that reads a tensor, or that makes a tensor which must be like it; -1: none. */
int graph_last_use(const struct sbp_graph *, int tensor);

/** The pins that make a strategy of a graph: "dp", "1d", "sp", "2d" (dp by 1d), "free" (none: for the search).
 *  @return OK, or ERR_USAGE naming the strategies, ERR_PLAN for another mesh. */
enum error_code graph_strategy(struct sbp_graph *, const struct sbp_mesh *, const char *name, struct error *);

#endif
