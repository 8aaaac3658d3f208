/* rotary.c -- what a rotation by positions gives with one mistake. mistakes.c reads the table of rows.  If no
 * row explains a rotation, how far each pair was turned is measured, in what is wrong, and another theta,
 * scaling, factor or first position is looked for that turns so.  The search changes a copy of the model's
 * rotary numbers, never the model. */
#include "ref/model/rotary.h"
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/model/kinds.h"

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* These numbers make a rotation, in this order. */
enum rotary_number { FREQUENCIES = 1, POSITIONS = 2, ANGLES = 4, COSINES = 8 };

/* These switches describe a mistaken rotation.  on: positions go on from sequence to sequence within each of so many
 * parts of the batch; whole: from document to document of a sequence.  kept: numbers that are rounded to so many
 * bits. */
struct turned {
    bool other_pairs, values, back, none, keys, queries, other_layers, whole;
    int shift, on;
    double theta;
    unsigned kept;
    int bits;
};

#define WITH(...) .with = &(const struct turned){ __VA_ARGS__ }

/* Round a number of the rotation, if the mistake keeps it in few bits. */
static double turned_keep(const struct turned *turned, enum rotary_number number, double x)
{
    return turned->kept & number ? kept_in_bits(x, turned->bits) : x;
}

/* This is the position of a row's token, with the mistake. */
static int64_t turned_position(const struct single *single, const struct turned *turned, int64_t row)
{
    if (turned->whole) return row % single->cursor.batch.S;
    if (turned->on == 0) return single_position(single, row) + turned->shift;
    const int part = part_with(single->cursor.batch.B, turned->on, row / single->cursor.batch.S);
    return row - part_begin(single->cursor.batch.B, turned->on, part) * single->cursor.batch.S;
}

/* Turn each pair (a, b) of queries and keys by its position times its frequency.  The sign is 1 forward and -1
 * backward.  Columns without rotation are copied first. */
static struct tensor turned_rotate(struct single *single, struct tensor X, int layer, const struct turned *t,
                                   double sign)
{
    const struct model_config *c = single->context->config;
    const bool local = model_is_local(c, layer) != t->other_layers;
    struct rotary rotary = local ? model_local_rotary(c) : c->rotary;
    /* The model has one theta for all layers, so the mistake is impossible. */
    if (t->other_layers && c->local_theta == 0) return tensor_none;
    if (t->whole && single->cursor.batch.positions == NULL) return tensor_none;
    if (t->theta > 0) rotary.theta = t->theta;
    const int64_t width = tensor_cols(X), R = rotary_table_width(c), half = R / 2,
                  heads = c->H + (t->values ? 2 : 1) * c->K;
    const bool neighbours = rotary.neighbours != t->other_pairs;
    const double size = rotary_size(&rotary);
    const struct tensor Y = single_new(single, tensor_rows(X), width), frequencies = single_new(single, 1, half);
    /* A frequency is a power, and dear: each is computed once. */
    for (int64_t p = 0; !single->failed && p < half; p++)
        numbers(frequencies)[p] = turned_keep(t, FREQUENCIES, rotary_frequency(&rotary, R, p, single->cursor.batch.S));
    /* Columns that do not turn are copied: values, and the rest of a head. */
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) numbers(Y)[i] = numbers(X)[i];
    /* i counts rows, heads and pairs: the pair varies fastest. */
    for (int64_t i = 0; !single->failed && !t->none && i < tensor_rows(X) * heads * half; i++) {
        const int64_t n = i / (heads * half), p = i % half, at = n * width + i / half % heads * c->A,
                      head = i / half % heads, a = at + (neighbours ? 2 * p : p),
                      b = at + (neighbours ? 2 * p + 1 : p + half);
        /* A mistake may leave out keys, or queries. */
        if ((t->keys && head >= c->H) || (t->queries && head < c->H)) continue;
        const double position = turned_keep(t, POSITIONS, (double)turned_position(single, t, n)),
                     angle = turned_keep(t, ANGLES, position * numbers(frequencies)[p]),
                     x = numbers(X)[a], y = numbers(X)[b],
                     cosine = turned_keep(t, COSINES, size * cos(angle)),
                     sine = sign * turned_keep(t, COSINES, size * sin(angle));
        numbers(Y)[a] = x * cosine - y * sine, numbers(Y)[b] = y * cosine + x * sine;
    }
    return Y;
}

