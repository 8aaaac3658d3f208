/* tensor parallelism, sbp:FILE: a signature for each activation and each weight, from a text; the rest follows.
 *
 * Source   J. Yuan et al., "OneFlow: redesign the distributed deep learning framework from scratch", arXiv:2110.15032,
 *          sections 3.1 and 3.2: signatures, and boxing between producer and consumer
 * Group    P devices with the same tokens
 * Layout   as the text says (tensor_sbp.h).  S(0) of an activation: a range of tokens, between sequences if heads are
 *          S(0), else also inside them; S(1): columns, or heads.  S(0) of a weight [O,I]: outputs, S(1): inputs.
 *          A bias, and every gradient, lies as what it belongs to
 * Product  Y = X W^T is divided as its weight is; then X, Y and their gradients are brought, by boxing, from how they
 *          lie to what the product takes, and back:
 *            W                X       Y      dY      dX     dW
 *            S(0)  outputs    B       S(1)   S(1)    P      S(0)
 *            S(1)  inputs     S(1)    P      B       S(1)   S(1)
 *            B     tokens     S(0)    S(0)   S(0)    S(0)   P, summed to B      if X or Y lies as S(0)
 *            B     not at all B       B      B       B      B                   else
 *          The embedding is the product of the tokens' unit vectors, which every device has: S(0) makes P, S(1) S(1)
 * Sends    what boxing sends (sbp_move.c), forward and backward.  What was gathered of dY, S(0) to B, is kept for the
 *          weights' gradient; of X if `inputs` is B, else it is gathered again
 * Memory   each tensor's piece
 * Equals   reassociates, in the order of the all-reduce or reduce-scatter.  A bias of a product with partial sums is
 *          added once.  With the signatures of 1d, 1d-sp and 1d-sp-keep: these, bit by bit
 * Called   sbp_shipped.c makes such a scheme; model/run/matrix.c calls its products.  Errors: ERR_FORMAT with the
 *          line of the text, ERR_PLAN, ERR_MEMORY, ERR_COMM.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "emulated_devices/schemes/tensor/terms.h"
#include "ref/io/output.h"
#include "ref/model/config.h"

#define ALL MESH_AXIS(2)

static const struct sbp B = ON_B, P = ON_P, S0 = ON_S(0), S1 = ON_S(1);

/* Every scheme that sbp_scheme_of makes is the first field of a struct sbp_scheme, so the cast is valid. */
static const struct sbp_layout *layout_of(const struct tensor_parallel *tp)
{
    return &((const struct sbp_scheme *)tp->scheme)->layout;
}

/* ---- how a product is divided ------------------------------------------------------------------------------------ */

/* The text has one line for several matrices: shared and dense layers use the signatures of fc and fc2. */
static enum sbp_role weight_role(enum param_role role)
{
    switch (role) {
    case ROLE_TOKENS:                                                return SBP_EMBEDDING;
    case ROLE_HEAD:                                                  return SBP_HEAD;
    case ROLE_ATTENTION_OUT:                                         return SBP_PROJ;
    case ROLE_UP: case ROLE_SHARED_UP: case ROLE_DENSE_UP:           return SBP_FC;
    case ROLE_DOWN: case ROLE_SHARED_DOWN: case ROLE_DENSE_DOWN:     return SBP_FC2;
    default:                                                         return SBP_QKV;
    }
}

/* inner_role gives the activation on the inner side of a matrix: heads, hidden or logits. */
static enum sbp_role inner_role(enum param_role role)
{
    const enum tensor_place p = inner_side(role);
    return p == AT_FEED ? SBP_HIDDEN : p == AT_LOGITS ? SBP_LOGITS : SBP_HEADS;
}

/* A division says how X and Y lie, and so their gradients.  The division also says how a product takes X and dY, and
 * makes Y, dX and dW. */
struct division { struct sbp X, Y, takes_X, makes_Y, takes_dY, makes_dX, W, makes_dW; };

