#include "ref/optim/loss_scale.h"
#include <assert.h>
#include <math.h>

struct loss_scale loss_scale_of(const struct conventions *c, enum dtype t)
{
    const struct loss_scale fixed = { .scale = 1, .growth = 1, .backoff = 1 };
    const int64_t late = (int64_t)convention(c, SCALE_LATE), hysteresis = (int64_t)convention(c, SCALE_HYSTERESIS);
    const struct loss_scale fp16 = { .scale = convention(c, SCALE_START),
                                     .growth = convention(c, SCALE_GROWTH),
                                     .backoff = convention(c, SCALE_BACKOFF),
                                     .interval = (int64_t)convention(c, SCALE_INTERVAL),
                                     .good = -late,
                                     .late = late,
                                     .hysteresis = hysteresis,
                                     .left = hysteresis,
                                     .refills = convention(c, SCALE_REFILL) == REFILL_BY_STEP,
                                     .least = convention(c, SCALE_LEAST),
                                     .stops = convention(c, SCALE_AT_LEAST) == AT_LEAST_STOPS };
    return dtype_is_scaled(t) ? fp16 : fixed;
}

/* Reduce it, unless overflows are left. */
static void overflowed(struct loss_scale *s)
{
    /* Good steps are counted anew, `late` of them for nothing. */
    s->good = -s->late;
    /* The scale stays until `hysteresis` overflows have been counted. */
    if (s->left > 1) s->left--;
    else if (s->stops && s->scale == s->least) s->exhausted = true;
    else s->scale = fmax(s->scale * s->backoff, fmax(s->least, LOSS_SCALE_LEAST));
}

bool loss_scale_update(struct loss_scale *s, bool overflow)
{
    if (s->interval == 0) return true;
    /* An overflow means that a gradient is infinite or NaN: the caller skips the step. */
    if (overflow) {
        overflowed(s);
        return false;
    }
    if (s->refills) s->left = s->hysteresis;
    /* After `interval` good steps in a row the scale grows. */
    if (++s->good < s->interval) return true;
    s->scale = fmin(s->scale * s->growth, LOSS_SCALE_MOST);
    s->good = 0;
    s->left = s->hysteresis;
    return true;
}

/* An exponent of all ones is infinity or NaN. */
#define ANY_NOT_FINITE(type, exponent)                                              \
    for (int64_t i = 0; i < n; i++) found |= (((const type *)x)[i] & (type)(exponent)) == (type)(exponent); \
    break

static bool any_not_finite(const void *x, enum dtype t, int64_t n)
{
    bool found = false;
    assert(dtype_unit(t) > 0);
    switch (t) {
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
