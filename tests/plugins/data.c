/* Wrong data schemes: gradients and states over two neighbours.  tests/cli/test_verify_plugin.sh compiles the file with
 * -DWRONG=N, and wants the law beside N to be broken.
 *
 *  1 divides      shares gradients by 2 and states by 3
 *  2 ranks        gives device 0 other numbers
 *  3 repeats      gives other numbers the second time
 *  4 repeats      changes P
 *  5 accepts      refuses everything
 *  6 divides      shares by 0 devices
 *  7 complete     has no function share
 *  8 ends         divides by rank
 *  9 accepts      refuses with an empty text
 * 10 complete     has the name of another scheme
 */
#include "emulated_devices/schemes/plugin.h"
#ifndef WRONG
#define WRONG 0
#endif

static const char *share(struct shards *s, const struct data_request *q)
{
    static int asked;
    const volatile int rank = s->rank;
    volatile int quotient;
    (void)rank, (void)quotient;
    (void)q;
    if (WRONG == 5) return "other devices";
    if (s->P % 2 != 0) return s->P == 1 ? NULL : WRONG == 9 ? "" : "P even";
    s->gradients = s->optimizer = 2;
    if (WRONG == 1) s->optimizer = 3;
    if (WRONG == 2 && s->rank == 0) s->gradients = 1;
    if (WRONG == 3 && ++asked % 2) s->gradients = 1;
    if (WRONG == 4) s->P = 2;
    if (WRONG == 6) s->gradients = 0;
    if (WRONG == 8) quotient = 2 / rank, s->weights = quotient > 9 ? 2 : 1;
    return NULL;
}

static const struct data_scheme data_scheme_mine = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES, .name = WRONG == 10 ? "zero3" : "mine",
              .description = "halves over two neighbours", .source = "own", .volume = "n", .memory = "n",
              .needs = "P even" },
    .share = WRONG == 7 ? NULL : share,
};

PLUGIN(PLUGIN_SCHEME(data_scheme_mine));
