#include "emulated_devices/schemes/pipeline/list_schedule.h"
#include <stdlib.h>

static const char *refuses(const struct schedule_request *q)
{
    return q->devices % 2 != 0 ? "P must be even: two pipelines meet in the middle" : NULL;
}

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    const int P = q->devices;
    if (schedule_begin(s, "chimera", P, q->micros, 2, err) != OK) return err->code;
    int *limit = calloc(2 * (size_t)P, sizeof *limit);
    enum error_code code = limit == NULL ? fail(err, ERR_MEMORY, "schedule chimera: no memory for %d devices", P) : OK;
    if (code == OK) code = place_bidirectional(s, err);
    for (int d = 0; code == OK && d < P; d++) {
        limit[2 * d] = P - d < P / 2 ? P - d : P / 2;
        limit[2 * d + 1] = d + 1 < P / 2 ? d + 1 : P / 2;
    }
    if (code == OK) code = list_schedule(s, q, limit, err);
    free(limit);
    if (code != OK) {
        schedule_free(s);
        return code;
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_chimera = {
    .name = "chimera", .description = "two 1f1b pipelines in opposite directions, two copies of the model",
    .source = "Li, Hoefler, arXiv:2107.06925", .needs = "P even, M >= 1 (best a multiple of P)",
    .bubble = "(P-2)B for M = P", .memory = "min(P-r, P/2) + min(r+1, P/2)", .chunks = 2, .refuses = refuses, .make = make,
};
