/* steps.c -- what a step of an optimizer gives with one mistake.
 * mistakes.c calls suspect_step with the step that recompute/steps.c could not confirm.  The right formula is adamw's
 * or sgd's of ref/optim; each row changes one part of it.  Inputs are the program's own tensors. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/optim/optimizer.h"
#include <string.h>

/* A step reads these arrays, [n] each; NULL: the array is not there. */
struct read {
    const struct stepping *t;
    const double *old, *g, *first, *second;     /* weight before it; gradient; the states after it, or before */
    const double *largest;                      /* of all means of squares up to this step; a weight's */
    const double *first_before, *second_before; /* the states before a weight's step; NULL: they are 0 */
    double clip, lr, decay;                     /* decay: of this parameter, times lr */
    int64_t n;
};

/* ---- weights ----------------------------------------------------------------------------------------------------- */

enum {
    DECAY_NONE,
    DECAY_ALL,
    DECAY_PLAIN,
    DECAY_TWICE,
    DECAY_L2,
    EPS_INSIDE,
    EPS_BEFORE,
    NO_CORRECTION,
    EARLY,
    LATE,
    UNCLIPPED,
    CLIPPED_TWICE,
    ASCENT,
    NO_ROOT,
    DECAY_BEHIND,
    FIRST_PLAIN,
    SECOND_PLAIN,
    NESTEROV,
    NO_MOMENT,
    EPS_SQUARED,
    EPS_INSIDE_BEFORE,
    EPS_SQUARED_BEFORE,
    RATE_BEFORE,
    RATE_NEXT,
    RATE_FIRST,
    AMSGRAD,
    TWICE,
    TWICE_COUNTED,
    COUNT_AGAIN,
    RATE_AGAIN,
    BOTH_AGAIN
};

#define AGAIN "the count of steps has started again"
#define NOT_STEPPED "stale: it is not stepped"
#define STEPPED_TWICE "it is stepped twice, as a tied matrix by both of its layers"
#define NESTEROVS "the step is Nesterov's: it looks ahead by the gradient"

static const struct { const char *words; int which; } of_weights[] = {
    { "there is no weight decay", DECAY_NONE },
    { "decay on what must not decay", DECAY_ALL },
    { "decay is not multiplied by the learning rate", DECAY_PLAIN },
    { "decay is multiplied by the learning rate twice", DECAY_TWICE },
    { "decay is added to the gradient", DECAY_L2 },
    { "eps is added inside the root", EPS_INSIDE },
    { "eps is added before the correction of the moments", EPS_BEFORE },
    { "the moments are not corrected for their start at zero", NO_CORRECTION },
    { "the correction of the moments is a step too far", EARLY },
    { "the correction of the moments is a step behind", LATE },
    { "the gradient is not clipped", UNCLIPPED },
    { "the gradient is clipped twice", CLIPPED_TWICE },
    { "the step goes the wrong way", ASCENT },
    { "the step is divided by the mean of squares, not its root", NO_ROOT },
    { "the weight decays after the step, not before it", DECAY_BEHIND },
    { "the first moment is not corrected for its start at zero", FIRST_PLAIN },
    { "the second moment is not corrected for its start at zero", SECOND_PLAIN },
    { NESTEROVS, NESTEROV },
    { "the gradient is in place of the first moment", NO_MOMENT },
    { "the square of eps is added inside the root", EPS_SQUARED },
    { "eps is added inside the root, before the correction of the moments", EPS_INSIDE_BEFORE },
    { "the square of eps is added inside the root, before the correction of the moments", EPS_SQUARED_BEFORE },
    { "the learning rate is that of the step before", RATE_BEFORE },
    { "the learning rate is that of the next step", RATE_NEXT },
    { "the learning rate is that of step 1: the schedule has started again", RATE_FIRST },
    { "the second moment is the largest of all steps so far: AMSGrad's", AMSGRAD },
    { STEPPED_TWICE, TWICE },
    { STEPPED_TWICE ", and each counts as a step", TWICE_COUNTED },
    { "the moments are corrected as if the resumed steps were the first: " AGAIN, COUNT_AGAIN },
    { "the learning rate is as if the resumed steps were the first: " AGAIN, RATE_AGAIN },
    { "the moments are corrected, and the learning rate is, as if the resumed steps were the first: " AGAIN,
      BOTH_AGAIN },
};

