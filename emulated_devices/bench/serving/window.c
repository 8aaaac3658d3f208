/* window.c -- loads blocks of weights ahead of their computation.  window_claims.c calls.  The only error is
 * ERR_MEMORY. */
#include "emulated_devices/bench/serving/window.h"
#include <math.h>
#include <stdlib.h>

enum error_code window_pass(const int64_t *bytes, const double *compute, int blocks, int window, double rate,
                            struct window_result *result, struct error *err)
{
    double *const left = malloc((size_t)blocks * sizeof *left + 1), loaded = 0, computed = 0;
    int64_t held = 0;
    *result = (struct window_result){ 0, 0, 0 };
    if (left == NULL) return fail(err, ERR_MEMORY, "no memory for %d blocks", blocks);
    for (int i = 0, next = 0; i < blocks; i++) {
        /* The loader begins a block when the one that is `window` before it has left. */
        for (; next < blocks && next < i + window; next++) {
            const double room = next >= window ? left[next - window] : 0;
            loaded = fmax(loaded, room) + (double)bytes[next] / rate;
            held += bytes[next], result->loaded += bytes[next];
            if (held > result->peak) result->peak = held;
            left[next] = loaded;                        /* until it is computed: when it is there */
        }
        computed = fmax(computed, left[i]) + compute[i];
        left[i] = computed, held -= bytes[i];
    }
    result->seconds = computed;
    free(left);
    return OK;
}

int64_t window_peak(const int64_t *bytes, int blocks, int window)
{
    int64_t most = 0;
    for (int i = 0; i < blocks; i++) {
        int64_t sum = 0;
        for (int k = i; k < blocks && k < i + window; k++) sum += bytes[k];
        if (sum > most) most = sum;
    }
    return most;
}

void window_heads(int all, const double *ratio, int devices, int *heads)
{
    int left = all;
    for (int d = 0; d < devices; d++) left -= heads[d] = (int)floor(all * ratio[d] + 1e-9);
    for (int d = devices - 1; left > 0; d = d > 0 ? d - 1 : devices - 1, left--) heads[d]++;
}