/* With on = B parts each sequence is a part, and nothing is wrong. */
static struct tensor rotary_forward(struct single *single, const struct single_node *node,
                                    const struct single_mistake *mistake)
{
    const struct tensor X = single_act(single, node->in[0]);
    const struct turned *t = mistake->with;
    return single_going(single) && t->on < single->cursor.batch.B
           ? turned_rotate(single, X, node->layer, t, t->back ? -1 : 1) : tensor_none;
}

/* The gradient turns back by the same angles. */
static struct tensor rotary_input(struct single *single, const struct single_node *node,
                                  const struct single_mistake *mistake)
{
    const struct tensor dY = single_grad(single, node->out);
    const struct turned *t = mistake->with;
    return single_going(single) && t->on < single->cursor.batch.B
           ? turned_rotate(single, dY, node->layer, t, t->back ? 1 : -1) : tensor_none;
}

#define KEPT(what, format, number, mantissa) \
    what " are kept in " format, FORWARD | INPUT, WITH(.kept = (number), .bits = (mantissa))
#define ALL_NUMBERS (FREQUENCIES | POSITIONS | ANGLES | COSINES)
#define GO_ON "positions do not start again with each sequence: they go on in "
static const struct single_mistake rotary_rows[] = {
    { "rotary pairs: neighbours in place of halves, or the other way round",
      FORWARD | INPUT, WITH(.other_pairs = true) },
    { "positions are shifted by one: they begin at 1", FORWARD | INPUT, WITH(.shift = 1) },
    { "positions are shifted by one: they begin at -1", FORWARD | INPUT, WITH(.shift = -1) },
    { "values are turned, too", FORWARD | INPUT, WITH(.values = true) },
    { "it turns the wrong way", FORWARD | INPUT, WITH(.back = true) },
    { "it is not turned", FORWARD | INPUT, WITH(.none = true) },
    { "keys are not turned", FORWARD | INPUT, WITH(.keys = true) },
    { "queries are not turned", FORWARD | INPUT, WITH(.queries = true) },
    { "positions go on from document to document of a sequence", FORWARD | INPUT, WITH(.whole = true) },
    { GO_ON "the whole batch", FORWARD | INPUT, WITH(.on = 1) },
    { GO_ON "2 parts of the batch", FORWARD | INPUT, WITH(.on = 2) },
    { GO_ON "3 parts of the batch", FORWARD | INPUT, WITH(.on = 3) },
    { GO_ON "4 parts of the batch", FORWARD | INPUT, WITH(.on = 4) },
    { GO_ON "8 parts of the batch", FORWARD | INPUT, WITH(.on = 8) },
    { "theta is that of the other layers: with a window, or without", FORWARD | INPUT, WITH(.other_layers = true) },
    { "theta is 10000", FORWARD | INPUT, WITH(.theta = 1e4) },
    { "theta is 100000", FORWARD | INPUT, WITH(.theta = 1e5) },
    { "theta is 500000", FORWARD | INPUT, WITH(.theta = 5e5) },
    { "theta is 1000000", FORWARD | INPUT, WITH(.theta = 1e6) },
    { KEPT("the inverse frequencies of positions", "bf16", FREQUENCIES, 8) },
    { KEPT("the inverse frequencies of positions", "fp16 or tf32", FREQUENCIES, 11) },
    { KEPT("positions", "bf16", POSITIONS, 8) },
    { KEPT("angles of positions", "bf16", ANGLES, 8) },
    { KEPT("angles of positions", "fp16 or tf32", ANGLES, 11) },
    { KEPT("cosines and sines of positions", "bf16", COSINES, 8) },
    { KEPT("cosines and sines of positions", "fp16 or tf32", COSINES, 11) },
    { KEPT("inverse frequencies, positions, angles, cosines and sines", "bf16", ALL_NUMBERS, 8) },
    { KEPT("inverse frequencies, positions, angles, cosines and sines", "fp16 or tf32", ALL_NUMBERS, 11) },
    { 0 }
};

/* ---- angles that are measured ------------------------------------------------------------------------------------ */

enum { PAIRS = ROTARY_PAIRS };

/* This is the rotation that is diagnosed, and what was measured in it. */
struct turning {
    const struct suspect *p;
    const double *x;                    /* what is turned */
    double sign, size;
    int64_t width, pairs, heads;        /* heads: of queries and keys */
    struct rotary rotary;
    bool keys, queries;                 /* what is wrong */
    double frequency[PAIRS], at_zero[PAIRS];            /* measured: of a token, and at position 0 */
};

