/* tensor.h -- the seam for tensor parallelism: every linear layer, norm, embedding and loss of the model goes through
 * it.
 *
 * A scheme arranges the devices of the tp group as a small mesh of its own, and says by sets of that mesh's axes how
 * activations and weights are cut over it.  There are two kinds of activations, with a cut each:
 *
 *   stream   the residual stream and what norms make of it: width D
 *   inner    what lies between the two matrices of a pair (heads, F), and the logits (V)
 *
 * Each is cut by rows (tokens) over one set of axes and by columns over another; devices that differ only in other axes
 * hold the same piece.  From these sets follow, in tensor.c, every layout and every device's extents; in norm.c,
 * cross_entropy.c and shared.c, the norms, the loss and the vectors.  A scheme adds only its matrix products.
 *
 * Each scheme's header says in which order it adds.  On numbers whose sums are exact the order does not matter, and
 * every scheme's products are one device's, bit for bit: tests/devices/test_tensor_exact.c.
 */
#ifndef ORRERY_TENSOR_SCHEME_H
#define ORRERY_TENSOR_SCHEME_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/part.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/model/config.h"

enum { TENSOR_AXES = 3, TENSOR_AXIS_SETS = 1 << TENSOR_AXES };

/* A set of the axes of a scheme's own mesh. */
#define MESH_AXIS(a) (1u << (a))

/* The axes over which one kind of activations is cut. */
struct tensor_cut { unsigned rows, columns; };

/* The axes over which a matrix [out, in] is cut: by rows, by columns;
 * and over which each piece is cut by rows once more. */
struct weight_cut { unsigned out, in, sub; };

/* Which tokens of a microbatch a device has of an activation.
 * For a matrix product some schemes want more rows than their own:
 * they gather them where the tensor lies, if it has room. */
enum tensor_place {
    STREAM, INNER,
    INPUT,                        /* what a norm makes, which goes into a matrix: kept with room for what is gathered */
    GRADIENT,                           /* of a matrix's output in the stream, likewise */
};

/* Heads of a part of the inner side: queries, and the keys and values they use, which are of one number. */
struct heads {
    struct interval queries, keys;
    int copy, copies;                        /* parts that have these very keys and values, and which of them this is */
};

/* A device's piece of a matrix that comes tile by tile (schemes/data/tiles.h): its weights, or room for its gradient,
 * are here from take to give.  Both: OK or any error, after which the step cannot go on. */
struct tiled {
    int count;
    void *context;
    enum error_code (*take)(void *context, int tile, struct tensor *, struct error *);
    enum error_code (*give)(void *context, int tile, struct error *);
};

struct tensor_parallel {
    const struct tensor_scheme *scheme;
    const struct model_config *config;
    struct device *device;
    struct group *group;                        /* along tp; set by tensor_open */
    const char *allreduce;                      /* algorithm; NULL: the default */
    int64_t S;                                  /* tokens of a sequence */
    bool wide_gradients;                        /* of 16-bit weights they are kept, and added up here, in fp32 */

    /* What tensor_share finds. */
    int devices, rank;                          /* how many share each layer, and which of them this is */
    int mesh[TENSOR_AXES], at[TENSOR_AXES];    /* the scheme's own mesh, slowest first, and this device's place on it */
    struct interval channels;                   /* of the stream's width D */
    struct heads heads;
    struct interval columns;                    /* of the feed-forward width F */
    struct interval tokens;                     /* of the vocabulary */

    /* What tensor_open makes: for each set of axes, the devices that differ from this one in them only. */
    struct group along[TENSOR_AXIS_SETS];
    struct group copies;                     /* the devices with the same keys and values, and the same inputs of QKV */

    const struct tiled *tiles;                  /* of the matrix that is multiplied with; NULL: it is whole */
};

/* What the columns of an activation are: the model's width D; queries, keys and values; heads side by side; F, or 2F of
 * a gate and what is gated; F; V; experts, E; a token's choices of them, k. */
enum activation_width {
    WIDTH_MODEL,
    WIDTH_QKV,
    WIDTH_HEADS,
    WIDTH_UP,
    WIDTH_ACT,
    WIDTH_VOCABULARY,
    WIDTH_EXPERTS,
    WIDTH_CHOICES
};

