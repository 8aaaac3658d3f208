/* norm.c -- layernorm, rmsnorm, and rmsnorms of heads and of latents.
 *
 * y = (x - m) r w + b, r = 1/sqrt(v + eps); an rmsnorm has m = 0 and no b.  With g = rounding_of_sum(width):
 *   the mean is off by g mean|x|, the variance by g (mean x^2), also if it is mean x^2 - m^2;
 *   so r is off by the part g r^2 (mean x^2) / 2 of itself, and xhat = (x - m) r by the sum of both.
 * By steps, xhat is stored before it is multiplied by w; backward, mean and r are stored, too, and sums of the
 * gradients of w and b, after up to 16 blocks of rows.
 *
 * Some programs store mean, variance and r in 16 bits forward as well (rounding.stored_norms).  A bound for this would
 * hide what it must find: a row's statistics move all its elements together.  So a result that is wrong is tried with
 * each of the few numbers of the format that mean and r of a row can have been rounded to (`stored`).
 *
 * dx = r (h - mean(h) - xhat mean(h xhat)), h = dy w.
 *
 * Where a norm's factors are 1 + its weights, w is that sum, one more rounding, which some programs store.
 *
 * A step's result that is subnormal is off by `tiny`, times what the steps after it multiply by: r, w or xhat.
 * walk.c runs the passes.  compare_stored in verdict.c tries `stored` when a result is wrong.
 */
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"

/* The columns that are normed together: all, or those of each head of queries and of keys.  Others pass unchanged. */
struct pieces {
    int64_t count, width;
    int64_t first;                      /* pieces with the first `width` weights; the others have the next */
    bool has_mean;
    double roundings;                   /* of a factor: none, or one */
    int64_t keys;                       /* the width of the others, which has weights of its own; 0: the same */
    double eps;
};

/* Latents have an epsilon of their own, whatever the model's is. */
double single_norm_eps(const struct single *single, const struct single_node *node)
{
    return node->operation == &single_latent_norm ? LATENT_EPS : single->context->config->eps;
}

/* All columns of a row are a single piece. */
static struct pieces of_row(const struct single *single, int64_t width)
{
    return (struct pieces){ 1, width, 1, single->context->config->norm == NORM_LAYER,
                           norm_base(single->context->config), 0,
                            single->context->config->eps };
}

/* Heads of queries and keys are normed apart, or all queries together and all keys together.  Values pass
 * unchanged. */
static struct pieces of_heads(const struct single *single)
{
    const struct model_config *c = single->context->config;
    if (c->normed_together) return (struct pieces){ 2, c->H * c->A, 1, false, norm_base(c), c->K * c->A, c->eps };
    return (struct pieces){ c->H + c->K, c->A, c->H, false, norm_base(c), 0, c->eps };
}

/* These are the factors of a norm: its weights, or 1 + weights in models whose norms are based at 1. */
static struct tensor factors(struct single *single, int param)
{
    const struct tensor w = single_param(single, param);
    const double base = norm_base(single->context->config);
    if (base == 0 || !single_going(single)) return w;
    const struct tensor sum = single_new(single, 1, tensor_count(w));
    for (int64_t i = 0; !single->failed && i < tensor_count(w); i++) numbers(sum)[i] = base + numbers(w)[i];
    return sum;
}

/* This is the first weight of a piece: pieces behind `first` have the second row of weights. */
static int64_t norm_weight_of(const struct pieces *pieces, int64_t piece)
{
    return piece < pieces->first ? 0 : pieces->width;
}

/* These numbers hold for one piece: a piece of keys may have another width. */
static struct pieces one_of(struct pieces pieces, int64_t piece)
{
    if (pieces.keys && piece >= pieces.first) pieces.width = pieces.keys;
    return pieces;
}

/* A piece's statistics, and how far they may be off: mean absolutely, r relative to itself. */
struct row { double mean, r, off_mean, off_r; };

