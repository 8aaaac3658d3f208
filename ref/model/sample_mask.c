/* sample_mask.c -- computes which keys each token of packed samples sees.  ref/model/forward.c, ref/golden/golden.c
 * and model/trainer_batch.c call sample_mask.  The output has two numbers for each token: first key, and end of keys.
 * Positions with a hole are ERR_USAGE; then the rest of the mask is not written.  The mixtures of ref/model/ and
 * model/ call tokens_without_padding. */
#include "ref/model/sample_mask.h"
#include <stddef.h>

/* Skip padding from *first on, then count the tokens up to the next padding.  Without `within` no token is padding. */
int64_t tokens_without_padding(const int32_t *within, int64_t n, int64_t *first)
{
    int64_t end = *first;
    while (within != NULL && end < n && is_padding(within[end])) end++;
    *first = end;
    while (end < n && (within == NULL || !is_padding(within[end]))) end++;
    return end - *first;
}

enum error_code sample_mask(int32_t *mask, const int32_t *within, int64_t B, int64_t S, struct error *err)
{
    for (int64_t n = 0; n < B * S; n++) {
        const int64_t at = n % S, last = at > 0 ? sample_position(within[n - 1]) : -1;
        const int32_t position = sample_position(within[n]);
        const bool other = at > 0 && is_padding(within[n]) != is_padding(within[n - 1]);
        if (position != 0 && (position != last + 1 || other))
            return fail(err, ERR_USAGE,
                        "packed samples: token %lld of sequence %lld has position %d after %lld: a hole",
                        (long long)at, (long long)(n / S), (int)position, (long long)last);
        /* A token sees from the first token of its sample up to itself. */
        mask[2 * n] = (int32_t)at - position, mask[2 * n + 1] = (int32_t)at + 1;
    }
    return OK;
}
