/* sequence_fit.c -- reads some elements of wrong gradients, and runs our model on each sequence that they may be of.
 * sequences.c calls fit_make_equations once for a step, then the functions that make what factors of the columns give.
 * If something cannot be read or run, there are no equations; that is no error. */
#include "emulated_devices/check/mistakes/sequence_fit.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *fit_column(const struct sequences_fit *fit, int c) { return fit->x + c * fit->rows; }

/* ---- equations --------------------------------------------------------------------------------------------------- */

const char *fit_param(const char *gradient)
{
    const char *const of_step = strstr(gradient, "/grad/");
    return of_step ? of_step + strlen("/grad/") : gradient + strlen("grad/");
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

static struct transformer *fit_open_model(const struct sequences_fit *fit, bool balanced)
{
    return own_model_open(&fit->program, fit->step.step, fit->step.step, balanced);
}

/* Run a batch, and take its gradients. */
static bool fit_run(const struct sequences_fit *fit, struct transformer *model, const struct own_batch *batch,
                    double times, double *to)
{
    return own_model_run(&fit->program, model, batch, fit->step.step) && fit_take(fit, model, times, to);
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
    static const int order[] = { BATCH_OWN, BATCH_BEFORE, BATCH_NEXT, BATCH_AGAIN };
    const struct golden *g = fit->program.golden;
    struct transformer *const model = fit_open_model(fit, false);
    bool done = model != NULL;
    for (int k = 0; k < BATCH_FAR && done; k++) {
        const int step = whose_step_of(&fit->step, order[k]);
        for (int s = 0; s < fit->B && done && step >= 0; s++) {
            const int64_t at = (step * g->B + s) * g->S;
            const double labels = fit_count_labels(g->labels + at, g->S);
            const struct own_batch one = { g->ids + at, g->labels + at, golden_positions(g, step, s * g->S), 1, s };
            if (labels == 0) continue;
            fit->of[fit->columns] = (struct sequence){ order[k], s }, fit->labels[fit->columns] = labels;
            done = fit_run(fit, model, &one, labels, fit_column(fit, fit->columns++));
        }
    }
    if (model) own_model_close(model);
    return done;
}

/* Run a whole batch, with balance losses.  there: what stands in each place; NULL: what belongs there. */
bool fit_run_batch(const struct sequences_fit *fit, const struct sequence there[], double *to)
{
    const struct golden *g = fit->program.golden;
    const int64_t n = g->B * g->S;
    struct transformer *model = NULL;
    int32_t *const tokens = malloc(2 * (size_t)n * sizeof *tokens + 1);
    if (tokens == NULL || (there && g->positions) || (model = fit_open_model(fit, true)) == NULL)
        return free(tokens), false;
    for (int64_t i = 0; i < n; i++) {
        const struct sequence own = { BATCH_OWN, (int)(i / g->S) }, *is = there ? &there[i / g->S] : &own;
        const int64_t at = (whose_step_of(&fit->step, is->batch) * g->B + is->number) * g->S + i % g->S;
        tokens[i] = g->ids[at], tokens[n + i] = g->labels[at];
    }
    const struct own_batch batch = { tokens, tokens + n, golden_positions(g, fit->step.step, 0), g->B, 0 };
    const bool done = fit_run(fit, model, &batch, 1, to);
    for (int t = 0; t < fit->tensors; t++)
        for (int64_t i = 0; i < fit->tensor[t].rows; i++) to[fit->tensor[t].first + i] *= fit->tensor[t].times;
    own_model_close(model);
    free(tokens);
    return done;
}

/* The sequences' sum lacks what balance losses add to the right gradient. */
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
void fit_make(const struct sequences_fit *fit, const double a[], double *made)
{
    memcpy(made, fit_column(fit, fit->columns), (size_t)fit->rows * sizeof *made);
    for (int c = 0; c < fit->columns; c++)
        for (int64_t i = 0; i < fit->rows && a[c] != 0; i++) made[i] += a[c] * fit_column(fit, c)[i];
}

struct fit_left fit_left_by(const struct sequences_fit *fit, const double *made)
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
bool fit_solve(const struct sequences_fit *fit, const int group[], int groups, double a[])
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

/* ---- all of it --------------------------------------------------------------------------------------------------- */

bool fit_make_equations(struct sequences_fit *fit, const struct wrong_gradient all[], int count)
{
    const int64_t S = fit->program.golden->S, N = fit->B * S;
    const int steps = count > MOST_TENSORS ? MOST_TENSORS : count;
    for (int i = 0; i < steps; i++) fit_add_tensor(fit, &all[(int64_t)i * count / steps]);
    if (fit->tensors == 0 || strcmp(fit->tensor[0].name, all[0].name) != 0) return false;
    fit->x = calloc((size_t)fit->rows * (size_t)(BATCHES * fit->B + 1), sizeof *fit->x);
    fit->all_labels = fit_count_labels(fit->program.golden->labels + fit->step.step * N, N);
    if (fit->x == NULL || fit->all_labels == 0 || !fit_run_sequences(fit) || !fit_run_balance(fit)) return false;
    fit_weigh(fit);
    return true;
}

void fit_free(struct sequences_fit *fit)
{
    free(fit->x), free(fit->y);
    fit->x = fit->y = NULL;
}
