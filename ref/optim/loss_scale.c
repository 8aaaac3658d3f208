#include "ref/optim/loss_scale.h"
#include <assert.h>
#include <math.h>

struct loss_scale loss_scale_usual(enum dtype t)
{
    const struct loss_scale fixed = { .scale = 1, .growth = 1, .backoff = 1 };
    const struct loss_scale fp16 = { .scale = 0x1p16, .growth = 2, .backoff = 0.5, .interval = 2000 };
    return t == F16 ? fp16 : fixed;
}

bool loss_scale_update(struct loss_scale *s, bool overflow)
{
    if (s->interval == 0) return true;
    if (!overflow && ++s->good < s->interval) return true;
    s->scale = fmin(fmax(s->scale * (overflow ? s->backoff : s->growth), LOSS_SCALE_LEAST), LOSS_SCALE_MOST);
    s->good = 0;
    return !overflow;
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
