/* sequences.c -- tries what the factors of sequences in wrong gradients may mean.
 * emulated_devices/cli/check_judged.c calls sequences_describe for the first step with a wrong gradient.  A hypothesis
 * is said if it leaves no more than the bounds, and nothing else as little. */
#include "emulated_devices/check/mistakes/sequence_fit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_SEQUENCES = 8,                  /* factors of so many are said one by one */
    MOST_TIMES = 4                      /* a sequence counts at most so often */
};

/* The nearest hypothesis so far, and the next. */
struct fit_best { struct fit_left left; double next; char words[240], next_words[240]; };

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

/* A hypothesis is within the bounds if all tensors together are, and the first nearly is.  Two that are about as near
 * are both named. */
static const double NEARLY = 1.5, AS_NEAR = 1.25;

static void fit_offer(struct fit_best *best, struct fit_left left, const char *words)
{
    if (!(left.all <= 1 && left.first <= NEARLY)) return;
    if (left.all < best->left.all) {
        if (strcmp(words, best->words) != 0)
            best->next = best->left.all, memcpy(best->next_words, best->words, sizeof best->next_words);
        best->left = left, snprintf(best->words, sizeof best->words, "%s", words);
    } else if (left.all < best->next && strcmp(words, best->words) != 0) {
        best->next = left.all, snprintf(best->next_words, sizeof best->next_words, "%s", words);
    }
}

static void fit_offer_factors(const struct sequences_fit *fit, struct fit_best *best, const double a[],
                              const char *words)
{
    double *const made = malloc((size_t)fit->rows * sizeof *made + 1);
    if (made) fit_make(fit, a, made), fit_offer(best, fit_left_by(fit, made), words);
    free(made);
}

/* Round factors to how often each sequence counts: a factor of 1 is 1 / all labels that count, which follow from what
 * is found.  @return whether they are whole numbers of that. */
static bool fit_round(const struct sequences_fit *fit, const double a[], int times[], double *labels)
{
    *labels = fit->all_labels;
    for (int turn = 0; turn < 8; turn++) {
        const double before = *labels;
        *labels = 0;
        for (int c = 0; c < fit->columns; c++) {
            const double k = round(a[c] * before);
            if (!(k >= 0 && k <= MOST_TIMES)) return false;
            times[c] = (int)k, *labels += k * fit->labels[c];
        }
        if (*labels == before) return true;
    }
    return *labels > 0;
}

/* Lay the sequences that count into the places of the batch: own ones where they belong, the rest where others lack.
 * @return false if they are not as many as places. */
static bool fit_lay(const struct sequences_fit *fit, const int times[], struct sequence there[])
{
    int left[COLUMNS], place = 0;
    bool taken[CUT_SEQUENCES] = { false };
    for (int c = 0; c < fit->columns; c++) {
        left[c] = times[c];
        const struct sequence is = fit->of[c];
        if (is.batch == BATCH_OWN && left[c] > 0) there[is.number] = is, taken[is.number] = true, left[c]--;
    }
    for (int c = 0; c < fit->columns; c++)
        for (; left[c] > 0; left[c]--) {
            while (place < fit->B && taken[place]) place++;
            if (place == fit->B) return false;
            there[place] = fit->of[c], taken[place] = true;
        }
    for (int s = 0; s < fit->B; s++)
        if (!taken[s]) return false;
    return true;
}

/* Sequences that count a whole number of times.  Balance losses are then of the batch that they make. */
static void fit_try_times(const struct sequences_fit *fit, struct fit_best *best, const double a[])
{
    int times[COLUMNS], in_words[BATCHES][CUT_SEQUENCES] = { { 0 } };
    double labels, exact[COLUMNS];
    char words[240];
    struct sequence there[CUT_SEQUENCES];
    if (!fit_round(fit, a, times, &labels)) return;
    for (int s = 0; s < fit->B; s++) in_words[BATCH_OWN][s] = 1;
    for (int c = 0; c < fit->columns; c++) in_words[fit->of[c].batch][fit->of[c].number] = times[c];
    whose_say_counts(words, sizeof words, fit->cuts, in_words, &fit->step);
    if (words[0] == 0) return;
    /* The divisor counts the labels that are there, or those that should be. */
    for (int k = 0; k < 2; k++) {
        for (int c = 0; c < fit->columns; c++) exact[c] = times[c] / (k ? fit->all_labels : labels);
        fit_offer_factors(fit, best, exact, words);
    }
    double *const made = malloc((size_t)fit->rows * sizeof *made + 1);
    if (made && fit->balanced && fit_lay(fit, times, there) && fit_run_batch(fit, there, made))
        fit_offer(best, fit_left_by(fit, made), words);
    free(made);
}

/* Labels of each part of a cut, in the batch. */
static void fit_part_labels(const struct sequences_fit *fit, const struct batch_cut *cut, double labels[])
{
    for (int k = 0; k < cut->parts; k++) labels[k] = 0;
    for (int c = 0; c < fit->columns && fit->of[c].batch == BATCH_OWN; c++)
        labels[cut->part[fit->of[c].number]] += fit->labels[c];
}

