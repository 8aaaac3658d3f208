/* tensor.h -- the seam for tensor parallelism: the model calls it for every linear layer, norm, embedding and loss.
 *
 * A scheme arranges the devices of the tp group as a small mesh of its own.  Sets of that mesh's axes define how
 * activations and weights are cut.  There are two kinds of activations, each with its own cut:
 *
 *   stream   the residual stream and the outputs of norms: width D
 *   inner    the activations between the two matrices of a pair: heads, and F; and the logits, V.  Each of the three
 *            can have its own cut
 *
 * Each is cut by rows (tokens) over one set of axes and by columns over another; devices that differ only in other axes
 * hold the same piece.  These sets define every layout and every device's extents (tensor.c), and the norms, the loss
 * and the vectors (norm.c, cross_entropy.c, shared.c).  A scheme adds only its matrix products.
 *
 * Each scheme's head comment states its order of additions.  On numbers whose sums are exact the order does not matter,
 * and every scheme's products equal one device's, bit for bit: tests/devices/test_tensor_exact.c.
 *
 * model/run/ makes all calls of a step: matrix.c the products, run_node.c norms, embedding and loss.  model/link/
 * enters the forecasts.  Calls of products are collective over the devices along tp; each device calls in the same
 * order.  Errors are ERR_MEMORY for buffers, ERR_COMM of messages, and those of a tile.
 */
#ifndef ORRERY_TENSOR_SCHEME_H
#define ORRERY_TENSOR_SCHEME_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/interval.h"
#include "emulated_devices/device/part.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/model/param.h"
#include "ref/model/row_loss.h"

struct model_config;

enum { TENSOR_AXES = 3, TENSOR_AXIS_SETS = 1 << TENSOR_AXES };

/* A set of the axes of a scheme's own mesh. */
#define MESH_AXIS(a) (1u << (a))

/* The axes over which one kind of activations is cut. */
struct tensor_cut { unsigned rows, columns; };

/* For a scheme whose three inner cuts are the same. */
#define INNER_CUT(...) .heads = __VA_ARGS__, .feed = __VA_ARGS__, .logits = __VA_ARGS__

/* The axes over which a matrix [out, in] is cut: by rows, by columns; sub: over which each piece is again cut by
 * rows. */
struct weight_cut { unsigned out, in, sub; };

/* A place says which tokens of a microbatch a device has of an activation.  For a matrix product some schemes need
 * more rows than their own.  Such a scheme gathers these rows in place if the tensor has room. */
enum tensor_place {
    STREAM,
    INPUT,                              /* output of a norm, input of a matrix: has room for gathered rows */
    GRADIENT,                           /* gradient of a matrix's output in the stream, likewise */
    AT_HEADS, AT_FEED, AT_LOGITS,       /* the inner side of attention, of the feed-forward, of the output matrix */
};

/* Heads of a part of the inner side: its queries, and the key/value heads that they use. */
struct heads {
    struct interval queries, keys;              /* of all query heads; of all key/value heads */
    int copy, copies;                           /* this part among those with its key/value heads; their number */
};

/* A device's piece of a matrix may be available tile by tile (schemes/data/tiles.h).  A tile's weights, or memory for
 * its gradient, exist between take and give.  Both return OK or any error; after an error the step cannot go on. */
struct tiled {
    int count;                          /* tiles of the piece */
    void *context;                      /* first argument of take and give */
    enum error_code (*take)(void *context, int tile, struct tensor *, struct error *); /**< Makes a tile available. */
    enum error_code (*give)(void *context, int tile, struct error *);                  /**< Ends the use of a tile. */
};

struct tensor_parallel {
    const struct tensor_scheme *scheme;         /* of the plan */
    const struct model_config *config;          /* of the whole model */
    struct device *device;                      /* whose part this is */
    struct group *group;                        /* along tp; set by tensor_open */
    const char *allreduce;                      /* algorithm; NULL: the default */
    int64_t S;                                  /* tokens of a sequence */
    bool wide_gradients;                        /* gradients of 16-bit weights are kept and summed in fp32 */