/* Move an angle between minus half a turn and half a turn. */
static double wrapped(double angle)
{
    const double turn = 6.283185307179586476925;
    return angle - turn * round(angle / turn);
}

/* These are the two columns that are turned together. */
struct pair { int64_t a, b; };

/* Pairs are neighbours, or stand half a head apart. */
static struct pair pair_at(const struct turning *turning, int64_t row, int64_t head, int64_t p)
{
    const int64_t at = row * turning->width + head * turning->p->s->context->config->A;
    return turning->rotary.neighbours ? (struct pair){ at + 2 * p, at + 2 * p + 1 }
                                : (struct pair){ at + p, at + p + turning->pairs };
}

static bool is_off(const struct suspect *suspect, int64_t i)
{
    return !(fabs(suspect->have[i] - suspect->want[i]) <= suspect->bound[i]);
}

/* This is the angle by which pair p of the tokens at this position was turned.  Only wrong elements count; NaN:
 * nothing is wrong. */
static double angle_at(const struct turning *turning, int64_t position, int64_t p)
{
    const struct suspect *of = turning->p;
    double cross = 0, dot = 0;
    for (int64_t row = position; row < of->rows; row += of->s->cursor.batch.S)
        for (int64_t h = 0; h < turning->heads; h++) {
            const struct pair at = pair_at(turning, row, h, p);
            if (!is_off(of, at.a) && !is_off(of, at.b)) continue;
            /* cross and dot are the sine and cosine of the turn, times the pairs' squared lengths: all heads and
             * sequences add up. */
            cross += turning->x[at.a] * of->have[at.b] - turning->x[at.b] * of->have[at.a];
            dot += turning->x[at.a] * of->have[at.a] + turning->x[at.b] * of->have[at.b];
        }
    return cross == 0 && dot == 0 ? NAN : turning->sign * atan2(cross, dot);
}

/* Measure each pair's frequency from positions 1, 2, 4, ...: each doubling refines it, and no whole turn is
 * missed.  Pairs without a wrong element have the right frequency. */
static void rotary_measure(struct turning *turning)
{
    const int64_t S = turning->p->s->cursor.batch.S;
    for (int64_t p = 0; p < turning->pairs; p++) {
        const double right = rotary_frequency(&turning->rotary, 2 * turning->pairs, p, S),
            zero = angle_at(turning, 0, p);
        double f = NAN, from = isnan(zero) ? 0 : zero;
        for (int64_t s = 1; s < S; s *= 2) {
            const double angle = angle_at(turning, s, p);
            if (isnan(angle)) continue;
            /* The angle beyond f s is left over; divided by s it corrects f. */
            f = isnan(f) ? wrapped(angle - from) / (double)s : f + wrapped(angle - from - f * (double)s) / (double)s;
        }
        turning->frequency[p] = isnan(f) ? right : f, turning->at_zero[p] = from;
    }
}

/* y: wrong queries or keys are turned by these frequencies, from position `first` on; all else is right. */
static void rotary_turn(const struct turning *turning, const double f[PAIRS], double first, double *y)
{
    const struct suspect *of = turning->p;
    const int64_t H = of->s->context->config->H;
    for (int64_t i = 0; i < of->count; i++) y[i] = of->want[i];
    /* A pair (a, b) becomes (a cos - b sin, b cos + a sin) with angle = sign (position + first) f. */
    for (int64_t i = 0; i < of->rows * turning->heads * turning->pairs; i++) {
        const int64_t row = i / (turning->heads * turning->pairs), p = i % turning->pairs,
            head = i / turning->pairs % turning->heads;
        const struct pair at = pair_at(turning, row, head, p);
        const double angle = turning->sign * ((double)(row % of->s->cursor.batch.S) + first) * f[p],
            a = turning->x[at.a] * turning->size,
                     b = turning->x[at.b] * turning->size;
        if (!(head < H ? turning->queries : turning->keys)) continue;
        y[at.a] = a * cos(angle) - b * sin(angle), y[at.b] = b * cos(angle) + a * sin(angle);
    }
}

/* Words for the message: both are turned wrongly, or only queries or keys. */
static const char *of_what(const struct turning *turning)
{
    return turning->keys && turning->queries ? "" : turning->keys ? " of keys" : " of queries";
}