/* division_of looks up one matrix in the table of the head comment.  X and Y lie as the layout says. */
static struct division division_of(const struct sbp_layout *layout, enum param_role role)
{
    const struct sbp stream = layout->of[SBP_STREAM], inner = layout->of[inner_role(role)],
        W = layout->of[weight_role(role)];
    const bool inside = leads_inside(role);
    struct division d = { .X = inside ? stream : inner, .Y = inside ? inner : stream, .W = W, .makes_dW = W };
    /* With W cut by outputs X is whole, Y comes in columns, and dX in partial sums. */
    if (sbp_equal(W, S0)) d.takes_X = B, d.makes_Y = d.takes_dY = S1, d.makes_dX = P;
    /* With W cut by inputs X comes in columns, Y in partial sums, and dY is whole. */
    else if (sbp_equal(W, S1)) d.takes_X = d.makes_dX = S1, d.makes_Y = P, d.takes_dY = B;
    else {
        /* With W whole each device takes its tokens, and dW comes in partial sums; or all do the same. */
        const bool by_tokens = sbp_equal(d.X, S0) || sbp_equal(d.Y, S0);
        d.takes_X = d.makes_Y = d.takes_dY = d.makes_dX = by_tokens ? S0 : B;
        d.makes_dW = by_tokens ? P : B;
    }
    return d;
}

/* The embedding: only Y, which lies as the stream, and dY. */
static struct division embedding_of(const struct sbp_layout *layout)
{
    struct division d = { .Y = layout->of[SBP_STREAM], .W = layout->of[SBP_EMBEDDING],
                         .makes_dW = layout->of[SBP_EMBEDDING] };
    /* With W cut by tokens a device knows only the rows of its own tokens, and adds zeros for others. */
    if (sbp_equal(d.W, S0)) d.makes_Y = P, d.takes_dY = B;
    else if (sbp_equal(d.W, S1)) d.makes_Y = d.takes_dY = S1;
    else {
        const bool by_tokens = sbp_equal(d.Y, S0);
        d.makes_Y = d.takes_dY = by_tokens ? S0 : B;
        d.makes_dW = by_tokens ? P : B;
    }
    return d;
}

static struct sbp_matrix input_of(enum param_role role, int64_t N) { return (struct sbp_matrix){ role, false, N }; }
static struct sbp_matrix output_of(enum param_role role, int64_t N) { return (struct sbp_matrix){ role, true, N }; }

/* A bias lies as the columns of Y, or is shared out as norms are. */
static struct sbp bias_of(const struct tensor_parallel *tp, enum param_role role, const struct division *division)
{
    const bool shared_out = tp->scheme->cuts_vectors && !leads_inside(role);
    return sbp_equal(division->Y, S1) || shared_out ? S1 : B;
}
/* The bias lies as the columns of the product's Y. If Y comes in rows, each device adds the whole bias to its rows. */
static struct sbp takes_bias(const struct division *division)
{
    return sbp_equal(division->makes_Y, S0) ? B : division->makes_Y;
}
/* db is the sum of dY's columns.  If each device has only its rows of dY, its db is a partial sum. */
static struct sbp makes_db(const struct division *division)
{
    return sbp_equal(division->takes_dY, S0) ? P : division->takes_dY;
}

/* Whether rows gathered of X, of dY, stay where it lies: the model allocates room for them. */
static bool room_for_X(const struct tensor_parallel *tp, enum param_role role, const struct division *division)
{
    return tp->scheme->keeps_inputs && leads_inside(role) && sbp_equal(division->X, S0)
           && sbp_equal(division->takes_X, B);
}
static bool room_for_dY(const struct tensor_parallel *tp, enum param_role role, const struct division *division)
{
    return tp->scheme->keeps_gradients && !leads_inside(role) && sbp_equal(division->Y, S0)
           && sbp_equal(division->takes_dY, B);
}

/* ---- bringing and giving ----------------------------------------------------------------------------------------- */

/* make_piece allocates a buffer for this device's piece of a matrix with a signature. */
static enum error_code make_piece(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp sbp,
                                  enum dtype dtype, struct tensor *tensor, struct error *err)
{
    *tensor = sbp_piece(tp, matrix, sbp, dtype);
    tensor->data = device_tensor_in(tp->device, BUFFERS, dtype, tensor_count(*tensor)).data;
    return tensor->data ? OK
                   : fail(err, ERR_MEMORY, "no memory for %lld x %lld elements on their way between devices",
                          (long long)tensor_rows(*tensor), (long long)tensor_cols(*tensor));
}

/* A product takes the piece itself, or a buffer. */
struct brought { struct tensor t; bool buffer; };

static void tensor_sbp_give_back(struct tensor_parallel *tp, struct brought brought)
{
    if (brought.buffer) device_free(tp->device, brought.t);
}

