/* pipeline schedule, last-first: GPipe as in its paper, whose backward passes begin with the last microbatch.
 *
 * Source    Y. Huang et al., GPipe, arXiv:1811.06965, figure 2c
 * Bubble    (P-1)(F+B), of a total of (M+P-1)(F+B), as `gpipe`
 * Memory    M microbatches on every device
 * Rounding  weight gradients are added in the opposite order of all other schedules', so their bits differ.
 * Errors    ERR_PLAN for sizes out of range, ERR_MEMORY.
 *
 * A template for plug-ins (docs/authors/plugins.md).  A schedule can also be a text file
 * (docs/parallelism/schedules.md).
 *     orrery show schedule last-first --pp 4 --micro 6 --plugin last_first.c
 */
#include "emulated_devices/schemes/plugin.h"

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    if (schedule_begin(s, "last-first", q->devices, q->micros, 1, err) != OK) return err->code;
    place_looped(s);
    for (int r = 0; r < q->devices; r++) {
        for (int m = 0; m < q->micros; m++) schedule_put(s, r, FORWARD, m, 0);
        for (int m = q->micros - 1; m >= 0; m--) schedule_put(s, r, BACKWARD, m, 0);
    }
    return schedule_finish(s, err);
}

static const struct schedule_generator schedule_last_first = {
    .head = { .kind = PIPELINE_SCHEME, .equality = REASSOCIATES, .name = "last-first",
              .description = "all forwards, then all backwards from the last microbatch to the first",
              .source = "Huang et al., arXiv:1811.06965", .memory = "M", .needs = "P >= 1, M >= 1" },
    .bubble = "(P-1)(F+B)", .chunks = 1, .make = make,
};

PLUGIN(PLUGIN_SCHEME(schedule_last_first));
