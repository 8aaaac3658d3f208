/* raising.c -- which devices of a plan have the most work, and how much faster they compute.  elastic.c calls.  Errors:
 * ERR_MEMORY, and those of the schedule. */
#include "emulated_devices/run/elastic/raising.h"
#include "emulated_devices/plan/sections.h"

enum { USUAL = 100 };                   /* percent */

static int64_t layers_of_place(const struct plan *plan, const struct schedule *schedule, int place)
{
    int64_t layers = 0;
    for (int c = 0; c < schedule->chunks; c++) {
        const int stage = schedule->stage_of[place][c];
        if (stage >= 0) layers += plan->first_layer[stage + 1] - plan->first_layer[stage];
    }
    return layers;
}

/* A section has the layers of its stage. */
static int64_t work_of(const struct plan *plan, const struct schedule *schedule, int rank)
{
    const struct plan *const own = plan_of_device(plan, rank);
    int64_t sequences = 0;
    for (int m = 0; m < plan->micros; m++)
        sequences += plan_microbatch(own, mesh_coordinate(&own->mesh, rank, DP), m).count;
    return sequences * (plan->sections ? own->layers.count
                        : layers_of_place(plan, schedule, mesh_coordinate(&plan->mesh, rank, PP)));
}

enum error_code raising_percents(const struct plan *plan, int most, int *percent, struct error *err)
{
    struct schedule schedule;
    int64_t least = INT64_MAX;
    const enum error_code e = plan_schedule(plan, &schedule, err);
    if (e) return e;
    for (int rank = 0; rank < plan->mesh.devices; rank++) {
        const int64_t work = work_of(plan, &schedule, rank);
        if (work > 0 && work < least) least = work;
    }
    for (int rank = 0; rank < plan->mesh.devices; rank++) {
        const int64_t work = work_of(plan, &schedule, rank), wished = work > least ? USUAL * work / least : USUAL;
        percent[rank] = (int)(wished < USUAL + most ? wished : USUAL + most);
    }
    schedule_free(&schedule);
    return OK;
}

struct cluster raising_cluster(const struct cluster *cluster, int percent)
{
    struct cluster own = *cluster;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (own.flop_rate[t] > 0)
            own.flop_rate[t] = own.flop_rate[t] / USUAL * percent + own.flop_rate[t] % USUAL * percent / USUAL;
    return own;
}