/* The weight loses this part of itself by decay, with the mistake. */
static double decay_of(const struct read *read, int which)
{
    const double full = read->lr * read->t->o->hyper.weight_decay;
    switch (which) {
    case DECAY_NONE: case DECAY_L2: case DECAY_BEHIND: return 0;
    case DECAY_ALL: return full;
    case DECAY_PLAIN: return read->decay > 0 ? full / read->lr : 0;
    case DECAY_TWICE: return read->decay * read->lr;
    default: return read->decay;
    }
}

/* With the mistake the step has the rate of another step.  0: there is no such step, or its rate is the same. */
static double other_rate(const struct read *read, int which)
{
    const int64_t k = read->t->k, other = which == RATE_BEFORE ? k - 1 : which == RATE_NEXT ? k + 1
        : which == RATE_FIRST ? 0 : k - read->t->o->begins;
    if (other < 0 || other >= read->t->o->steps || (which == RATE_FIRST && k < 2)) return 0;
    return read->t->o->lr[other] == read->lr ? 0 : read->t->o->lr[other];
}

static bool is_rate(int which)
{
    return which == RATE_BEFORE || which == RATE_NEXT || which == RATE_FIRST || which == RATE_AGAIN
           || which == BOTH_AGAIN;
}

/* Whether a resumed program counts its steps from 1 again. */
static bool is_again(int which) { return which == COUNT_AGAIN || which == RATE_AGAIN || which == BOTH_AGAIN; }

/* Whether a count that starts again with the resume gives the same number: that is said, and not this. */
static bool is_said_by_again(const struct read *read, int which)
{
    const int64_t begins = read->t->o->begins;
    return (begins == 1 && (which == RATE_BEFORE || which == LATE))
           || (begins > 0 && begins == read->t->k && which == RATE_FIRST);
}

/* Whether the program's first moment is nearer to that of two steps with this gradient than to that of one. */
static bool is_updated_twice(const struct read *read)
{
    const double keep = read->second ? read->t->o->hyper.beta1 : read->t->o->hyper.momentum,
                 part = read->second ? 1 - keep : 1;
    double once = 0, twice = 0;
    for (int64_t i = 0; read->first && i < read->n; i++) {
        const double x = part * read->clip * read->g[i],
                     off = read->first[i] - keep * (read->first_before ? read->first_before[i] : 0) - x,
                     off_twice = off + (1 - keep) * keep * (read->first_before ? read->first_before[i] : 0) - keep * x;
        once += off * off, twice += off_twice * off_twice;
    }
    return twice < once;
}

/* Whether the step cannot have the mistake, or the mistake changes nothing. */
static bool steps_cannot(const struct read *read, int which)
{
    if (is_again(which) && read->t->o->begins == 0) return true;
    /* Without moments that are corrected only the rate counts steps. */
    if ((which == COUNT_AGAIN || which == BOTH_AGAIN) && read->second == NULL) return true;
    if (is_said_by_again(read, which)) return true;
    if (is_rate(which)) return other_rate(read, which) == 0;
    /* In the first step a correction a step behind would divide by 0, and the largest mean of squares is the only. */
    if (which == LATE) return read->t->k == 0;
    if (which == TWICE || which == TWICE_COUNTED)
        return !is_updated_twice(read) || (which == TWICE_COUNTED && read->second == NULL);
    return which == AMSGRAD && read->largest == NULL;
}

/* The divisors of both moments are 1 - beta^n; n is the step from 1, or a step off. */
static void correct(const struct read *read, int which, double c[2])
{
    const struct hyperparameters *h = &read->t->o->hyper;
    const double k = (double)(which == TWICE_COUNTED ? 2 * read->t->k + 1 : read->t->k),
                 again = which == COUNT_AGAIN || which == BOTH_AGAIN ? (double)read->t->o->begins : 0,
                 n = k + 1 + (which == EARLY) - (which == LATE) - again;
    c[0] = which == NO_CORRECTION || which == FIRST_PLAIN ? 1 : 1 - pow(h->beta1, n);
    c[1] = which == NO_CORRECTION || which == SECOND_PLAIN ? 1 : 1 - pow(h->beta2, n);
}

