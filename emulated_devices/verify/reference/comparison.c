#include "emulated_devices/verify/reference/comparison.h"
#include "ref/io/pair.h"
#include "ref/numeric/distance.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the current tensor ------------------------------------------------------------------------------------------ */

static bool same_tensor(const struct spread *a, const struct spread *b)
{
    return a->step == b->step && strcmp(a->kind, b->kind) == 0 && strcmp(a->tensor, b->tensor) == 0;
}

const char *spread_name(char *out, size_t size, const struct spread *s)
{
    const bool number = strcmp(s->kind, s->tensor) == 0;
    snprintf(out, size, "%s%s%s", number ? "" : s->kind, number ? "" : " ", s->tensor);
    return out;
}

/* Calls come tensor by tensor: when the next tensor starts, the previous one has been compared on all its devices. */
static void enter(struct comparison *c, const char *kind, const struct worst *found)
{
    struct spread now = { .step = found->step };
    snprintf(now.kind, sizeof now.kind, "%s", kind);
    snprintf(now.tensor, sizeof now.tensor, "%s", found->tensor);
    if (same_tensor(&c->current, &now)) return;
    if (!c->failed && c->current.kind[0]) spread_name(c->before, sizeof c->before, &c->current);
    c->current = now;
}

/* ---- if the one-device run itself diverges ----------------------------------------------------------------------- */

void comparison_step(struct comparison *c, bool scaled)
{
    if (c->passing) c->diverged = false;
    c->passing = scaled;
}

/* Whether there is nothing to compare with: the truth or its twin is not finite, so rounding decides about overflow.
 * Which elements of a sum overflow depends on the order of addition; from here on only loss and norm are compared. */
static bool diverges(struct comparison *c, const char *kind, const struct worst *found, double size)
{
    if (c->diverged) return true;
    if (isfinite(size) && (size == 0 || isfinite(found->bound))) return false;
    enter(c, kind, found);
    c->diverged = true;
    c->divergence = c->current;
    return true;
}

/* ---- a comparison ------------------------------------------------------------------------------------------------ */

/* Collect the first failing tensor's errors on all devices that have it; report its worst device. */
static void note_failure(struct comparison *c, const struct worst *of, const char *kind, const struct worst *found)
{
    c->wrong++;
    if (!c->failed) {
        snprintf(c->first_kind, sizeof c->first_kind, "%s", kind);
        c->first = *found;
        c->where = c->current;
        c->excess = of == &c->quantised;
        c->failed = true;
    } else if (same_tensor(&c->current, &c->where) && exceeds(found->ratio, c->first.ratio)) {
        c->first = *found;
    }
}

static void note_unjudged(struct comparison *c, const char *kind, const struct worst *found)
{
    if (c->unjudged++ > 0) return;
    c->open = *found;
    snprintf(c->open_kind, sizeof c->open_kind, "%s", kind);
}

static void note_warning(struct comparison *c, const char *kind, const struct worst *found)
{
    if (c->warned++ > 0 && !(found->bound > c->wide.bound)) return;
    c->wide = *found;
    snprintf(c->wide_kind, sizeof c->wide_kind, "%s", kind);
}

static void note(struct comparison *c, struct worst *of, const char *kind, struct worst found)
{
    enter(c, kind, &found);
    c->compared++;
    if (isnan(found.error)) found.error = NAN;          /* remove its sign */
    const bool relative = of != &c->quantised && of != &c->choice && !(of == &c->state && c->codes);
    if (relative && exceeds(found.error, c->largest.error)) {
        c->largest = found;
        snprintf(c->largest_kind, sizeof c->largest_kind, "%s", kind);
    }
    found.ratio = found.error == 0 ? 0 : found.error / found.bound;
    const enum judgement judgement = found.absolute ? (found.ratio <= 1 ? JUDGED_RIGHT : JUDGED_WRONG)
                                                    : judge_error(found.error, found.bound);
    c->current.on.rounding = found.bound;
    evidence_add(&c->current.on, found.rank, judgement != JUDGED_RIGHT, found.scale, found.truth);
    if (judgement == JUDGED_WRONG) note_failure(c, of, kind, &found);
    if (judgement == CANNOT_BE_JUDGED) note_unjudged(c, kind, &found);
    if (judgement == JUDGED_RIGHT && !found.absolute && found.error > 0 && bound_is_wide(found.bound))
        note_warning(c, kind, &found);
    if (c->failed && same_tensor(&c->current, &c->where)) c->where = c->current;
    if (of->tensor[0] == 0 || exceeds(found.ratio, of->ratio)) *of = found;
}

double held_error(const struct sums *s, double size) { return sums_error(s, size == 0 ? 1 : size); }

void comparison_tensor(struct comparison *c, struct worst *of, const char *kind, struct worst found,
                       const struct sums *s, double size)
{
    found.error = held_error(s, size), found.scale = sums_scale(s), found.truth = s->truth;
    found.absolute = size == 0;
    if (!diverges(c, kind, &found, size)) note(c, of, kind, found);
}

void comparison_number(struct comparison *c, struct worst *of, const char *name, double actual, double truth,
                       double bound, int64_t step)
{
    const bool failed = c->failed;
    struct worst found = { .error = actual == truth ? 0 : fabs(actual - truth) / fabs(truth),
                           .bound = bound / fabs(truth), .step = step,
                           .scale = scale_of(actual * actual, actual * truth, truth * truth), .truth = truth * truth };
    snprintf(found.tensor, sizeof found.tensor, "%s", name);
    if (diverges(c, name, &found, fabs(truth)) && (isfinite(truth) || !isfinite(actual))) return;
    note(c, of, name, found);
    if (!failed && c->failed) c->number = c->where.on.number = true;
}

