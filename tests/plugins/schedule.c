/* Wrong pipeline schedules: all forwards, then all backwards from the last.  tests/cli/test_verify_plugin.sh compiles
 * the file with -DWRONG=N, and wants the law beside N to be broken.
 *
 *  1 executes     leaves the last backward out
 *  2 executes     puts a backward before its forward
 *  3 repeats      has another order the second time
 *  4 accepts      fails for more than 4 microbatches
 *  5 sizes        makes a microbatch more
 *  6 complete     has no function make
 *  7 ends         computes for ever
 *  8 executes     has a forward twice
 *  9 accepts      refuses everything
 * 10 executes     has devices that wait for each other
 * 11 trained      has forwards alone
 * 12 equality     says that gradients have the bits of one device
 */
#include "emulated_devices/schemes/plugin.h"
#ifndef WRONG
#define WRONG 0
#endif

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    static int asked;
    const int M = q->micros + (WRONG == 5);
    const bool turned = WRONG == 3 && ++asked % 2;
    for (volatile int i = 0; WRONG == 7; i++) continue;
    if (WRONG == 4 && M > 4) return fail(err, ERR_PLAN, "too many");
    if (schedule_begin(s, "mine", q->devices, M, 1, err) != OK) return err->code;
    place_looped(s);
    for (int r = 0; r < q->devices; r++) {
        if (WRONG == 2) schedule_put(s, r, BACKWARD, 0, 0);
        for (int m = 0; m < M; m++) schedule_put(s, r, FORWARD, WRONG == 10 && r % 2 ? M - 1 - m : m, 0);
        if (WRONG == 8) schedule_put(s, r, FORWARD, 0, 0);
        for (int m = M - 1; m >= (WRONG == 1 || WRONG == 2) && WRONG != 11; m--)
            schedule_put(s, r, BACKWARD, turned ? M - 1 - m : m, 0);
        if (WRONG == 10 && r == 0 && M > 1) s->actions[0][0].micro = M;
    }
    return schedule_finish(s, err);
}

static const char *refuses(const struct schedule_request *q)
{
    (void)q;
    return "another request";
}

static const struct schedule_generator schedule_mine = {
    .head = { .kind = PIPELINE_SCHEME, .equality = WRONG == 12 ? PERMUTES : REASSOCIATES, .name = "mine",
              .description = "as gpipe", .source = "own", .memory = "M", .needs = "P >= 1, M >= 1" },
    .bubble = "(P-1)(F+B)", .chunks = 1, .refuses = WRONG == 9 ? refuses : NULL, .make = WRONG == 6 ? NULL : make,
};

PLUGIN(PLUGIN_SCHEME(schedule_mine));
