/* comparison.c -- collects verdicts: the worst error of each kind, the first failure and its devices, and their
 * texts.  compare.c calls the comparing functions on rank 0; cli/ and tests read the texts.  Nothing here fails. */
#include "emulated_devices/verify/reference/comparison.h"
#include "ref/io/pair.h"
#include "ref/numeric/distance.h"
#include "ref/ops/ops.h"
#include "ref/io/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the current tensor ------------------------------------------------------------------------------------------ */

/* In JSON, the device of a comparison of the one-device run with a golden file. */
enum { NO_DEVICE = -1 };

/* Two records are of one tensor if step, kind and name agree.  The devices of one tensor follow each other. */
static bool same_tensor(const struct spread *a, const struct spread *b)
{
    return a->step == b->step && strcmp(a->kind, b->kind) == 0 && strcmp(a->tensor, b->tensor) == 0;
}

const char *spread_name(char *out, size_t size, const struct spread *spread)
{
    const bool number = strcmp(spread->kind, spread->tensor) == 0;
    /* A number of the whole model has its own name as kind, which is printed once. */
    snprintf(out, size, "%s%s%s", number ? "" : spread->kind, number ? "" : " ", spread->tensor);
    return out;
}

/* Calls come tensor by tensor: when the next tensor starts, the previous one has been compared on all its devices. */
static void comparison_enter(struct comparison *comparison, const char *kind, const struct worst *found)
{
    struct spread now = { .step = found->step };
    snprintf(now.kind, sizeof now.kind, "%s", kind);
    snprintf(now.tensor, sizeof now.tensor, "%s", found->tensor);
    if (same_tensor(&comparison->current, &now)) return;
    /* The tensor before the first failure is kept for the report: all devices had it right. */
    if (!comparison->failed && comparison->current.kind[0])
        spread_name(comparison->before, sizeof comparison->before, &comparison->current);
    comparison->current = now;
}

/* ---- if the one-device run itself diverges ----------------------------------------------------------------------- */

void comparison_step(struct comparison *comparison, bool scaled)
{
    /* A step of dynamic loss scaling that overflowed is over, so the next step is compared again. */
    if (comparison->passing) comparison->diverged = false;
    comparison->passing = scaled;
}

/* Whether there is nothing to compare with: the truth or its twin is not finite, so rounding decides about overflow.
 * The order of addition decides which elements of a sum overflow; from here on only loss and norm are compared. */
static bool diverges(struct comparison *comparison, const char *kind, const struct worst *found, double size)
{
    if (comparison->diverged) return true;
    if (isfinite(size) && (size == 0 || comparison->exact || isfinite(found->bound))) return false;
    comparison_enter(comparison, kind, found);
    comparison->diverged = true;
    comparison->divergence = comparison->current;
    return true;
}

/* ---- a comparison ------------------------------------------------------------------------------------------------ */

/* Collect the first failing tensor's errors on all devices that have it; report its worst device. */
static void note_failure(struct comparison *comparison, const struct worst *of, const char *kind,
                         const struct worst *found)
{
    comparison->wrong++;
    if (!comparison->failed) {
        snprintf(comparison->first_kind, sizeof comparison->first_kind, "%s", kind);
        comparison->first = *found;
        comparison->where = comparison->current;
        comparison->excess = of == &comparison->quantised;
        comparison->failed = true;
    } else if (same_tensor(&comparison->current, &comparison->where)
               && exceeds(found->ratio, comparison->first.ratio)) {
        comparison->first = *found;
    }
}

/* Count a tensor that cannot be judged; the first in order of execution is kept for the report. */
static void note_unjudged(struct comparison *comparison, const char *kind, const struct worst *found)
{
    if (comparison->unjudged++ > 0) return;
    comparison->open = *found;
    snprintf(comparison->open_kind, sizeof comparison->open_kind, "%s", kind);
}

/* Count a tensor that is right by a wide bound; the widest bound so far is kept for the report. */
static void note_warning(struct comparison *comparison, const char *kind, const struct worst *found)
{
    if (comparison->warned++ > 0 && !(found->bound > comparison->wide.bound)) return;
    comparison->wide = *found;
    snprintf(comparison->wide_kind, sizeof comparison->wide_kind, "%s", kind);
}

/* Judge one error and enter the verdict everywhere: the counters, the devices of this tensor, the worst of its kind.
 * `found` has error, bound, scale and truth; ratio is set here. */
