/* unrounded.c -- keeps sums beside their results, in a list of chains by the place of a result.  Nothing fails. */
#include "ref/exact/unrounded.h"
#include "ref/exact/unrounded_rows.h"
#include "ref/numeric/convert.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CHAINS = 4096 };

/* The sums of one result. */
struct unrounded {
    const void *place;                  /* of the result's numbers */
    int64_t count, each;                /* elements; elements that share a divisor, or 0 */
    fixed_sum *sum, *divisor;           /* [count]; [count / each], behind the sums */
    struct unrounded *next;
};

static atomic_int keeping;
static struct unrounded *chain[CHAINS];

static struct unrounded **chain_of(const void *place) { return &chain[(uintptr_t)place / 64 % CHAINS]; }

/* Take the sums of a place out of the list.  The caller is alone with the list. */
static struct unrounded *unlink_of(const void *place)
{
    for (struct unrounded **at = chain_of(place); *at; at = &(*at)->next)
        if ((*at)->place == place) {
            struct unrounded *const found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

static void unrounded_free(struct unrounded *kept)
{
    if (kept) free(kept->sum);
    free(kept);
}

void unrounded_begin(void) { atomic_fetch_add(&keeping, 1); }

void unrounded_end(void)
{
    if (atomic_fetch_sub(&keeping, 1) > 1) return;
    #pragma omp critical(unrounded)
    for (int i = 0; i < CHAINS; i++)
        while (chain[i]) {
            struct unrounded *const first = chain[i];
            chain[i] = first->next;
            unrounded_free(first);
        }
}

fixed_sum *unrounded_room(struct tensor result, int64_t each, fixed_sum **divisor)
{
    const int64_t count = tensor_count(result), divisors = each > 0 ? count / each : 0;
    if (divisor) *divisor = NULL;
    if (atomic_load(&keeping) == 0 || count == 0) return NULL;
    struct unrounded *const kept = calloc(1, sizeof *kept);
    struct unrounded *old = NULL;
    fixed_sum *const sum = malloc((size_t)(count + divisors) * sizeof *sum);
    if (kept && sum) *kept = (struct unrounded){ result.data, count, each, sum, sum + count, NULL };
    #pragma omp critical(unrounded)
    {
        old = unlink_of(result.data);
        if (kept && sum) kept->next = *chain_of(result.data), *chain_of(result.data) = kept;
    }
    unrounded_free(old);
    if (kept && sum && divisor) *divisor = kept->divisor;
    if (kept && sum) return sum;
    free(kept), free(sum);
    return NULL;
}

void unrounded_note(struct tensor result, struct tensor sums)
{
    fixed_sum *const room = unrounded_room(result, 0, NULL);
    if (room) memcpy(room, sums.data, tensor_bytes(sums));
}

void unrounded_move(struct tensor result, const void *from)
{
    struct unrounded *kept = NULL, *old = NULL;
    if (atomic_load(&keeping) == 0) return;
    #pragma omp critical(unrounded)
    {
        kept = unlink_of(from), old = unlink_of(result.data);
        if (kept) {
            kept->place = result.data;
            kept->next = *chain_of(result.data), *chain_of(result.data) = kept;
        }
    }
    unrounded_free(old);
}

/* Whether a number is what x rounds to in its format, at once or by way of fp32. */
static bool rounds_to(enum dtype dtype, const void *number, double x)
{
    char at_once[sizeof(double)], twice[sizeof(double)];
    const struct tensor one = tensor_1d(at_once, dtype, 1), two = tensor_1d(twice, dtype, 1);
    if (isnan(x)) return true;                          /* what is not finite is compared as it is */
    tensor_set(one, 0, x), tensor_set(two, 0, (double)(float)x);
    return memcmp(number, at_once, dtype_size(dtype)) == 0 || memcmp(number, twice, dtype_size(dtype)) == 0;
}

/* Whether the sums are those of the numbers that lie there. */
static bool still_true(const struct unrounded *kept, struct tensor result)
{
    const size_t size = dtype_size(result.dtype);
    for (int64_t i = 0; i < kept->count; i++) {
        double x = fixed_to_odd(kept->sum[i]);
        if (kept->each > 0) {
            const double divisor = fixed_to_double(kept->divisor[i / kept->each]);
            x = divisor == 0 ? 0 : fixed_to_double(kept->sum[i]) / divisor;
        }
        if (!rounds_to(result.dtype, (const char *)result.data + (size_t)i * size, x)) return false;
    }
    return true;
}

struct tensor unrounded_take(struct tensor result)
{
    struct unrounded *kept = NULL;
    if (atomic_load(&keeping) == 0) return tensor_none;
    #pragma omp critical(unrounded)
    kept = unlink_of(result.data);
    if (kept == NULL || kept->count != tensor_count(result) || !still_true(kept, result)) {
        unrounded_free(kept);
        return tensor_none;
    }
    for (int64_t i = 0; i < kept->count && kept->each > 0; i++)
        kept->sum[i] = (fixed_sum)((fixed_bits)kept->sum[i] + (fixed_bits)kept->divisor[i / kept->each]);
    struct tensor sums = result;
    sums.dtype = EXACT, sums.data = kept->sum;
    free(kept);
    return sums;
}

/* Take the sums of some numbers in this range out of the list.  The caller is alone with the list. */
static struct unrounded *unlink_within(const char *from, const char *end)
{
    for (int i = 0; i < CHAINS; i++)
        for (struct unrounded *kept = chain[i]; kept; kept = kept->next)
            if ((const char *)kept->place >= from && (const char *)kept->place < end) return unlink_of(kept->place);
    return NULL;
}

/* The numbers of a result that such sums are of; none if the sums are quotients, or reach beyond. */
static struct tensor unrounded_numbers(const struct unrounded *kept, struct tensor result, int64_t *first)
{
    *first = ((const char *)kept->place - (const char *)result.data) / (int64_t)dtype_size(result.dtype);
    if (kept->each > 0 || *first + kept->count > tensor_count(result)) return tensor_none;
    return tensor_1d((char *)result.data + *first * (int64_t)dtype_size(result.dtype), result.dtype, kept->count);
}

struct tensor unrounded_take_rows(struct tensor result, int64_t *first)
{
    const char *const from = result.data, *const end = from + tensor_bytes(result);
    struct unrounded *whole = NULL, *kept;
    *first = 0;
    if (atomic_load(&keeping) == 0) return tensor_none;
    #pragma omp critical(unrounded)
    for (struct unrounded **at = chain_of(result.data); *at && !whole; at = &(*at)->next)
        if ((*at)->place == result.data && (*at)->count == tensor_count(result)) whole = *at;
    if (whole) return unrounded_take(result);
    for (;;) {
        #pragma omp critical(unrounded)
        kept = unlink_within(from, end);
        if (kept == NULL) return tensor_none;
        struct tensor numbers = unrounded_numbers(kept, result, first);
        if (tensor_present(numbers) && still_true(kept, numbers)) {
            numbers.dtype = EXACT, numbers.data = kept->sum;
            free(kept);
            return numbers;
        }
        unrounded_free(kept);                           /* of an earlier result */
    }
}

void unrounded_drop(const void *place)
{
    struct unrounded *kept = NULL;
    if (atomic_load(&keeping) == 0 || place == NULL) return;
    #pragma omp critical(unrounded)
    kept = unlink_of(place);
    unrounded_free(kept);
}
