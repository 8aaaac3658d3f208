#include "emulated_devices/schemes/pipeline/dualpipe.h"

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    const int P = q->devices, n = q->micros < 2 * P ? 2 * P : q->micros;
    if (schedule_begin(s, "dualpipev", P, q->micros, 2, err) != OK) return err->code;
    place_v(s);
    enum error_code code = OK;
    for (int d = 0; code == OK && d < P; d++) {
        struct dual u = { .s = s, .device = d, .chunk = { 0, 1 }, .first = { 0, 0 }, .stride = 1 };
        code = dualpipe_steps(&u, d, P, n, err);
    }
    if (code != OK) {
        schedule_free(s);
        return code;
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_dualpipev = {
    .name = "dualpipev", .description = "dualpipe folded in half: both ends on one device, one copy of the model",
    .source = "DeepSeek-AI; Qi et al.", .needs = "P >= 1, M >= 1 (best at least 2P)",
    .bubble = "(P-1)(F+2B-3W) of chunks", .memory = "2P+1 chunks", .chunks = 2, .make = make,
};