/* piece: may have room for more rows if it lies as S(0) in the stream.  room: gather in place. */
static enum error_code tensor_sbp_bring(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp from,
                                        struct sbp to,
                                        struct tensor piece, bool room, struct brought *brought, struct error *err)
{
    /* The stream is the input of a matrix that leads inside, and the output of a matrix that leads out. */
    const bool of_stream = leads_inside(matrix.role) != matrix.output;
    const struct tensor own = of_stream && sbp_equal(from, S0) ? tensor_own_rows(tp, piece, matrix.N) : piece;
    *brought = (struct brought){ room ? piece : own, false };
    if (sbp_equal(from, to) || tp->devices == 1) return OK;
    /* With room the gathered rows stay in the tensor, for the weights' gradient. */
    if (room) return sbp_move(tp, matrix, from, to, own, piece, err);
    const enum error_code e = make_piece(tp, matrix, to, piece.dtype, &brought->t, err);
    brought->buffer = true;
    return e ? e : sbp_move(tp, matrix, from, to, own, brought->t, err);
}

/* Whether partial sums of a product stay exact until they are finished.  Parts of embeddings are numbers and zeros. */
static bool keeps_sums(const struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp made)
{
    return tp->device->exact && tp->devices > 1 && sbp_equal(made, P) && matrix.role != ROLE_TOKENS;
}

/* Where a product writes: where the result will lie, or a buffer.  Sums of partial sums are made in place. */
static enum error_code tensor_sbp_make_room(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp made,
                                            struct sbp to,
                                            struct tensor piece, struct brought *brought, struct error *err)
{
    const bool in_place = sbp_equal(made, to) || (sbp_equal(made, P) && sbp_equal(to, B)) || tp->devices == 1;
    *brought = (struct brought){ piece, !in_place };
    if (keeps_sums(tp, matrix, made)) {
        brought->buffer = true;
        return make_piece(tp, matrix, made, EXACT, &brought->t, err);
    }
    return in_place ? OK : make_piece(tp, matrix, made, piece.dtype, &brought->t, err);
}

/* Exact partial sums of whole rows move to their signature, and are rounded there. */
static enum error_code give_sums(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp to,
                                 struct tensor parts, struct tensor piece, struct error *err)
{
    struct tensor sums = parts;
    enum error_code e = sbp_equal(to, B) ? OK : make_piece(tp, matrix, to, EXACT, &sums, err);
    if (!e) e = sbp_move(tp, matrix, P, to, parts, sums, err);
    if (!e) dev_round(tp->device, piece, sums);
    if (sums.data != parts.data) device_free(tp->device, sums);
    return e;
}

/* tensor_sbp_give moves a product's result to its final signature.  The call is collective unless both are equal. */
static enum error_code tensor_sbp_give(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp made,
                                       struct sbp to, struct brought brought, struct tensor piece, struct error *err)
{
    if (keeps_sums(tp, matrix, made)) return give_sums(tp, matrix, to, brought.t, piece, err);
    if (sbp_equal(made, to) || tp->devices == 1) return OK;
    return sbp_move(tp, matrix, made, to, brought.t, piece, err);
}

/* A bias as a product adds it.  To partial sums the first device adds all of it, or each its own columns. */
static enum error_code bring_bias(struct tensor_parallel *tp, enum param_role role, const struct division *division,
                                  struct tensor b, struct brought *out, struct error *err)
{
    const struct sbp_matrix m = output_of(role, 1);
    const struct sbp from = bias_of(tp, role, division), to = takes_bias(division);
    *out = (struct brought){ b, false };
    if (!tensor_present(b) || sbp_equal(from, to) || tp->devices == 1) return OK;
    if (sbp_equal(to, P) && sbp_equal(from, B)) return out->t = tp->rank == 0 ? b : tensor_none, OK;
    /* A bias travels as a matrix of one row, and becomes a vector again at the end. */
    const struct tensor row = tensor_2d(b.data, b.dtype, 1, tensor_count(b));
    enum error_code e = make_piece(tp, m, to, b.dtype, &out->t, err);
    out->buffer = true;
    if (!e && sbp_equal(to, P)) sbp_among_zeros(tp, m, row, out->t);
    else if (!e) e = sbp_move(tp, m, from, to, row, out->t, err);
    out->t = tensor_1d(out->t.data, b.dtype, tensor_count(out->t));
    return e;
}