static void comparison_note(struct comparison *comparison, struct worst *of, const char *kind, struct worst found)
{
    comparison_enter(comparison, kind, &found);
    comparison->compared++;
    if (isnan(found.error)) found.error = NAN;          /* remove its sign */
    /* Excess, choices and codes have errors in other units, so they do not compete for the largest relative error. */
    const bool relative = of != &comparison->quantised && of != &comparison->choice
        && !(of == &comparison->state && comparison->codes);
    if (relative && exceeds(found.error, comparison->largest.error)) {
        comparison->largest = found;
        snprintf(comparison->largest_kind, sizeof comparison->largest_kind, "%s", kind);
    }
    /* Where sums do not round, devices have no bound; the one-device run has that of a golden file. */
    const bool rounds = (comparison->loss_rounds && of == &comparison->loss) || found.of_file;
    if (comparison->exact && !rounds) found.bound = 0, found.absolute = true;
    /* An error of 0 is right even where its bound is 0: 0 / 0 would be NaN. */
    found.ratio = found.error == 0 ? 0 : found.error / found.bound;
    const enum judgement judgement = found.absolute ? (found.ratio <= 1 ? JUDGED_RIGHT : JUDGED_WRONG)
                                                    : judge_error(found.error, found.bound);
    comparison->current.on.rounding = found.bound;
    if (!found.of_file)
        evidence_add(&comparison->current.on, found.rank, judgement != JUDGED_RIGHT, found.scale, found.truth);
    if (judgement == JUDGED_WRONG) note_failure(comparison, of, kind, &found);
    if (judgement == CANNOT_BE_JUDGED) note_unjudged(comparison, kind, &found);
    if (judgement == JUDGED_RIGHT && !found.absolute && found.error > 0 && bound_is_wide(found.bound))
        note_warning(comparison, kind, &found);
    /* A later device of the failing tensor adds to the evidence of which devices have it wrong. */
    if (comparison->failed && same_tensor(&comparison->current, &comparison->where))
        comparison->where = comparison->current;
    if (of->tensor[0] == 0 || exceeds(found.ratio, of->ratio)) *of = found;
}

double held_error(const struct sums *sums, double size) { return sums_error(sums, size == 0 ? 1 : size); }

void comparison_tensor(struct comparison *comparison, struct worst *of, const char *kind, struct worst found,
                       const struct sums *sums, double size)
{
    found.error = held_error(sums, size), found.scale = sums_scale(sums), found.truth = sums->truth;
    found.absolute = size == 0, found.element = sums->first;
    if (!diverges(comparison, kind, &found, size)) comparison_note(comparison, of, kind, found);
}

void comparison_number(struct comparison *comparison, struct worst *of, const char *name, double actual, double truth,
                       double bound, struct worst found)
{
    const bool failed = comparison->failed;
    /* Beside 0, as a loss of rewards may be, an error has no relation: both are absolute. */
    const double size = truth == 0 ? 1 : fabs(truth);
    found.error = actual == truth ? 0 : fabs(actual - truth) / size, found.bound = bound / size;
    found.absolute = found.absolute || truth == 0;
    found.scale = scale_of(actual * actual, actual * truth, truth * truth), found.truth = truth * truth;
    snprintf(found.tensor, sizeof found.tensor, "%s", name);
    /* After a divergence one check is left: where the truth is not finite, the device's number must not be finite. */
    if (diverges(comparison, name, &found, fabs(truth)) && (isfinite(truth) || !isfinite(actual))) return;
    comparison_note(comparison, of, name, found);
    if (!failed && comparison->failed) comparison->number = comparison->where.on.number = true;
}

void comparison_excess(struct comparison *comparison, struct worst found, struct tensor excess)
{
    /* The excess is in units of the bound already, so the bound is 1; the largest element decides. */
    found.bound = 1, found.scale = (struct scale){ NAN, NAN }, found.absolute = true;
    for (int64_t i = 0; i < tensor_count(excess); i++)
        if (exceeds(tensor_get(excess, i), found.error)) found.error = tensor_get(excess, i);
    if (!comparison->diverged) comparison_note(comparison, &comparison->quantised, "quantised gradient", found);
}

void comparison_choice(struct comparison *comparison, struct worst found, int own, int theirs)
{
    const bool failed = comparison->failed;
    found.scale = (struct scale){ NAN, NAN }, found.absolute = true;
    if (comparison->diverged) return;
    comparison_note(comparison, &comparison->choice, "choice of experts", found);
    if (!failed && comparison->failed) comparison->expert[0] = own, comparison->expert[1] = theirs;
}

/* ---- for reports ------------------------------------------------------------------------------------------------- */

const struct worst *comparison_kind(const struct comparison *comparison, int i, const char **name)
{
    /* These are the rows of a report, in the order in which reports print the rows. */
    const struct { const char *name; const struct worst *worst; } kinds[] = {
        { "activations", &comparison->activation }, { "loss", &comparison->loss },
            { "their gradients", &comparison->activation_gradient },
        { "gradients", &comparison->gradient }, { "as quantised", &comparison->quantised },
            { "norm", &comparison->norm },
        { "weights", &comparison->weight }, { "states", &comparison->state },
    };
    if (i >= (int)(sizeof kinds / sizeof *kinds)) return NULL;
    *name = kinds[i].name;
    return kinds[i].worst;
}

