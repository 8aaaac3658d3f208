/* parts.h -- shared by the files of recompute/.  Inside check/ only.
 *
 * A pass of an operation reads, and ends with a value or with the status that says why there is none:
 *
 *     const struct tensor X = single_act(s, n->in[0]), w = single_param(s, n->weight), ...;
 *     if (!single_going(s)) return single_stop(s);                 an input is missing, or something has failed
 *     struct single_value v = single_value_new(s, rows, cols);     the result, and how far it may be off
 *     for (i ...) single_put(v, i, ...);
 *     return v;
 * The first failure sets single.failed; all functions then return at once, and walk.c ends the check.
 */
#ifndef ORRERY_SINGLE_PARTS_H
#define ORRERY_SINGLE_PARTS_H

#include "ref/model/sample_mask.h"
#include "ref/ops/ops.h"
#include "emulated_devices/check/recompute/graph.h"
#include "ref/model/config.h"
#include <math.h>

enum { SINGLE_PARALLEL_FROM = 1 << 14 };        /* numbers; below this, starting threads costs more than it saves */

/* A pass that contributed to the current result. */
enum single_pass_kind { SINGLE_FORWARD, SINGLE_INPUT, SINGLE_WEIGHT, SINGLE_BIAS };
enum { SINGLE_TERMS = 16 };
struct stepping;                                /* stepping.h */
struct single_term { const struct single_node *node; enum single_pass_kind pass; single_pass *run; struct tensor y; };

/* A hypothesis replaces a mask of dropout by one of these (mask.c). */
enum mask_kind {
    MASK_RIGHT,
    MASK_NONE,                                  /* 1 - rate: nothing is dropped */
    MASK_EMPTY, MASK_FULL,                      /* all is dropped; nothing is, and all is divided by 1 - rate */
    MASK_INVERTED,
    MASK_UNSCALED, MASK_TWICE,                  /* what is kept is divided by 1 - rate not at all, or twice */
    MASK_SHIFTED, MASK_ROW_SHIFTED,             /* that of the element, or row, `by` further */
    MASK_OF_FIRST_COPY, MASK_OF_FIRST_HEADS,    /* each of `by` parts, of the batch or the heads, has the first's */
    MASK_OF_NEXT_COPY, MASK_OF_COPY_BEFORE,     /* each of `by` parts of the batch has another's */
    MASK_OF_STEP, MASK_OF_LAYER                 /* number `by` */
};
struct mask_change { enum mask_kind kind; int by; };

/* Some rows of a matrix. */
struct single_block { int64_t first, rows; };

/* The choices of all tokens by the logits of a slot, and how many rows experts compute; none: experts is NULL. */
struct single_routed { int logits; int32_t *experts; double *weights; int64_t rows; };

/* A check reads these; nothing changes them until it ends. */
struct single_context {
    const struct model_config *config;          /**< Configuration of the model. */
    const struct single_graph *graph;           /* NULL: steps of an optimizer, or sums over microbatches */
    const struct ops *ops;                      /* F64 */
    struct single_batch all;                    /* the whole batch */
    struct single_source source;                /**< Reader of the program's tensors. */
    struct error *err;                          /**< Place for the first error. */
};

/* The part of the batch, and of a parameter, that passes compute now. */
struct single_cursor {
    struct single_batch batch;                  /* the whole one, or a tile of it */
    int64_t N;                                  /* its tokens */
    int64_t first;                              /* token that the tile begins with */
    struct single_block block;                  /* of the parameter whose gradient is computed; none: all of it */
    int64_t expert;                             /* whose weight a pass for weights is about */
    bool one_expert;                            /* of a tile, only its rows are computed */
};

/* A hypothesis replaces what is right by these; all zero: it replaces nothing. */
struct single_hypothesis {
    struct mask_change mask;                    /**< Change of the dropout masks. */
    int masks_changed;                          /* masks that have been changed so */
    const unsigned char *counted;               /* [all tokens] whose gradients are not zero; NULL: all */
    int64_t first_column, columns;              /* of a gradient that is read, all others are zero; 0: none are */
    bool sums;                                  /* sums of parts are read as they are */
};