enum tensor_pass { FORWARD_PASS, INPUT_PASS, WEIGHT_PASS };     /* forward; backward for the input, for the weights */
struct forecast;

struct tensor_scheme {
    struct scheme head;

    /* The mesh that P devices form. @return NULL, or what P must be, in words. */
    const char *(*mesh)(int P, int mesh[TENSOR_AXES]);
    struct tensor_cut stream, inner;
    struct weight_cut (*weight)(enum param_role);
    bool cuts_tokens;                           /* rows of the stream are cut anywhere, not only between sequences */
    bool cuts_vectors;                         /* devices with the same columns share biases and norms out among them */
    bool keeps_inputs, keeps_gradients;         /* INPUT, GRADIENT have room for all rows */
    bool takes_tiles;                           /* multiplies with its own piece by local.c, once a product */

    /* role tells which matrix it is.  Y = X W^T + b;  dX = dY W;  dW += dY^T X, db += sum_rows(dY).
     * N: tokens of the microbatch.  X and dY may have room for more rows (enum tensor_place), which forward and
     * backward_input fill.  While tp->tiles is set there are no W and no dW: the piece comes tile by tile. */
    enum error_code (*linear_forward)(struct tensor_parallel *, enum param_role, int64_t N, struct tensor Y,
                                      struct tensor X, struct tensor W, struct tensor b, struct error *);
    enum error_code (*linear_backward_input)(struct tensor_parallel *, enum param_role, int64_t N, struct tensor dX,
                                             struct tensor dY, struct tensor W, struct error *);
    enum error_code (*linear_backward_weight)(struct tensor_parallel *, enum param_role, int64_t N, struct tensor dW,
                                              struct tensor db, struct tensor dY, struct tensor X, struct error *);
    /* ids: of the whole microbatch; Y, dY: the stream. */
    enum error_code (*embedding_forward)(struct tensor_parallel *, struct tensor Y, struct tensor ids, struct tensor W,
                                         struct error *);
    enum error_code (*embedding_backward_weight)(struct tensor_parallel *, struct tensor dW, struct tensor dY,
                                                 struct tensor ids, struct error *);
    bool rings;              /* it goes round the ring itself, chunk by chunk, where others call a collective on rows */
    /* Enter what a pass through one matrix (ROLE_TOKENS: the embedding) sends for N tokens.  has_bias:
     * b and db are given. */
    void (*matrix_cost)(struct forecast *, enum param_role, enum tensor_pass, int64_t N, bool has_bias);
};

SCHEME_CASTS(TENSOR_SCHEME, tensor_scheme)                      /* tensor_scheme_at, tensor_scheme_find */

/* ---- tensor.c: who has what -------------------------------------------------------------------------------------- */

/** Whether P devices can share this model.  @return OK, or ERR_PLAN in words that name the number that does not fit. */
enum error_code tensor_check(const struct tensor_scheme *, const struct model_config *, int P, struct error *);

/** Fill in the mesh and the extents of one of so many devices, from scheme and config alone.  Pure:
 * there need be no group. */
void tensor_share(struct tensor_parallel *, int devices, int rank);

/** Take this device's share of the group along tp, and make the groups within it.  Local: no message is sent.  @return
 * OK or ERR_MEMORY; tensor_close either way. */
enum error_code tensor_open(struct tensor_parallel *, struct group *, struct error *);
void tensor_close(struct tensor_parallel *);

/** This device's boxes of a parameter. */
struct layout tensor_layout(const struct tensor_parallel *, const struct param_spec *);

/** Whether other devices have the same piece of a parameter; and whether this is the first device that has it.  Rows of
 *  keys and values that are copied beside different queries (heads.c) do not count. */
bool tensor_copied(const struct tensor_parallel *, const struct param_spec *);
bool tensor_keeps_first(const struct tensor_parallel *, const struct param_spec *);

/** How many elements of this device's piece of a parameter, from its first on, no device before it has as well. */
int64_t tensor_counted(const struct tensor_parallel *, const struct param_spec *);

