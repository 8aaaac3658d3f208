/* steps.c -- what a step of an optimizer gives with one mistake. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/optim/optimizer.h"
#include <string.h>

/* What a step reads, [n] each; NULL: it is not there. */
struct read {
    const struct stepping *t;
    const double *old, *g, *first, *second;     /* weight before it; gradient; the states after it, or before */
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
    NO_MOMENT
};

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
};

static double decay_of(const struct read *r, int which)
{
    const double full = r->lr * r->t->o->hyper.weight_decay;
    switch (which) {
    case DECAY_NONE: case DECAY_L2: case DECAY_BEHIND: return 0;
    case DECAY_ALL: return full;
    case DECAY_PLAIN: return r->decay > 0 ? full / r->lr : 0;
    case DECAY_TWICE: return r->decay * r->lr;
    default: return r->decay;
    }
}

static void correct(const struct read *r, int which, double c[2])
{
    const struct hyperparameters *h = &r->t->o->hyper;
    const double n = (double)(r->t->k + 1) + (which == EARLY) - (which == LATE);
    c[0] = which == NO_CORRECTION || which == FIRST_PLAIN ? 1 : 1 - pow(h->beta1, n);
    c[1] = which == NO_CORRECTION || which == SECOND_PLAIN ? 1 : 1 - pow(h->beta2, n);
}

static double moved(const struct read *r, int64_t i, int which)
{
    const struct hyperparameters *h = &r->t->o->hyper;
    const double times = which == UNCLIPPED ? 1 : which == CLIPPED_TWICE ? r->clip * r->clip : r->clip;
    double c[2];
    if (r->second) {
        correct(r, which, c);
        const double v = r->second[i] / c[1], root = which == EPS_INSIDE ? sqrt(v + h->eps)
                                                   : which == EPS_BEFORE ? sqrt(v) + h->eps / sqrt(c[1])
                                                   : which == NO_ROOT ? v + h->eps : sqrt(v) + h->eps;
        const double g = times * r->g[i], m = which == NESTEROV ? h->beta1 * r->first[i] + (1 - h->beta1) * g
                                            : which == NO_MOMENT ? g * c[0] : r->first[i];
        return r->lr * m / c[0] / root;
    }
    if (r->first) return r->lr * r->first[i];
    return r->lr * (times * r->g[i] + (which == DECAY_L2 ? h->weight_decay * r->old[i] : 0));
}

/* The step, with or without its decay, times a factor. */
static void try_rate(struct suspect *p, const struct read *r, bool decays, double *y)
{
    const double fixed = decays ? 1 : 1 - r->decay, with = decays ? r->decay : 0;
    double along = 0, size = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const double step = moved(r, i, -1) + with * r->old[i];
        along += (r->old[i] * fixed - p->have[i]) * step, size += step * step;
    }
    if (!(size > 0)) return;
    for (int64_t i = 0; i < r->n; i++)
        y[i] = r->old[i] * fixed - along / size * (moved(r, i, -1) + with * r->old[i]);
    suspect_explained(p, y, "the step is %.4f of what it must be, as by another learning rate", along / size);
}

/* Another decay. */
static void try_decay(struct suspect *p, const struct read *r, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < r->n; i++)
        along += (r->old[i] - moved(r, i, -1) - p->have[i]) * r->old[i], size += r->old[i] * r->old[i];
    if (!(size > 0) || r->decay == 0) return;
    for (int64_t i = 0; i < r->n; i++) y[i] = r->old[i] * (1 - along / size) - moved(r, i, -1);
    suspect_explained(p, y, "decay is %.4f of what it must be", along / size / r->decay);
}

/* How far the step with this eps is from the program's, squared. */
static double with_eps(const struct suspect *p, const struct read *r, double eps, double *y)
{
    double c[2], off = 0;
    correct(r, -1, c);
    for (int64_t i = 0; i < r->n; i++) {
        y[i] = r->old[i] * (1 - r->decay) - r->lr * r->first[i] / c[0] / (sqrt(r->second[i] / c[1]) + eps);
        off += (y[i] - p->have[i]) * (y[i] - p->have[i]);
    }
    return off;
}