/* These are a piece's statistics.  Both mean and variance are sums of `width` terms in the format that adds. */
static struct row recompute_norm_row_of(const struct single *single, const struct pieces *pieces, const double *x)
{
    const double g = rounding_of_sum(single->rounding.sum, pieces->width + 2), n = (double)pieces->width;
    double sum = 0, absolute = 0, squares = 0, centred = 0;
    for (int64_t i = 0; i < pieces->width; i++) sum += x[i], absolute += fabs(x[i]), squares += x[i] * x[i];
    struct row w = { .mean = pieces->has_mean ? sum / n : 0 };
    for (int64_t i = 0; i < pieces->width; i++) centred += (x[i] - w.mean) * (x[i] - w.mean);
    w.r = 1 / sqrt(centred / n + pieces->eps);
    w.off_mean = pieces->has_mean ? g * absolute / n : 0;
    w.off_r = g * w.r * w.r * squares / n / 2 + 4 * single->rounding.sum + w.r * w.r * single->rounding.sum_tiny;
    return w;
}

/* Mean and root are stored.  A mean that is subnormal is off by more than a part of itself. */
static void store_row(const struct pieces *pieces, struct unit unit, struct row *row)
{
    row->off_mean += pieces->has_mean ? unit_off(unit, row->mean) : 0;
    row->off_r += unit_off(unit, row->r) / row->r;
}

