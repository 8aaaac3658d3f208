/* sample_mask.c -- computes which keys each token of packed samples sees.  ref/model/forward.c, ref/golden/golden.c
 * and model/trainer_batch.c call sample_mask.  The output has ranges for each token: first key, and end of keys.
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

/* Check the position of token n; `at` counts in its sequence.  A sample begins at 0 and has no hole. */
static enum error_code check_position(const int32_t *within, int64_t n, int64_t at, int64_t S, struct error *err)
{
    const int64_t last = at > 0 ? sample_position(within[n - 1]) : -1;
    const int32_t position = sample_position(within[n]);
    const bool other = at > 0 && is_padding(within[n]) != is_padding(within[n - 1]);
    if (position == 0 || (position == last + 1 && !other)) return OK;
    return fail(err, ERR_USAGE, "packed samples: token %lld of sequence %lld has position %d after %lld: a hole",
                (long long)at, (long long)(n / S), (int)position, (long long)last);
}

enum error_code sample_mask(int32_t *sees, const struct attention_mask *mask, const int32_t *within, int64_t B,
                            int64_t S, struct error *err)
{
    const int64_t width = 2 * attention_mask_ranges(mask);
    enum error_code e = OK;
    for (int64_t n = 0; n < B * S && !e; n++) {
        const int64_t at = n % S, begin = within ? at - sample_position(within[n]) : 0;
        if (within) e = check_position(within, n, at, S, err);
        /* A sample is filled at its last token, when its length is known. */
        const bool last = at + 1 == S || (within && sample_position(within[n + 1]) == 0);
        if (!e && last) attention_mask_fill(mask, begin, at + 1 - begin, sees + (n - at + begin) * width);
    }
    return e;
}