    /* Set by tensor_share. */
    int devices, rank;                          /* devices that share each layer; index of this one */
    int mesh[TENSOR_AXES], at[TENSOR_AXES];     /* the scheme's mesh, slowest axis first; this device's coordinates */
    struct interval channels;                   /* of the stream's width D */
    struct heads heads;                         /**< Heads of this device. */
    struct interval columns;                    /* of the feed-forward width F */
    struct interval shared;                     /* of the shared experts' width */
    struct interval dense;                      /* of the width of a mixture's dense layers */
    struct interval tokens;                     /* of the vocabulary: the columns of logits */
    int64_t first_entry;                        /* of the vocabulary: the first row of the embedding's piece */

    /* Created by tensor_open.  along: for each set of axes, the devices that differ from this one only in these. */
    struct group along[TENSOR_AXIS_SETS];       /**< Groups along sets of axes. */
    struct group copies;                        /* the devices with the same keys and values, and input of QKV */

    const struct tiled *tiles;                  /* of the matrix in the current product; NULL: it is whole */
};

/* An activation's width is the number of its columns.  From WIDTH_BESIDE on a row is of a token, not of a token of each
 * stream. */
enum activation_width {
    WIDTH_MODEL,                    /* the model's width, D */
    WIDTH_QKV,                      /* queries, keys and values */
    WIDTH_HEADS,                    /* heads side by side */
    WIDTH_UP,                       /* F, with a gate 2F */
    WIDTH_ACT,                      /* F */
    WIDTH_VOCABULARY,               /* V */
    WIDTH_EXPERTS,                  /* E */
    WIDTH_CHOICES,                  /* a token's choices of experts, k */
    WIDTH_SHARED_UP,                /* of shared experts, before their gate */
    WIDTH_SHARED_ACT,               /* of shared experts, after their gate */
    WIDTH_DENSE_UP,                 /* of a mixture's dense layers, before their gate */
    WIDTH_DENSE_ACT,                /* of a mixture's dense layers, after their gate */
    WIDTH_Q_LATENT,                 /* the latent of queries */
    WIDTH_KV_LATENT,                /* the latent of keys and values, with the shared key */
    WIDTH_KV_NORMED,                /* the latent of keys and values alone */
    WIDTH_EXPANDED,                 /* what this latent becomes in heads */
    WIDTH_VALUES,                   /* heads side by side, values alone */
    WIDTH_GATE,                     /* 1 */
    WIDTH_BESIDE,                   /* all parallel streams, side by side */
    WIDTH_MEAN,                     /* the mean of the streams, D */
    WIDTH_STREAMS                   /* P, the number of streams */
};

/* Whether rows of this width are cut as the residual stream; else as the inner side. */
static inline bool width_of_stream(enum activation_width width)
{
    return width == WIDTH_Q_LATENT || width == WIDTH_KV_LATENT || width == WIDTH_KV_NORMED ||
           width == WIDTH_MODEL || width == WIDTH_EXPERTS || width == WIDTH_CHOICES || width == WIDTH_GATE ||
           width == WIDTH_BESIDE || width == WIDTH_MEAN || width == WIDTH_STREAMS;
}

/* The place of rows of this width; on the stream, STREAM. */
static inline enum tensor_place place_of_width(enum activation_width width)
{
    if (width_of_stream(width)) return STREAM;
    if (width == WIDTH_VOCABULARY) return AT_LOGITS;
    return width == WIDTH_QKV || width == WIDTH_HEADS || width == WIDTH_EXPANDED || width == WIDTH_VALUES
           ? AT_HEADS : AT_FEED;
}

/* Whether an activation has a row for each token; else for each token of each stream. */
static inline bool width_of_tokens(enum activation_width width)
{
    return width == WIDTH_VOCABULARY || width == WIDTH_BESIDE || width == WIDTH_MEAN || width == WIDTH_STREAMS;
}

/* Forward; backward for the input, for the weights; of attention's forward only its exchanges, before backward. */
enum tensor_pass { FORWARD_PASS, INPUT_PASS, WEIGHT_PASS, EXCHANGE_PASS };
struct forecast;

struct tensor_scheme {
    struct scheme head;                         /* name, description, source; first, for casts */

