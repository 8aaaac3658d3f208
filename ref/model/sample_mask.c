#include "ref/model/sample_mask.h"

enum error_code sample_mask(int32_t *mask, const int32_t *within, int64_t B, int64_t S, struct error *err)
{
    for (int64_t n = 0; n < B * S; n++) {
        const int64_t at = n % S, last = at > 0 ? within[n - 1] : -1;
        if (within[n] != 0 && within[n] != last + 1)
            return fail(err, ERR_USAGE,
                        "packed samples: token %lld of sequence %lld has position %d after %lld: a hole",
                        (long long)at, (long long)(n / S), (int)within[n], (long long)last);
        mask[2 * n] = (int32_t)at - within[n], mask[2 * n + 1] = (int32_t)at + 1;
    }
    return OK;
}