/** The tokens of a microbatch of N that this device has. */
struct interval tensor_rows_at(const struct tensor_parallel *, enum tensor_place, int64_t N);

/** How many rows each member of tp->along[axes] has when rows of the stream are cut over `cut` (which contains axes).
 *  @param[out] counts  [members], in rows.  @return their sum. */
int64_t tensor_row_counts(const struct tensor_parallel *, unsigned cut, unsigned axes, int64_t N, int64_t counts[]);

/** Rows of this device within a tensor that may have room for more (INPUT, GRADIENT). */
struct tensor tensor_own_rows(const struct tensor_parallel *, struct tensor, int64_t N);

/** Width of part `index` of `parts` of a matrix's output (or input). */
int64_t tensor_width(const struct tensor_parallel *, enum param_role, bool output, int index, int parts);

/** Columns of the queries, keys and values, and of what leads into the feed-forward's nonlinearity,
 * that this device has. */
int64_t tensor_qkv_columns(const struct tensor_parallel *);
int64_t tensor_up_columns(const struct tensor_parallel *);

/* Place within, and size of, a set of the scheme's axes. */
int axes_index(const struct tensor_parallel *, unsigned axes);
int axes_size(const struct tensor_parallel *, unsigned axes);

/** Whether a matrix goes from the stream to the inner side, or back. */
static inline bool leads_inside(enum param_role r)
{
    return r == ROLE_QKV || r == ROLE_UP || r == ROLE_HEAD || r == ROLE_TOKENS;
}

/* ---- local.c: products with the device's own piece, whole or tile by tile ---------------------------------------- */

/* As ops.h has them; the first token of the embedding is the device's.  @return OK, or what a tile fails with. */
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

/* ---- heads.c: grouped-query attention ---------------------------------------------------------------------------- */

/** The heads of part `index` of `parts`. */
struct heads heads_at(const struct model_config *, int parts, int index);

/** The columns of these heads, side by side. */
static inline struct interval heads_columns(const struct model_config *c, struct interval heads)
{
    return (struct interval){ heads.first * c->A, heads.count * c->A };
}

/** Make the group of those that have the same keys and values.  Local.  @return OK or ERR_MEMORY. */
enum error_code heads_open(struct tensor_parallel *, struct error *);

/** QKV's linear_backward_weight; then gradients of keys and values are added up over the devices that have them. */
enum error_code heads_backward_weight(struct tensor_parallel *, int64_t N, struct tensor dW, struct tensor db,
                                      struct tensor dY, struct tensor X, struct error *);

/** What that adding up sends. */
void forecast_heads(struct forecast *);

/* ---- norm.c, cross_entropy.c, shared.c, parts.c: the same for all schemes ---------------------------------------- */

/* The model's kind of norm as in ref/ops/ops.h, on this device's piece; an rmsnorm has no mean and no b.
 * Collective over the devices that share rows, or columns. */
enum error_code tensor_norm_forward(struct tensor_parallel *, struct tensor Y, struct tensor mean, struct tensor rstd,
                                    struct tensor X, struct tensor w, struct tensor b, double eps, struct error *);
enum error_code tensor_norm_backward_input(struct tensor_parallel *, struct tensor dX, struct tensor dY,
                                           struct tensor X, struct tensor w, struct tensor mean, struct tensor rstd,
                                           struct error *);
enum error_code tensor_norm_backward_weight(struct tensor_parallel *, struct tensor dw, struct tensor db,
                                            struct tensor dY, struct tensor X, struct tensor mean, struct tensor rstd,
                                            struct error *);

/** top, sums (total, then hit) of the whole vocabulary from the device's logits [rows of INNER, V'].
 *  loss: the sum over this device's rows, on one device of those that have them; 0 on the others. */
enum error_code tensor_cross_entropy_forward(struct tensor_parallel *, double *loss, struct tensor top,
                                             struct tensor sums, struct tensor logits, struct tensor labels,
                                             struct error *);
void tensor_cross_entropy_backward(struct tensor_parallel *, struct tensor logits, struct tensor sums,
                                   struct tensor top, struct tensor labels, double scale);

