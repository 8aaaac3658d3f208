/* rotary.c -- rotations by other angles: how far each pair was turned is measured, in what is wrong, and
 * another theta, scaling, factor or first position is looked for that turns so. */
#include "ref/model/rotary.h"
#include "emulated_devices/check/mistakes/mistakes.h"

enum { PAIRS = ROTARY_PAIRS };

struct turning {
    const struct suspect *p;
    const double *x;                    /* what is turned */
    double sign, size;
    int64_t width, pairs, heads;        /* heads: of queries and keys */
    struct rotary rotary;
    bool keys, queries;                 /* what is wrong */
    double frequency[PAIRS], at_zero[PAIRS];            /* measured: of a token, and at position 0 */
};

static double wrapped(double angle)
{
    const double turn = 6.283185307179586476925;
    return angle - turn * round(angle / turn);
}

struct pair { int64_t a, b; };

static struct pair pair_at(const struct turning *t, int64_t row, int64_t head, int64_t p)
{
    const int64_t at = row * t->width + head * t->p->s->context->config->A;
    return t->rotary.neighbours ? (struct pair){ at + 2 * p, at + 2 * p + 1 }
                                : (struct pair){ at + p, at + p + t->pairs };
}

static bool is_off(const struct suspect *p, int64_t i) { return !(fabs(p->have[i] - p->want[i]) <= p->bound[i]); }

/* By how much pair p of the tokens at this position was turned, where anything of them is wrong; NaN: nothing is. */
static double angle_at(const struct turning *t, int64_t position, int64_t p)
{
    const struct suspect *of = t->p;
    double cross = 0, dot = 0;
    for (int64_t row = position; row < of->rows; row += of->s->cursor.batch.S)
        for (int64_t h = 0; h < t->heads; h++) {
            const struct pair at = pair_at(t, row, h, p);
            if (!is_off(of, at.a) && !is_off(of, at.b)) continue;
            cross += t->x[at.a] * of->have[at.b] - t->x[at.b] * of->have[at.a];
            dot += t->x[at.a] * of->have[at.a] + t->x[at.b] * of->have[at.b];
        }
    return cross == 0 && dot == 0 ? NAN : t->sign * atan2(cross, dot);
}

/* Measured from position to position twice as far, so that no turn is missed; where nothing is wrong it is right. */
static void measure(struct turning *t)
{
    const int64_t S = t->p->s->cursor.batch.S;
    for (int64_t p = 0; p < t->pairs; p++) {
        const double right = rotary_frequency(&t->rotary, 2 * t->pairs, p, S), zero = angle_at(t, 0, p);
        double f = NAN, from = isnan(zero) ? 0 : zero;
        for (int64_t s = 1; s < S; s *= 2) {
            const double angle = angle_at(t, s, p);
            if (isnan(angle)) continue;
            f = isnan(f) ? wrapped(angle - from) / (double)s : f + wrapped(angle - from - f * (double)s) / (double)s;
        }
        t->frequency[p] = isnan(f) ? right : f, t->at_zero[p] = from;
    }
}

/* Turn by these frequencies, from this position on, what is wrong of queries and keys; the rest is right. */
static void turn(const struct turning *t, const double f[PAIRS], double first, double *y)
{
    const struct suspect *of = t->p;
    const int64_t H = of->s->context->config->H;
    for (int64_t i = 0; i < of->count; i++) y[i] = of->want[i];
    for (int64_t i = 0; i < of->rows * t->heads * t->pairs; i++) {
        const int64_t row = i / (t->heads * t->pairs), p = i % t->pairs, head = i / t->pairs % t->heads;
        const struct pair at = pair_at(t, row, head, p);
        const double angle = t->sign * ((double)(row % of->s->cursor.batch.S) + first) * f[p], a = t->x[at.a] * t->size,
                     b = t->x[at.b] * t->size;
        if (!(head < H ? t->queries : t->keys)) continue;
        y[at.a] = a * cos(angle) - b * sin(angle), y[at.b] = b * cos(angle) + a * sin(angle);
    }
}

static const char *of_what(const struct turning *t)
{
    return t->keys && t->queries ? "" : t->keys ? " of keys" : " of queries";
}

static void frequencies_of(const struct turning *t, const struct rotary *r, double f[PAIRS])
{
    for (int64_t p = 0; p < t->pairs; p++) f[p] = rotary_frequency(r, 2 * t->pairs, p, t->p->s->cursor.batch.S);
}

/* How far frequencies are from those that were measured. */
static double apart(const struct turning *t, const struct rotary *r)
{
    double f[PAIRS] = { 0 }, sum = 0;
    frequencies_of(t, r, f);
    for (int64_t p = 0; p < t->pairs; p++) sum += (f[p] - t->frequency[p]) * (f[p] - t->frequency[p]);
    return sum;
}

/* To two digits, if that is near: numbers in files are round. */
static double rounded(double x)
{
    const double unit = pow(10, floor(log10(x)) - 1), r = round(x / unit) * unit;
    return fabs(r / x - 1) < 0.05 ? r : x;
}

enum number { THETA, FACTOR };
static void set(struct rotary *r, enum number which, double x) { *(which == THETA ? &r->theta : &r->factor) = x; }