/* How far xhat = (x - m) r is off. */
static double off_xhat(const struct single *single, const struct row *row, double x)
{
    const double xhat = (x - row->mean) * row->r;
    return row->r * row->off_mean + fabs(xhat) * (row->off_r + 2 * single->rounding.sum) + single->rounding.sum_tiny;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* A piece's input, and what it is multiplied by and moved by; b: NULL for none.  stores: of results of steps. */
struct one_piece { const double *x, *w, *b; double stores; };

/* Compute element i of a piece, and with `more` the error of its stored steps. */
static struct element element_of(const struct single *single, const struct pieces *pieces,
                                 const struct one_piece *one_piece, const struct row *row, int64_t i, double *more)
{
    const double scaled = (one_piece->x[i] - row->mean) * row->r * one_piece->w[i],
                 off = off_xhat(single, row, one_piece->x[i]) * fabs(one_piece->w[i]) + (2 + pieces->roundings)
                     * single->rounding.sum * fabs(scaled) +
                       single->rounding.sum_tiny;
    *more = single->rounding.store * (one_piece->stores + pieces->roundings) * fabs(scaled) + single->rounding.tiny
        * (1 + fabs(one_piece->w[i]));
    return (struct element){ scaled + (one_piece->b ? one_piece->b[i] : 0), off };
}

/* Write all elements of a piece. */
static void piece_forward(const struct single *single, const struct pieces *pieces, const struct one_piece *one_piece,
                          struct row row, struct single_value value, int64_t at)
{
    double more;
    for (int64_t i = 0; i < pieces->width; i++) {
        const struct element e = element_of(single, pieces, one_piece, &row, i, &more);
        single_put(value, at + i, e, more);
    }
}

/* List the numbers of the format to which x may have been rounded, if it was off by `off`.  @return how many. */
enum { MOST_ROUNDED = 8 };
static int norm_rounded(const struct single *single, double x, double off, double to[MOST_ROUNDED])
{
    double buffer;
    int n = 0;
    const struct tensor one = tensor_1d(&buffer, single->rounding.results, 1);
    /* Each step goes a little further than the last number, to its neighbour. */
    for (double at = x - off; n < MOST_ROUNDED; at = to[n - 1] + 1.01 * unit_off(unit_stored(single), to[n - 1])) {
        tensor_set(one, 0, fmin(at, x + off));
        const double y = tensor_get(one, 0);
        if (n > 0 && y <= to[n - 1]) break;
        to[n++] = y;
        if (at >= x + off || y == 0) break;
    }
    return n;
}

/* The largest error over its bound, if a piece had these statistics. */
static double apart(const struct single *single, const struct pieces *pieces, const struct one_piece *one_piece,
                    struct row row, int64_t at)
{
    double most = 0, more;
    for (int64_t i = 0; i < pieces->width; i++) {
        const struct element e = element_of(single, pieces, one_piece, &row, i, &more);
        const double off = e.off + more, bound = off + rounding_when_stored(&single->rounding, e.y, off);
        if (bound > 0) most = fmax(most, fabs(numbers(single->verdict.have)[at + i] - e.y) / bound);
    }
    return most;
}

/* Find the stored statistics that explain a piece best.  Variance, its sum with eps, and r are each rounded, so r
 * is off by two units; if variance and sum are subnormal, by half of what both are off by. */
static struct row stored_row(const struct single *single, const struct pieces *pieces,
                             const struct one_piece *one_piece, int64_t at)
{
    const struct row exact = recompute_norm_row_of(single, pieces, one_piece->x);
    const double u = single->rounding.store, moved = pieces->has_mean ? u * fabs(exact.mean) * exact.r : 0;
    double mean[MOST_ROUNDED], r[MOST_ROUNDED], least = apart(single, pieces, one_piece, exact, at);
    struct row best = exact;
    const int means = pieces->has_mean ? norm_rounded(single, exact.mean, exact.off_mean, mean) : (mean[0] = 0, 1),
              roots = norm_rounded(single, exact.r, exact.r * (1.01 * u + exact.off_r + moved * moved / 2 +
                                                            exact.r * exact.r * single->rounding.tiny), r);
    /* All pairs of a mean and a root; k = -1 is the exact root beside a rounded mean. */
    for (int i = 0; i < means; i++)
        for (int k = -1; k < roots; k++) {
            const struct row row = { mean[i], k < 0 ? exact.r : r[k], 0, exact.off_r * (k < 0) };
            const double far = apart(single, pieces, one_piece, row, at);
            if (far < least) least = far, best = row;
        }
    return best;
}

/* Each piece of each row is normed; columns outside of pieces are copied. */
static struct single_value forward_of(struct single *single, const struct single_node *node, struct tensor X,
                                      struct pieces pieces, bool stored)
{
    const struct tensor w = factors(single, node->weight), b = single_param(single, node->bias);
    if (!single_going(single)) return single_stop(single);
    const int64_t ld = tensor_cols(X);
    const struct single_value v = single_value_new(single, tensor_rows(X), ld);
    /* Y begins as a copy of X, so that columns outside of pieces are right. */
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(X)[i];
    for (int64_t row = 0; !single->failed && row < tensor_rows(X); row++)
        for (int64_t h = 0; h < pieces.count; h++) {
            const int64_t at = row * ld + h * pieces.width;
            const struct pieces one = one_of(pieces, h);
            const struct one_piece o = { numbers(X) + at, numbers(w) + norm_weight_of(&pieces, h),
                                         node->bias < 0 ? NULL : numbers(b), stored ? 3 : 2 };
            piece_forward(single, &one, &o, stored ? stored_row(single, &one, &o, at)
                          : recompute_norm_row_of(single, &one, o.x), v, at);
        }
    return v;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Write one piece of dX, and how far it is off if steps are stored with this unit; a unit of 0: they are not. */
static void piece_input(const struct single *single, const struct pieces *pieces, const double *dy, const double *x,
                        const double *w, struct unit stored, double *dx, double *off)
{
    const double sum = single->rounding.sum, g = rounding_of_sum(sum, pieces->width), n = (double)pieces->width,
        more = pieces->roundings,
                 u = stored.u, tiny = stored.tiny + single->rounding.sum_tiny;
    struct row row = recompute_norm_row_of(single, pieces, x);
    store_row(pieces, stored, &row);
    double h = 0, abs_h = 0, hx = 0, abs_hx = 0, h_off = 0;
    /* mean(h) and mean(h xhat), their absolute sums, and what xhat's errors add. */
    for (int64_t i = 0; i < pieces->width; i++) {
        const double hi = dy[i] * w[i], xhat = (x[i] - row.mean) * row.r;
        h += hi / n, abs_h += fabs(hi) / n, hx += hi * xhat / n, abs_hx += fabs(hi * xhat) / n;
        h_off += (fabs(hi) * (off_xhat(single, &row, x[i]) + u * fabs(xhat) + tiny) + tiny * fabs(xhat)) / n;
    }
    /* An rmsnorm has no mean, so h is 0. */
    if (!pieces->has_mean) h = abs_h = 0;
    const double off_h = (g + (2 + more) * sum + (1 + more) * u) * abs_h + 2 * tiny * pieces->has_mean,
                 off_hx = (g + (3 + more) * sum + (2 + more) * u) * abs_hx + h_off + 2 * tiny;
    /* dx = r (h - mean(h) - xhat mean(h xhat)). */
    for (int64_t i = 0; i < pieces->width; i++) {
        const double hi = dy[i] * w[i], xhat = (x[i] - row.mean) * row.r, inner = hi - h - xhat * hx;
        dx[i] = row.r * inner;
        off[i] = row.r * (((1 + more) * u + (4 + more) * sum) * (fabs(hi) + fabs(h) + fabs(xhat * hx)) + off_h +
                          fabs(xhat) * off_hx + 2 * tiny +
                          (off_xhat(single, &row, x[i]) + u * fabs(xhat) + tiny) * fabs(hx)) +
                 fabs(dx[i]) * (row.off_r + u) + tiny * fabs(inner);
    }
}

/* dX [N, cols]: bounds once as a fused program computes, once with stored steps. */
static struct single_value input_of(struct single *single, const struct single_node *node, struct tensor X,
                                    struct pieces pieces)
{
    const struct tensor dY = single_grad(single, node->out), w = factors(single, node->weight);
    if (!single_going(single)) return single_stop(single);
    const int64_t ld = tensor_cols(X);
    const struct single_value v = single_value_new(single, tensor_rows(X), ld);
    /* dX begins as a copy of dY, so that columns outside of pieces are right. */
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(dY)[i];
    for (int64_t row = 0; !single->failed && row < tensor_rows(X); row++)
        for (int64_t h = 0; h < pieces.count; h++) {
            const int64_t at = row * ld + h * pieces.width;
            const double *y = numbers(dY) + at, *x = numbers(X) + at, *wh = numbers(w) + norm_weight_of(&pieces, h);
            const struct pieces one = one_of(pieces, h);
            piece_input(single, &one, y, x, wh, (struct unit){ 0 }, numbers(v.y) + at, numbers(v.fused) + at);
            piece_input(single, &one, y, x, wh, unit_stored(single), numbers(v.y) + at, numbers(v.steps) + at);
        }
    return v;
}

/* These are sums over rows for each weight: values, absolute and squared terms. */
enum { BLOCKS = 16 };
struct sums { struct single_value v; struct tensor absolute, square; int64_t terms; };

/* Add a term to column c.  By steps the sum is stored after each of 16 blocks of rows, which is spread over the
 * terms. */
static void add_term(const struct single *single, struct sums *sums, int64_t c, double term, double off, double more)
{
    const double blocks = sums->terms > BLOCKS ? (double)BLOCKS / (double)sums->terms : 1;
    numbers(sums->v.steps)[c] += more + blocks * unit_off(unit_stored(single), numbers(sums->v.y)[c] + term);
    numbers(sums->v.y)[c] += term, numbers(sums->absolute)[c] += fabs(term), numbers(sums->square)[c] += term * term;
    numbers(sums->v.fused)[c] += off;
}

/* dw += dy xhat for one piece.  The stored steps' error is what a stored mean and root add to xhat's. */
static void piece_weight(const struct single *single, const struct pieces *pieces, const double *dy, const double *x,
                         int64_t first, struct sums *sums)
{
    const struct row exact = recompute_norm_row_of(single, pieces, x);
    struct row row = exact;
    store_row(pieces, unit_stored(single), &row);
    for (int64_t i = 0; i < pieces->width; i++) {
        const double off = off_xhat(single, &exact, x[i]);
        add_term(single, sums, first + i, dy[i] * (x[i] - exact.mean) * exact.r, fabs(dy[i]) * off,
                 fabs(dy[i]) * (off_xhat(single, &row, x[i]) - off + single->rounding.tiny));
    }
}

/* Turn the sums into a value: bounds follow the absolute terms. */
static struct single_value summed(struct single *single, struct sums *sums)
{
    const struct rounding *r = &single->rounding;
    for (int64_t c = 0; !single->failed && c < tensor_count(sums->v.y); c++) {
        const double absolute = numbers(sums->absolute)[c];
        double *const f = &numbers(sums->v.fused)[c];
        *f += rounding_of_sum(r->sum, sums->terms + 2) * absolute + tiny_terms(r->sum_tiny, sums->terms);
        *f += unit_off_parts(single, absolute);
        numbers(sums->v.steps)[c] += *f + 2 * rounding_of_terms(r->store, absolute, sqrt(numbers(sums->square)[c])) +
                                  tiny_terms(r->tiny, sums->terms);
    }
    return sums->v;
}

static struct sums sums_new(struct single *single, int64_t n, int64_t terms)
{
    return (struct sums){ single_value_new(single, 1, n), single_new(single, 1, n), single_new(single, 1, n), terms };
}

/* Add all pieces of all rows. */
static void add_weights(const struct single *single, const struct pieces *pieces, struct tensor dY, struct tensor X,
                        struct sums *sums)
{
    const int64_t ld = tensor_cols(X);
    for (int64_t row = 0; !single->failed && row < tensor_rows(X); row++)
        for (int64_t h = 0; h < pieces->count; h++) {
            const int64_t at = row * ld + h * pieces->width;
            const struct pieces one = one_of(*pieces, h);
            piece_weight(single, &one, numbers(dY) + at, numbers(X) + at, norm_weight_of(pieces, h), sums);
        }
}

/* A norm reads a slot, or the first columns of it: a latent. */
typedef struct tensor norm_input(struct single *, const struct single_node *);

/* The gradient of a norm's weights is added up tile after tile.  The sums are those of all rows, in order. */
static struct single_value weight_of_pieces(struct single *single, const struct single_node *node, norm_input *reads,
                                            struct pieces pieces)
{
    const int64_t weights = pieces.width + (pieces.count == pieces.first ? 0 : pieces.keys ? pieces.keys
                                            : pieces.width);
    struct sums g = sums_new(single, weights, single_slot(single, node->out)->rows * pieces.first);
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct tensor X = reads(single, node), dY = single_grad(single, node->out);
        /* dw += dY n over the rows of the tile, for queries and keys in their own places. */
        if (single_going(single)) add_weights(single, &pieces, dY, X, &g);
        single_release(single, used);
    }
    single_take_all(single);
    return single_going(single) ? summed(single, &g) : single_stop(single);
}

static struct tensor read_of(struct single *single, const struct single_node *node)
{
    return single_act(single, node->in[0]);
}

/* ---- of rows ----------------------------------------------------------------------------------------------------- */

static struct single_value recompute_norm_forward(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    return forward_of(single, node, X, of_row(single, tensor_cols(X)), false);
}

static struct single_value stored(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    return forward_of(single, node, X, of_row(single, tensor_cols(X)), true);
}

static struct single_value recompute_norm_input(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]);
    return input_of(single, node, X, of_row(single, tensor_cols(X)));
}

