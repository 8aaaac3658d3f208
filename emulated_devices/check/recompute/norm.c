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
 */
#include "emulated_devices/check/recompute/parts.h"

/* The columns that are normed together: all, or those of each head of queries and of keys.  Others pass unchanged. */
struct pieces {
    int64_t count, width;
    int64_t first;                      /* pieces with the first `width` weights; the others have the next */
    bool has_mean;
    double roundings;                   /* of a factor: none, or one */
    int64_t keys;                       /* the width of the others, which has weights of its own; 0: the same */
    double eps;
};

double single_norm_eps(const struct single *s, const struct single_node *n)
{
    return n->operation == &single_latent_norm ? LATENT_EPS : s->context->config->eps;
}

static struct pieces of_row(const struct single *s, int64_t width)
{
    return (struct pieces){ 1, width, 1, s->context->config->norm == NORM_LAYER, norm_base(s->context->config), 0,
                            s->context->config->eps };
}

static struct pieces of_heads(const struct single *s)
{
    const struct model_config *c = s->context->config;
    if (c->normed_together) return (struct pieces){ 2, c->H * c->A, 1, false, norm_base(c), c->K * c->A, c->eps };
    return (struct pieces){ c->H + c->K, c->A, c->H, false, norm_base(c), 0, c->eps };
}

/* What a norm multiplies by. */
static struct tensor factors(struct single *s, int param)
{
    const struct tensor w = single_param(s, param);
    const double base = norm_base(s->context->config);
    if (base == 0 || !single_going(s)) return w;
    const struct tensor sum = single_new(s, 1, tensor_count(w));
    for (int64_t i = 0; !s->failed && i < tensor_count(w); i++) numbers(sum)[i] = base + numbers(w)[i];
    return sum;
}

static int64_t weight_of(const struct pieces *p, int64_t piece) { return piece < p->first ? 0 : p->width; }

/* The same of one piece. */
static struct pieces one_of(struct pieces p, int64_t piece)
{
    if (p.keys && piece >= p.first) p.width = p.keys;
    return p;
}

/* A piece's statistics, and how far they may be off: mean absolutely, r relative to itself. */
struct row { double mean, r, off_mean, off_r; };

static struct row row_of(const struct single *s, const struct pieces *p, const double *x)
{
    const double g = rounding_of_sum(s->rounding.sum, p->width + 2), n = (double)p->width;
    double sum = 0, absolute = 0, squares = 0, centred = 0;
    for (int64_t i = 0; i < p->width; i++) sum += x[i], absolute += fabs(x[i]), squares += x[i] * x[i];
    struct row w = { .mean = p->has_mean ? sum / n : 0 };
    for (int64_t i = 0; i < p->width; i++) centred += (x[i] - w.mean) * (x[i] - w.mean);
    w.r = 1 / sqrt(centred / n + p->eps);
    w.off_mean = p->has_mean ? g * absolute / n : 0;
    w.off_r = g * w.r * w.r * squares / n / 2 + 4 * s->rounding.sum + w.r * w.r * s->rounding.sum_tiny;
    return w;
}