    /* The mesh that P devices form.  @return NULL, or what P must be, as text. */
    const char *(*mesh)(int P, int mesh[TENSOR_AXES]); /**< Mesh that P devices form. */
    struct tensor_cut stream, heads, feed, logits;
    struct weight_cut (*weight)(const struct tensor_scheme *, enum param_role); /**< How a weight is cut. */
    bool cuts_tokens;                           /* rows are cut also inside sequences */
    bool cuts_vectors;                          /* devices with the same columns each hold a part of biases and norms */
    bool keeps_inputs, keeps_gradients;         /* INPUT, GRADIENT have room for all rows */
    bool exact;                                 /* adds partial sums by terms.c where a device computes exactly */
    bool takes_tiles;                           /* calls local.c once per product, with the device's own piece */

    /* role: which matrix.  Y = X W^T + b;  dX = dY W;  dW += dY^T X, db += sum_rows(dY).
     * N: tokens of the microbatch.  X and dY may have room for more rows (enum tensor_place), which forward and
     * backward_input fill.  While tp->tiles is set, W and dW are absent: the piece is available tile by tile. */
    enum error_code (*linear_forward)(struct tensor_parallel *, enum param_role, int64_t N, struct tensor Y,
                                      struct tensor X, struct tensor W, struct tensor b, struct error *);
    enum error_code (*linear_backward_input)(struct tensor_parallel *, enum param_role, int64_t N, struct tensor dX,
                                             struct tensor dY, struct tensor W, struct error *); /**< Computes dX. */
    enum error_code (*linear_backward_weight)(struct tensor_parallel *, enum param_role, int64_t N, struct tensor dW,
                                              struct tensor db, struct tensor dY, struct tensor X, struct error *);
    /* ids: of the whole microbatch; Y, dY: the stream. */
    enum error_code (*embedding_forward)(struct tensor_parallel *, struct tensor Y, struct tensor ids, struct tensor W,
                                         struct error *); /**< Computes Y from token ids. */
    enum error_code (*embedding_backward_weight)(struct tensor_parallel *, struct tensor dW, struct tensor dY,
                                                 struct tensor ids, struct error *); /**< Adds to dW. */
    /* Checks what a model must not have, or NULL.  @return OK, or ERR_PLAN naming it. */
    enum error_code (*check)(const struct tensor_scheme *, const struct model_config *, int P, struct error *);
    bool rings;                                 /* sends a ring's messages itself; does not call collectives on rows */
    /* Enter what a pass through one matrix (ROLE_TOKENS: the embedding) sends for N tokens.
     * has_bias: b and db are given. */
    void (*matrix_cost)(struct forecast *, enum param_role, enum tensor_pass, int64_t N, bool has_bias); /**< Costs. */
};

SCHEME_CASTS(TENSOR_SCHEME, tensor_scheme)                      /* tensor_scheme_at, tensor_scheme_find */

/* ---- tensor.c: each device's share ------------------------------------------------------------------------------- */

/** Check that P devices can share this model.  @return OK, or ERR_PLAN naming the number that does not fit. */
enum error_code tensor_check(const struct tensor_scheme *, const struct model_config *, int P, struct error *);

/** Set the mesh and the extents of one device, from scheme and config alone.  Pure: needs no group. */
void tensor_share(struct tensor_parallel *, int devices, int rank);

/** Set this device's share of the group along tp, and create the groups within it.  Local: no message is sent.
 *  @return OK or ERR_MEMORY; call tensor_close after both. */
enum error_code tensor_open(struct tensor_parallel *, struct group *, struct error *);
void tensor_close(struct tensor_parallel *);

/** This device's boxes of a parameter. */
struct layout tensor_layout(const struct tensor_parallel *, const struct param_spec *);

/** Whether other devices have the same piece of a parameter; whether this is the first device that has it.  Copied rows
 *  of keys and values, which lie beside different queries (heads.c), do not count. */
bool tensor_copied(const struct tensor_parallel *, const struct param_spec *);
bool tensor_keeps_first(const struct tensor_parallel *, const struct param_spec *);