double comparison_ratio(const struct comparison *comparison)
{
    const struct worst *w;
    const char *name;
    double most = 0;
    for (int i = 0; (w = comparison_kind(comparison, i, &name)) != NULL; i++)
        if (exceeds(w->ratio, most)) most = w->ratio;
    return most;
}

/* Describe a choice of experts that differs: dropped instead of kept, kept instead of dropped, or another expert. */
static void describe_choice(char *out, size_t size, int own, int theirs)
{
    if (theirs == choice_dropped(own))
        snprintf(out, size, "of expert %d is %s, whose weight is %s than that of a choice that is %s", choice_made(own),
                 theirs < 0 ? "dropped" : "kept", theirs < 0 ? "larger" : "smaller", theirs < 0 ? "kept" : "dropped");
    else snprintf(out, size, "is expert %d instead of %d, whose score is larger", theirs, own);
}

/* "activation h.0.attn.q, step 1, device 3 (cp=3)"; a number of the whole model is no device's, nor is a comparison of
 * the one-device run with a golden file. */
static const char *where_is(char *out, size_t size, const char *kind, const struct worst *worst,
                            const struct plan *plan)
{
    char device[64];
    const bool number = strcmp(kind, worst->tensor) == 0;
    const int used = snprintf(out, size, "%s%s%s, step %lld", number ? "" : kind, number ? "" : " ", worst->tensor,
                              (long long)worst->step);
    if (!number && !worst->of_file && used > 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, ", device %d (%s)", worst->rank,
                 mesh_describe(&plan->mesh, worst->rank, device, sizeof device));
    return out;
}

bool comparison_holds(const struct comparison *comparison) { return !comparison->failed && comparison->unjudged == 0; }

const char *comparison_unjudged(char *out, size_t size, const struct comparison *comparison, const struct plan *plan)
{
    char place[240];
    const struct worst *f = &comparison->open;
    snprintf(out, size, "%lld of %lld comparisons cannot be judged, first %s: it differs by %.3g, and rounding alone "
             "may change it by %.3g", (long long)comparison->unjudged, (long long)comparison->compared,
             where_is(place, sizeof place, comparison->open_kind, f, plan), f->error, f->bound);
    return out;
}

const char *comparison_warning(char *out, size_t size, const struct comparison *comparison, const struct plan *plan)
{
    char place[240];
    out[0] = '\0';
    if (comparison->warned > 0)
        snprintf(out, size, "%lld of %lld comparisons hold by a bound above %g, the widest %.2g: %s",
                 (long long)comparison->warned, (long long)comparison->compared, WIDE_BOUND, comparison->wide.bound,
                 where_is(place, sizeof place, comparison->wide_kind, &comparison->wide, plan));
    return out;
}

const char *comparison_describe(char *out, size_t size, const struct comparison *comparison, const struct plan *plan)
{
    const struct worst *f = &comparison->first;
    char place[96], scale[120], device[64], where[200] = "", choice[96];
    const struct pair_text two = pair_text('g', 3, f->error, f->bound);
    if (f->of_file) {
        snprintf(out, size, "step %lld: %s%s%s of the one-device run with exact sums differs from the golden file "
                 "by %s; its bound is %s", (long long)f->step, comparison->number ? "" : comparison->first_kind,
                 comparison->number ? "" : " ", f->tensor, two.first, two.second);
        return out;
    }
    diagnose_place(place, sizeof place, &plan->mesh, &comparison->where.on);
    diagnose_scale(scale, sizeof scale, &plan->mesh, plan->micros, &comparison->where.on);
    if (!comparison->number)
        snprintf(where, sizeof where, " on device %d (%s)", f->rank,
                 mesh_describe(&plan->mesh, f->rank, device, sizeof device));
    describe_choice(choice, sizeof choice, comparison->expert[0], comparison->expert[1]);
    /* The sentence depends on the kind of failure: quantisation, choice of experts, or numbers. */
    const char *differs = comparison->excess
        ? "differs from the sum of what was quantised, in units of what that allows,"
                          : comparison->expert[0] != comparison->expert[1] ? choice
                                                         : "differs from the one-device run";
    snprintf(out, size, "step %lld: %s%s%s%s %s by %s; its bound is %s%s%s%s%s", (long long)f->step,
             comparison->number ? "" : comparison->first_kind, comparison->number ? "" : " ", f->tensor, where, differs,
             two.first, two.second,
             comparison->number ? "" : "; wrong on ", comparison->number ? "" : place, scale[0] ? "; it is "
                 : "", scale);
    return out;
}

cJSON *worst_add(cJSON *to, const char *name, const struct worst *worst)
{
    cJSON *o = json_add(cJSON_AddObjectToObject(to, name), "tensor %s device %d step %g error %g bound %g",
                        worst->tensor, worst->of_file ? NO_DEVICE : worst->rank, (double)worst->step, worst->error,
                        worst->bound);
    return o;
}
