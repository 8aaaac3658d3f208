/* part_memory.h -- the tensors of one microbatch in one part of the model, in a replay.  Private to train/memory_of/.
 * No function returns an error code; see replayed.h. */
#ifndef ORRERY_PART_MEMORY_H
#define ORRERY_PART_MEMORY_H

#include "emulated_devices/model/stage.h"
#include "emulated_devices/train/memory_of/states.h"

/* Queries, keys and values are three tensors in programs that have a matrix for each. */
enum { SPLIT = 3, KEPT = 8, OWN = 8 };

struct part_memory {
    struct replayed *value[LINK_SLOTS][SPLIT];     /* until the last reader has run */
    struct replayed *cached[LINK_SLOTS][SPLIT];    /* kept over a drop after forward */
    struct replayed *gradient[LINK_SLOTS]; /* gradients of the part's inputs */
    struct replayed *own[LINK_NODES][OWN];         /* 'a' to 'h' */
    struct replayed *kept[LINK_NODES][KEPT];       /* references that nodes hold for their backward pass */
    struct replayed *entering;                     /* the input, kept by a part that will be computed again */
};

/* Forward keeps for backward: everything; the part's input; also results of attention; also of every second product. */
enum keeping_mode { KEEP_ALL, KEEP_INPUT, KEEP_ATTENTION, KEEP_MATRICES };

/* A pass over a part. */
struct part_pass {
    struct states *states;              /* of all parameters */
    const struct stage *stage;          /* the stage of the part */
    const struct model_part *part;      /* the part that runs */
    struct part_memory *memory;         /* what the part keeps */
    struct seams seams;                 /* how the stage is cut */
    int64_t N;                          /* tokens of the microbatch */
    enum keeping_mode mode;             /* what the pass keeps */
    bool again;                         /* forward once more, before backward */
    int last_reader[LINK_SLOTS];        /* part_forward finds them: the last node that reads a slot; -1: none does */
};

/** Run a part's nodes forward.  @param in  the stream; taken.  @return the stream that leaves; NULL: none does. */
struct replayed *part_forward(struct part_pass *, struct replayed *in);

/** Run a part's nodes backward.  @param out  the gradient of the stream that left; taken.
 *  @return the gradient of the stream that entered. */
struct replayed *part_backward(struct part_pass *, struct replayed *out);

#endif