/* The root that a moment is divided by, with the mistake.  v: the mean of squares, not corrected; c2: its divisor. */
static double steps_root(const struct read *read, int which, double v, double c2)
{
    const double eps = read->t->o->hyper.eps;
    switch (which) {
    case EPS_INSIDE: return sqrt(v / c2 + eps);
    case EPS_BEFORE: return (sqrt(v) + eps) / sqrt(c2);
    case EPS_SQUARED: return sqrt(v / c2 + eps * eps);
    case EPS_INSIDE_BEFORE: return sqrt((v + eps) / c2);
    case EPS_SQUARED_BEFORE: return sqrt((v + eps * eps) / c2);
    case NO_ROOT: return v / c2 + eps;
    default: return sqrt(v / c2) + eps;
    }
}

/* Element i moves by lr m / c1 / (sqrt(v / c2) + eps) for adam.  For sgd it is lr m or lr g. */
static double steps_moved(const struct read *read, int64_t i, int which)
{
    const struct hyperparameters *h = &read->t->o->hyper;
    const double times = which == UNCLIPPED ? 1 : which == CLIPPED_TWICE ? read->clip * read->clip : read->clip;
    double c[2];
    if (read->second) {
        correct(read, which, c);
        const double g = times * read->g[i], m = which == NESTEROV ? h->beta1 * read->first[i] + (1 - h->beta1) * g
                                            : which == NO_MOMENT ? g * c[0] : read->first[i];
        return read->lr * m / c[0] / steps_root(read, which, which == AMSGRAD ? read->largest[i] : read->second[i],
                                                c[1]);
    }
    /* Sgd with momentum: the state is the sum of gradients. */
    if (read->first) return read->lr * read->first[i];
    return read->lr * (times * read->g[i] + (which == DECAY_L2 ? h->weight_decay * read->old[i] : 0));
}

/* The weight after a step with the mistake. */
static double steps_after(const struct read *read, int64_t i, int which)
{
    const double decay = decay_of(read, which), step = steps_moved(read, i, which);
    if (is_rate(which)) {
        const double times = other_rate(read, which) / read->lr;
        return read->old[i] * (1 - times * decay) - times * step;
    }
    return (read->old[i] * (1 - decay) - (which == ASCENT ? -step : step)) *
           (which == DECAY_BEHIND ? 1 - read->decay : 1);
}

/* The weight after two steps with the same gradient.  The states of the second are the program's; the first makes its
 * own from the states before it. */
static double steps_after_two(const struct read *read, int64_t i, int which)
{
    const struct hyperparameters *h = &read->t->o->hyper;
    const double g = read->clip * read->g[i], m = read->first_before ? read->first_before[i] : 0,
                 v = read->second_before ? read->second_before[i] : 0;
    double c[2], between = steps_moved(read, i, which);
    if (read->second) {
        correct(read, which, c);
        /* A first step that counts alone is a step before the second. */
        if (which == TWICE_COUNTED)
            for (int k = 0; k < 2; k++)
                c[k] = 1 - pow(k ? h->beta2 : h->beta1, (double)(2 * read->t->k + 1));
        between = read->lr * (h->beta1 * m + (1 - h->beta1) * g) / c[0]
            / steps_root(read, which, h->beta2 * v + (1 - h->beta2) * g * g, c[1]);
    } else if (read->first) between = read->lr * (h->momentum * m + g);
    return (read->old[i] * (1 - read->decay) - between) * (1 - read->decay) - steps_moved(read, i, which);
}

/* The weight of element i after a step with one mistake: a row of of_weights. */
struct weight_row { const struct read *read; int which; };

static double steps_weight_at(const void *context, int64_t i)
{
    const struct weight_row *row = context;
    return row->which == TWICE || row->which == TWICE_COUNTED ? steps_after_two(row->read, i, row->which)
                                                              : steps_after(row->read, i, row->which);
}

