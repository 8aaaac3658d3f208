/* encoders.c -- compares encoders of images or sound on all devices with the one-device run, on rank 0. watch.c
 * calls after gradients and after weights.  ERR_CHECK is a verdict; other errors end the run.  Without memory the
 * code is ERR_MEMORY. */
#include "emulated_devices/verify/reference/encoders.h"
#include "emulated_devices/verify/reference/reference_encoders.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In fp64: the most that an error may be of a norm, and the bound up to which that is not asked. */
#define FP64_ERROR 1e-12
#define FP64_BOUND 1e-9

/* A comparison of one encoder's numbers of a kind knows this. */
struct compared {
    const struct trainer *trainer;
    const struct reference *reference;
    int modality;
    enum tensor_kind kind;
    char *seen;                         /* [encoder_counts] the first copy of each number */
    uint8_t *has;                       /* [encoder_counts] whether there is one so far */
};

static const char *name_kind(const struct compared *c, char text[48])
{
    if (c->kind == KIND_GRADIENT) return "gradients";
    if (c->kind == KIND_WEIGHT) return "weights";
    if (c->kind == KIND_MASTER) return "masters";
    snprintf(text, 48, "states %s", c->trainer->plan.optimizer->state_name[c->kind - KIND_STATE]);
    return text;
}

/* Gradients are those of the coming step, weights those of the last one. */
static long long step_of(const struct compared *c) { return c->trainer->step + (c->kind == KIND_GRADIENT); }

/* Another device has sent the same number before: its bits must be equal. */
static enum error_code compare_copies(const struct compared *c, const struct encoder_piece *piece, struct error *err)
{
    const size_t size = dtype_size(piece->numbers.dtype);
    char text[48];
    for (int64_t i = 0; i < tensor_count(piece->numbers); i++) {
        char *const seen = c->seen + (size_t)i * size;
        const char *const own = (const char *)piece->numbers.data + (size_t)i * size;
        if (piece->has[i] && c->has[i] && memcmp(seen, own, size) != 0)
            return fail(err, ERR_CHECK, "step %lld: %s of the %s encoder on device %d have other bits than the first's",
                        step_of(c), name_kind(c, text), modalities[c->modality].name, piece->device);
        if (piece->has[i]) memcpy(seen, own, size), c->has[i] = 1;
    }
    return OK;
}

/* With an overflow the truth's backward pass is not finite; and a step whose overflow was adopted from the devices was
 * not computed. */
static bool is_judged(const struct compared *c)
{
    return !c->reference->adopts && !(c->kind == KIND_GRADIENT && reference_overflows(c->reference));
}

/* With exact sums every number equals the one-device run's: a gradient before it is rounded, as 16 bytes. */
static enum error_code compare_exactly(const struct compared *c, const struct encoder_piece *piece, struct tensor truth,
                                       struct error *err)
{
    const size_t size = dtype_size(truth.dtype);
    char text[48];
    for (int64_t i = 0; i < tensor_count(truth); i++) {
        const char *const own = (const char *)piece->numbers.data + (size_t)i * size,
            *const expected = (const char *)truth.data + (size_t)i * size;
        const double seen = tensor_get(piece->numbers, i), right = tensor_get(truth, i);
        if (!piece->has[i] || memcmp(own, expected, size) == 0 || (truth.dtype != EXACT && seen == right)) continue;
        return fail(err, ERR_CHECK, "step %lld: %s of the %s encoder on device %d: number %lld is %.17g, and %.17g in "
                    "the one-device run with exact sums%s", step_of(c), name_kind(c, text),
                    modalities[c->modality].name, piece->device, (long long)i, seen, right,
                    seen == right ? "; they differ before they are rounded" : "");
    }
    return compare_copies(c, piece, err);
}

static enum error_code compare_piece(void *context, const struct encoder_piece *piece, struct error *err)
{
    const struct compared *const c = context;
    if (!is_judged(c)) return OK;
    const struct tensor truth = reference_encoder(c->reference, c->modality, c->kind);
    double far = 0, norm = 0;
    char text[48];
    for (int64_t i = 0; i < tensor_count(truth); i++) {
        const double off = tensor_get(piece->numbers, i) - tensor_get(truth, i);
        norm += tensor_get(truth, i) * tensor_get(truth, i);
        if (piece->has[i]) far += off * off;
    }
    const double off = sqrt(far), bound = reference_encoder_bound(c->reference, c->modality, c->kind);
    /* In fp64 an error must be small beside the numbers, too, unless rounding explains more. */
    const bool plain = truth.dtype != F64 || off <= FP64_ERROR * sqrt(norm) || bound <= FP64_BOUND * sqrt(norm);
    if (c->trainer->plan.model.exact) return compare_exactly(c, piece, truth, err);
    if (!(off <= bound) || !plain)
        return fail(err, ERR_CHECK, "step %lld: %s of the %s encoder on device %d differ from the one-device run's "
                    "by %.3g of their norm %.3g; the bound is %.3g", step_of(c), name_kind(c, text),
                    modalities[c->modality].name, piece->device, off, sqrt(norm), bound);
    return compare_copies(c, piece, err);
}

static enum error_code compare_kind(struct trainer *trainer, const struct reference *reference, int m,
                                    enum tensor_kind kind, struct error *err)
{
    const size_t numbers = (size_t)encoder_counts(&modalities[m], trainer->plan.model.D);
    struct compared c = { trainer, reference, m, kind, calloc(numbers, dtype_size(EXACT)), calloc(numbers, 1) };
    enum error_code e = c.seen && c.has ? OK : fail(err, ERR_MEMORY, "no memory to compare encoders");
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = encoders_bring(trainer, m, kind, compare_piece, &c, err);
    free(c.seen), free(c.has);
    return e;
}

enum error_code encoders_compare(struct trainer *trainer, const struct reference *reference, bool gradients,
                                 struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !e; m++) {
        e = compare_kind(trainer, reference, m, gradients ? KIND_GRADIENT : KIND_WEIGHT, err);
        if (gradients) continue;
        if (!e && reference_has_masters(&trainer->plan)) e = compare_kind(trainer, reference, m, KIND_MASTER, err);
        for (int k = 0; k < trainer->plan.optimizer->states && !e; k++)
            e = compare_kind(trainer, reference, m, KIND_STATE + (enum tensor_kind)k, err);
    }
    return e;
}
