/* link.h -- turns the table of a part into lists of steps.  The lists define what the backward pass reads, in which
 * order it adds gradients, which slots share memory, and what is kept, or dropped and recomputed.
 *
 * Running a model, counting its memory and listing the weights that it uses next are loops over these lists.
 *
 *   forward   allocates what is kept, runs the nodes, drops what will be recomputed
 *   again     before backward: allocates and recomputes what was dropped
 *   input     backward for the inputs: nodes in reverse order.  If a slot has several readers, their gradients come in
 *             reverse order: the first is written, each later one goes to a scratch buffer and is added.  A branch's
 *             gradient is that of the sum it ends in: the branch keeps its memory, and the next addition writes the
 *             stream's gradient into new memory.  So nothing is copied, unless the branch needs room for more rows
 *   weight    backward for the weights: nodes in reverse order (in a part without inputs: in forward order); drops
 *             everything that was kept
 *
 * A node that does nothing in this model, a dropout with probability 0, is not linked: its output is its input, under
 * two names.  Files of model/link/, model/run/, model/ and bench/schemes/ call these functions.
 */
#ifndef ORRERY_LINK_H
#define ORRERY_LINK_H

#include "emulated_devices/model/program.h"
#include "emulated_devices/plan/recompute.h"
#include "emulated_devices/schemes/seams.h"

enum { LINK_NODES = 32, LINK_SLOTS = LINK_NODES + 1, LINK_BUFFERS = 5 * LINK_NODES, LINK_STEPS = 8 * LINK_NODES };

/* A buffer is the memory of one tensor of a microbatch in a part.  The first three belong to the stage: the stream that
 * enters the part, the stream that leaves it, and the gradient of the stream, which passes through all parts. */
enum { BUFFER_NONE = -1, BUFFER_IN, BUFFER_OUT, BUFFER_GRADIENT, BUFFER_FIRST_OWN };

struct buffer {
    enum tensor_place rows;             /* which rows of a microbatch it has room for */
    enum activation_width width;        /* which columns */
    enum statistic_shape statistic;     /* NO_STATISTIC: rows times width, in the device's format */
    int slot;                           /* for ATTENTION_KEPT, EXPERTS_KEPT, EXPERTS_LEFT: which of the scheme's */
    enum arena_tag tag;                 /* ACTIVATIONS, or BUFFERS for gradients */
    bool kept;                          /* a value: from forward to the end of backward; a gradient: from backward for
                                         * the inputs to backward for the weights */
    bool dropped;                       /* dropped after forward, recomputed before backward */
    bool holds_stream;                  /* a gradient: it took over the memory of the stream's gradient */
};

struct slot {
    const char *name;                   /* under which it is shown */
    const char *other_name;             /* NULL, or of the input or output of a node that was not linked */
    bool unseen;                        /* the one-device model does not observe it */
    enum activation_width width;        /* columns of the value */
    int maker;                          /* the node that writes it; -1: the part before */
    int value, gradient;                /* buffers */
};

/* A node with the buffers that its passes read and write; BUFFER_NONE where there is none. */
struct linked_node {
    const struct node *is;              /* the node of the program's table */
    int in[NODE_INPUTS], out;           /* slots; -1: none */
    int x[NODE_INPUTS], y;              /* values */
    int statistic[NODE_STATISTICS], gradient[NODE_GRADIENTS];   /* buffers of what forward keeps for backward, and
                                         * backward for the inputs for that for the weights */
    int dx[NODE_INPUTS], dy;            /* where gradients of the inputs are written; the gradient of the output */
    int before[NODE_INPUTS];            /* where an input's gradient is before this node's is added to it */
    bool still;                         /* its parameters do not train: no pass computes their gradients */
    int middle, end;                    /* of a node that runs in three parts: the nodes before which the second and the
                                         * third run forward; 0: it runs at once */
};

/* BEGIN and MIDDLE: the first parts of a node that runs in three, of which RUN is the last.  ADD: at = before + from.
 * EXCHANGE: the two buffers exchange their memory, and nothing is copied.  COPY: this device's rows of `at` are those
 * of `from`. */
enum step_kind {
    STEP_MAKE, STEP_DROP, STEP_RUN, STEP_BEGIN, STEP_MIDDLE, STEP_ADD, STEP_EXCHANGE, STEP_COPY, STEP_SHOW,
    STEP_SHOW_GRADIENT
};

struct part_step {
    enum step_kind kind;                /* what is done, and what `at` is */
    int at;                             /* RUN: a node; SHOW: a slot; others: a buffer */
    int from, before;                   /* ADD, EXCHANGE, COPY: buffers */
};

/* The actions of a pass over a part, in order. */
struct steps { int count; struct part_step step[LINK_STEPS]; };

enum list { LIST_FORWARD, LIST_AGAIN, LIST_INPUT, LIST_WEIGHT, LIST_COUNT };

struct linked {
    const struct attention_scheme *attention;   /* for which the part was linked */
    bool exact;                                 /* likewise: with exact sums backward of attention reads its output */
    const struct expert_scheme *experts;        /* likewise */
    int nodes, slots, buffers;                  /* entries of these lists */
    struct linked_node node[LINK_NODES];        /* in the order of the forward pass */
    struct slot slot[LINK_SLOTS];       /* [0]: what enters the part */
    struct buffer buffer[LINK_BUFFERS];         /* memory that slots share where their values do not meet */
    struct steps list[LIST_COUNT];              /* forward, recomputation, and the two backward passes */
};

/**
 * Link the table of a part.  Pure.
 * @param layer         of the part: in some layers some nodes do nothing.
 * @param seams         the schemes, which say what their calls keep.
 * @param recompute     what is dropped after forward and recomputed.
 * @param forward_only  there is no backward pass: everything is dropped.
 * @return OK; ERR_PLAN if the table cannot be run: it reads a slot that no node writes, or is too long.
 */
enum error_code link_part(struct linked *, const struct node *table, const struct model_config *, int layer,
                          const struct seams *seams, enum recompute recompute, bool forward_only, struct error *);

/** Link one part of a model.
 *  @param layer  of a block; -1: the embedding; L: the loss. */
enum error_code link_layer(struct linked *, const struct model_config *, const struct seams *, int layer,
                           const char *recompute, bool forward_only, struct error *);

/** The slot of this name, or NULL. */
const struct slot *linked_slot(const struct linked *, const char *name);

/** A tensor of a buffer's shape on this device for a microbatch of N tokens, without memory. */
struct tensor buffer_shape(const struct buffer *, const struct seams *, int64_t N);

/** Bytes of a buffer on this device. */
uint64_t buffer_bytes(const struct buffer *, const struct seams *, int64_t N);

/** Bytes of activations that a part keeps between forward and backward, its input included; and those of them that are
 *  dropped in between. */
uint64_t linked_keeps(const struct linked *, const struct seams *, int64_t N);
uint64_t linked_drops(const struct linked *, const struct seams *, int64_t N);

/** Whether a node's output leaves the part.  It is not recomputed: its memory belongs to the next part, or is freed. */
static inline bool leaves_part(const struct linked_node *node) { return node->y == BUFFER_OUT; }

/** Whether before backward a node is not computed again: it is attention, whose output was kept. */
bool only_exchanges(const struct linked *, const struct linked_node *);

/** Whether running a list needs weights. */
bool list_uses_weights(const struct linked *, enum list);

#endif