/* Each part divides by its own labels; the parts' means are averaged, or added up. */
static void fit_try_means(const struct sequences_fit *fit, struct fit_best *best, const struct batch_cut *cut)
{
    double labels[CUT_SEQUENCES], a[COLUMNS] = { 0 };
    char words[240];
    fit_part_labels(fit, cut, labels);
    for (int k = 0; k < cut->parts; k++)
        if (labels[k] == 0) return;
    for (int added = 0; added < 2; added++) {
        for (int c = 0; c < fit->columns && fit->of[c].batch == BATCH_OWN; c++)
            a[c] = 1 / (labels[cut->part[fit->of[c].number]] * (added ? 1 : cut->parts));
        fit_offer_factors(fit, best, a, whose_say_means(words, sizeof words, cut, labels, added));
    }
}

/* Each part of a cut has a factor, which is measured. */
static void fit_try_parts(const struct sequences_fit *fit, struct fit_best *best, const struct batch_cut *cut)
{
    int group[COLUMNS];
    double of[CUT_SEQUENCES], a[COLUMNS] = { 0 };
    char words[240];
    for (int c = 0; c < fit->columns; c++)
        group[c] = fit->of[c].batch == BATCH_OWN ? cut->part[fit->of[c].number] : -1;
    if (cut->parts > FEW_SEQUENCES || !fit_solve(fit, group, cut->parts, of)) return;
    for (int c = 0; c < fit->columns; c++) a[c] = group[c] < 0 ? 0 : of[group[c]];
    size_t used = (size_t)snprintf(words, sizeof words, "each %s counts", cut->of);
    for (int k = 0; k < cut->parts && used < sizeof words; k++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s %.3g", k ? "," : "", of[k] * fit->all_labels);
    if (used < sizeof words) snprintf(words + used, sizeof words - used, " times");
    fit_offer_factors(fit, best, a, words);
}

/* One factor of all sequences is said elsewhere (diagnose_scale): it has no words here. */
static void fit_try_one_factor(const struct sequences_fit *fit, struct fit_best *best)
{
    int group[COLUMNS];
    double one[1], a[COLUMNS];
    for (int c = 0; c < fit->columns; c++) group[c] = fit->of[c].batch == BATCH_OWN ? 0 : -1;
    if (!fit_solve(fit, group, 1, one)) return;
    for (int c = 0; c < fit->columns; c++) a[c] = group[c] < 0 ? 0 : one[0];
    fit_offer_factors(fit, best, a, "");
}

/* Try all hypotheses, those without measured numbers first. */
static void fit_try_all(const struct sequences_fit *fit, struct fit_best *best)
{
    int group[COLUMNS], own[COLUMNS];
    double a[COLUMNS];
    for (int c = 0; c < fit->columns; c++) group[c] = c, own[c] = fit->of[c].batch == BATCH_OWN ? c : -1;
    fit_try_one_factor(fit, best);
    if (isfinite(best->left.all)) return;
    if (fit->rows >= 2 * fit->columns && fit_solve(fit, group, fit->columns, a)) fit_try_times(fit, best, a);
    if (fit_solve(fit, own, fit->columns, a)) fit_try_times(fit, best, a);
    for (int i = 0; i < fit->cuts->count; i++) fit_try_means(fit, best, &fit->cuts->all[i]);
    for (int i = 0; i < fit->cuts->count && !isfinite(best->left.all); i++)
        if (fit->cuts->all[i].known) fit_try_parts(fit, best, &fit->cuts->all[i]);
}

/* The whole batch is that of a step further away, with its own balance losses. */
static void fit_try_far(struct sequences_fit *fit, struct fit_best *best)
{
    struct sequence there[CUT_SEQUENCES];
    char words[240];
    double *const made = malloc((size_t)fit->rows * sizeof *made + 1);
    while (made && !isfinite(best->left.all) && whose_next_far(&fit->step)) {
        for (int s = 0; s < fit->B; s++) there[s] = (struct sequence){ BATCH_FAR, s };
        whose_say_places(words, sizeof words, fit->cuts, there, "sequences", &fit->step);
        if (fit_run_batch(fit, there, made)) fit_offer(best, fit_left_by(fit, made), words);
    }
    free(made);
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

const char *sequences_describe(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                               const struct batch_cuts *cuts, const struct wrong_gradient all[], int count)
{
    const char *const first = count > 0 ? all[0].name : "", *const of_step = strstr(first, "/grad/");
    struct fit_best best = { .left = { INFINITY, INFINITY }, .next = INFINITY };
    struct sequences_fit *const fit = calloc(1, sizeof *fit);
    out[0] = 0;
    if (fit == NULL || cuts->B < 1 || count < 1 || !own_model_has(golden, fit_param(first))) return free(fit), out;
    *fit = (struct sequences_fit){
        .program = { .golden = golden, .actual = actual }, .cuts = cuts, .B = cuts->B,
        .step = { of_step ? atoi(strchr(first, '/') + 1) - 1 : 0, (int)golden->steps, (int)actual->begins, 0 },
        .balanced = own_model_is_balanced(golden),
    };
    snprintf(fit->program.optimizer, sizeof fit->program.optimizer, "%.*s", (int)strcspn(first, "/"), first);
    const int step = fit->step.step;
    if (step >= 0 && step < golden->steps && fit_make_equations(fit, all, count))
        fit_try_all(fit, &best), fit_try_far(fit, &best);
    const bool two = best.words[0] && best.next_words[0] && best.next <= AS_NEAR * best.left.all;
    snprintf(out, size, "%s%s%s", best.words, two ? ", or " : "", two ? best.next_words : "");
    fit_free(fit), free(fit);
    return out;
}
