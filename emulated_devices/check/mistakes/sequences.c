/* sequences.c -- fits wrong gradients of a step as a sum over sequences, and tries what the factors may mean.
 *
 * An equation is an element of a wrong gradient, divided by what rounding may do to its tensor: so a residual of 1 is
 * the bound.  A column is a sequence: its gradient, not divided by labels.  What a mixture's balance losses add is no
 * sum over sequences; it is the last column, computed for the whole batch, with a factor of 1.
 * emulated_devices/cli/check.c calls sequences_describe.  What cannot be read or run gives no words and no error. */
#include "emulated_devices/check/mistakes/sequences.h"
#include "emulated_devices/check/mistakes/own_model.h"
#include "emulated_devices/check/mistakes/whose.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TENSORS = 32,                  /* of the wrong gradients: evenly from the first to the last */
    MOST_ELEMENTS = 1024,               /* of a tensor: evenly, too */
    COLUMNS = BATCHES * CUT_SEQUENCES + 1,
    FEW_SEQUENCES = 8,                  /* factors of so many are said one by one */
    MOST_TIMES = 4                      /* a sequence counts at most so often */
};

/* Some elements of a wrong gradient. */
struct fit_tensor {
    const char *name, *param;
    double bound;
    int64_t elements, first, rows, each;        /* rows of the equations from `first` on: every `each`-th element */
    double times;                               /* by which its equations are multiplied */
};

struct sequences_fit {
    struct own_program program;
    const struct batch_cuts *cuts;
    int step, B, columns;                       /* columns: without that of balance losses */
    bool balanced;
    struct fit_tensor tensor[MOST_TENSORS];
    int tensors;
    int64_t rows;
    double *y, *x;                              /* [rows]; [rows] of each column, then of balance losses */
    struct sequence of[COLUMNS];
    double labels[COLUMNS];                     /* of each column's sequence that count */
    double all_labels;                          /* of the batch */
};

/* What a hypothesis leaves of the observed numbers: of the first tensor, and of all, in bounds. */
struct fit_left { double first, all; };

/* The nearest hypothesis so far, and the next. */
struct fit_best { struct fit_left left; double next; char words[240], next_words[240]; };

static double *fit_column(const struct sequences_fit *fit, int c) { return fit->x + c * fit->rows; }

/* ---- equations --------------------------------------------------------------------------------------------------- */

static const char *fit_param(const char *name)
{
    const char *const of_step = strstr(name, "/grad/");
    return of_step ? of_step + strlen("/grad/") : name + strlen("grad/");
}

/* Read some elements of what ACTUAL has of a tensor, as new equations.  A tensor that cannot be read has none. */
static void fit_add_tensor(struct sequences_fit *fit, const struct wrong_gradient *wrong)
{
    const struct safetensors_entry *entry = safetensors_find(&fit->program.golden->file, wrong->name);
    struct error ignored;
    bool there = false;
    if (entry == NULL || entry->ndim < 1 || !(wrong->bound > 0) || !isfinite(wrong->bound)) return;
    const int64_t dim[2] = { entry->dim[0], entry->ndim > 1 ? entry->dim[1] : 1 }, n = dim[0] * dim[1];
    /* An odd step meets all columns of a matrix. */
    const int64_t each = n > MOST_ELEMENTS ? n / MOST_ELEMENTS | 1 : 1, rows = (n + each - 1) / each;
    double *have = malloc((size_t)n * sizeof *have + 1),
           *more = realloc(fit->y, (size_t)(fit->rows + rows) * sizeof *more);
    if (more) fit->y = more;
    if (have && more && own_tensor_read(fit->program.actual, wrong->name, dim, have, &there, &ignored) == OK && there) {
        fit->tensor[fit->tensors++] = (struct fit_tensor){ wrong->name, fit_param(wrong->name), wrong->bound, n,
                                                           fit->rows, rows, each, 1 };
        for (int64_t i = 0; i < rows; i++) fit->y[fit->rows + i] = have[i * each];
        fit->rows += rows;
    }
    free(have);
}