/** The number of leading elements of this device's piece of a parameter that no earlier device has. */
int64_t tensor_counted(const struct tensor_parallel *, const struct param_spec *);

/** The tokens of a microbatch of N that this device has. */
struct interval tensor_rows_at(const struct tensor_parallel *, enum tensor_place, int64_t N);

/** Whether a tensor at INPUT or GRADIENT has room for more rows than this device's own.  Pure. */
bool tensor_has_room_for_more(const struct tensor_parallel *, enum tensor_place);

/** The number of rows of each member of tp->along[axes], if rows of the stream are cut over `cut` (which contains
 *  axes).
 *  @param[out] counts  [members], in rows.  @return their sum. */
int64_t tensor_row_counts(const struct tensor_parallel *, unsigned cut, unsigned axes, int64_t N, int64_t counts[]);

/** This device's rows of a tensor that may have room for more (INPUT, GRADIENT). */
struct tensor tensor_own_rows(const struct tensor_parallel *, struct tensor, int64_t N);

/* Runs of a dimension, in their order in memory. */
struct runs { int count; struct interval at[3]; };

/** The columns of part `index` of `parts` of a matrix's output (or input). */
struct runs tensor_runs(const struct model_config *, enum param_role, bool output, int parts, int index);

/** Their width. */
int64_t tensor_width(const struct tensor_parallel *, enum param_role, bool output, int index, int parts);

/** This device's columns of queries, keys and values, and of the input of the feed-forward's nonlinearity. */
int64_t tensor_qkv_columns(const struct tensor_parallel *);
int64_t tensor_up_columns(const struct tensor_parallel *);

/** The cut of activations at a place. */
struct tensor_cut tensor_cut_at(const struct tensor_scheme *, enum tensor_place);

/* This device's index within a set of the scheme's axes, and the set's size. */
int axes_index(const struct tensor_parallel *, unsigned axes);
int axes_size(const struct tensor_parallel *, unsigned axes);

/** Whether a matrix leads inside, from the stream to the inner side; otherwise it leads out, back to the stream. */
static inline bool leads_inside(enum param_role role)
{
    return role == ROLE_QKV || role == ROLE_UP || role == ROLE_HEAD || role == ROLE_TOKENS || role == ROLE_SHARED_UP ||
           role == ROLE_SINKS || role == ROLE_DENSE_UP || role == ROLE_QUERIES || role == ROLE_KEYS_VALUES;
}

/** The inner side of a matrix. */
static inline enum tensor_place inner_side(enum param_role role)
{
    switch (role) {
    case ROLE_UP: case ROLE_DOWN: case ROLE_SHARED_UP: case ROLE_SHARED_DOWN: case ROLE_DENSE_UP: case ROLE_DENSE_DOWN:
        return AT_FEED;
    case ROLE_TOKENS: case ROLE_HEAD: return AT_LOGITS;
    default: return AT_HEADS;
    }
}

/* ---- local.c: products with the device's own piece, whole or tile by tile ---------------------------------------- */

/* The operations of ops.h; the embedding starts at the device's first vocabulary entry.
 * @return OK, or the error of a tile. */
enum error_code local_forward(struct tensor_parallel *, struct tensor Y, struct tensor X, struct tensor W,
                              struct tensor b, struct error *);
enum error_code local_backward_input(struct tensor_parallel *, struct tensor dX, struct tensor dY, struct tensor W,
                                     struct error *);
enum error_code local_backward_weight(struct tensor_parallel *, struct tensor dW, struct tensor db, struct tensor dY,
                                      struct tensor X, struct error *);
enum error_code local_embedding_forward(struct tensor_parallel *, struct tensor Y, struct tensor ids, struct tensor W,
                                        struct error *);
enum error_code local_embedding_backward_weight(struct tensor_parallel *, struct tensor dW, struct tensor dY,
                                                struct tensor ids, struct error *);

/* ---- terms.c: partial sums that do not round ------------------------------------------------------------------ */

/* As local_forward and so on, with terms on the devices along `axes`.  Y and dX are finished sums, on each of them;
 * or of the rows that each has: rows, of all members, in their order.  cuts_dY: the columns of dY are cut, else those
 * of X. */
