/* stale.c -- compares a wrong gradient with what another step, other weights or another copy's inputs would give.
 * emulated_devices/cli/check_judged.c calls stale_describe for the first wrong gradient.  A tensor that cannot be
 * read, or a model that cannot be run, gives no words and no error.  Sequences that are left out, or count twice, are
 * found by sequences.c: here is what is no sum over sequences with the program's own weights. */
#include "emulated_devices/check/mistakes/stale.h"
#include "emulated_devices/check/mistakes/own_model.h"
#include "emulated_devices/check/recompute/own_pass.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Write the name that the gradient has in the step before, as "grad/wte.weight" for step 1.  @return the step
 * before; 0 if there is none. */
static int stale_before(const char *name, char *out, size_t size)
{
    const char *slash = strchr(name, '/'), *grad = strstr(name, "/grad/");
    const int step = slash && grad && grad != slash ? atoi(slash + 1) : 0;
    out[0] = 0;
    if (step < 2) return 0;
    /* The first step's tensors have no prefix. */
    if (step == 2) snprintf(out, size, "%s", grad + 1);
    else snprintf(out, size, "%.*s/%d%s", (int)(slash - name), name, step - 1, grad);
    return step - 1;
}

/* Whether ACTUAL has all of the tensor; then x has its numbers. */
static bool is_there(const struct actual *actual, const char *name, const int64_t dim[2], double *x)
{
    struct error ignored;
    bool there;
    return own_tensor_read(actual, name, dim, x, &there, &ignored) == OK && there;
}

/* Compare with the old gradient: equal numbers are stale, a sum of both was not cleared.  @return NULL: neither. */
static const char *words(const double *have, const double *old, const double *right, int64_t n, double bound)
{
    double off = 0, size = 0;
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        const double d = have[i] - old[i] - right[i];
        same = same && have[i] == old[i];
        off += d * d, size += right[i] * right[i];
    }
    if (same) return "stale: it is that of step %d";
    return sqrt(off) <= bound * sqrt(size) ? "that of step %d has been added to it: it is not cleared" : NULL;
}

/* ---- another pass ------------------------------------------------------------------------------------------------ */

/* A pass may have the weights of the step before in place of its own.  In another hypothesis each copy of the model has
 * the tokens of the copy `turn` further.  If labels turn, too, the masks of dropout change places: then `turn` is the
 * other way.  The number in the words is that of the step before, or of the step where copies take turns. */
struct other { const char *words; bool weights; int turn; enum stale_turns { INPUTS, BOTH, LABELS } turns; };

static const struct other others[] = {
    { "stale weights: it is what the weights that step %d began with give", .weights = true },
    { "copies take turns: in step %d each of them has the inputs of the next", .turn = 1 },
    { "copies take turns: in step %d each of them has the inputs of the one before", .turn = -1 },
    { "copies take turns: in step %d each of them has the labels of the next", .turn = 1, .turns = LABELS },
    { "copies take turns: in step %d each of them has the labels of the one before", .turn = -1, .turns = LABELS },
    { "copies take turns: in step %d each of them has the masks of the next", .turn = -1, .turns = BOTH },
    { "copies take turns: in step %d each of them has the masks of the one before", .turn = 1, .turns = BOTH },
};

/* A program whose gradient is explained: its own weights are those that passes begin with. */
struct stale { struct own_program program; const struct batch_cuts *cuts; };
struct stale_tensor { const char *param; int step; int64_t count; double bound; };     /* step: from 0 */

/* Fill the tokens of a step as the hypothesis has them: [3 n] ids, labels, then positions of packed documents. */
static void stale_fill(const struct golden *golden, const struct other *other, const struct batch_cuts *cuts,
                       const struct batch_cut *cut, int step, int32_t *to)
{
    const int64_t n = golden->B * golden->S, at = step * n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t turned = cut
            ? cut_turned(cuts, cut, other->turn, (int)(i / golden->S)) * golden->S + i % golden->S : i;
        to[i] = golden->ids[at + (other->turns != LABELS ? turned : i)];
        to[n + i] = golden->labels[at + (other->turns != INPUTS ? turned : i)];
        if (golden->positions) to[2 * n + i] = golden->positions[at + (other->turns != LABELS ? turned : i)];
    }
}

/* Run the model for one hypothesis, in place of what is right, and copy the gradient of one parameter.  cut: of copies
 * that take turns, or NULL.  @return whether that was possible. */
static bool stale_gradient(const struct stale *stale, const struct other *other, const struct batch_cut *cut,
                           const char *param, int step, double *out)
{
    const struct golden *g = stale->program.golden;
    const int64_t n = g->B * g->S;
    const struct tensor *found = NULL;
    struct transformer *const model = own_model_open(&stale->program, step, other->weights ? step - 1 : step, true);
    int32_t *tokens = malloc(3 * (size_t)n * sizeof *tokens + 1);
    if (model && tokens) {
        stale_fill(g, other, stale->cuts, cut, step, tokens);
        const struct own_batch batch = { tokens, tokens + n, g->positions ? tokens + 2 * n : NULL, g->B, 0 };
        if (own_model_run(&stale->program, model, &batch, step)) found = own_model_gradient(model, param);
    }
    if (found) memcpy(out, found->data, tensor_bytes(*found));
    if (model) own_model_close(model);
    free(tokens);
    return found != NULL;
}

