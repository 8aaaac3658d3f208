/* fixed_sum.c -- elements of EXACT tensors as doubles.  tensor_get and tensor_set call this file, which cannot fail. */
#include "ref/numeric/fixed_sum.h"
#include <stdatomic.h>

static atomic_int first_loss;           /* enum fixed_loss */

double fixed_get(const void *sums, int64_t i) { return fixed_to_double(fixed_at(sums, i)); }

void fixed_set(void *sums, int64_t i, double x) { fixed_put(sums, i, fixed_of(x)); }

fixed_sum fixed_lose(enum fixed_loss why)
{
    int none = FIXED_ALL_THERE;
    atomic_compare_exchange_strong(&first_loss, &none, (int)why);
    return FIXED_NONE;
}

enum fixed_loss fixed_loss_take(void) { return (enum fixed_loss)atomic_exchange(&first_loss, FIXED_ALL_THERE); }