/* Add a gradient that was made elsewhere: of a matrix, partial sums; of a bias, as a row. */
static enum error_code add_gradient(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp made,
                                    struct sbp to, struct tensor part, struct tensor g, struct error *err)
{
    struct tensor sum;
    enum error_code e = make_piece(tp, matrix, to, g.dtype, &sum, err);
    if (!e) e = sbp_move(tp, matrix, made, to, part, sum, err);
    if (!e) dev_add(tp->device, tensor_1d(g.data, g.dtype, tensor_count(g)),
                    tensor_1d(g.data, g.dtype, tensor_count(g)), tensor_1d(sum.data, sum.dtype, tensor_count(sum)));
    device_free(tp->device, sum);
    return e;
}

/* Zeroed memory of a shape, for this device's part of a gradient. */
static enum error_code zeros_like(struct tensor_parallel *tp, struct tensor shape, struct tensor *tensor,
                                  struct error *err)
{
    const enum error_code e = tensor_gradient_buffer(tp, tensor, tensor_rows(shape), tensor_cols(shape), err);
    if (!e) device_zero(tp->device, *tensor);
    return e;
}

/* dW += the sum over the devices of their tokens' parts. */
static enum error_code add_sum(struct tensor_parallel *tp, struct tensor dW, struct tensor part, struct error *err)
{
    enum error_code e = allreduce(&tp->along[ALL], part.data, tensor_count(part), part.dtype, SUM, tp->allreduce, err);
    if (!e) dev_add(tp->device, dW, dW, part);
    return e;
}

/* ---- products with exact sums, whose terms are on several devices ------------------------------------------------ */

static enum error_code forward_terms(struct tensor_parallel *tp, struct tensor Y, struct tensor X, struct tensor W,
                                     struct tensor b, struct error *err)
{
    struct tops t;
    const enum error_code e = tops_of_forward(tp, ALL, &t, X, W, err);
    if (!e) dev_linear_forward_part(tp->device, Y, X, t.rows, W, t.others, b);
    tops_drop(tp, &t);
    return e;
}

static enum error_code input_terms(struct tensor_parallel *tp, struct tensor dX, struct tensor dY, struct tensor W,
                                   struct error *err)
{
    struct tops t;
    const enum error_code e = tops_of_input(tp, ALL, &t, dY, W, err);
    if (!e) dev_linear_backward_input_part(tp->device, dX, dY, t.rows, W, t.others);
    tops_drop(tp, &t);
    return e;
}

/* Whether devices have other columns of X or of dY. */
static bool cuts_columns(const struct tensor_parallel *tp, const struct division *division)
{
    return tp->device->exact && tp->devices > 1 && division->W.kind == SBP_S;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Y = X W^T + b.  The order is the same on all devices: X, the bias, the product, then Y, because each move is
 * collective. */
static enum error_code tensor_sbp_linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                 struct tensor Y,
                                                 struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    const struct division d = division_of(layout_of(tp), role);
    struct brought x = { 0 }, y = { 0 }, bias = { 0 };
    enum error_code e = tensor_sbp_bring(tp, input_of(role, N), d.X, d.takes_X, X, room_for_X(tp, role, &d), &x, err);
    if (!e) e = bring_bias(tp, role, &d, b, &bias, err);
    if (!e) e = tensor_sbp_make_room(tp, output_of(role, N), d.makes_Y, d.Y, Y, &y, err);
    if (!e) e = keeps_sums(tp, output_of(role, N), d.makes_Y) ? forward_terms(tp, y.t, x.t, W, bias.t, err)
                                                              : local_forward(tp, y.t, x.t, W, bias.t, err);
    /* The inputs are freed before Y moves, because the move may need a buffer of its own. */
    tensor_sbp_give_back(tp, bias), tensor_sbp_give_back(tp, x);
    if (!e) e = tensor_sbp_give(tp, output_of(role, N), d.makes_Y, d.Y, y, Y, err);
    tensor_sbp_give_back(tp, y);
    return e;
}