static struct single_value recompute_norm_weight(struct single *single, const struct single_node *node)
{
    return weight_of_pieces(single, node, read_of, of_row(single, single_slot(single, node->in[0])->cols));
}

/* db [cols] = the sum over rows of dY. */
static struct single_value norm_bias(struct single *single, const struct single_node *node)
{
    const int64_t cols = single_slot(single, node->out)->cols;
    struct sums g = sums_new(single, cols, single_slot(single, node->out)->rows);
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct tensor dY = single_grad(single, node->out);
        /* db_i += dY[n, i] over the rows n of the tile. */
        for (int64_t i = 0; single_going(single) && i < tensor_count(dY); i++)
            add_term(single, &g, i % cols, numbers(dY)[i], 0, 0);
        single_release(single, used);
    }
    single_take_all(single);
    return single_going(single) ? summed(single, &g) : single_stop(single);
}

const struct single_operation single_norm = {
    .words = "the norm",
    .forward = recompute_norm_forward,
    .stored = stored,
    .input_words = "the backward pass of the norm for its input",
    .input = { recompute_norm_input },
    .weight_words = "the backward pass of the norm for its weight",
    .weight = recompute_norm_weight,
    .bias_words = "the backward pass of the norm for its bias",
    .bias = norm_bias,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- of heads ---------------------------------------------------------------------------------------------------- */

static struct single_value heads_forward(struct single *single, const struct single_node *node)
{
    return forward_of(single, node, single_act(single, node->in[0]), of_heads(single), false);
}

static struct single_value heads_stored(struct single *single, const struct single_node *node)
{
    return forward_of(single, node, single_act(single, node->in[0]), of_heads(single), true);
}

static struct single_value heads_input(struct single *single, const struct single_node *node)
{
    return input_of(single, node, single_act(single, node->in[0]), of_heads(single));
}

static struct single_value heads_weight(struct single *single, const struct single_node *node)
{
    return weight_of_pieces(single, node, read_of, of_heads(single));
}

const struct single_operation single_head_norm = {
    .words = "the norms of heads",
    .forward = heads_forward,
    .stored = heads_stored,
    .input_words = "the backward pass of the norms of heads for their input",
    .input = { heads_input },
    .weight_words = "the backward pass of the norms of heads for their weight",
    .weight = heads_weight,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- of latents: of the first columns, as many as there are weights ---------------------------------------------- */

static struct pieces of_latent(const struct single *single, const struct single_node *node)
{
    return (struct pieces){ 1, single_slot(single, node->out)->cols, 1, false, norm_base(single->context->config), 0,
                            single_norm_eps(single, node) };
}

/* Take the first columns, with zeros behind them if there are to be more. */
static struct tensor norm_columns(struct single *single, struct tensor t, int64_t cols)
{
    const int64_t have = tensor_cols(t);
    const struct tensor out = single_new(single, tensor_rows(t), cols);
    for (int64_t i = 0; !single->failed && i < tensor_count(out); i++)
        if (i % cols < have) numbers(out)[i] = numbers(t)[i / cols * have + i % cols];
    return out;
}

static struct tensor latent_of(struct single *single, const struct single_node *node)
{
    return norm_columns(single, single_act(single, node->in[0]), single_slot(single, node->out)->cols);
}

static struct single_value latent_forward(struct single *single, const struct single_node *node)
{
    return forward_of(single, node, latent_of(single, node), of_latent(single, node), false);
}

static struct single_value latent_stored(struct single *single, const struct single_node *node)
{
    return forward_of(single, node, latent_of(single, node), of_latent(single, node), true);
}

/* The gradient goes back to the first columns of the slot; the others get zeros. */
static struct single_value latent_input(struct single *single, const struct single_node *node)
{
    const struct single_value v = input_of(single, node, latent_of(single, node), of_latent(single, node));
    const int64_t cols = single_slot(single, node->in[0])->cols;
    if (!single_going(single)) return single_stop(single);
    return (struct single_value){ .y = norm_columns(single, v.y, cols), .fused = norm_columns(single, v.fused, cols),
                                  .steps = norm_columns(single, v.steps, cols) };
}

static struct single_value latent_weight(struct single *single, const struct single_node *node)
{
    return weight_of_pieces(single, node, latent_of, of_latent(single, node));
}

const struct single_operation single_latent_norm = {
    .words = "the norm of the latent",
    .stored = latent_stored,
    .forward = latent_forward,
    .input_words = "the backward pass of the norm of the latent for its input",
    .input = { latent_input },
    .weight_words = "the backward pass of the norm of the latent for its weight",
    .weight = latent_weight,
    .by_rows = true,
    .weight_by_rows = true,
};