enum error_code terms_forward(struct tensor_parallel *, unsigned axes, const int64_t rows[], struct tensor Y,
                              struct tensor X, struct tensor W, struct tensor b, struct error *);
enum error_code terms_backward_input(struct tensor_parallel *, unsigned axes, const int64_t rows[], struct tensor dX,
                                     struct tensor dY, struct tensor W, struct error *);
enum error_code terms_backward_weight(struct tensor_parallel *, unsigned axes, bool cuts_dY, struct tensor dW,
                                      struct tensor db, struct tensor dY, struct tensor X, struct error *);

/** The parts of these: top [N] = the largest sizes of rows of which the devices along `axes` have columns; sum, EXACT
 *  [N, I] = this device's terms of dY W, with tops that the devices along `axes` agree on.  For device_free. */
enum error_code terms_row_tops(struct tensor_parallel *, unsigned axes, struct tensor *top, struct tensor X,
                               struct error *);
enum error_code terms_input_part(struct tensor_parallel *, unsigned axes, struct tensor *sum, struct tensor dY,
                                 struct tensor W, struct error *);

/** As terms_backward_weight, where the columns of both operands are cut: those of dY along one set of axes, of X along
 *  another.  dW is the part of the tokens of dY and X. */
enum error_code terms_add_weight(struct tensor_parallel *, unsigned cut_dY, unsigned cut_X, struct tensor dW,
                                 struct tensor db, struct tensor dY, struct tensor X, struct error *);

/** Round finished sums [N, D] to fp32, then to the format of `to`: as operations do that are no products.  Local.
 *  @return OK or ERR_MEMORY. */
enum error_code terms_round(struct device *, struct tensor to, struct tensor sums, struct error *);

/** Forecast what one of these three sends: maxima of N rows and of others, then sums [N, width]; width 0: none. */
void forecast_terms(struct forecast *, unsigned axes, int64_t N, int64_t others, const int64_t rows[], int64_t width);

/* ---- heads.c: grouped-query attention ---------------------------------------------------------------------------- */

/** The heads of part `index` of `parts`. */
struct heads heads_at(const struct model_config *, int parts, int index);

/** The columns of these heads, side by side. */
struct interval heads_columns(const struct model_config *, struct interval heads);

/** Create the group of devices with the same keys and values.  Local.  @return OK or ERR_MEMORY. */
enum error_code heads_open(struct tensor_parallel *, struct error *);

/** Whether gradients of keys and values are summed over copies as exact sums, before the product with QKV. */
bool heads_add_exactly(const struct tensor_parallel *);

/** Add up the gradients of keys and values over the copies: the last 2 k A columns of sums, EXACT [rows, (h + 2 k) A].
 *  Collective over the devices with copies.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code heads_add_keys(struct tensor_parallel *, struct tensor sums, struct error *);

/** QKV's linear_backward_input; with exact sums only the first copy's keys and values are terms of it. */
enum error_code heads_backward_input(struct tensor_parallel *, int64_t N, struct tensor dX, struct tensor dY,
                                     struct tensor W, struct error *);

/** QKV's linear_backward_weight; then sums the gradients of keys and values over the devices with copies of them. */
enum error_code heads_backward_weight(struct tensor_parallel *, int64_t N, struct tensor dW, struct tensor db,
                                      struct tensor dY, struct tensor X, struct error *);

/** Sum a gradient of keys and values, such as of a prefix, likewise.  Collective over these devices.
 *  @return OK or ERR_COMM. */
enum error_code heads_add_copies(struct tensor_parallel *, struct tensor g, struct error *);

/** Enter what these sums send; the second one for g with this many elements; the third one what is summed instead of
 *  the first with exact sums, in a pass through attention of N tokens. */
void forecast_heads(struct forecast *);
void forecast_copies(struct forecast *, int64_t count);
void forecast_exact_copies(struct forecast *, enum tensor_pass, int64_t N);

/* ---- heads_norm.c: head_norm of ops.h on this device's rows and heads -------------------------------------------- */

