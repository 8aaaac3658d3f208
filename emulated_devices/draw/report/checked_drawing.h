/* checked_drawing.h -- the tensors of the page of a check, and who writes which part of it.  Inside draw/report/ only.
 * checked.c fills the drawing and calls checked_graph.c and checked_rows.c. */
#ifndef ORRERY_DRAW_REPORT_CHECKED_DRAWING_H
#define ORRERY_DRAW_REPORT_CHECKED_DRAWING_H

#include "emulated_devices/draw/report/checked.h"
#include <stdio.h>

/* X(id, class of its colour, sign, words) */
#define SHOWN(X)                                                                                        \
    X(SHOWN_FIRST,   "first", "\u2717", "wrong first, in order of execution")                           \
    X(SHOWN_WRONG,   "wrong", "\u2717", "wrong: not what its own inputs give, or missing")              \
    X(SHOWN_FOLLOWS, "after", "\u21b3", "differs, and may follow from what is wrong before it")         \
    X(SHOWN_RIGHT,   "right", "\u2713", "right")                                                        \
    X(SHOWN_LOOSE,   "loose", "\u2248", "right within a bound above 0.1 only")                          \
    X(SHOWN_OPEN,    "open",  "?",      "cannot be judged")                                             \
    X(SHOWN_ABSENT,  "open",  "\u2013", "not judged: the dump has none of its kind")

enum shown {
#define X(id, colour, sign, words) id,
    SHOWN(X)
#undef X
    SHOWN_COUNT
};
/* Each has a class of its colour, a sign, and words for both. */
extern const char *const shown_colours[], *const shown_signs[], *const shown_words[];

/* The columns of a layer, in order of execution. */
enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_GRADIENTS, PHASE_STEP, PHASE_COUNT };

struct shown_tensor {
    const struct checked *checked;      /**< Comparison of the tensor with the golden file. */
    const struct single_result *alone;  /* NULL: it was not recomputed */
    enum shown shown;                   /**< Sign and colour of the tensor. */
    enum phase phase;                   /**< Column of the tensor in its layer. */
    int64_t step;                       /**< Step of the tensor, from 1. */
    int layer;                          /* 0: before the blocks; 1 to L; L + 1: after them */
    int order;                          /* in its step */
    bool row;                           /* it has a row of its own */
};

/* All tensors of the page. */
struct checked_drawing {
    const struct checked_page *page;    /**< Check that the page is about. */
    struct shown_tensor *all;           /* [count] in order of execution */
    int count;                          /**< Entries of `all`. */
    const struct checked **by_name;     /* [count] sorted */
    bool crowded;                       /* right tensors are counted, and have no rows */
};

/** A text of a foreign file: what is no text becomes '?', and HTML's signs are replaced. */
void checked_text(FILE *, const char *);

/** The last part of a name: "loss" of "adamw/2/loss". */
const char *checked_last(const char *name);

/** The number between two points of a name, as 3 of "model.layers.3.mlp.up_proj.weight"; -1: it has none.
 *  @param[out] rest  what follows it; without a number the name. */
long checked_layer(const char *name, const char **rest);

/** The graph of a step, if it has tensors. */
void checked_write_step(FILE *, const struct checked_drawing *, int64_t step);

/** The evidence of tensor `first`; a row for each of the others, -1: for all. */
void checked_write_evidence(FILE *, const struct checked_drawing *, int first);
void checked_write_rows(FILE *, const struct checked_drawing *, int first);

#endif
