/* loss_scale.c -- the loss scale of fp16 training: what it begins with, and how it changes.
 *
 * model/trainer.c and verify/reference/ call this file after each backward pass, with an `overflow` on which all
 * devices have agreed.  No function here can fail; `exhausted` says that the run should end.
 */
#include "ref/optim/loss_scale.h"
#include <assert.h>
#include <math.h>

/* Formats with the exponents of fp32 need no scale: theirs is 1 and never changes. */
struct loss_scale loss_scale_of(const struct conventions *conventions, enum dtype dtype)
{
    const struct loss_scale fixed = { .scale = 1, .growth = 1, .backoff = 1 };
    const int64_t late = (int64_t)convention(conventions, SCALE_LATE),
        hysteresis = (int64_t)convention(conventions, SCALE_HYSTERESIS);
    const struct loss_scale fp16 = { .scale = convention(conventions, SCALE_START),
                                     .growth = convention(conventions, SCALE_GROWTH),
                                     .backoff = convention(conventions, SCALE_BACKOFF),
                                     .interval = (int64_t)convention(conventions, SCALE_INTERVAL),
                                     .good = -late,
                                     .late = late,
                                     .hysteresis = hysteresis,
                                     .left = hysteresis,
                                     .refills = convention(conventions, SCALE_REFILL) == REFILL_BY_STEP,
                                     .least = convention(conventions, SCALE_LEAST),
                                     .stops = convention(conventions, SCALE_AT_LEAST) == AT_LEAST_STOPS };
    return dtype_is_scaled(dtype) ? fp16 : fixed;
}

/* Reduce it, unless overflows are left. */
static void overflowed(struct loss_scale *scale)
{
    /* Good steps are counted anew, `late` of them for nothing. */
    scale->good = -scale->late;
    /* The scale stays until `hysteresis` overflows have been counted. */
    if (scale->left > 1) scale->left--;
    else if (scale->stops && scale->scale == scale->least) scale->exhausted = true;
    else scale->scale = fmax(scale->scale * scale->backoff, fmax(scale->least, LOSS_SCALE_LEAST));
}

/* Returns whether the step may be taken. */
bool loss_scale_update(struct loss_scale *scale, bool overflow)
{
    if (scale->interval == 0) return true;
    /* An overflow means that a gradient is infinite or NaN: the caller skips the step. */
    if (overflow) {
        overflowed(scale);
        return false;
    }
    if (scale->refills) scale->left = scale->hysteresis;
    /* After `interval` good steps in a row the scale grows. */
    if (++scale->good < scale->interval) return true;
    scale->scale = fmin(scale->scale * scale->growth, LOSS_SCALE_MOST);
    scale->good = 0;
    scale->left = scale->hysteresis;
    return true;
}

/* An exponent of all ones is infinity or NaN. */
#define ANY_NOT_FINITE(type, exponent)                                              \
    for (int64_t i = 0; i < n; i++) found |= (((const type *)x)[i] & (type)(exponent)) == (type)(exponent); \
    break

static bool any_not_finite(const void *x, enum dtype dtype, int64_t n)
{
    bool found = false;
    assert(dtype_unit(dtype) > 0);
    switch (dtype) {
    case F64:  ANY_NOT_FINITE(uint64_t, 0x7ff0000000000000);
    case BF16: ANY_NOT_FINITE(uint16_t, 0x7f80);
    case F16:  ANY_NOT_FINITE(uint16_t, 0x7c00);
    default:   ANY_NOT_FINITE(uint32_t, 0x7f800000);
    }
    return found;
}

bool tensors_finite(const struct tensor x[], int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (any_not_finite(x[i].data, x[i].dtype, tensor_count(x[i]))) return false;
    return true;
}
