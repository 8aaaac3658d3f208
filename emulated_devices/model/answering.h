/* answering.h -- a stage whose rows are tokens of several requests, not of a batch of equal sequences.
 *
 * All operations but two work on each row alone, so they run as in training.  Attention reads keys and values of
 * earlier iterations, and the loss is not computed: the logits of some rows go to whoever draws tokens from them.  Both
 * are asked of the one that answers requests, serve/engine.c.  model/stage.c and model/run/ call these functions.
 */
#ifndef ORRERY_ANSWERING_H
#define ORRERY_ANSWERING_H

#include "ref/error.h"
#include "ref/ops/ops.h"

struct stage;

/* Attention of one layer, for this device's heads. */
struct answering_attention {
    int64_t first_row;                  /* of the iteration, in qkv */
    int layer;                          /* as random numbers count layers: the second of a layer has its own number */
    struct attention shape;             /* heads, window, sinks; S is that of the model */
    struct tensor qkv;                  /* [rows, (H+2K)A] after norms and rotary positions */
    struct tensor out, lse;             /* [rows, HA], [rows, H] */
};

/* The rows of an iteration in four parts, so that each operation of a layer can be done on some of them at a time. */
enum { ROW_PARTS = 4 };
struct row_cuts {
    int64_t at[ROW_PARTS + 1];          /* where each part begins, and the last one ends */
    int batches[2];                     /* how often an operation of a layer is done, up to attention and behind it:
                                         * 1, 2 or 4 */
};

struct answering {
    void *context;                      /* first argument of all functions */
    /* Keep the keys and values of all rows, then write what each row's query sees.  Local.
     * @return OK or ERR_MEMORY. */
    enum error_code (*attend)(void *context, const struct answering_attention *, struct error *);
    /* Take the logits [rows asked, this device's columns]: they are gone afterwards.  Collective over the tp group.
     * @return OK, ERR_MEMORY or ERR_COMM. */
    enum error_code (*take_logits)(void *context, struct tensor logits, struct error *);
    /* Read the stream [rows, D] of all rows behind the last layer.  NULL: nobody does.  Local.
     * @return OK or ERR_INTERNAL. */
    enum error_code (*read_stream)(void *context, struct tensor stream, struct error *);
    const struct row_cuts *cuts;        /* NULL: each operation is done on all rows at once */
    /* With cuts: an operation of a layer begins on some parts, and has ended on so many from `first` on.  Local. */
    void (*begin_part)(void *context);  /**< Called when an operation begins on some parts. */
    void (*end_part)(void *context, int first, int parts); /**< Called when an operation has ended. */
    struct tensor asked;                /* I32 [n] ascending: the rows of the iteration whose logits are wanted */
};

/** Set the tokens of a stage's only microbatch.  Nothing may be in flight.  Local.
 *  @param id, position  [rows]  @return OK or ERR_MEMORY. */
enum error_code answering_take(struct stage *, const int32_t *id, const int32_t *position, int64_t rows,
                               struct error *);

#endif
