/* offload.c -- time of an update of offloaded states over that by the host alone. */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/bench/offload/offload.h"

enum error_code quantity_offload_stride(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    int stride = 0, slice = 0, slices;
    picoseconds took = 0, host = 0;
    const struct option table[] = {
        { "--stride", "K", OPTION_INT, &stride, .min = 1, .max = 1000, .required = true, .help = "" },
        { "--slice", "N", OPTION_INT, &slice, .min = 64, .max = 1e6, .required = true, .help = "elements" },
        { 0 }
    };
    enum error_code e = claim_take(claim, table, err);
    if (!e && setting->alone == NULL) e = fail(err, ERR_USAGE, "only `orrery bench offload` computes it");
    if (!e) e = offload_update(setting->alone, slice, OFFLOAD_HOST_ALONE, &host, &slices, err);
    if (!e) e = offload_update(setting->alone, slice, stride, &took, &slices, err);
    claim->ours = (double)took / (double)host;
    return e;
}