/* dX [N, I] = dY [N, O] W [O, I], with dY moved before the product and dX moved afterwards. */
static enum error_code tensor_sbp_linear_backward_input(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                        struct tensor dX, struct tensor dY, struct tensor W,
                                                        struct error *err)
{
    const struct division d = division_of(layout_of(tp), role);
    struct brought dy = { 0 }, dx = { 0 };
    enum error_code e = tensor_sbp_bring(tp, output_of(role, N), d.Y, d.takes_dY, dY,
                                         room_for_dY(tp, role, &d), &dy, err);
    if (!e) e = tensor_sbp_make_room(tp, input_of(role, N), d.makes_dX, d.X, dX, &dx, err);
    if (!e) e = keeps_sums(tp, input_of(role, N), d.makes_dX) ? input_terms(tp, dx.t, dy.t, W, err)
                                                              : local_backward_input(tp, dx.t, dy.t, W, err);
    tensor_sbp_give_back(tp, dy);
    if (!e) e = tensor_sbp_give(tp, input_of(role, N), d.makes_dX, d.X, dx, dX, err);
    tensor_sbp_give_back(tp, dx);
    return e;
}

/* `there` means that an earlier pass has gathered the rows in place, so nothing is sent again. */
static enum error_code bring_again(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp from, struct sbp to,
                                   struct tensor piece, bool there, struct brought *brought, struct error *err)
{
    *brought = (struct brought){ piece, false };
    return there ? OK : tensor_sbp_bring(tp, matrix, from, to, piece, false, brought, err);
}

/* A bias's gradient from dY as the product takes it. */
static enum error_code tensor_sbp_add_bias(struct tensor_parallel *tp, enum param_role role,
                                           const struct division *division,
                                           struct tensor db, struct tensor dy, struct error *err)
{
    struct tensor part;
    enum error_code e = zeros_like(tp, tensor_2d(NULL, db.dtype, 1, tensor_cols(dy)), &part, err);
    if (e) return e;
    dev_column_sums(tp->device, tensor_1d(part.data, part.dtype, tensor_count(part)), dy);
    e = add_gradient(tp, output_of(role, 1), makes_db(division), bias_of(tp, role, division), part, db, err);
    device_free(tp->device, part);
    return e;
}

/* dW [O, I] += dY^T X, with X and dY as the product takes both.  dW is summed only where tokens are divided. */
static enum error_code tensor_sbp_linear_backward_weight(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                         struct tensor dW, struct tensor db, struct tensor dY,
                                                         struct tensor X,
                                                         struct error *err)
{
    const struct division d = division_of(layout_of(tp), role);
    const bool sums = sbp_equal(d.makes_dW, P) && tp->devices > 1,
               db_here = sbp_equal(makes_db(&d), bias_of(tp, role, &d)) || tp->devices == 1;
    struct brought x = { 0 }, dy = { 0 };
    struct tensor part = tensor_none;
    enum error_code e = bring_again(tp, input_of(role, N), d.X, d.takes_X, X, room_for_X(tp, role, &d), &x, err);
    if (!e) e = bring_again(tp, output_of(role, N), d.Y, d.takes_dY, dY, room_for_dY(tp, role, &d), &dy, err);
    /* dW has earlier microbatches already, so the parts are summed apart from it. */
    if (!e && sums) e = zeros_like(tp, dW, &part, err);
    const struct tensor w = sums ? part : dW, b = db_here ? db : tensor_none;
    if (!e) e = cuts_columns(tp, &d) ? terms_backward_weight(tp, ALL, sbp_equal(d.W, S0), w, b, dy.t, x.t, err)
                                     : local_backward_weight(tp, w, b, dy.t, x.t, err);
    if (!e && sums) e = add_sum(tp, dW, part, err);
    /* Where the product makes db with another signature, db is summed apart and moved as a row. */
    if (!e && !db_here && tensor_present(db)) e = tensor_sbp_add_bias(tp, role, &d, db, dy.t, err);
    device_free(tp->device, part);
    tensor_sbp_give_back(tp, dy), tensor_sbp_give_back(tp, x);
    return e;
}

/* ---- the embedding ----------------------------------------------------------------------------------------------- */

/* Its Y has the width of the stream: the inputs of its matrix [V,D]. */
static struct sbp_matrix embedded(int64_t N) { return input_of(ROLE_TOKENS, N); }

/* Ids are whole on every device.  With S(0) a device reads only the ids of its own rows. */
static struct tensor ids_for(const struct tensor_parallel *tp, struct sbp sbp, struct tensor ids)
{
    const struct interval own = tensor_rows_at(tp, STREAM, tensor_count(ids));
    return sbp_equal(sbp, S0) ? tensor_1d((int32_t *)ids.data + own.first, I32, own.count) : ids;
}