/* Another eps: first in powers of ten, then finer around the nearest. */
static void try_eps(struct suspect *p, const struct read *r, double *y)
{
    double best = -13, off = INFINITY;
    if (r->second == NULL) return;
    for (double step = 1, from = -12, to = 0; step > 1e-9; step /= 8) {
        for (double at = from; at <= to; at += step) {
            const double here = with_eps(p, r, pow(10, at), y);
            if (here < off) off = here, best = at;
        }
        from = best - step, to = best + step;
    }
    with_eps(p, r, 1e-15, y);
    if (suspect_explained(p, y, "without eps, or with a far smaller one")) return;
    const double unit = pow(10, floor(best) - 1), round_eps = round(pow(10, best) / unit) * unit;
    with_eps(p, r, round_eps, y);              /* numbers in programs are round */
    if (suspect_explained(p, y, "eps is %.2g", round_eps)) return;
    with_eps(p, r, pow(10, best), y);
    suspect_explained(p, y, "eps is %.3g", pow(10, best));
}

/* The step begins at the weight in 16 bits, not at its master. */
static void try_rounded_master(struct suspect *p, const struct read *r, double *y)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, r->t->o->format, 1);
    for (int64_t i = 0; i < r->n; i++) {
        tensor_set(one, 0, r->old[i]);
        y[i] = tensor_get(one, 0) * (1 - r->decay) - moved(r, i, -1);
    }
    suspect_explained(p, y, "the step begins at the rounded weight, not at its master");
}

static void try_weights(struct suspect *p, const struct read *r, double *y)
{
    for (size_t k = 0; k < sizeof of_weights / sizeof *of_weights; k++) {
        const int which = of_weights[k].which;
        if (which == LATE && r->t->k == 0) continue;
        for (int64_t i = 0; i < r->n; i++)
            y[i] = (r->old[i] * (1 - decay_of(r, which)) - (which == ASCENT ? -1 : 1) * moved(r, i, which)) *
                   (which == DECAY_BEHIND ? 1 - r->decay : 1);
        suspect_explained(p, y, "%s", of_weights[k].words);
    }
    for (int64_t i = 0; i < r->n; i++) y[i] = r->old[i];
    suspect_explained(p, y, "stale: it is not stepped");
    try_rounded_master(p, r, y);
    if (p->words[0] == 0 && r->first == NULL) {
        const struct tensor rest = single_new(p->s, 1, r->n);
        for (int64_t i = 0; !p->s->failed && i < r->n; i++) numbers(rest)[i] = r->old[i] * (1 - r->decay);
        if (!p->s->failed)
            suspect_clipping(p, r->t, (struct clipping){ numbers(rest), r->g, r->clip, -r->lr, false }, y);
    }
    if (p->words[0] == 0) try_decay(p, r, y);
    if (p->words[0] == 0) try_eps(p, r, y);
    for (int decays = 1; decays >= 0; decays--)         /* in the first step Nesterov's is another rate, too */
        if (p->words[0] == 0 || strcmp(p->words, NESTEROVS) == 0) try_rate(p, r, decays, y);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */


/* Another beta.  In the first step it is a factor of the gradient. */
static void try_beta(struct suspect *p, const struct read *r, const double *old, double keep, bool squared, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const double g = r->clip * r->g[i], x = squared ? g * g : g, d = (old ? old[i] : 0) - x;
        along += (p->have[i] - x) * d, size += d * d;
    }
    const double beta = along / size, times = (1 - beta) / (1 - keep);
    if (!(size > 0 && beta > 0 && beta < 1)) return;
    for (int64_t i = 0; i < r->n; i++) {
        const double g = r->clip * r->g[i], x = squared ? g * g : g;
        y[i] = beta * (old ? old[i] : 0) + (1 - beta) * x;
    }
    if (old) suspect_explained(p, y, "beta is %.4g", beta);
    else suspect_explained(p, y, "beta is %.4g, or the gradient is %.4f of what it must be", beta,
                           squared ? sqrt(times) : times);
}