/* The step, with or without its decay, is times a factor, as by another learning rate.  The factor is found by
 * least squares. */
static void try_rate(struct suspect *suspect, const struct read *read, bool decays, double *y)
{
    const double fixed = decays ? 1 : 1 - read->decay, with = decays ? read->decay : 0;
    double along = 0, size = 0;
    for (int64_t i = 0; i < read->n; i++) {
        const double step = steps_moved(read, i, -1) + with * read->old[i];
        along += (read->old[i] * fixed - suspect->have[i]) * step, size += step * step;
    }
    if (!(size > 0)) return;
    for (int64_t i = 0; i < read->n; i++)
        y[i] = read->old[i] * fixed - along / size * (steps_moved(read, i, -1) + with * read->old[i]);
    suspect_measured(suspect, y, "the step is %.4f of what it must be, as by another learning rate", along / size);
}

/* Another decay: the factor of the old weight that fits best. */
static void try_decay(struct suspect *suspect, const struct read *read, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < read->n; i++)
        along += (read->old[i] - steps_moved(read, i, -1) - suspect->have[i]) * read->old[i],
            size += read->old[i] * read->old[i];
    if (!(size > 0) || read->decay == 0) return;
    for (int64_t i = 0; i < read->n; i++) y[i] = read->old[i] * (1 - along / size) - steps_moved(read, i, -1);
    suspect_measured(suspect, y, "decay is %.4f of what it must be", along / size / read->decay);
}

/* A step with this eps. */
struct eps_row { const struct read *read; double eps, c[2]; };

static double steps_with_eps(const void *context, int64_t i)
{
    const struct eps_row *row = context;
    const struct read *read = row->read;
    return read->old[i] * (1 - read->decay) - read->lr * read->first[i] / row->c[0]
        / (sqrt(read->second[i] / row->c[1]) + row->eps);
}

/* Compute the squared distance of the step with this eps from the program's weight, of every `each`-th element. */
static double eps_distance(const struct suspect *suspect, struct eps_row *row, double eps, int64_t each)
{
    double off = 0;
    row->eps = eps;
    for (int64_t i = 0; i < row->read->n; i += each) {
        const double d = steps_with_eps(row, i) - suspect->have[i];
        off += d * d;
    }
    return off;
}

/* Search the eps whose step is nearest: from 1e-12 to 1 in powers of ten, then finer around the nearest.  @return its
 * power of ten. */
static double nearest_eps(const struct suspect *suspect, struct eps_row *row, int64_t each)
{
    double best = -13, off = INFINITY;
    for (double step = 1, from = -12, to = 0; step > 1e-9; step /= 8) {
        for (double at = from; at <= to; at += step) {
            const double here = eps_distance(suspect, row, pow(10, at), each);
            if (here < off) off = here, best = at;
        }
        from = best - step, to = best + step;
    }
    return best;
}

static bool explains_eps(struct suspect *suspect, struct eps_row *row, double eps, double *y)
{
    row->eps = eps;
    return suspect_made(suspect, steps_with_eps, row, y);
}

/* Elements that show whether some eps explains a step: the search takes two hundred steps. */
enum { EPS_SAMPLES = 128 };

/* Another eps is searched in some elements first, then, if it explains the samples, in all. */
static void try_eps(struct suspect *suspect, const struct read *read, double *y)
{
    struct eps_row row = { .read = read };
    if (read->second == NULL) return;
    correct(read, -1, row.c);
    /* A missing eps is said first: every far smaller eps gives the same numbers. */
    if (explains_eps(suspect, &row, 1e-15, y) &&
        suspect_explained(suspect, y, "without eps, or with a far smaller one")) return;
    const int64_t each = read->n / EPS_SAMPLES;
    if (each > 1 && !explains_eps(suspect, &row, pow(10, nearest_eps(suspect, &row, each)), y)) return;
    const double best = nearest_eps(suspect, &row, 1), unit = pow(10, floor(best) - 1),
                 round_eps = round(pow(10, best) / unit) * unit;
    /* Numbers in programs are round. */
    if (explains_eps(suspect, &row, round_eps, y) && suspect_measured(suspect, y, "eps is %.2g", round_eps)) return;
    if (explains_eps(suspect, &row, pow(10, best), y)) suspect_measured(suspect, y, "eps is %.3g", pow(10, best));
}

