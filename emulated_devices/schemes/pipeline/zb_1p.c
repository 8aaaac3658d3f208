#include "emulated_devices/schemes/pipeline/zb_search.h"

static enum error_code make(struct schedule *s, const struct schedule_request *q, struct error *err)
{
    if (schedule_begin(s, "zb-1p", q->devices, q->micros, 1, err) != OK) return err->code;
    place_looped(s);
    const int limit = q->memory_limit > 0 ? q->memory_limit : 1 * q->devices;
    if (zero_bubble_search(s, q, limit, err) != OK) {
        schedule_free(s);
        return err->code;
    }
    return schedule_finish(s, err);
}

const struct schedule_generator schedule_zb_1p = {
    .name = "zb-1p", .source = "Qi et al., arXiv:2401.10241", .needs = "P >= 1, M >= 1", .chunks = 1, .make = make,
};