/* How a pass reads a sum whose parts ranks have (summed.c), and what it has read of it. */
struct single_sum_reading {
    enum { SUM_LACKS, SUM_WHOLE, SUM_PART, SUM_PROBE } take;    /* LACKS: it counts as a missing input */
    int number;                                 /* of the part, from 1, 0 is what no rank has a part of; of the probe */
    int parts;                                  /* that were read; 0: no sum was read */
    bool gradient;                              /* the sum is one of a gradient */
};

/* This is what the running pass has missed so far: it begins empty (single_attempt) and ends as the pass's status. */
struct single_reading {
    const char *unknown;                        /* an operation that is not recomputed: its words; or NULL */
    char lacks[SINGLE_NAME];                    /* the first missing input; or empty */
    struct single_sum_reading sum;              /**< Sum of parts that the pass has read. */
};

/* The result that is judged, and what its verdict may depend on. */
struct single_judgement {
    struct single_result result;                /**< Result of one operation, with its verdict. */
    struct tensor have;                         /* the program's numbers */
    struct tensor absolute;                     /* of a sum of parts: theirs, added up; else tensor_none */
    const struct single_slot *slot;             /* whose value or gradient it is; NULL: of none */
    const struct stepping *stepping;            /* the step whose result it is; NULL: it is of the graph */
    struct single_term term[SINGLE_TERMS];      /* the summands of what is right */
    int terms;                                  /**< Entries of `term`. */
    const int64_t *row_of;                      /* [rows of the tile] which of the whole they are; NULL: the next */
    const char *wrong_anyway;                   /* why it is wrong, if all its numbers are right; or NULL */
    char doubt[SINGLE_NAME];                    /* what leaves open whether a result outside its bounds is wrong; or
                                                 * empty */
};

/* Matrices that live until a result is judged. */
struct single_matrix { void *data; int64_t bytes; };
struct single_memory {
    struct single_matrix *matrix;               /* [used] */
    int used, room;
    int64_t bytes;                              /* of all that is used */
};

struct single {
    const struct single_context *context;       /**< Read-only data of the check. */
    struct single_cursor cursor;                /**< Part of the batch that is computed now. */
    struct single_hypothesis hypothesis;        /**< Replacements that are tried now. */
    struct rounding rounding;                   /* the program's, or a hypothesis's */
    struct single_reading reading;              /**< Inputs that the running pass has missed. */
    struct single_judgement verdict;            /**< Result that is judged. */
    struct single_memory memory;                /**< Matrices kept until a result is judged. */
    struct single_routed routed;                /* kept for the next tile */
    struct single_notes *notes;                 /* the explainer's, until the check ends; single_notes_of finds them */
    enum error_code failed;                     /* the first failure: everything that follows does nothing */
};

/* A tensor's name. */
struct single_name { char text[SINGLE_NAME]; };
struct single_name single_name(const char *kind, const char *name);     /* "grad/", "logits" */
struct single_name single_param_name(const struct single *, const char *kind, int param);

/* The check's list of parameters: how many there are, and one of them. */
int single_spec_count(const struct single *);
struct param_spec single_spec(const struct single *, int param);

/* The sizes of what has been added up to an input: of one that ranks have parts of, the absolute values of its parts;
 * of any other, its own. */
struct single_sizes { struct tensor absolute; int parts; };

/* ---- what a pass reads ------------------------------------------------------------------------------------------- */

/* The rows of a slot that are now computed. */
int64_t single_rows(const struct single *, const struct single_slot *);

/* A slot's value, and its gradient: the program's, or computed if the slot is unseen. */
struct single_value single_value_of(struct single *, int slot);
struct single_value single_gradient_of(struct single *, int slot);

