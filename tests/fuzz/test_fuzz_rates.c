/* Learning rates from anybody: what is accepted is a list of numbers from 0 on, one for each of a file's steps.
 * tier: check
 */
#include "ref/golden/rates_file.h"
#include "tests/fuzz/fuzz.h"
#include <math.h>

static void try(const uint8_t *data, size_t size)
{
    double rate[GOLDEN_MOST_STEPS];
    int count = -1;
    struct error err = { 0 };
    if (rates_read(as_file(data, size), rate, &count, &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    must(count >= 1 && count <= GOLDEN_MOST_STEPS, "%d rates", count);
    for (int i = 0; i < count; i++) must(isfinite(rate[i]) && rate[i] >= 0, "rate %d is %g", i, rate[i]);
}

FUZZ_TARGET("rates")