/* The step begins at the weight in 16 bits, not at its fp32 master. */
static void try_rounded_master(struct suspect *suspect, const struct read *read, double *y)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, read->t->o->format, 1);
    for (int64_t i = 0; i < read->n; i++) {
        tensor_set(one, 0, read->old[i]);
        y[i] = tensor_get(one, 0) * (1 - read->decay) - steps_moved(read, i, -1);
    }
    suspect_explained(suspect, y, "the step begins at the rounded weight, not at its master");
}

/* Whether the weight has not changed at all.  Then nothing else is tried: in 16 bits small steps come near it. */
static bool is_unchanged(const struct suspect *suspect, const struct read *read)
{
    for (int64_t i = 0; i < read->n; i++)
        if (suspect->have[i] != read->old[i]) return false;
    return true;
}

/* All rows of weights first, then numbers that are searched; a searched number is said only if no row fits. */
static void try_weights(struct suspect *suspect, const struct read *read, double *y)
{
    for (int64_t i = 0; i < read->n; i++) y[i] = read->old[i];
    if (is_unchanged(suspect, read) && suspect_explained(suspect, y, NOT_STEPPED)) return;
    for (size_t k = 0; k < sizeof of_weights / sizeof *of_weights; k++) {
        const int which = of_weights[k].which;
        if (!steps_cannot(read, which) &&
            suspect_made(suspect, steps_weight_at, &(struct weight_row){ read, which }, y))
            suspect_explained(suspect, y, "%s", of_weights[k].words);
    }
    /* The step may have been left out: the weight is the old one. */
    for (int64_t i = 0; i < read->n; i++) y[i] = read->old[i];
    suspect_explained(suspect, y, NOT_STEPPED);
    try_rounded_master(suspect, read, y);
    /* Sgd's weight without momentum depends on the clipped gradient itself. */
    if (suspect->words[0] == 0 && read->first == NULL) {
        const struct tensor rest = single_new(suspect->s, 1, read->n);
        for (int64_t i = 0; !suspect->s->failed && i < read->n; i++)
            numbers(rest)[i] = read->old[i] * (1 - read->decay);
        if (!suspect->s->failed)
            suspect_clipping(suspect, read->t, (struct clipping){ numbers(rest), read->g, read->clip,
                                                                 -read->lr, false }, true, y);
    }
    if (suspect->words[0] == 0) try_decay(suspect, read, y);
    if (suspect->words[0] == 0) try_eps(suspect, read, y);
    for (int decays = 1; decays >= 0; decays--)         /* in the first step Nesterov's is another rate, too */
        if (suspect->words[0] == 0 || strcmp(suspect->words, NESTEROVS) == 0) try_rate(suspect, read, decays, y);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */


/* In the first step of adamw a wrong beta and a wrong gradient make the same numbers of one state.  The other state of
 * the parameter shows the gradient, if the program has this state. */
enum shown { NOTHING_IS_SHOWN, GRADIENT_IS_RIGHT, GRADIENT_IS_WRONG };

/* A state of one parameter: new = keep old + part x, where x is the clipped gradient or its square.  keep, part: the
 * rule's numbers. */
struct moment { const struct read *read; const double *old; double keep, part; bool squared; enum shown shown; };

/* This is a state with one mistake. */
struct state_row { const struct moment *moment; double keep, part, clip, decay; bool squared; };

static double steps_state_at(const void *context, int64_t i)
{
    const struct state_row *row = context;
    const struct moment *m = row->moment;
    const double g = row->clip * m->read->g[i] + row->decay * (m->read->old ? m->read->old[i] : 0);
    return row->keep * (m->old ? m->old[i] : 0) + row->part * (row->squared ? g * g : g);
}

/* Another beta explains the state: new = beta old + (1 - beta) x, by least squares.  In the first step the old
 * state is 0, and beta is a factor of the gradient. */
static void try_beta(struct suspect *suspect, const struct moment *moment, double *y)
{
    const struct read *read = moment->read;
    double along = 0, size = 0;
    /* have - x = beta (old - x), so beta = (have - x) . d / d . d with d = old - x. */
    for (int64_t i = 0; i < read->n; i++) {
        const double g = read->clip * read->g[i], x = moment->squared ? g * g : g,
                     d = (moment->old ? moment->old[i] : 0) - x;
        along += (suspect->have[i] - x) * d, size += d * d;
    }
    const double beta = along / size, times = (1 - beta) / (1 - moment->keep);
    if (!(size > 0 && beta > 0 && beta < 1)) return;
    if (!suspect_made(suspect, steps_state_at,
                      &(struct state_row){ moment, beta, 1 - beta, read->clip, 0, moment->squared }, y)) return;
    if (moment->old || moment->shown == GRADIENT_IS_RIGHT) suspect_measured(suspect, y, "beta is %.4g", beta);
    else suspect_measured(suspect, y, "beta is %.4g, or the gradient is %.4f of what it must be", beta,
                           moment->squared ? sqrt(times) : times);
}

/* The gradient of the state has another factor, as if clipped by a norm that nobody has guessed. */
static void try_gradient(struct suspect *suspect, const struct moment *moment, double factor, double *y)
{
    const struct read *read = moment->read;
    const struct hyperparameters *h = &read->t->o->hyper;
    if (!(factor > 0) || !suspect_made(suspect, steps_state_at,
                                       &(struct state_row){ moment, moment->keep, moment->part, factor, 0,
                                                            moment->squared }, y)) return;
    /* A factor of 1 or more is no clipping. */
    if (h->clip > 0 && factor < 1 && read->clip < 1)
        suspect_measured(suspect, y, "the gradient is %.4f of what it must be, as if clipped by a norm of %.4g, not "
                          "%.4g", factor / read->clip, h->clip / factor, h->clip / read->clip);
    else suspect_measured(suspect, y, "the gradient is %.4f of what it must be", factor / read->clip);
}

/* Whether all numbers are some of the format's: then they may have been rounded from masters. */
static bool steps_are_rounded(const struct read *read, const double *x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, read->t->o->format, 1);
    for (int64_t i = 0; i < read->n; i++) {
        tensor_set(one, 0, x[i]);
        if (tensor_get(one, 0) != x[i]) return false;
    }
    return dtype_is_narrow(read->t->o->format);
}