/* Y [N, D] = rows of W [V, D] at the ids.  Ids outside this device's rows of W give zeros, and Y is then a partial
 * sum. */
static enum error_code tensor_sbp_embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids,
                                                    struct tensor W, struct error *err)
{
    const struct division d = embedding_of(layout_of(tp));
    const struct sbp_matrix m = embedded(tensor_count(ids));
    struct brought y = { 0 };
    enum error_code e = tensor_sbp_make_room(tp, m, d.makes_Y, d.Y, Y, &y, err);
    if (!e) e = local_embedding_forward(tp, y.t, ids_for(tp, d.makes_Y, ids), W, err);
    if (!e) e = tensor_sbp_give(tp, m, d.makes_Y, d.Y, y, Y, err);
    tensor_sbp_give_back(tp, y);
    return e;
}

/* dW [V, D] gets each row of dY at the row of its id. */
static enum error_code tensor_sbp_embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW,
                                                            struct tensor dY, struct tensor ids, struct error *err)
{
    const struct division d = embedding_of(layout_of(tp));
    const struct sbp_matrix m = embedded(tensor_count(ids));
    const bool sums = sbp_equal(d.makes_dW, P) && tp->devices > 1;
    struct brought dy = { 0 };
    struct tensor part = tensor_none;
    enum error_code e = tensor_sbp_bring(tp, m, d.Y, d.takes_dY, dY, false, &dy, err);
    if (!e && sums) e = zeros_like(tp, dW, &part, err);
    if (!e) e = local_embedding_backward_weight(tp, sums ? part : dW, dy.t, ids_for(tp, d.takes_dY, ids), err);
    if (!e && sums) e = add_sum(tp, dW, part, err);
    device_free(tp->device, part);
    tensor_sbp_give_back(tp, dy);
    return e;
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

/* A gradient moves in the gradients' own format. */
static void forecast_gradient(struct forecast *forecast, struct sbp_matrix matrix, struct sbp made, struct sbp to)
{
    forecast->gradients = true;
    forecast_move(forecast, matrix, made, to);
    forecast->gradients = false;
}

/* The embedding has no input gradient, so INPUT_PASS sends nothing. */
static void embedding_cost(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    const struct division d = embedding_of(layout_of(forecast->tp));
    if (pass == FORWARD_PASS) forecast_move(forecast, embedded(N), d.makes_Y, d.Y);
    if (pass != WEIGHT_PASS) return;
    forecast_move(forecast, embedded(N), d.Y, d.takes_dY);
    forecast_gradient(forecast, embedded(forecast->tp->config->V), d.makes_dW, d.W);
}

/* A product's result moves; exact sums move as they are, after the devices have agreed on the largest sizes. */
static void forecast_made(struct forecast *forecast, struct sbp_matrix matrix, struct sbp made, struct sbp to)
{
    const struct tensor_parallel *tp = forecast->tp;
    if (!keeps_sums(tp, matrix, made)) return forecast_move(forecast, matrix, made, to);
    forecast_statistics(forecast, ALL, matrix.N + tensor_width(tp, matrix.role, matrix.output, 0, 1));
    forecast_sums(forecast, matrix, to);
}

/* matrix_cost enters the moves of the three products above, in the same order. */
static void matrix_cost(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int64_t N,
                        bool has_bias)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct sbp_matrix in = input_of(role, N), out = output_of(role, N);
    if (role == ROLE_TOKENS) return embedding_cost(forecast, pass, N);
    const struct division d = division_of(layout_of(tp), role);
    if (pass == FORWARD_PASS) {
        forecast_move(forecast, in, d.X, d.takes_X);
        /* A bias for a partial sum is not sent: bring_bias adds each column on one device only. */
        if (has_bias && !sbp_equal(takes_bias(&d), P))
            forecast_move(forecast, output_of(role, 1), bias_of(tp, role, &d), takes_bias(&d));
        forecast_made(forecast, out, d.makes_Y, d.Y);
    } else if (pass == INPUT_PASS) {
        forecast_move(forecast, out, d.Y, d.takes_dY);
        forecast_made(forecast, in, d.makes_dX, d.X);
    } else {
        if (cuts_columns(tp, &d)) forecast_terms(forecast, ALL, N, 0, NULL, 0);
        if (!room_for_X(tp, role, &d)) forecast_move(forecast, in, d.X, d.takes_X);
        if (!room_for_dY(tp, role, &d)) forecast_move(forecast, out, d.Y, d.takes_dY);
        forecast_gradient(forecast, input_of(role, tensor_width(tp, role, true, 0, 1)), d.makes_dW, d.W);
        if (has_bias) forecast_gradient(forecast, output_of(role, 1), makes_db(&d), bias_of(tp, role, &d));
    }
}

