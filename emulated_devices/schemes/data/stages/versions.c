/* versions.c -- two versions of the weights: before a step the newest becomes the older one.  The list of passes
 * defines which version a pass uses.
 *
 * The stage takes part where a pipeline updates inside its schedule (pipedream-2bw).  The stage sends nothing and
 * cannot fail.  model/checkpoint/checkpoint.c, schemes/data/open.c and stages.c call these functions.
 */
#include "emulated_devices/schemes/data/stages/stage.h"

static bool versions_takes_part(const struct data_parallel *dp) { return dp->versions > 1; }

/* Weights are kept whole: use a view of one version or the other. */
static enum error_code versions_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    int unit[PART_UNITS];
    (void)ahead, (void)err;
    for (int i = 0, n = units_at(dp, use, unit); i < n; i++) {
        struct unit *u = &dp->unit[unit[i]];
        u->w = use.older ? u->older : u->own_w;
        show_weights(u);
    }
    return OK;
}

/* The copy is made before the step: older = the weights that this step is about to change. */
static void versions_remember(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units; i++)
        device_copy(dp->device, dp->unit[i].older.data, dp->unit[i].own_w.data, tensor_bytes(dp->unit[i].own_w));
}

void data_same_versions(struct data_parallel *dp)
{
    if (versions_takes_part(dp)) versions_remember(dp);
}

const struct data_stage stage_versions = {
    .name = "versions", .takes_part = versions_takes_part, .acquire = versions_acquire, .before = versions_remember,
    .keeps = { { offsetof(struct unit, older), PARAMETERS, KIND_OLDER_WEIGHT, NULL } }, .kept = 1,
};