/* Decay is added to the gradient.  A weight that is shown in 16 bits may be a unit of roundoff away from the master
 * that decays, so bounds are wider by what this moves the state. */
static void try_decayed_gradient(struct suspect *suspect, const struct state_row *row, double *y)
{
    const struct read *read = row->moment->read;
    const struct suspect narrow = *suspect;
    const struct tensor bound = single_new(suspect->s, 1, read->n);
    if (suspect->s->failed || row->decay == 0) return;
    const double unit = read->old && steps_are_rounded(read, read->old) ? dtype_unit(read->t->o->format) : 0;
    double sum = 0;
    for (int64_t i = 0; i < read->n; i++) {
        const double off = unit > 0 ? row->decay * unit * fabs(read->old[i]) : 0,
                     g = row->clip * read->g[i] + row->decay * (read->old ? read->old[i] : 0);
        numbers(bound)[i] = suspect->bound[i] + row->part * off * (row->squared ? 2 * fabs(g) + off : 1);
        sum += numbers(bound)[i] * numbers(bound)[i];
    }
    suspect->bound = numbers(bound), suspect->allowed = sqrt(sum);
    if (suspect_made(suspect, steps_state_at, row, y)) suspect_explained(suspect, y, "decay is added to the gradient");
    suspect->bound = narrow.bound, suspect->allowed = narrow.allowed;
}

/* Whether a row of try_state is a guess of beta. */
static bool is_beta(const struct state_row *row, const struct moment *moment)
{
    return row->part != 1 && row->keep != 0 && row->keep != moment->keep;
}