/** Norms of heads.  Collective over the devices with other heads, if all heads are normed together; rstd, which only
 *  these functions read, then has another order.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code heads_norm_forward(struct tensor_parallel *, struct tensor Y, struct tensor rstd, struct tensor X,
                                   struct tensor w, struct attention, double eps, struct error *);
enum error_code heads_norm_backward_input(struct tensor_parallel *, struct tensor dX, struct tensor dY,
                                          struct tensor X, struct tensor w, struct tensor rstd, struct attention,
                                          struct error *);

/** Their gradient, and the sum over all devices along tp with other heads or rows.  Collective over these.
 *  @param[in,out] dw  [2A], or [(H+K)A], on every device, += the sum.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code heads_norm_backward_weight(struct tensor_parallel *, struct tensor dw, struct tensor dY,
                                           struct tensor X, struct tensor rstd, struct attention, struct error *);

/* ---- norm.c, cross_entropy.c, shared.c, parts.c: the same for all schemes ---------------------------------------- */

/* The model's kind of norm as in ref/ops/ops.h, on this device's piece; an rmsnorm has no mean and no b.
 * Collective over the devices with the same rows, or columns. */
enum error_code tensor_norm_forward(struct tensor_parallel *, struct tensor Y, struct tensor mean, struct tensor rstd,
                                    struct tensor X, struct tensor w, struct tensor b, double eps, struct error *);
enum error_code tensor_norm_backward_input(struct tensor_parallel *, struct tensor dX, struct tensor dY,
                                           struct tensor X, struct tensor w, struct tensor mean, struct tensor rstd,
                                           struct error *);
enum error_code tensor_norm_backward_weight(struct tensor_parallel *, struct tensor dw, struct tensor db,
                                            struct tensor dY, struct tensor X, struct tensor mean, struct tensor rstd,
                                            struct error *);

/** Where a device writes its part of sums [n] of rows, and their sum over devices, rounded: with exact sums in a buffer
 *  of its own, EXACT, else in place.  _begin: @return OK or ERR_MEMORY; _end frees. */
enum error_code statistics_begin(struct tensor_parallel *, struct tensor *part, struct tensor sums, struct error *);
void statistics_end(struct tensor_parallel *, struct tensor sums, struct tensor part);

/** Compute top and sums (total, then hit) over the whole vocabulary from the device's logits [rows of AT_LOGITS, V'].
 *  loss: the sum over this device's rows, on one of the devices with these rows; 0 on the others.  dlogits may be
 *  logits. */
enum error_code tensor_cross_entropy_forward(struct tensor_parallel *, double *loss, struct tensor top,
                                             struct tensor sums, struct tensor logits, struct tensor labels,
                                             struct error *);
void tensor_cross_entropy_backward(struct tensor_parallel *, struct tensor dlogits, struct tensor logits,
                                   struct tensor sums, struct tensor top, struct tensor labels, double scale);

/** Rows may have losses of their own: after the calls above these give their loss in place of that of cross entropy,
 *  and their gradient in place of cross entropy's.  Local.
 *  @param rows  which rows of the batch these are, in the order of the labels. */
void tensor_row_loss_forward(struct tensor_parallel *, const struct row_loss *, const struct intervals *rows,
                             double *loss, struct tensor top, struct tensor sums, struct tensor labels);
void tensor_row_loss_backward(struct tensor_parallel *, const struct row_loss *, const struct intervals *rows,
                              struct tensor dlogits, struct tensor sums, struct tensor top, struct tensor labels,
                              double scale);

/** Position embeddings: Y += W[positions,:] and its gradient.  W: this device's piece. */
enum error_code tensor_positions_forward(struct tensor_parallel *, struct tensor Y, struct tensor positions,
                                         struct tensor W, struct error *);
enum error_code tensor_positions_backward_weight(struct tensor_parallel *, struct tensor dW, struct tensor dY,
                                                 struct tensor positions, struct error *);

/* A parameter that all devices with the same columns (cut.columns) need whole: a vector, or the position embedding.
 * taken: the gathered pieces (a buffer), or the piece itself if it is whole. */
struct shared { struct tensor piece, taken; };
enum error_code shared_take(struct tensor_parallel *, struct tensor_cut, struct tensor piece, int64_t rows,
                            struct shared *, struct error *);