/* Read a value or a gradient for operations that need exact numbers.  Computed numbers that may be off count as a
 * missing input, and so do sums of parts that ranks have. */
struct tensor single_act(struct single *, int slot);
struct tensor single_grad(struct single *, int slot);

/* Read an activation for an operation that each rank applies to its part. */
struct tensor single_act_sized(struct single *, int slot, struct single_sizes *);

/* Read a weight, with its own shape; a vector is one row.  tensor_none for -1. */
struct tensor single_param(struct single *, int param);
/* Some rows of a matrix. */
struct tensor single_param_block(struct single *, int param, struct single_block);

/* Read the mask of a node's dropout, with the shape of what it drops: of attention [sequences H S, S].  tensor_none
 * if the rate is 0. */
struct tensor single_mask(struct single *, const struct single_node *);

static inline const struct single_slot *single_slot(const struct single *single,
                                                    int slot) { return &single->context->graph->slot[slot]; }

/* The position of a row's token in its document, or in its sequence. */
static inline int64_t single_position(const struct single *single, int64_t row)
{
    const int32_t *positions = single->cursor.batch.positions;
    return positions ? sample_position(positions[row % single->cursor.N]) : row % single->cursor.batch.S;
}

/* Why a pass that has read so much cannot go on; SINGLE_DONE: it can. */
static inline enum single_status single_status(const struct single *single)
{
    return single->failed ? SINGLE_FAILED : single->reading.unknown ? SINGLE_NOT_KNOWN
           : single->reading.lacks[0] ? SINGLE_LACKING : SINGLE_DONE;
}

/* Whether all inputs are there, and nothing has failed. */
static inline bool single_going(const struct single *single) { return single_status(single) == SINGLE_DONE; }

/* How a pass ends that cannot go on. */
static inline struct single_value single_stop(const struct single *single)
{
    return (struct single_value){ .status = single_status(single) };
}

/* Begin to read something that does not stop who asks if it is missing.  @return what has been missed before. */
static inline struct single_reading single_read_anew(struct single *single)
{
    const struct single_reading outer = single->reading;
    single->reading = (struct single_reading){ 0 };
    return outer;
}

/* Run a pass by itself: what it lacks is its status, and does not stop who asks.  pass: NULL: it is not recomputed. */
struct single_value single_attempt(struct single *, const struct single_node *, single_pass *);

/* ---- what it makes ----------------------------------------------------------------------------------------------- */

/* An F64 matrix of zeros that lives until the operation ends; tensor_none, with the failure noted, if there is no
 * memory. */
struct tensor single_new(struct single *, int64_t rows, int64_t cols);
struct single_value single_value_new(struct single *, int64_t rows, int64_t cols);

static inline double *numbers(struct tensor t) { return t.data; }

/* An element's value, and how far it is off. */
struct element { double y, off; };

/* fused: its own error; more: of the results of its steps, if they are stored. */
static inline void single_put(struct single_value value, int64_t i, struct element once, double more)
{
    numbers(value.y)[i] = once.y, numbers(value.fused)[i] = once.off, numbers(value.steps)[i] = once.off + more;
}

/* How far the result of a step is off: relative, and absolutely where it is subnormal.  A quotient 1 / x below `lost`
 * may be 0. */
struct unit { double u, tiny, lost; };

/* The rounding of a step that is computed, and of one whose result is stored. */
static inline struct unit unit_computed(const struct single *single)
{
    return (struct unit){ single->rounding.sum, single->rounding.sum_tiny, single->rounding.sum_lost };
}
static inline struct unit unit_stored(const struct single *single)
{
    return (struct unit){ single->rounding.store, single->rounding.tiny, single->rounding.lost };
}

/* How far a number is off that a step has rounded. */
static inline double unit_off(struct unit unit, double x) { return unit.u * fabs(x) + unit.tiny; }

/* Parts of a parameter's gradient that are stored and then added move the sum by this: each part, and each sum of
 * them.  absolute: of the terms of all parts. */
