/* tier.h -- how much a test tries: `make check`, `make test` or `make verify`.
 *
 *     for (int p = 1; p <= (tier_now() == TIER_VERIFY ? 64 : 8); p++) ...
 *
 * A sweep that grows with every algorithm or scheme tries everything in the third tier and a sample in the second.
 * The head of a test file says in which tiers it runs at all: tests/run.sh.  A test program started by hand is in the
 * second.  Tests in tests/ call these functions.  No function returns an error code.
 */
#ifndef TESTS_TIER_H
#define TESTS_TIER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum test_tier { TIER_CHECK, TIER_TEST, TIER_VERIFY };

static inline enum test_tier tier_now(void)
{
    const char *tier = getenv("TIER");
    if (tier != NULL && strcmp(tier, "check") == 0) return TIER_CHECK;
    if (tier != NULL && strcmp(tier, "verify") == 0) return TIER_VERIFY;
    return TIER_TEST;
}

/* Whether case n of a sweep is tried: in the third tier each, below one of `every`.  n begins where the number of
 * devices says, so that runs of several sizes try different cases. */
static inline bool tier_takes(int n, int every) { return tier_now() == TIER_VERIFY || n % every == 0; }

#endif