/* Take the equations' elements of the model's gradients, times a factor. */
static bool fit_take(const struct sequences_fit *fit, const struct transformer *model, double times, double *to)
{
    for (int t = 0; t < fit->tensors; t++) {
        const struct fit_tensor *k = &fit->tensor[t];
        const struct tensor *g = own_model_gradient(model, k->param);
        if (g == NULL || tensor_count(*g) != k->elements) return false;
        for (int64_t i = 0; i < k->rows; i++) to[k->first + i] = times * tensor_get(*g, i * k->each);
    }
    return true;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Our model, from the program's weights before the step. */
static bool fit_open_model(const struct sequences_fit *fit, struct transformer *model, bool balanced)
{
    struct model_config config = fit->program.golden->config;
    struct error ignored;
    if (!balanced)
        config.mixture.balance_coefficient = config.mixture.z_coefficient = config.mixture.sequence_coefficient = 0;
    if (transformer_open(model, &config, F64, fit->program.golden->seed, &ignored) != OK) return false;
    if (own_model_biases(&fit->program, model, fit->step, &ignored) == OK &&
        own_model_weights(&fit->program, model, fit->step, &ignored) == OK)
        return true;
    transformer_close(model);
    return false;
}

/* Run a batch, and take its gradients. */
static bool fit_run(const struct sequences_fit *fit, struct transformer *model, const struct own_batch *batch,
                    double times, double *to)
{
    struct error ignored;
    transformer_zero_gradients(model);
    if (own_model_forward(&fit->program, model, batch, fit->step, &ignored) != OK) return false;
    transformer_backward(model);
    return fit_take(fit, model, times, to);
}

static double fit_count_labels(const int32_t *labels, int64_t n)
{
    double counted = 0;
    for (int64_t i = 0; i < n; i++) counted += labels[i] >= 0;
    return counted;
}

/* One pass for each sequence that has labels.  The step's own come first: where others are the same, they are left
 * out. */
static bool fit_run_sequences(struct sequences_fit *fit)
{
    static const int order[BATCHES] = { BATCH_OWN, BATCH_BEFORE, BATCH_NEXT };
    const struct golden *g = fit->program.golden;
    struct transformer model;
    bool done = fit_open_model(fit, &model, false);
    const bool opened = done;
    for (int k = 0; k < BATCHES && done; k++) {
        const int step = fit->step + order[k] - BATCH_OWN;
        for (int s = 0; s < fit->B && done && step >= 0 && step < g->steps; s++) {
            const int64_t at = (step * g->B + s) * g->S;
            const double labels = fit_count_labels(g->labels + at, g->S);
            const struct own_batch one = { g->ids + at, g->labels + at, golden_positions(g, step, s * g->S), 1 };
            if (labels == 0) continue;
            fit->of[fit->columns] = (struct sequence){ order[k], s }, fit->labels[fit->columns] = labels;
            model.first = s;
            done = fit_run(fit, &model, &one, labels, fit_column(fit, fit->columns++));
        }
    }
    if (opened) transformer_close(&model);
    return done;
}

/* Run a whole batch, with balance losses.  there: what stands in each place; NULL: what belongs there. */
static bool fit_run_batch(const struct sequences_fit *fit, const struct sequence there[], double *to)
{
    const struct golden *g = fit->program.golden;
    const int64_t n = g->B * g->S;
    struct transformer model;
    int32_t *const tokens = malloc(2 * (size_t)n * sizeof *tokens + 1);
    if (tokens == NULL || (there && g->positions) || !fit_open_model(fit, &model, true)) return free(tokens), false;
    for (int64_t i = 0; i < n; i++) {
        const struct sequence own = { BATCH_OWN, (int)(i / g->S) }, *is = there ? &there[i / g->S] : &own;
        const int64_t at = ((fit->step + is->batch - BATCH_OWN) * g->B + is->number) * g->S + i % g->S;
        tokens[i] = g->ids[at], tokens[n + i] = g->labels[at];
    }
    const struct own_batch batch = { tokens, tokens + n, golden_positions(g, fit->step, 0), g->B };
    const bool done = fit_run(fit, &model, &batch, 1, to);
    transformer_close(&model);
    free(tokens);
    return done;
}

/* What balance losses add to the right gradient is what the sequences' sum lacks. */
static bool fit_run_balance(struct sequences_fit *fit)
{
    double *const rest = fit_column(fit, fit->columns);
    memset(rest, 0, (size_t)fit->rows * sizeof *rest);
    if (!fit->balanced) return true;
    if (!fit_run_batch(fit, NULL, rest)) return false;
    for (int c = 0; c < fit->columns && fit->of[c].batch == BATCH_OWN; c++)
        for (int64_t i = 0; i < fit->rows; i++) rest[i] -= fit_column(fit, c)[i] / fit->all_labels;
    return true;
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */

/* Make what factors of the columns give. */
static void fit_make(const struct sequences_fit *fit, const double a[], double *made)
{
    memcpy(made, fit_column(fit, fit->columns), (size_t)fit->rows * sizeof *made);
    for (int c = 0; c < fit->columns; c++)
        for (int64_t i = 0; i < fit->rows && a[c] != 0; i++) made[i] += a[c] * fit_column(fit, c)[i];
}

static struct fit_left fit_left_by(const struct sequences_fit *fit, const double *made)
{
    struct fit_left left = { 0, 0 };
    for (int t = 0; t < fit->tensors; t++) {
        double sum = 0;
        for (int64_t i = fit->tensor[t].first; i < fit->tensor[t].first + fit->tensor[t].rows; i++)
            sum += (fit->y[i] - made[i]) * (fit->y[i] - made[i]);
        if (t == 0) left.first = sqrt(sum);
        left.all += sum;
    }
    left.all = sqrt(left.all / fit->tensors);
    return left;
}

/* Divide each tensor's equations by what rounding may do to it: its bound times the norm of what it should be, or of
 * what it is. */
static void fit_weigh(struct sequences_fit *fit)
{
    double a[COLUMNS] = { 0 }, *const right = malloc((size_t)fit->rows * sizeof *right + 1);
    for (int c = 0; c < fit->columns; c++) a[c] = fit->of[c].batch == BATCH_OWN ? 1 / fit->all_labels : 0;
    if (right) fit_make(fit, a, right);
    for (int t = 0; t < fit->tensors && right; t++) {
        struct fit_tensor *const k = &fit->tensor[t];
        double size = 0, have = 0;
        for (int64_t i = k->first; i < k->first + k->rows; i++)
            size += right[i] * right[i], have += fit->y[i] * fit->y[i];
        const double times = k->times = 1 / (k->bound * sqrt(fmax(size, have)) + 1e-300);
        for (int64_t i = k->first; i < k->first + k->rows; i++) {
            fit->y[i] *= times;
            for (int c = 0; c <= fit->columns; c++) fit_column(fit, c)[i] *= times;
        }
    }
    free(right);
}

/* Solve for the factors of groups of columns by least squares: group[c] is -1 for a column that is left out.  A group
 * that depends on those before it has 0.  @return whether there was memory. */
static bool fit_solve(const struct sequences_fit *fit, const int group[], int groups, double a[])
{
    const int64_t n = fit->rows;
    double *const x = calloc((size_t)(groups + 1) * (size_t)n + 1, sizeof *x),
           *const size = calloc((size_t)groups + 1, sizeof *size), *const rest = x + groups * n;
    if (x == NULL || size == NULL) return free(x), free(size), false;
    double *const R = calloc((size_t)groups * (size_t)groups + 1, sizeof *R);
    for (int c = 0; c < fit->columns; c++)
        for (int64_t i = 0; i < n && group[c] >= 0; i++) x[group[c] * n + i] += fit_column(fit, c)[i];
    for (int64_t i = 0; i < n; i++) rest[i] = fit->y[i] - fit_column(fit, fit->columns)[i];
    /* Modified Gram-Schmidt: columns become orthogonal one after another, and the last is what is left of y. */
    for (int k = 0; k < groups && R; k++) {
        double before = 0, *const q = x + k * n;
        for (int64_t i = 0; i < n; i++) before += q[i] * q[i];
        for (int j = 0; j < k; j++) {
            double along = 0;
            for (int64_t i = 0; i < n && size[j] > 0; i++) along += x[j * n + i] * q[i];
            R[j * groups + k] = size[j] > 0 ? along / size[j] : 0;
            for (int64_t i = 0; i < n && size[j] > 0; i++) q[i] -= R[j * groups + k] * x[j * n + i];
        }
        for (int64_t i = 0; i < n; i++) size[k] += q[i] * q[i];
        if (size[k] < 1e-10 * before) size[k] = 0;
    }
    for (int k = 0; k < groups && R; k++) {
        a[k] = 0;
        for (int64_t i = 0; i < n && size[k] > 0; i++) a[k] += x[k * n + i] * rest[i] / size[k];
    }
    for (int k = groups - 1; k >= 0 && R; k--)
        for (int j = k + 1; j < groups; j++) a[k] -= size[k] > 0 ? R[k * groups + j] * a[j] : 0;
    const bool solved = R != NULL;
    free(x), free(size), free(R);
    return solved;
}

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
    whose_say_counts(words, sizeof words, fit->cuts, in_words, fit->step + 1);
    if (words[0] == 0) return;
    /* The divisor counts the labels that are there, or those that should be. */
    for (int k = 0; k < 2; k++) {
        for (int c = 0; c < fit->columns; c++) exact[c] = times[c] / (k ? fit->all_labels : labels);
        fit_offer_factors(fit, best, exact, words);
    }
    double *const made = malloc((size_t)fit->rows * sizeof *made + 1);
    if (made && fit->balanced && fit_lay(fit, times, there) && fit_run_batch(fit, there, made)) {
        for (int t = 0; t < fit->tensors; t++)
            for (int64_t i = fit->tensor[t].first; i < fit->tensor[t].first + fit->tensor[t].rows; i++)
                made[i] *= fit->tensor[t].times;
        fit_offer(best, fit_left_by(fit, made), words);
    }
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

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static bool fit_equations(struct sequences_fit *fit, const struct wrong_gradient all[], int count)
{
    const int64_t S = fit->program.golden->S, N = fit->B * S;
    const int steps = count > MOST_TENSORS ? MOST_TENSORS : count;
    for (int i = 0; i < steps; i++) fit_add_tensor(fit, &all[(int64_t)i * count / steps]);
    if (fit->tensors == 0 || strcmp(fit->tensor[0].name, all[0].name) != 0) return false;
    fit->x = calloc((size_t)fit->rows * (size_t)(BATCHES * fit->B + 1), sizeof *fit->x);
    fit->all_labels = fit_count_labels(fit->program.golden->labels + fit->step * N, N);
    return fit->x && fit->all_labels > 0;
}

const char *sequences_describe(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                               const struct batch_cuts *cuts, const struct wrong_gradient all[], int count)
{
    const struct mixture_config *m = &golden->config.mixture;
    const char *const of_step = count > 0 ? strstr(all[0].name, "/grad/") : NULL;
    struct fit_best best = { .left = { INFINITY, INFINITY }, .next = INFINITY };
    struct sequences_fit *const fit = calloc(1, sizeof *fit);
    out[0] = 0;
    if (fit == NULL || cuts->B < 1 || count < 1 || !own_model_has(golden, fit_param(all[0].name))) return free(fit), out;
    *fit = (struct sequences_fit){
        .program = { .golden = golden, .actual = actual }, .cuts = cuts, .B = cuts->B,
        .step = of_step ? atoi(strchr(all[0].name, '/') + 1) - 1 : 0,
        .balanced = golden->config.mlp == MLP_MIXTURE
                    && (m->balance_coefficient != 0 || m->z_coefficient != 0 || m->sequence_coefficient != 0),
    };
    snprintf(fit->program.optimizer, sizeof fit->program.optimizer, "%.*s", (int)strcspn(all[0].name, "/"), all[0].name);
    if (fit->step >= 0 && fit->step < golden->steps && fit_equations(fit, all, count) && fit_run_sequences(fit)
        && fit_run_balance(fit)) {
        fit_weigh(fit);
        fit_try_all(fit, &best);
    }
    const bool two = best.words[0] && best.next_words[0] && best.next <= AS_NEAR * best.left.all;
    snprintf(out, size, "%s%s%s", best.words, two ? ", or " : "", two ? best.next_words : "");
    free(fit->x), free(fit->y), free(fit);
    return out;
}