static inline double unit_off_parts(const struct single *single, double absolute)
{
    return (single->rounding.gradient_parts - 1) * 2 * unit_off(unit_stored(single), absolute);
}

/* `count` terms of a sum, each off by as much as a subnormal number, move the sum by this. */
static inline double tiny_terms(double tiny, int64_t count)
{
    return rounding_of_terms(tiny, (double)count, sqrt((double)count));
}

/* Whether it is known which rows make each of the parts of a gradient that are stored. */
static inline bool single_knows_parts(const struct single *single)
{
    const struct single_source *source = &single->context->source;
    return source->part && source->parts_of_batch > 1 && single->rounding.gradient_parts >= source->parts_of_batch &&
           dtype_is_narrow(single->rounding.results);
}

/* Round the value to the format. */
struct single_value single_settled(struct single *, struct single_value);

/* The sum of values, each of which is rounded first. */
struct single_value single_sum(struct single *, const struct single_value[], int count);

/* ---- one result -------------------------------------------------------------------------------------------------- */

/* Read the program's result.  @return whether the program has it; if not, there is nothing to end. */
bool single_begin(struct single *, struct single_name, const char *made_by, int64_t rows, int64_t cols);
/* Read what it is made from. */
struct tensor single_input(struct single *, struct single_name, int64_t rows, int64_t cols);
bool single_has_parts(struct single *, struct single_name);
/* How many ranks have parts of it that are added up; 1: it is no sum. */
int single_parts(struct single *, struct single_name);
/* Read an input of a tile's tokens in each of several streams. */
struct tensor single_input_streams(struct single *, struct single_name, int64_t rows, int64_t cols);
/* x: the rows from `first` on of a tensor with so many rows, if it is not all of it; else whole is 0. */
struct single_sizes single_sizes_of(struct single *, struct single_name, struct tensor x, int64_t first, int64_t whole);
/* Read what it is made from, if the rows are of tokens, one or more of each: those of the tile. */
struct tensor single_input_rows(struct single *, struct single_name, int64_t rows, int64_t cols);
/* Read some rows of a matrix that has `whole`. */
struct tensor single_input_block(struct single *, struct single_name, struct single_block, int64_t whole,
                                 int64_t cols);
/* Compare, or say what lacks; report; free all. */
void single_end(struct single *, struct single_value);
/* Whether somebody wants to know: single_source.only. */
bool single_wanted(const struct single *, struct single_name);
/* Begin a result whose numbers the caller has read: `have`. */
void single_begin_with(struct single *, struct single_name, const char *made_by, struct tensor have);
/* Begin a result of some rows of a matrix that has `whole`. */
bool single_begin_block(struct single *, struct single_name, const char *made_by, struct single_block, int64_t whole,
                        int64_t cols);
/* A tally sums what the tiles, or blocks, of a result have.  The first that is wrong begins with this token, and has
 * its first wrong row here.  A tally begins with zeros; its owner frees `col`. */
struct single_tally {
    struct single_result sum;                   /**< Sum over the tiles or blocks. */
    unsigned char *col;                         /* [cols] not 0: something in it is wrong; NULL: nothing is */
    int64_t token, row;
};
/* Compare a tile, or block, that begins with a row: add it to what is known of its result, and free all.
 * @return false: it cannot be computed, and nothing is reported. */
bool single_count_tile(struct single *, struct single_value, int64_t first_row, struct single_tally *);
/* The same.  @return false also if something is wrong. */
bool single_end_tile(struct single *, struct single_value, int64_t first_row, struct single_tally *);
/* Report a result with so many rows that is right in all tiles. */
void single_end_tiles(struct single *, const struct single_tally *, int64_t rows);
/* Report one that is wrong: the value is that of a tile, or block, with something wrong, which is explained.
 * @return false: it cannot be computed, and nothing is reported. */
bool single_end_window(struct single *, struct single_value, int64_t first_row, const struct single_tally *,
                       int64_t rows);