void shared_release(struct tensor_parallel *, struct shared *);

/** Zeroed memory for this device's summand of the gradient of such a parameter; shared_give reduces and frees it.  If
 *  no other device has other rows, it is the gradient itself. */
enum error_code shared_begin(struct tensor_parallel *, struct tensor_cut, struct tensor g, int64_t rows,
                             struct shared *, struct error *);
enum error_code shared_give(struct tensor_parallel *, struct tensor_cut, struct shared *, struct error *);

/** Sum the partial results of devices that share the inner side, such as outputs of experts cut in F.  Collective over
 *  these devices.  @return OK or ERR_COMM.  Adds in the order of the all-reduce. */
enum error_code tensor_add_parts(struct tensor_parallel *, struct tensor, struct error *);

/** Enter what tensor_add_parts sends in a pass through a mixture of experts, for N tokens. */
void forecast_mixture(struct forecast *, enum tensor_pass, int64_t N);

/** Allocate uninitialised BUFFERS, in the device's format or in the format of weights' gradients.
 *  @return OK or ERR_MEMORY. */
enum error_code tensor_buffer(struct tensor_parallel *, struct tensor *, int64_t rows, int64_t cols, struct error *);
enum error_code tensor_gradient_buffer(struct tensor_parallel *, struct tensor *, int64_t rows, int64_t cols,
                                       struct error *);
enum dtype tensor_gradient_format(const struct tensor_parallel *);

/** All-gather rows over a set of axes: whole = the members' rows one after another.  own may be its place in whole. */
enum error_code gather_rows(struct tensor_parallel *, unsigned axes, const int64_t rows[], struct tensor whole,
                            struct tensor own, struct error *);
/** Reduce-scatter: own = this member's rows of the sum of all members' whole. */
enum error_code scatter_rows(struct tensor_parallel *, unsigned axes, const int64_t rows[], struct tensor own,
                             struct tensor whole, struct error *);

/* ---- cost.c: predicted messages and time ------------------------------------------------------------------------- */

/* The sum of the costs of all collectives entered. */
struct forecast {
    const struct tensor_parallel *tp;           /* on whose groups the collectives would run */
    struct account sum;                         /* messages, bytes and additions, by operation */
    bool gradients;                             /* what is entered now are gradients of weights, in their own format */
    bool timed;                                 /* also sum the predicted times */
    picoseconds time;                           /* if timed: of all collectives, one after another */
};
/* Any collective on any group. */
void forecast_on(struct forecast *, const struct group *, enum operation, const char *algorithm, struct collective);
/* A message to one member. */
void forecast_message(struct forecast *, const struct group *, int peer, uint64_t bytes);
void forecast_allreduce(struct forecast *, unsigned axes, int64_t count);
void forecast_statistics(struct forecast *, unsigned axes, int64_t count);     /* of rows, in the wide format */
void forecast_row_sums(struct forecast *, unsigned axes, int64_t count);       /* likewise; exact sums as they are */
void forecast_allgather(struct forecast *, unsigned axes, const int64_t rows[], int64_t cols);
void forecast_reduce_scatter(struct forecast *, unsigned axes, const int64_t rows[], int64_t cols);
/* Enter a broadcast or a reduce; `root` is a rank within the group. */
void forecast_rooted(struct forecast *, enum operation, unsigned axes, int root, int64_t count);
void forecast_shared(struct forecast *, struct tensor_cut, int64_t rows, int64_t cols, enum tensor_pass);

/* Exactly what one operation's pass over N tokens of a microbatch sends.  For a matrix, ROLE_TOKENS is the
 * embedding. */
void forecast_norm(struct forecast *, enum tensor_pass, int64_t N);
void forecast_shared_key(struct forecast *, enum tensor_pass, int64_t N);      /* of latent attention */
void forecast_head_norm(struct forecast *, enum tensor_pass, int64_t N);
void forecast_matrix(struct forecast *, enum param_role, enum tensor_pass, int64_t N);
void forecast_positions(struct forecast *, enum tensor_pass);
void forecast_cross_entropy(struct forecast *, enum tensor_pass, int64_t N);

#endif