/* ---- the scheme -------------------------------------------------------------------------------------------------- */

static const char *tensor_sbp_mesh(int devices, int size[TENSOR_AXES])
{
    size[0] = size[1] = 1;
    size[2] = devices;
    return NULL;
}

static struct weight_cut tensor_sbp_weight(const struct tensor_scheme *scheme, enum param_role role)
{
    const struct sbp of = ((const struct sbp_scheme *)scheme)->layout.of[weight_role(role)];
    return (struct weight_cut){ .out = sbp_equal(of, S0) ? ALL : 0, .in = sbp_equal(of, S1) ? ALL : 0 };
}

static struct tensor_cut tensor_sbp_cut(struct sbp of)
{
    return (struct tensor_cut){ .rows = sbp_equal(of, S0) ? ALL : 0, .columns = sbp_equal(of, S1) ? ALL : 0 };
}

/* A signature that this model cannot have, and those that it can. */
struct refusal { bool applies; enum sbp_role role; const char *who, *takes; };

/* The first refusal that applies becomes an ERR_PLAN with the role, its signature and what would be right. */
static enum error_code first_that_applies(const struct sbp_scheme *scheme, const struct refusal refusal[],
                                          size_t n, int devices, struct error *err)
{
    const struct sbp_mesh line = { .axes = 1, .size = { devices, 1 } };
    char text[SBP_TEXT];
    size_t i = 0;
    while (i < n && !refusal[i].applies) i++;
    if (i == n) return OK;
    return fail(err, ERR_PLAN, "--tensor %s: %s %s: %s needs %s", printable_path(scheme->scheme.head.name).text,
                sbp_role_name(refusal[i].role),
                signature_text(&line, (struct signature){ { scheme->layout.of[refusal[i].role], ON_B } }, text),
                refusal[i].who,
                refusal[i].takes);
}

/* check_model refuses pairs of model and layout for which the scheme has no code. */
static enum error_code check_model(const struct sbp_scheme *scheme, const struct model_config *config, int devices,
                                   struct error *err)
{
    const struct sbp *of = scheme->layout.of;
    const bool experts = config->mixture.E > 0, copies = devices > config->K, heads_cut = sbp_equal(of[SBP_HEADS], S1),
               qkv_cut = sbp_equal(of[SBP_QKV], S0);
    static const char mixture[] = "a mixture of experts", few[] = "with more devices than key/value heads a layer";
    /* A line has the condition, the role at fault, the model's property, and the signatures that would fit. */
    const struct refusal all[] = {
        { config->tied && !sbp_equal(of[SBP_HEAD], of[SBP_EMBEDDING]), SBP_HEAD,
         "an output matrix that is the embedding",
          "the signature of the embedding" },
        { copies && heads_cut && !qkv_cut, SBP_QKV, few, "qkv S(0), or heads B or S(0)" },
        { copies && qkv_cut && !heads_cut, SBP_HEADS, few, "heads S(1), or qkv B or S(1)" },
        { experts && !sbp_equal(of[SBP_HIDDEN], S1), SBP_HIDDEN, mixture, "S(1)" },
        { experts && !sbp_equal(of[SBP_FC], S0), SBP_FC, mixture, "S(0)" },
        { experts && !sbp_equal(of[SBP_FC2], S1), SBP_FC2, mixture, "S(1)" },
        { experts && sbp_equal(of[SBP_STREAM], S1), SBP_STREAM, mixture, "B or S(0)" },
        { experts && scheme->scheme.cuts_vectors, SBP_NORMS, mixture, "B" },
        { config->sinks && sbp_equal(of[SBP_HEADS], S0), SBP_HEADS, "attention with sinks", "B or S(1)" },
    };
    return first_that_applies(scheme, all, sizeof all / sizeof *all, devices, err);
}