/* f [pairs] gets the angle of each pair for one position. */
static void frequencies_of(const struct turning *turning, const struct rotary *rotary, double f[PAIRS])
{
    for (int64_t p = 0; p < turning->pairs; p++)
        f[p] = rotary_frequency(rotary, 2 * turning->pairs, p, turning->p->s->cursor.batch.S);
}

/* How far frequencies are from those that were measured. */
static double apart(const struct turning *turning, const struct rotary *rotary)
{
    double f[PAIRS] = { 0 }, sum = 0;
    frequencies_of(turning, rotary, f);
    for (int64_t p = 0; p < turning->pairs; p++) sum += (f[p] - turning->frequency[p]) * (f[p] - turning->frequency[p]);
    return sum;
}

/* Round to two digits if the number is near: numbers in configurations are round. */
static double rotary_rounded(double x)
{
    const double unit = pow(10, floor(log10(x)) - 1), r = round(x / unit) * unit;
    return fabs(r / x - 1) < 0.05 ? r : x;
}

enum number { THETA, FACTOR };
/* Change the number that is searched. */
static void rotary_set(struct rotary *rotary, enum number which, double x)
{
    *(which == THETA ? &rotary->theta : &rotary->factor) = x;
}

/* Find the number from `least` to `most` whose frequencies are nearest to the measured ones, on a logarithmic
 * scale.  @return NaN if the nearest is at an end of the range. */
static double set_nearest(const struct turning *turning, struct rotary *rotary, enum number which,
                          double least, double most)
{
    double best = log(least), off = INFINITY, from = log(least), to = log(most);
    /* 200 steps, then ten times finer around the nearest, until steps are 1e-5. */
    for (double step = (to - from) / 200; step > 1e-5; step /= 10) {
        for (double at = from; at <= to; at += step) {
            rotary_set(rotary, which, exp(at));
            const double here = apart(turning, rotary);
            if (here < off) off = here, best = at;
        }
        from = fmax(best - step, log(least)), to = fmin(best + step, log(most));
    }
    /* A number at an end of the range was not found, but cut off. */
    if (best < log(least) + 0.02 || best > log(most) - 0.02) return NAN;
    rotary_set(rotary, which, rotary_rounded(exp(best)));
    return rotary_rounded(exp(best));
}

/* Turn with the found number and offer the result.  A NaN means that nothing was found. */
static bool offer(struct suspect *suspect, const struct turning *turning, const struct rotary *rotary, double *y,
                  const char *what, double x)
{
    double f[PAIRS] = { 0 };
    if (isnan(x)) return false;
    frequencies_of(turning, rotary, f);
    rotary_turn(turning, f, 0, y);
    return suspect_measured(suspect, y, "%s%s is %.6g", what, of_what(turning), x);
}

/* Try the scaling left out, another factor, a linear scaling, another theta.  The first that explains the result is
 * said. */
static void try_numbers(struct suspect *suspect, const struct turning *turning, double *y)
{
    struct rotary plain = turning->rotary, other = turning->rotary;
    double f[PAIRS] = { 0 };
    /* Without scaling the frequencies are those of theta alone. */
    plain.scaling = SCALING_NONE;
    frequencies_of(turning, &plain, f), rotary_turn(turning, f, 0, y);
    if (apart(turning, &plain) > 0 && turning->rotary.scaling != SCALING_NONE)
        suspect_explained(suspect, y, "angles%s are not scaled", of_what(turning));
    if (suspect->words[0]) return;
    /* Only these scalings have one factor that can be searched. */
    if (turning->rotary.scaling != SCALING_NONE && turning->rotary.scaling != SCALING_DYNAMIC
        && turning->rotary.scaling != SCALING_LONG)
        offer(suspect, turning, &other, y, "the factor of the scaling", set_nearest(turning, &other, FACTOR, 1, 1000));
    if (suspect->words[0]) return;
    plain.scaling = SCALING_LINEAR;
    if (offer(suspect, turning, &plain, y, "the scaling is linear: its factor",
              set_nearest(turning, &plain, FACTOR, 0.1, 1000))) return;
    other = turning->rotary;
    if (offer(suspect, turning, &other, y, "theta", set_nearest(turning, &other, THETA, 1.5, 1e9))) return;
    plain.scaling = SCALING_NONE;
    offer(suspect, turning, &plain, y, "angles are not scaled, and theta",
          set_nearest(turning, &plain, THETA, 1.5, 1e9));
}