/* Set the number, from `least` to `most`, whose frequencies are nearest to those measured.  NaN: none between them. */
static double set_nearest(const struct turning *t, struct rotary *r, enum number which, double least, double most)
{
    double best = log(least), off = INFINITY, from = log(least), to = log(most);
    for (double step = (to - from) / 200; step > 1e-5; step /= 10) {
        for (double at = from; at <= to; at += step) {
            set(r, which, exp(at));
            const double here = apart(t, r);
            if (here < off) off = here, best = at;
        }
        from = fmax(best - step, log(least)), to = fmin(best + step, log(most));
    }
    if (best < log(least) + 0.02 || best > log(most) - 0.02) return NAN;
    set(r, which, rounded(exp(best)));
    return rounded(exp(best));
}

static bool offer(struct suspect *p, const struct turning *t, const struct rotary *r, double *y, const char *what,
                  double x)
{
    double f[PAIRS] = { 0 };
    if (isnan(x)) return false;
    frequencies_of(t, r, f);
    turn(t, f, 0, y);
    return suspect_explained(p, y, "%s%s is %.6g", what, of_what(t), x);
}

static void try_numbers(struct suspect *p, const struct turning *t, double *y)
{
    struct rotary plain = t->rotary, other = t->rotary;
    double f[PAIRS] = { 0 };
    plain.scaling = SCALING_NONE;
    frequencies_of(t, &plain, f), turn(t, f, 0, y);
    if (apart(t, &plain) > 0 && t->rotary.scaling != SCALING_NONE)
        suspect_explained(p, y, "angles%s are not scaled", of_what(t));
    if (p->words[0]) return;
    if (t->rotary.scaling != SCALING_NONE && t->rotary.scaling != SCALING_DYNAMIC && t->rotary.scaling != SCALING_LONG)
        offer(p, t, &other, y, "the factor of the scaling", set_nearest(t, &other, FACTOR, 1, 1000));
    if (p->words[0]) return;
    plain.scaling = SCALING_LINEAR;
    if (offer(p, t, &plain, y, "the scaling is linear: its factor", set_nearest(t, &plain, FACTOR, 0.1, 1000))) return;
    other = t->rotary;
    if (offer(p, t, &other, y, "theta", set_nearest(t, &other, THETA, 1.5, 1e9))) return;
    plain.scaling = SCALING_NONE;
    offer(p, t, &plain, y, "angles are not scaled, and theta", set_nearest(t, &plain, THETA, 1.5, 1e9));
}

/* All angles are so many times what they must be, as of positions in another unit. */
static void try_times(struct suspect *p, const struct turning *t, double *y)
{
    double f[PAIRS] = { 0 }, along = 0, size = 0;
    frequencies_of(t, &t->rotary, f);
    for (int64_t i = 0; i < t->pairs; i++) along += f[i] * t->frequency[i], size += f[i] * f[i];
    for (int64_t i = 0; i < t->pairs; i++) f[i] *= along / size;
    turn(t, f, 0, y);
    if (fabs(along / size + 1) < 0.01) suspect_explained(p, y, "angles%s have the wrong sign", of_what(t));
    else suspect_explained(p, y, "angles%s are %.4g times what they must be", of_what(t), along / size);
}

/* Positions that begin elsewhere: where a pair stands at the first token says where, but for whole turns. */
static void try_first(struct suspect *p, const struct turning *t, double *y)
{
    double f[PAIRS] = { 0 }, tried = 0;
    frequencies_of(t, &t->rotary, f);
    for (int64_t i = t->pairs - 1; i >= 0 && p->words[0] == 0; i--) {
        const double first = round(t->at_zero[i] / f[i]);
        if (first == 0 || first == tried) continue;
        tried = first;
        turn(t, f, first, y);
        suspect_explained(p, y, "positions%s begin at %.0f", of_what(t), first);
    }
}

/* Angles that no other number gives: of the first pair whose frequency is another one. */
static void try_measured(struct suspect *p, const struct turning *t, double *y)
{
    double f[PAIRS] = { 0 };
    int64_t i = 0;
    frequencies_of(t, &t->rotary, f);
    while (i < t->pairs && fabs(t->frequency[i] - f[i]) < 0.01 * f[i]) i++;
    if (i == t->pairs) return;
    turn(t, t->frequency, 0, y);
    suspect_explained(p, y, "pairs%s turn by other angles: pair %lld by %.4g a token, not by %.4g", of_what(t),
                      (long long)i, t->frequency[i], f[i]);
}

void suspect_rotation(struct suspect *p, const struct single_node *n, enum single_pass_kind pass, double *y)
{
    struct single *s = p->s;
    const struct model_config *c = s->context->config;
    const struct tensor X = pass == SINGLE_FORWARD ? single_act(s, n->in[0]) : single_grad(s, n->out);
    struct turning t = { .p = p, .sign = pass == SINGLE_FORWARD ? 1 : -1, .width = p->cols,
                         .pairs = rotary_table_width(c) / 2, .heads = c->H + c->K,
                         .rotary = model_rotary(c, n->layer) };
    if (!single_going(s) || p->words[0] || t.pairs > PAIRS || s->cursor.batch.S < 2 ||
        tensor_count(X) != p->count) return;
    t.x = numbers(X), t.size = rotary_size(&t.rotary);
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t head = i % p->cols / c->A;
        if (!is_off(p, i)) continue;
        t.queries = t.queries || head < c->H, t.keys = t.keys || (head >= c->H && head < t.heads);
    }
    if (!t.keys && !t.queries) return;
    measure(&t);
    try_numbers(p, &t, y);
    if (p->words[0] == 0) try_times(p, &t, y);
    if (p->words[0] == 0) try_first(p, &t, y);
    if (p->words[0] == 0) try_measured(p, &t, y);
}
