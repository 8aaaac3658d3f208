#include "emulated_devices/schemes/pipeline/dualpipe.h"

static const char *refuses(const struct schedule_request *q)
{
    return q->devices % 2 != 0 ? "P must be even: two pipelines meet in the middle" : NULL;
}

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    const int P = q->devices, n = q->micros < 2 * P ? P : (q->micros + 1) / 2;
    if (schedule_begin(s, "dualpipe", P, q->micros, 2, err) != OK) return err->code;
    enum error_code code = place_bidirectional(s, err);
    for (int d = 0; code == OK && d < P; d++) {
        const bool second = d >= P / 2;
        struct dual u = { .s = s, .device = d, .chunk = { second, !second }, .first = { second, !second }, .stride = 2 };
        code = dualpipe_steps(&u, second ? P - 1 - d : d, P / 2, n, err);
    }
    if (code != OK) {
        schedule_free(s);
        return code;
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_dualpipe = {
    .name = "dualpipe", .description = "two directions, forward of one beside backward of the other; two copies of the model",
    .source = "DeepSeek-AI, arXiv:2412.19437", .needs = "P even, M >= 1 (best even and at least 2P)",
    .bubble = "(P/2-1)(F+2B-3W)", .memory = "P+1", .chunks = 2, .refuses = refuses, .make = make,
};