/* All angles are so many times the right ones, as of positions in another unit.  The factor is found by least
 * squares. */
static void try_times(struct suspect *suspect, const struct turning *turning, double *y)
{
    double f[PAIRS] = { 0 }, along = 0, size = 0;
    frequencies_of(turning, &turning->rotary, f);
    /* Least squares give the common factor of all frequencies. */
    for (int64_t i = 0; i < turning->pairs; i++) along += f[i] * turning->frequency[i], size += f[i] * f[i];
    for (int64_t i = 0; i < turning->pairs; i++) f[i] *= along / size;
    rotary_turn(turning, f, 0, y);
    if (fabs(along / size + 1) < 0.01) suspect_explained(suspect, y, "angles%s have the wrong sign", of_what(turning));
    else suspect_measured(suspect, y, "angles%s are %.4g times what they must be", of_what(turning), along / size);
}

/* Positions begin elsewhere.  The angle at the first token says where, but for whole turns; slow pairs have none. */
static void try_first(struct suspect *suspect, const struct turning *turning, double *y)
{
    double f[PAIRS] = { 0 }, tried = 0;
    frequencies_of(turning, &turning->rotary, f);
    /* The slowest pair is the last; its angle is the least ambiguous. */
    for (int64_t i = turning->pairs - 1; i >= 0 && suspect->words[0] == 0; i--) {
        const double first = round(turning->at_zero[i] / f[i]);
        if (first == 0 || first == tried) continue;
        tried = first;
        rotary_turn(turning, f, first, y);
        suspect_explained(suspect, y, "positions%s begin at %.0f", of_what(turning), first);
    }
}

/* No number gives the angles: say the first pair with another frequency. */
static void try_measured(struct suspect *suspect, const struct turning *turning, double *y)
{
    double f[PAIRS] = { 0 };
    int64_t i = 0;
    frequencies_of(turning, &turning->rotary, f);
    while (i < turning->pairs && fabs(turning->frequency[i] - f[i]) < 0.01 * f[i]) i++;
    if (i == turning->pairs) return;
    rotary_turn(turning, turning->frequency, 0, y);
    suspect_measured(suspect, y, "pairs%s turn by other angles: pair %lld by %.4g a token, not by %.4g",
                     of_what(turning), (long long)i, turning->frequency[i], f[i]);
}

/* Note what is wrong, queries or keys, and measure only there.  Values are not turned. */
static void suspect_rotation(struct suspect *suspect, const struct single_node *node,
                             enum single_pass_kind pass, double *y)
{
    struct single *s = suspect->s;
    const struct model_config *c = s->context->config;
    /* The gradient is turned back, so the sign is -1. */
    const struct tensor X = pass == SINGLE_FORWARD ? single_act(s, node->in[0]) : single_grad(s, node->out);
    struct turning t = { .p = suspect, .sign = pass == SINGLE_FORWARD ? 1 : -1, .width = suspect->cols,
                         .pairs = rotary_table_width(c) / 2, .heads = c->H + c->K,
                         .rotary = model_rotary(c, node->layer) };
    /* A place of a sequence has one position only if no documents are packed. */
    if (s->cursor.batch.positions) return;
    if (!single_going(s) || suspect->words[0] || t.pairs > PAIRS || s->cursor.batch.S < 2 ||
        tensor_count(X) != suspect->count) return;
    t.x = numbers(X), t.size = rotary_size(&t.rotary);
    for (int64_t i = 0; i < suspect->count; i++) {
        const int64_t head = i % suspect->cols / c->A;
        if (!is_off(suspect, i)) continue;
        t.queries = t.queries || head < c->H, t.keys = t.keys || (head >= c->H && head < t.heads);
    }
    if (!t.keys && !t.queries) return;
    rotary_measure(&t);
    try_numbers(suspect, &t, y);
    if (suspect->words[0] == 0) try_times(suspect, &t, y);
    if (suspect->words[0] == 0) try_first(suspect, &t, y);
    if (suspect->words[0] == 0) try_measured(suspect, &t, y);
}

const struct single_mistakes single_rotary_mistakes = {
    .of = &single_rotary, .rows = rotary_rows, .make[SINGLE_FORWARD] = rotary_forward,
    .make[SINGLE_INPUT] = rotary_input, .parts = suspect_rotation
};
