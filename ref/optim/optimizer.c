/* optimizer.c -- the registry of optimizers, and a step of any of them on tensors of any format.
 *
 * Devices (backend.h), ref/model, ref/golden and verify/ call optimizer_step; plug-ins call optimizer_add.  Errors
 * are ERR_USAGE for an unknown name, ERR_FORMAT and ERR_MEMORY for a plug-in.
 */
#include "ref/optim/optimizer.h"
#include "ref/io/options.h"
#include "ref/numeric/convert.h"
#include "ref/optim/registry.h"
#include <assert.h>
#include <math.h>
#include <string.h>

const struct optimizer no_optimizer = { .name = "none", .description = "inference: forward passes only",
                                        .forward_only = true, .infers = true };

/* The rest of the list is NULL: room for plug-ins. */
const struct optimizer *optimizers[OPTIMIZERS_MOST] = {
#define X(name) &optimizer_##name,
    OPTIMIZERS(X)
#undef X
};

/* An optimizer of a plug-in steps element by element; those with projections have code of their own. */
static const char *optimizer_lacks(const struct optimizer *optimizer)
{
    if (!optimizer->name || !optimizer->name[0] || !optimizer->description || !optimizer->source)
        return "a name, a description and a source";
    if (!optimizer->step_f32 || !optimizer->step_f64) return "step_f32 and step_f64";
    if (optimizer->states < 0 || optimizer->states > OPTIMIZER_MAX_STATES) return "at most 4 states";
    for (int i = 0; i < optimizer->states; i++)
        if (!optimizer->state_name[i]) return "a name for each state";
    if (optimizer->low_rank || optimizer->natural || optimizer->forward_only || optimizer->infers)
        return "a step of single elements";
    return optimizer->operations > 0 ? NULL : "operations, the number for an element, for virtual time";
}

/* The new optimizer is the last of the list; the caller keeps its memory. */
enum error_code optimizer_add(const struct optimizer *optimizer, struct error *err)
{
    const struct optimizer *taken;
    const char *missing = optimizer_lacks(optimizer);
    int count = 0;
    if (missing) return fail(err, ERR_FORMAT, "an optimizer %s: needs %s",
                             optimizer->name ? optimizer->name : "", missing);
    if (optimizer_find(&taken, optimizer->name, NULL) == OK)
        return fail(err, ERR_FORMAT, "%s: there is an optimizer of this name", optimizer->name);
    while (optimizers[count]) count++;
    /* The last place stays NULL, which ends the list. */
    if (count + 1 >= OPTIMIZERS_MOST)
        return fail(err, ERR_MEMORY, "%s: there are %d optimizers, the most that there can be", optimizer->name, count);
    optimizers[count] = optimizer;
    return OK;
}

/* Names of those before are collected for the message about an unknown one. */
enum error_code optimizer_find(const struct optimizer **found, const char *name, struct error *err)
{
    const char *names[OPTIMIZERS_MOST];
    size_t n = 0;
    for (; optimizers[n]; n++) {
        names[n] = optimizers[n]->name;
        if (strcmp(names[n], name) == 0) {
            *found = optimizers[n];
            return OK;
        }
    }
    return fail_unknown_name(err, "--optimizer", name, names, n);
}

/* Elements first .. first+n-1. */
static struct tensor part(struct tensor x, int64_t first, int64_t n)
{
    return tensor_1d((char *)x.data + (size_t)first * dtype_size(x.dtype), x.dtype, n);
}

/* Widens and steps a few elements at a time: an element's step does not depend on its neighbours. */
static void widen_and_step(const struct optimizer *optimizer, struct tensor w, struct tensor g,
                           const struct tensor state[], struct step step)
{
    enum { PIECE = 2048 };
    const int64_t count = tensor_count(w);

    #pragma omp parallel for schedule(static) if (count > 8 * PIECE)
    /* One piece: g (16 bits) -> wide (fp32) [PIECE], then the fp32 step on the same elements of w and states. */
    for (int64_t first = 0; first < count; first += PIECE) {
        const int64_t n = count - first < PIECE ? count - first : PIECE;
        float wide[PIECE];
        struct tensor piece[OPTIMIZER_MAX_STATES];
        const struct tensor gradient = tensor_1d(wide, F32, n);
        tensor_convert(gradient, part(g, first, n));
        for (int k = 0; k < optimizer->states; k++) piece[k] = part(state[k], first, n);
        optimizer->step_f32(part(w, first, n), gradient, piece, step);
    }
}

/* w and states change; g does not.  An element's step needs no other element. */
void optimizer_step(const struct optimizer *optimizer, struct tensor w, struct tensor g, const struct tensor state[],
                    struct step step)
{
    /* Weights are fp64 or fp32 (masters); gradients of fp32 weights may have 16 bits. */
    assert(w.dtype == F64 ? g.dtype == F64 : w.dtype == F32 && dtype_unit(g.dtype) > 0 && g.dtype != F64);
    if (g.dtype != w.dtype) widen_and_step(optimizer, w, g, state, step);
    else (w.dtype == F32 ? optimizer->step_f32 : optimizer->step_f64)(w, g, state, step);
}

/* Matrices decay always, other parameters only if the convention says so. */
double weight_decay_of(const struct hyperparameters *hyper, bool matrix)
{
    return matrix || convention(&hyper->as, DECAYED) == DECAYED_ALL ? hyper->weight_decay : 0;
}

double clip_scale(const struct hyperparameters *hyper, double norm)
{
    /* All gradients get the factor clip / (norm + eps) where the norm exceeds clip, else 1. */
    const double divisor = norm + convention(&hyper->as, CLIP_ADDED);
    return hyper->clip > 0 && divisor > hyper->clip ? hyper->clip / divisor : 1;
}