/* keep, part: the rule's numbers. */
static void try_state(struct suspect *p, const struct read *r, const double *old, double keep, double part,
                      bool squared, double *y)
{
    const struct hyperparameters *h = &r->t->o->hyper;
    const struct { const char *words; double keep, part, clip, decay; bool squared; } of[] = {
        { "the gradient is not clipped", keep, part, 1, 0, squared },
        { "the gradient is clipped twice", keep, part, r->clip * r->clip, 0, squared },
        { "decay is added to the gradient", keep, part, r->clip, h->weight_decay, squared },
        { "the gradient is added whole, not by 1 - beta", keep, 1, r->clip, 0, squared },
        { "the gradient is not squared", keep, part, r->clip, 0, false },
        { "the state before is forgotten", 0, part, r->clip, 0, squared },
        { "beta is 0.9", 0.9, 0.1, r->clip, 0, squared },
        { "beta is 0.95", 0.95, 0.05, r->clip, 0, squared },
        { "beta is 0.99", 0.99, 0.01, r->clip, 0, squared },
        { "beta is 0.999", 0.999, 0.001, r->clip, 0, squared },
    };
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        for (int64_t i = 0; i < r->n; i++) {
            const double g = of[k].clip * r->g[i] + of[k].decay * (r->old ? r->old[i] : 0);
            y[i] = of[k].keep * (old ? old[i] : 0) + of[k].part * (of[k].squared ? g * g : g);
        }
        suspect_explained(p, y, "%s", of[k].words);
    }
    for (int64_t i = 0; i < r->n && old; i++) y[i] = old[i];
    if (old) suspect_explained(p, y, "stale: it is that of the step before");
    const struct tensor rest = single_new(p->s, 1, r->n);
    for (int64_t i = 0; !p->s->failed && i < r->n; i++) numbers(rest)[i] = keep * (old ? old[i] : 0);
    if (p->words[0] == 0 && !p->s->failed)
        suspect_clipping(p, r->t, (struct clipping){ numbers(rest), r->g, r->clip, part, squared }, y);
    if (p->words[0] == 0 && part < 1) try_beta(p, r, old, keep, squared, y);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const double *fetch(const struct stepping *t, struct single_name name)
{
    const struct tensor x = single_input(t->s, name, t->rows, t->cols);
    return single_going(t->s) ? x.data : NULL;
}

static const double *state(const struct stepping *t, int64_t k, int i)
{
    return k < 0 || i >= t->is->states ? NULL : fetch(t, stepping_after(t->o, k, t->is->state_name[i], t->param.name));
}

void suspect_step(struct suspect *p, const struct stepping *t)
{
    const struct hyperparameters *h = &t->o->hyper;
    const bool adam = t->is->states == 2, of_weight = t->state < 0;
    const int64_t k = of_weight ? t->k : t->k - 1;              /* states: after the step, or before it */
    struct read r = { .t = t, .n = p->count, .lr = t->o->lr[t->k], .clip = stepping_clip(t),
                      .old = fetch(t, stepping_after(t->o, t->k - 1, "weight", t->param.name)),
                      .g = fetch(t, stepping_gradient(t->o, t->k, t->param.name)),
                      .first = state(t, k, 0), .second = state(t, k, 1) };
    const struct tensor y = single_new(t->s, p->rows, p->cols);
    r.decay = r.lr * weight_decay_of(h, t->param.decay);
    if (!single_going(t->s) || r.old == NULL || r.g == NULL) return;
    if (of_weight) {
        try_weights(p, &r, numbers(y));
        return;
    }
    const double keep = adam ? t->state ? h->beta2 : h->beta1 : h->momentum;
    try_state(p, &r, t->state ? r.second : r.first, keep, adam ? 1 - keep : 1, adam && t->state, numbers(y));
}