/* How far xhat of x is off. */
static double off_xhat(const struct single *s, const struct row *w, double x)
{
    const double xhat = (x - w->mean) * w->r;
    return w->r * w->off_mean + fabs(xhat) * (w->off_r + 2 * s->rounding.sum) + s->rounding.sum_tiny;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* A piece's input, and what it is multiplied by and moved by; b: NULL for none.  stores: of results of steps. */
struct one_piece { const double *x, *w, *b; double stores; };

/* An element; more: of its stored steps. */
static struct element element_of(const struct single *s, const struct pieces *p, const struct one_piece *o,
                                 const struct row *row, int64_t i, double *more)
{
    const double scaled = (o->x[i] - row->mean) * row->r * o->w[i],
                 off = off_xhat(s, row, o->x[i]) * fabs(o->w[i]) + (2 + p->roundings) * s->rounding.sum * fabs(scaled) +
                       s->rounding.sum_tiny;
    *more = s->rounding.store * (o->stores + p->roundings) * fabs(scaled) + s->rounding.tiny * (1 + fabs(o->w[i]));
    return (struct element){ scaled + (o->b ? o->b[i] : 0), off };
}

static void piece_forward(const struct single *s, const struct pieces *p, const struct one_piece *o, struct row row,
                          struct single_value v, int64_t at)
{
    double more;
    for (int64_t i = 0; i < p->width; i++) {
        const struct element e = element_of(s, p, o, &row, i, &more);
        single_put(v, at + i, e, more);
    }
}

/* The numbers of the format that x may have been rounded to, if it was off by `off`.  @return how many. */
enum { MOST_ROUNDED = 8 };
static int rounded(const struct single *s, double x, double off, double to[MOST_ROUNDED])
{
    double buffer;
    int n = 0;
    const struct tensor one = tensor_1d(&buffer, s->rounding.results, 1);
    for (double at = x - off; n < MOST_ROUNDED; at = to[n - 1] + 1.01 * s->rounding.store * fabs(to[n - 1])) {
        tensor_set(one, 0, fmin(at, x + off));
        const double y = tensor_get(one, 0);
        if (n > 0 && y <= to[n - 1]) break;
        to[n++] = y;
        if (at >= x + off || y == 0) break;
    }
    return n;
}

/* How far the program's piece is from one with these statistics: its largest error over its bound. */
static double apart(const struct single *s, const struct pieces *p, const struct one_piece *o, struct row row,
                    int64_t at)
{
    double most = 0, more;
    for (int64_t i = 0; i < p->width; i++) {
        const struct element e = element_of(s, p, o, &row, i, &more);
        const double off = e.off + more, bound = off + rounding_when_stored(&s->rounding, e.y, off);
        if (bound > 0) most = fmax(most, fabs(numbers(s->verdict.have)[at + i] - e.y) / bound);
    }
    return most;
}

/* The stored statistics that explain a piece best.  Variance, its sum with eps, and r are each rounded: r by two
 * units. */
static struct row stored_row(const struct single *s, const struct pieces *p, const struct one_piece *o, int64_t at)
{
    const struct row exact = row_of(s, p, o->x);
    const double u = s->rounding.store, moved = p->has_mean ? u * fabs(exact.mean) * exact.r : 0;
    double mean[MOST_ROUNDED], r[MOST_ROUNDED], least = apart(s, p, o, exact, at);
    struct row best = exact;
    const int means = p->has_mean ? rounded(s, exact.mean, exact.off_mean, mean) : (mean[0] = 0, 1),
              roots = rounded(s, exact.r, exact.r * (1.01 * u + exact.off_r + moved * moved / 2), r);
    for (int i = 0; i < means; i++)
        for (int k = -1; k < roots; k++) {
            const struct row row = { mean[i], k < 0 ? exact.r : r[k], 0, exact.off_r * (k < 0) };
            const double far = apart(s, p, o, row, at);
            if (far < least) least = far, best = row;
        }
    return best;
}

static struct single_value forward_of(struct single *s, const struct single_node *n, struct tensor X, struct pieces p,
                                      bool stored)
{
    const struct tensor w = factors(s, n->weight), b = single_param(s, n->bias);
    if (!single_going(s)) return single_stop(s);
    const int64_t ld = tensor_cols(X);
    const struct single_value v = single_value_new(s, tensor_rows(X), ld);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(X)[i];
    for (int64_t row = 0; !s->failed && row < tensor_rows(X); row++)
        for (int64_t h = 0; h < p.count; h++) {
            const int64_t at = row * ld + h * p.width;
            const struct pieces one = one_of(p, h);
            const struct one_piece o = { numbers(X) + at, numbers(w) + weight_of(&p, h),
                                         n->bias < 0 ? NULL : numbers(b), stored ? 3 : 2 };
            piece_forward(s, &one, &o, stored ? stored_row(s, &one, &o, at) : row_of(s, &one, o.x), v, at);
        }
    return v;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* One piece of dx, and how far it is off if the steps' results are stored: unit of 0 if they are not. */
static void piece_input(const struct single *s, const struct pieces *p, const double *dy, const double *x,
                        const double *w, struct unit stored, double *dx, double *off)
{
    const double sum = s->rounding.sum, g = rounding_of_sum(sum, p->width), n = (double)p->width, more = p->roundings,
                 u = stored.u, tiny = stored.tiny + s->rounding.sum_tiny;
    struct row row = row_of(s, p, x);
    row.off_mean += u * fabs(row.mean), row.off_r += u;
    double h = 0, abs_h = 0, hx = 0, abs_hx = 0, h_off = 0;
    for (int64_t i = 0; i < p->width; i++) {
        const double hi = dy[i] * w[i], xhat = (x[i] - row.mean) * row.r;
        h += hi / n, abs_h += fabs(hi) / n, hx += hi * xhat / n, abs_hx += fabs(hi * xhat) / n;
        h_off += (fabs(hi) * (off_xhat(s, &row, x[i]) + u * fabs(xhat) + tiny) + tiny * fabs(xhat)) / n;
    }
    if (!p->has_mean) h = abs_h = 0;
    const double off_h = (g + (2 + more) * sum + (1 + more) * u) * abs_h + 2 * tiny * p->has_mean,
                 off_hx = (g + (3 + more) * sum + (2 + more) * u) * abs_hx + h_off + 2 * tiny;
    for (int64_t i = 0; i < p->width; i++) {
        const double hi = dy[i] * w[i], xhat = (x[i] - row.mean) * row.r, inner = hi - h - xhat * hx;
        dx[i] = row.r * inner;
        off[i] = row.r * (((1 + more) * u + (4 + more) * sum) * (fabs(hi) + fabs(h) + fabs(xhat * hx)) + off_h +
                          fabs(xhat) * off_hx + 2 * tiny +
                          (off_xhat(s, &row, x[i]) + u * fabs(xhat) + tiny) * fabs(hx)) +
                 fabs(dx[i]) * (row.off_r + u) + tiny * fabs(inner);
    }
}

static struct single_value input_of(struct single *s, const struct single_node *n, struct tensor X, struct pieces p)
{
    const struct tensor dY = single_grad(s, n->out), w = factors(s, n->weight);
    if (!single_going(s)) return single_stop(s);
    const int64_t ld = tensor_cols(X);
    const struct single_value v = single_value_new(s, tensor_rows(X), ld);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) numbers(v.y)[i] = numbers(dY)[i];
    for (int64_t row = 0; !s->failed && row < tensor_rows(X); row++)
        for (int64_t h = 0; h < p.count; h++) {
            const int64_t at = row * ld + h * p.width;
            const double *y = numbers(dY) + at, *x = numbers(X) + at, *wh = numbers(w) + weight_of(&p, h);
            const struct pieces one = one_of(p, h);
            piece_input(s, &one, y, x, wh, (struct unit){ 0, 0 }, numbers(v.y) + at, numbers(v.fused) + at);
            piece_input(s, &one, y, x, wh, unit_stored(s), numbers(v.y) + at, numbers(v.steps) + at);
        }
    return v;
}

/* Sums over rows, of each weight. */
enum { BLOCKS = 16 };
struct sums { struct single_value v; struct tensor absolute, square; int64_t terms; };

static void add_term(const struct single *s, struct sums *g, int64_t c, double term, double off, double more)
{
    const double blocks = g->terms > BLOCKS ? (double)BLOCKS / (double)g->terms : 1;
    numbers(g->v.steps)[c] += more + blocks * s->rounding.store * fabs(numbers(g->v.y)[c] + term);
    numbers(g->v.y)[c] += term, numbers(g->absolute)[c] += fabs(term), numbers(g->square)[c] += term * term;
    numbers(g->v.fused)[c] += off;
}

static void piece_weight(const struct single *s, const struct pieces *p, const double *dy, const double *x,
                         int64_t first, struct sums *g)
{
    const struct row exact = row_of(s, p, x);
    struct row row = exact;
    row.off_mean += s->rounding.store * fabs(row.mean), row.off_r += s->rounding.store;
    for (int64_t i = 0; i < p->width; i++) {
        const double off = off_xhat(s, &exact, x[i]);
        add_term(s, g, first + i, dy[i] * (x[i] - exact.mean) * exact.r, fabs(dy[i]) * off,
                 fabs(dy[i]) * (off_xhat(s, &row, x[i]) - off + s->rounding.tiny));
    }
}

/* The bounds of sums of `terms`. */
static struct single_value summed(struct single *s, struct sums *g)
{
    const struct rounding *r = &s->rounding;
    for (int64_t c = 0; !s->failed && c < tensor_count(g->v.y); c++) {
        const double absolute = numbers(g->absolute)[c];
        double *const f = &numbers(g->v.fused)[c];
        *f += rounding_of_sum(r->sum, g->terms + 2) * absolute + tiny_terms(r->sum_tiny, g->terms);
        *f += (r->gradient_parts - 1) * 2 * (r->store * absolute + r->tiny);
        numbers(g->v.steps)[c] += *f + 2 * rounding_of_terms(r->store, absolute, sqrt(numbers(g->square)[c])) +
                                  tiny_terms(r->tiny, g->terms);
    }
    return g->v;
}

static struct sums sums_new(struct single *s, int64_t n, int64_t terms)
{
    return (struct sums){ single_value_new(s, 1, n), single_new(s, 1, n), single_new(s, 1, n), terms };
}

static void add_weights(const struct single *s, const struct pieces *p, struct tensor dY, struct tensor X,
                        struct sums *g)
{
    const int64_t ld = tensor_cols(X);
    for (int64_t row = 0; !s->failed && row < tensor_rows(X); row++)
        for (int64_t h = 0; h < p->count; h++) {
            const int64_t at = row * ld + h * p->width;
            const struct pieces one = one_of(*p, h);
            piece_weight(s, &one, numbers(dY) + at, numbers(X) + at, weight_of(p, h), g);
        }
}

/* What a norm reads. */
typedef struct tensor norm_input(struct single *, const struct single_node *);

/* Tile after tile: the sums are those of all rows, in order. */
static struct single_value weight_of_pieces(struct single *s, const struct single_node *n, norm_input *reads,
                                            struct pieces p)
{
    const int64_t weights = p.width + (p.count == p.first ? 0 : p.keys ? p.keys : p.width);
    struct sums g = sums_new(s, weights, single_slot(s, n->out)->rows * p.first);
    const int used = s->memory.used;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct tensor X = reads(s, n), dY = single_grad(s, n->out);
        if (single_going(s)) add_weights(s, &p, dY, X, &g);
        single_release(s, used);
    }
    single_take_all(s);
    return single_going(s) ? summed(s, &g) : single_stop(s);
}

