#include "emulated_devices/schemes/pipeline/v_pattern.h"
#include <stdlib.h>

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    const int P = q->devices, gap = P % 3 == 0 ? 2 : 0;
    if (schedule_begin(s, "v-min", P, q->micros, 2, err) != OK) return err->code;
    place_v(s);
    struct v_pattern *pattern = calloc((size_t)P, sizeof *pattern);
    enum error_code code = pattern == NULL ? fail(err, ERR_MEMORY, "schedule v-min: no memory for %d devices", P) : OK;
    for (int d = 0; code == OK && d < P; d++) pattern[d] = (struct v_pattern){ d, 2 * P - 1 - d, 2 * P + gap + d, 4 * P + gap - 1 - d };
    if (code == OK) code = put_v_pattern(s, pattern, err);
    free(pattern);
    if (code != OK) {
        schedule_free(s);
        return code;
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_v_min = {
    .name = "v-min", .source = "Qi et al., arXiv:2405.15362", .needs = "P >= 1, M >= 1", .chunks = 2, .make = make,
};