/* Whether the hypothesis cannot apply: no step before, copies that would be the same either way, or no dropout whose
 * masks could turn. */
static bool stale_cannot(const struct golden *golden, const struct other *other, const struct batch_cut *cut, int step)
{
    const struct model_config *c = &golden->config;
    const bool drops = c->dropout_embedding > 0 || c->dropout_residual > 0 || c->dropout_attention > 0;
    /* With two copies both directions are the same. */
    const bool back = other->turns == BOTH ? other->turn > 0 : other->turn < 0;
    if (other->turn == 0) return step == 0;
    return (back && cut->parts < 3) || (other->turns == BOTH && !drops);
}

/* Whether the program's gradient is that of the hypothesis.  In 16 bits bounds are wide, so the gradient must also
 * be twice nearer than to what is right. */
static bool is_near(const double *have, const double *other, const double *right, int64_t n, double bound)
{
    double off = 0, size = 0, otherwise = 0;
    for (int64_t i = 0; i < n; i++) {
        const double want = other[i], d = have[i] - want, e = have[i] - right[i];
        off += d * d, size += want * want, otherwise += e * e;
    }
    return sqrt(off) <= bound * sqrt(size) && sqrt(off) <= sqrt(otherwise) / 2;
}

/* Whether a hypothesis fits.  given: the program's gradient, then room for a hypothesis's, then the right one. */
static bool stale_fits(const struct stale *stale, const struct other *other, const struct batch_cut *cut,
                       const struct stale_tensor *tensor, double *given)
{
    const int64_t n = tensor->count;
    return !stale_cannot(stale->program.golden, other, cut, tensor->step)
           && stale_gradient(stale, other, cut, tensor->param, tensor->step, given + n)
           && is_near(given, given + n, given + 2 * n, n, tensor->bound);
}

/* The first hypothesis that fits; the step must be in the golden file.  Copies take turns in each of the cuts that the
 * program may have. */
static const struct other *other_pass(const struct stale *stale, const struct stale_tensor *tensor, double *given)
{
    const size_t all = sizeof others / sizeof *others;
    for (size_t k = 0; k < all && tensor->step < stale->program.golden->steps; k++) {
        if (others[k].turn == 0 && stale_fits(stale, &others[k], NULL, tensor, given)) return &others[k];
        for (int i = 0; i < stale->cuts->count && others[k].turn != 0; i++)
            if (stale->cuts->all[i].known && stale->cuts->all[i].within < 0
                && stale_fits(stale, &others[k], &stale->cuts->all[i], tensor, given))
                return &others[k];
    }
    return NULL;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

/* The step before, if there is one, has a gradient of this name that may have been left or added. */
static const char *stale_old(const struct stale *stale, const char *old_name, const int64_t dim[2], double *given,
                             double bound)
{
    const int64_t n = dim[0] * dim[1];
    return old_name[0] && is_there(stale->program.actual, old_name, dim, given + n)
        ? words(given, given + n, given + 2 * n, n, bound) : NULL;
}

const char *stale_describe(char *out, size_t size, const struct golden *golden, const struct actual *actual,
                           const struct batch_cuts *cuts, const char *name, double bound)
{
    char old_name[160];
    const struct safetensors_entry *entry = safetensors_find(&golden->file, name);
    const char *const of_step = strstr(name, "/grad/");
    const int before = stale_before(name, old_name, sizeof old_name);
    out[0] = 0;
    if ((of_step == NULL && strncmp(name, "grad/", 5) != 0) || entry == NULL || entry->ndim < 1) return out;
    const char *const param = of_step ? of_step + strlen("/grad/") : name + strlen("grad/");
    if (!own_model_has(golden, param)) return out;
    const int64_t dim[2] = { entry->dim[0], entry->ndim > 1 ? entry->dim[1] : 1 };
    struct stale stale = { .program = { .golden = golden, .actual = actual }, .cuts = cuts };
    const struct stale_tensor tensor = { param, before, dim[0] * dim[1], bound };
    snprintf(stale.program.optimizer, sizeof stale.program.optimizer, "%.*s", (int)strcspn(name, "/"), name);
    /* These are three tensors: the program's, that of the step before or of a hypothesis, and the right one. */
    double *given = calloc(3 * (size_t)tensor.count + 1, sizeof *given);
    if (given && is_there(actual, name, dim, given) &&
        stale_gradient(&stale, &(struct other){ 0 }, NULL, tensor.param, before, given + 2 * tensor.count)) {
        const char *format = stale_old(&stale, old_name, dim, given, bound);
        /* Running the model is slow, so passes are tried only if the old gradient explains nothing. */
        const struct other *o = format ? NULL : other_pass(&stale, &tensor, given);
        if (format || o) snprintf(out, size, format ? format : o->words, o && o->turn ? before + 1 : before);
    }
    free(given);
    return out;
}