/* ---- tiles of the batch, blocks of a parameter (tiles.c) --------------------------------------------------------- */

/* Tiles have so many tokens each; the next tile begins at `next`. */
struct single_tiles { int64_t tokens, next; };

/* Tiles of what a node makes; of the gradient of a slot; of what is added up to the gradient of a node's weight or
 * bias.  All tokens, if it cannot be computed tile by tile. */
struct single_tiles single_tiles_forward(const struct single *, const struct single_node *);
struct single_tiles single_tiles_gradient(const struct single *, int slot);
struct single_tiles single_tiles_weight(const struct single *, const struct single_node *);

/* Compute the next tile, if there is one; else all again.
 *     for (struct single_tiles t = single_tiles_...; single_next_tile(s, &t);) ... */
bool single_next_tile(struct single *, struct single_tiles *);
void single_take(struct single *, int64_t first, int64_t tokens);
void single_take_all(struct single *);
bool single_is_tile(const struct single *);
/* For a tensor with one or more rows of each token: the tile's first row, and how many rows the whole has; 0: the
 * tile is the whole. */
static inline int64_t single_first_row(const struct single *single,
                                       int64_t rows) { return rows / single->cursor.N * single->cursor.first; }
static inline int64_t single_whole_rows(const struct single *single, int64_t rows)
{
    return single_is_tile(single) ? rows / single->cursor.N * single->context->all.B * single->context->all.S : 0;
}

/* Whether a tile's rows are those of its tokens in each of several streams, one below the other: as many ranges. */
bool single_in_streams(const struct single *, int64_t rows);
/* The row of the whole that a row of a tile, or block, with so many rows is, which begins with `first`. */
int64_t single_row_of_whole(const struct single *, int64_t rows, int64_t first, int64_t row);

/* Rows of a matrix that are in a block; more than it has if there are no blocks. */
int64_t single_block(const struct single *, int64_t cols);
/* Rows of a large matrix that are looked at to say why it is wrong. */
int64_t single_window(const struct single *, int64_t cols);
/* The rows of a parameter whose gradient is computed. */
struct single_block single_block_of(const struct single *, int64_t rows);

/* Whether the program's result has bits that its format of 16 bits has not: it has not been stored in it at last. */
bool single_is_wide(const struct single *);
/* Note which expert's rows are wrong: row [rows], not 0 where one is. */
void single_note_expert(struct single *, const unsigned char *row);
/* Where the explainer's notes are: the source's, if it has a place for them. */
static inline struct single_notes **single_notes_of(struct single *single)
{
    return single->context->source.notes ? single->context->source.notes : &single->notes;
}
/* End the matrices after the first `used`. */
void single_release(struct single *, int used);
/* End all of them, and their list. */
void single_close(struct single *);

/* The epsilon of a node that is a norm. */
double single_norm_eps(const struct single *, const struct single_node *);

/* The gradient of a parameter, which node v is the first to have: the sum of what all nodes contribute. */
struct single_value single_gradient_of_param(struct single *, int v, int param);

/* Check the gradients of a weight's adapters (adapter.c).  v: the first node that has the weight. */
void single_check_adapters(struct single *, int v, int param);

/* Compute what a product with some rows of a weight may be off because the program multiplies with A and B.
 * @param with  the other factor: inputs, or gradients of results (for_input).  @return tensor_none: it has no adapters
 *              there, or an input is missing. */
struct tensor single_adapter_off(struct single *, int param, struct single_block, struct tensor with, bool for_input);

/* Check the norm of all gradients. */
void single_gradient_norm(struct single *);
/* The norm may be off by this by steps, where norms of parameters are stored.  fourth: the sum of their fourth
 * powers. */
double single_stored_norms(const struct single *, double norm, double fourth);
/* A norm may be off by this, because squares of its numbers are subnormal. */
double single_tiny_squares(const struct single *, double norm, int64_t count);

#endif