/* All mistakes of a state. */
static void try_state(struct suspect *suspect, const struct moment *moment, double *y)
{
    const struct read *read = moment->read;
    const double keep = moment->keep, part = moment->part, clip = read->clip;
    const bool squared = moment->squared;
    const struct { const char *words; struct state_row row; } of[] = {
        { "the gradient is not clipped", { moment, keep, part, 1, 0, squared } },
        { "the gradient is clipped twice", { moment, keep, part, clip * clip, 0, squared } },
        { "the gradient is added whole, not by 1 - beta", { moment, keep, 1, clip, 0, squared } },
        { "the gradient is not squared", { moment, keep, part, clip, 0, false } },
        { "the state before is forgotten", { moment, 0, part, clip, 0, squared } },
        { STEPPED_TWICE, { moment, keep * keep, (1 + keep) * part, clip, 0, squared } },
        { "beta is 0.9", { moment, 0.9, 0.1, clip, 0, squared } },
        { "beta is 0.95", { moment, 0.95, 0.05, clip, 0, squared } },
        { "beta is 0.99", { moment, 0.99, 0.01, clip, 0, squared } },
        { "beta is 0.999", { moment, 0.999, 0.001, clip, 0, squared } },
    };
    for (size_t k = 0; k < sizeof of / sizeof *of; k++)
        if (!(moment->shown == GRADIENT_IS_WRONG && is_beta(&of[k].row, moment)) &&
            suspect_made(suspect, steps_state_at, &of[k].row, y))
            suspect_explained(suspect, y, "%s", of[k].words);
    try_decayed_gradient(suspect, &(struct state_row){ moment, keep, part, clip, read->t->o->hyper.weight_decay,
                                                       squared }, y);
    /* The state was not updated at all. */
    for (int64_t i = 0; i < read->n && moment->old; i++) y[i] = moment->old[i];
    if (moment->old) suspect_explained(suspect, y, "stale: it is that of the step before");
    if (suspect->words[0] || suspect->s->failed) return;
    const struct tensor rest = single_new(suspect->s, 1, read->n);
    for (int64_t i = 0; !suspect->s->failed && i < read->n; i++)
        numbers(rest)[i] = keep * (moment->old ? moment->old[i] : 0);
    if (suspect->s->failed) return;
    /* Clipping by another norm changes a state as it changes a weight. */
    const struct clipping clipping = { numbers(rest), read->g, clip, part, squared };
    suspect_clipping(suspect, read->t, clipping, moment->shown != GRADIENT_IS_RIGHT, y);
    if (suspect->words[0]) return;
    if (moment->old || moment->shown == GRADIENT_IS_WRONG || part == 1)
        try_gradient(suspect, moment, suspect_clip_factor(suspect, &clipping), y);
    if (part < 1 && moment->shown != GRADIENT_IS_WRONG) try_beta(suspect, moment, y);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Read a tensor of the step with the shape of the rows that are computed.  NULL: the program does not have it. */
static const double *steps_fetch(const struct stepping *stepping, struct single_name name)
{
    const struct tensor x = single_input_block(stepping->s, name,
                                               (struct single_block){ stepping->first, stepping->rows },
                                               stepping->whole, stepping->cols);
    return single_going(stepping->s) ? x.data : NULL;
}

/* Read state i of the optimizer after step k.  NULL: before the first step, or the optimizer has no such state. */
static const double *state(const struct stepping *stepping, int64_t k, int i)
{
    return k < 0 || i >= stepping->is->states ? NULL
           : steps_fetch(stepping, stepping_after(stepping->o, k, stepping->is->state_name[i], stepping->param.name));
}

/* Find the largest mean of squares of each element in the steps up to this step.  NULL: there are no steps before, or
 * the program does not have all of them. */
static const double *largest_second(const struct stepping *stepping)
{
    if (stepping->k == 0 || stepping->is->states < 2) return NULL;
    const struct tensor most = single_new(stepping->s, stepping->rows, stepping->cols);
    for (int64_t k = stepping->o->begins > 0 ? stepping->o->begins - 1 : 0; k <= stepping->k; k++) {
        const double *v = state(stepping, k, 1);
        if (v == NULL || stepping->s->failed) return NULL;
        for (int64_t i = 0; i < tensor_count(most); i++) numbers(most)[i] = fmax(numbers(most)[i], v[i]);
    }
    return numbers(most);
}

/* The other state must be so many times nearer to what one gradient makes than to what the other makes. */
static const double SHOWS_CLEARLY = 10;

/* Find what the other state of the first step says of the gradient: whether it is the right one, or has the factor
 * that this state shows. */
static enum shown steps_show(struct suspect *suspect, const struct moment *moment)
{
    const struct read *read = moment->read;
    const struct stepping *stepping = read->t;
    const struct hyperparameters *h = &stepping->o->hyper;
    const struct single_reading outer = single_read_anew(suspect->s);
    const double *have = state(stepping, 0, stepping->state ? 0 : 1);
    const double beta = stepping->state ? h->beta1 : h->beta2;
    const struct tensor none = single_new(suspect->s, 1, read->n);
    suspect->s->reading = outer;
    if (have == NULL || suspect->s->failed) return NOTHING_IS_SHOWN;
    const struct clipping clipping = { numbers(none), read->g, read->clip, moment->part, moment->squared };
    const double c = suspect_clip_factor(suspect, &clipping);
    const struct moment other = { read, NULL, beta, 1 - beta, !moment->squared, NOTHING_IS_SHOWN };
    const struct state_row right = { &other, beta, 1 - beta, read->clip, 0, other.squared },
                           wrong = { &other, beta, 1 - beta, c, 0, other.squared };
    double by_right = 0, by_wrong = 0;
    for (int64_t i = 0; i < read->n; i++) {
        const double a = have[i] - steps_state_at(&right, i), b = have[i] - steps_state_at(&wrong, i);
        by_right += a * a, by_wrong += b * b;
    }
    if (sqrt(by_wrong) * SHOWS_CLEARLY < sqrt(by_right)) return GRADIENT_IS_WRONG;
    return sqrt(by_right) * SHOWS_CLEARLY < sqrt(by_wrong) ? GRADIENT_IS_RIGHT : NOTHING_IS_SHOWN;
}

/* A weight is made from the states after the step, a state from the states before it. */
void suspect_step(struct suspect *suspect, const struct stepping *stepping)
{
    const struct hyperparameters *h = &stepping->o->hyper;
    const bool adam = stepping->is->states == 2, of_weight = stepping->state < 0;
    const int64_t k = of_weight ? stepping->k : stepping->k - 1;              /* states: after the step, or before it */
    struct read r = { .t = stepping, .n = suspect->count, .lr = stepping->o->lr[stepping->k],
                     .clip = stepping_clip(stepping),
                      .old = steps_fetch(stepping,
                                         stepping_after(stepping->o, stepping->k - 1, "weight", stepping->param.name)),
                      .g = steps_fetch(stepping, stepping_gradient(stepping->o, stepping->k, stepping->param.name)),
                      .first = state(stepping, k, 0), .second = state(stepping, k, 1) };
    const struct tensor y = single_new(stepping->s, suspect->rows, suspect->cols);
    r.decay = r.lr * weight_decay_of(h, stepping->param.decay);
    /* Without the old weight or the gradient no mistake can be made. */
    if (!single_going(stepping->s) || r.old == NULL || r.g == NULL) return;
    if (of_weight) {
        r.first_before = state(stepping, k - 1, 0), r.second_before = state(stepping, k - 1, 1);
        r.largest = largest_second(stepping);
        single_read_anew(stepping->s);
        try_weights(suspect, &r, numbers(y));
        return;
    }
    const double keep = adam ? stepping->state ? h->beta2 : h->beta1 : h->momentum;
    struct moment moment = { &r, stepping->state ? r.second : r.first, keep, adam ? 1 - keep : 1,
                             adam && stepping->state, NOTHING_IS_SHOWN };
    if (adam && stepping->k == 0) moment.shown = steps_show(suspect, &moment);
    try_state(suspect, &moment, numbers(y));
}