/* A weight must have rows, or columns, for every device. */
static enum error_code check_sizes(const struct sbp_scheme *scheme, const struct model_config *config, int devices,
                                   struct error *err)
{
    static const struct { enum sbp_role role; bool output_inside; } weights[] = {
        { SBP_EMBEDDING, true }, { SBP_QKV, true }, { SBP_PROJ, false }, { SBP_FC, true }, { SBP_FC2, false },
        { SBP_HEAD, true },
    };
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        const enum sbp_role r = weights[i].role;
        const bool heads = r == SBP_QKV || r == SBP_PROJ, feed = r == SBP_FC || r == SBP_FC2;
        const struct sbp is = scheme->layout.of[r];
        const bool inside = sbp_equal(is, weights[i].output_inside ? S0 : S1);
        /* The inner side has H heads, F or V columns to cut; the outer side has D. */
        const int64_t has = inside ? (heads ? config->H : feed ? config->F : config->V) : config->D;
        if (is.kind == SBP_S && has < devices)
            return fail(err, ERR_PLAN, "--tensor %s: %s S(%d): cannot be cut into %d parts: it has %lld %s",
                        printable_path(scheme->scheme.head.name).text, sbp_role_name(r), is.dim, devices,
                        (long long)has,
                        inside && heads ? "heads" : "there");
    }
    return OK;
}

/* Some models need what only some layouts can do. */
static enum error_code tensor_sbp_check(const struct tensor_scheme *scheme,
                                        const struct model_config *config, int devices, struct error *err)
{
    const struct sbp_scheme *own = (const struct sbp_scheme *)scheme;
    if (devices == 1) return OK;
    const enum error_code e = check_model(own, config, devices, err);
    return e ? e : check_sizes(own, config, devices, err);
}

/* A product divided by tokens sums dW in a buffer, which tiles do not have. */
static bool divides_by_tokens(const struct sbp_layout *layout)
{
    static const enum param_role role[] = { ROLE_QKV, ROLE_ATTENTION_OUT, ROLE_UP, ROLE_DOWN, ROLE_HEAD };
    for (size_t i = 0; i < sizeof role / sizeof *role; i++)
        if (sbp_equal(division_of(layout, role[i]).makes_dW, P)) return true;
    return sbp_equal(embedding_of(layout).makes_dW, P);
}

/* dY of a matrix that leads out is gathered if the stream is S(0) and the product takes all rows. */
static bool gathers_gradients(const struct sbp_layout *layout)
{
    return sbp_equal(layout->of[SBP_STREAM], S0) && (sbp_equal(division_of(layout, ROLE_ATTENTION_OUT).takes_dY, B) ||
                                                     sbp_equal(division_of(layout, ROLE_DOWN).takes_dY, B));
}

/* All fields of the scheme follow from the layout; sbp_shipped.c sets the description afterwards. */
struct sbp_scheme sbp_scheme_of(const struct sbp_layout *layout, const char *name)
{
    return (struct sbp_scheme){
        .layout = *layout,
        .scheme = {
            .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES, .name = name,
                      .description = "signatures from a text (docs/parallelism/signatures.md) decide what is sent",
                      .source = "OneFlow, arXiv:2110.15032" },
            .exact = true, .mesh = tensor_sbp_mesh, .stream = tensor_sbp_cut(layout->of[SBP_STREAM]),
                .heads = tensor_sbp_cut(layout->of[SBP_HEADS]),
            .feed = tensor_sbp_cut(layout->of[SBP_HIDDEN]), .logits = tensor_sbp_cut(layout->of[SBP_LOGITS]),
                .weight = tensor_sbp_weight, .check = tensor_sbp_check,
            .cuts_tokens = !sbp_equal(layout->of[SBP_HEADS], S0),
            .cuts_vectors = sbp_equal(layout->of[SBP_STREAM], S0) && sbp_equal(layout->of[SBP_NORMS], S0),
            .keeps_inputs = sbp_equal(layout->of[SBP_STREAM], S0) && sbp_equal(layout->of[SBP_INPUTS], B),
            .keeps_gradients = gathers_gradients(layout), .takes_tiles = !divides_by_tokens(layout),
            .linear_forward = tensor_sbp_linear_forward, .linear_backward_input = tensor_sbp_linear_backward_input,
            .linear_backward_weight = tensor_sbp_linear_backward_weight,
                .embedding_forward = tensor_sbp_embedding_forward,
            .embedding_backward_weight = tensor_sbp_embedding_backward_weight, .matrix_cost = matrix_cost,
        },
    };
}
