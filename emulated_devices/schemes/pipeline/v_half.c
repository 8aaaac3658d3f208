#include "emulated_devices/schemes/pipeline/v_pattern.h"
#include <stdlib.h>

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    const int P = q->devices, gap = P % 2 == 0 ? 3 : 0;
    if (schedule_begin(s, "v-half", P, q->micros, 2, err) != OK) return err->code;
    place_v(s);
    struct v_pattern *pattern = calloc((size_t)P, sizeof *pattern);
    enum error_code code = pattern == NULL ? fail(err, ERR_MEMORY, "schedule v-half: no memory for %d devices", P) : OK;
    for (int d = 0; code == OK && d < P; d++) pattern[d] = (struct v_pattern){ 2 * d, 3 * P - 2 - d, 3 * P + gap - 1 + 2 * d, 6 * P + gap - 2 - d };
    if (code == OK) code = put_v_pattern(s, pattern, err);
    free(pattern);
    if (code != OK) {
        schedule_free(s);
        return code;
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_v_half = {
    .name = "v-half", .source = "Qi et al., arXiv:2405.15362", .needs = "P >= 1, M >= 1", .chunks = 2, .make = make,
};