static struct tensor read_of(struct single *s, const struct single_node *n) { return single_act(s, n->in[0]); }

/* ---- of rows ----------------------------------------------------------------------------------------------------- */

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    return forward_of(s, n, X, of_row(s, tensor_cols(X)), false);
}

static struct single_value stored(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    return forward_of(s, n, X, of_row(s, tensor_cols(X)), true);
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]);
    return input_of(s, n, X, of_row(s, tensor_cols(X)));
}

static struct single_value weight(struct single *s, const struct single_node *n)
{
    return weight_of_pieces(s, n, read_of, of_row(s, single_slot(s, n->in[0])->cols));
}

static struct single_value bias(struct single *s, const struct single_node *n)
{
    const int64_t cols = single_slot(s, n->out)->cols;
    struct sums g = sums_new(s, cols, single_slot(s, n->out)->rows);
    const int used = s->memory.used;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct tensor dY = single_grad(s, n->out);
        for (int64_t i = 0; single_going(s) && i < tensor_count(dY); i++)
            add_term(s, &g, i % cols, numbers(dY)[i], 0, 0);
        single_release(s, used);
    }
    single_take_all(s);
    return single_going(s) ? summed(s, &g) : single_stop(s);
}

const struct single_operation single_norm = {
    .words = "the norm",
    .forward = forward,
    .stored = stored,
    .input_words = "the backward pass of the norm for its input",
    .input = { input },
    .weight_words = "the backward pass of the norm for its weight",
    .weight = weight,
    .bias_words = "the backward pass of the norm for its bias",
    .bias = bias,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- of heads ---------------------------------------------------------------------------------------------------- */

static struct single_value heads_forward(struct single *s, const struct single_node *n)
{
    return forward_of(s, n, single_act(s, n->in[0]), of_heads(s), false);
}

static struct single_value heads_stored(struct single *s, const struct single_node *n)
{
    return forward_of(s, n, single_act(s, n->in[0]), of_heads(s), true);
}

static struct single_value heads_input(struct single *s, const struct single_node *n)
{
    return input_of(s, n, single_act(s, n->in[0]), of_heads(s));
}

static struct single_value heads_weight(struct single *s, const struct single_node *n)
{
    return weight_of_pieces(s, n, read_of, of_heads(s));
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

static struct pieces of_latent(const struct single *s, const struct single_node *n)
{
    return (struct pieces){ 1, single_slot(s, n->out)->cols, 1, false, norm_base(s->context->config), 0,
                            single_norm_eps(s, n) };
}

/* The first columns, with zeros beside them if there are to be more. */
static struct tensor columns(struct single *s, struct tensor t, int64_t cols)
{
    const int64_t have = tensor_cols(t);
    const struct tensor out = single_new(s, tensor_rows(t), cols);
    for (int64_t i = 0; !s->failed && i < tensor_count(out); i++)
        if (i % cols < have) numbers(out)[i] = numbers(t)[i / cols * have + i % cols];
    return out;
}

static struct tensor latent_of(struct single *s, const struct single_node *n)
{
    return columns(s, single_act(s, n->in[0]), single_slot(s, n->out)->cols);
}

static struct single_value latent_forward(struct single *s, const struct single_node *n)
{
    return forward_of(s, n, latent_of(s, n), of_latent(s, n), false);
}

static struct single_value latent_stored(struct single *s, const struct single_node *n)
{
    return forward_of(s, n, latent_of(s, n), of_latent(s, n), true);
}

static struct single_value latent_input(struct single *s, const struct single_node *n)
{
    const struct single_value v = input_of(s, n, latent_of(s, n), of_latent(s, n));
    const int64_t cols = single_slot(s, n->in[0])->cols;
    if (!single_going(s)) return single_stop(s);
    return (struct single_value){ .y = columns(s, v.y, cols), .fused = columns(s, v.fused, cols),
                                  .steps = columns(s, v.steps, cols) };
}

static struct single_value latent_weight(struct single *s, const struct single_node *n)
{
    return weight_of_pieces(s, n, latent_of, of_latent(s, n));
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