/** Position embeddings: Y += W[positions,:] and its gradient.  W: this device's piece. */
enum error_code tensor_positions_forward(struct tensor_parallel *, struct tensor Y, struct tensor positions,
                                         struct tensor W, struct error *);
enum error_code tensor_positions_backward_weight(struct tensor_parallel *, struct tensor dW, struct tensor dY,
                                                 struct tensor positions, struct error *);

/* A parameter that all devices with the same columns (cut.columns) need whole: a vector, or the position embedding.
 * taken: their pieces put together (a buffer), or the piece itself where it is whole. */
struct shared { struct tensor piece, taken; };
enum error_code shared_take(struct tensor_parallel *, struct tensor_cut, struct tensor piece, int64_t rows,
                            struct shared *, struct error *);
void shared_release(struct tensor_parallel *, struct shared *);

/** Zeroed room for this device's part of the gradient of such a parameter, to be added up and given back by
 *  shared_give.  Where no other device has other rows, it is the gradient itself. */
enum error_code shared_begin(struct tensor_parallel *, struct tensor_cut, struct tensor g, int64_t rows,
                             struct shared *, struct error *);
enum error_code shared_give(struct tensor_parallel *, struct tensor_cut, struct shared *, struct error *);

/** Add up what devices that share the inner side each have a part of, such as what experts cut in F make.  Collective
 *  over them.
 *  @return OK or ERR_COMM.  Adds in the order of the all-reduce. */
enum error_code tensor_add_parts(struct tensor_parallel *, struct tensor, struct error *);

/** What a pass through a mixture of experts adds up so, for N tokens. */
void forecast_mixture(struct forecast *, enum tensor_pass, int64_t N);

/** Uninitialised BUFFERS, in the device's format or in that of weights' gradients. @return OK or ERR_MEMORY. */
enum error_code tensor_buffer(struct tensor_parallel *, struct tensor *, int64_t rows, int64_t cols, struct error *);
enum error_code tensor_gradient_buffer(struct tensor_parallel *, struct tensor *, int64_t rows, int64_t cols,
                                       struct error *);
enum dtype tensor_gradient_format(const struct tensor_parallel *);

/** All-gather rows over a set of axes: whole = the members' rows one after another.
 * own may lie in its place within whole. */
enum error_code gather_rows(struct tensor_parallel *, unsigned axes, const int64_t rows[], struct tensor whole,
                            struct tensor own, struct error *);
/** Reduce-scatter: own = this member's rows of the sum of all members' whole. */
enum error_code scatter_rows(struct tensor_parallel *, unsigned axes, const int64_t rows[], struct tensor own,
                             struct tensor whole, struct error *);

/* ---- cost.c: what it costs --------------------------------------------------------------------------------------- */

/* A list of collectives, summed up as it is written. */
struct forecast {
    const struct tensor_parallel *tp;
    struct account sum;
    bool gradients;                             /* what is entered next are gradients of weights, in their own format */
    bool timed;                                 /* sum up their predicted times too */
    picoseconds time;
};
/* Any collective on any group. */
void forecast_on(struct forecast *, const struct group *, enum operation, const char *algorithm, struct collective);
void forecast_allreduce(struct forecast *, unsigned axes, int64_t count);
void forecast_allgather(struct forecast *, unsigned axes, const int64_t rows[], int64_t cols);
void forecast_reduce_scatter(struct forecast *, unsigned axes, const int64_t rows[], int64_t cols);
/* broadcast, reduce */
void forecast_rooted(struct forecast *, enum operation, unsigned axes, int root, int64_t count);
void forecast_shared(struct forecast *, struct tensor_cut, int64_t rows, int64_t cols, enum tensor_pass);

/* What one operation's pass over N tokens of a microbatch sends, exactly.  A matrix: ROLE_TOKENS is the embedding. */
void forecast_norm(struct forecast *, enum tensor_pass, int64_t N);
void forecast_matrix(struct forecast *, enum param_role, enum tensor_pass, int64_t N);
void forecast_positions(struct forecast *, enum tensor_pass);
void forecast_cross_entropy(struct forecast *, enum tensor_pass, int64_t N);

#endif