void comparison_excess(struct comparison *c, struct worst found, struct tensor excess)
{
    found.bound = 1, found.scale = (struct scale){ NAN, NAN }, found.absolute = true;
    for (int64_t i = 0; i < tensor_count(excess); i++)
        if (exceeds(tensor_get(excess, i), found.error)) found.error = tensor_get(excess, i);
    if (!c->diverged) note(c, &c->quantised, "quantised gradient", found);
}

void comparison_choice(struct comparison *c, struct worst found, int own, int theirs)
{
    const bool failed = c->failed;
    found.scale = (struct scale){ NAN, NAN }, found.absolute = true;
    if (c->diverged) return;
    note(c, &c->choice, "choice of experts", found);
    if (!failed && c->failed) c->expert[0] = own, c->expert[1] = theirs;
}

/* ---- for reports ------------------------------------------------------------------------------------------------- */

const struct worst *comparison_kind(const struct comparison *c, int i, const char **name)
{
    const struct { const char *name; const struct worst *worst; } kinds[] = {
        { "activations", &c->activation }, { "loss", &c->loss }, { "their gradients", &c->activation_gradient },
        { "gradients", &c->gradient }, { "as quantised", &c->quantised }, { "norm", &c->norm },
        { "weights", &c->weight }, { "states", &c->state },
    };
    if (i >= (int)(sizeof kinds / sizeof *kinds)) return NULL;
    *name = kinds[i].name;
    return kinds[i].worst;
}

double comparison_ratio(const struct comparison *c)
{
    const struct worst *w;
    const char *name;
    double most = 0;
    for (int i = 0; (w = comparison_kind(c, i, &name)) != NULL; i++)
        if (exceeds(w->ratio, most)) most = w->ratio;
    return most;
}

static void describe_choice(char *out, size_t size, int own, int theirs)
{
    if (theirs == choice_dropped(own))
        snprintf(out, size, "of expert %d is %s, whose weight is %s than that of a choice that is %s", choice_made(own),
                 theirs < 0 ? "dropped" : "kept", theirs < 0 ? "larger" : "smaller", theirs < 0 ? "kept" : "dropped");
    else snprintf(out, size, "is expert %d instead of %d, whose score is larger", theirs, own);
}

/* "activation h.0.attn.q, step 1, device 3 (cp=3)"; a number of the whole model is no device's. */
static const char *where_is(char *out, size_t size, const char *kind, const struct worst *f, const struct plan *p)
{
    char device[64];
    const bool number = strcmp(kind, f->tensor) == 0;
    const int used = snprintf(out, size, "%s%s%s, step %lld", number ? "" : kind, number ? "" : " ", f->tensor,
                              (long long)f->step);
    if (!number && used > 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, ", device %d (%s)", f->rank,
                 mesh_describe(&p->mesh, f->rank, device, sizeof device));
    return out;
}

bool comparison_holds(const struct comparison *c) { return !c->failed && c->unjudged == 0; }

const char *comparison_unjudged(char *out, size_t size, const struct comparison *c, const struct plan *p)
{
    char place[240];
    const struct worst *f = &c->open;
    snprintf(out, size, "%lld of %lld comparisons cannot be judged, first %s: it differs by %.3g, and rounding alone "
             "may change it by %.3g", (long long)c->unjudged, (long long)c->compared,
             where_is(place, sizeof place, c->open_kind, f, p), f->error, f->bound);
    return out;
}

const char *comparison_warning(char *out, size_t size, const struct comparison *c, const struct plan *p)
{
    char place[240];
    out[0] = '\0';
    if (c->warned > 0)
        snprintf(out, size, "%lld of %lld comparisons hold by a bound above %g, the widest %.2g: %s",
                 (long long)c->warned, (long long)c->compared, WIDE_BOUND, c->wide.bound,
                 where_is(place, sizeof place, c->wide_kind, &c->wide, p));
    return out;
}

const char *comparison_describe(char *out, size_t size, const struct comparison *c, const struct plan *p)
{
    const struct worst *f = &c->first;
    char place[96], scale[120], device[64], where[200] = "", choice[96];
    diagnose_place(place, sizeof place, &p->mesh, &c->where.on);
    diagnose_scale(scale, sizeof scale, &p->mesh, p->micros, &c->where.on);
    if (!c->number)
        snprintf(where, sizeof where, " on device %d (%s)", f->rank,
                 mesh_describe(&p->mesh, f->rank, device, sizeof device));
    describe_choice(choice, sizeof choice, c->expert[0], c->expert[1]);
    const char *differs = c->excess ? "differs from the sum of what was quantised, in units of what that allows,"
                          : c->expert[0] != c->expert[1] ? choice
                                                         : "differs from the one-device run";
    const struct pair_text two = pair_text('g', 3, f->error, f->bound);
    snprintf(out, size, "step %lld: %s%s%s%s %s by %s; its bound is %s%s%s%s%s", (long long)f->step,
             c->number ? "" : c->first_kind, c->number ? "" : " ", f->tensor, where, differs, two.first, two.second,
             c->number ? "" : "; wrong on ", c->number ? "" : place, scale[0] ? "; it is " : "", scale);
    return out;
}
