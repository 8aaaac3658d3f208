/* offload.c -- time of an update of offloaded states over that by the host alone.
 *
 * A claim is a published number in a file of golden/published/; `ours` is the number that this program computes for
 * the claim.  setting->alone is the group of a single device, on which the update runs.
 * bench/claims/compare.c calls the function through the table of quantities.c.  Errors are ERR_USAGE for wrong words
 * or without setting->alone, and ERR_MEMORY; claim->ours has no meaning then.
 */
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

/* Host and device take turns at the host's memory, so that their slices add up. */
enum error_code quantity_offload_shared(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    int stride = 1, host = 0, device = 0;
    const struct option table[] = {
        { "--stride", "K", OPTION_INT, &stride, .min = 1, .max = 1000, .required = true, .help = "" },
        { "--host", "N", OPTION_INT, &host, .min = 1, .max = 1000, .required = true, .help = "of a slice, / 1000" },
        { "--device", "N", OPTION_INT, &device, .min = 1, .max = 10000, .required = true, .help = "likewise" },
        { 0 }
    };
    (void)setting;
    const enum error_code e = claim_take(claim, table, err);
    claim->ours = ((stride - 1) * (double)host + device) / stride / 1000;
    return e;
}
