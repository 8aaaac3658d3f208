/* holding.c -- lays out the unit of a parameter as any device of a plan has it, and finds the parameter in it.
 * model/collect.c and collection.c call.  The functions are local and pure; ERR_MEMORY. */
#include "emulated_devices/model/collection/holding.h"
#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/model/params.h"
#include <stdlib.h>

bool holding_exists(const struct trainer *section, int rank, const struct param_spec *spec, bool *first)
{
    return mesh_has(&section->plan.mesh, rank) && plan_holds(&section->plan, &section->schedule, rank, spec, first);
}

/* The layout of a unit on any device, without its numbers.  A unit has the same parameters on all devices that hold
 * it, and they are of one layer. */
struct place_in_unit { struct unit unit; struct parameter *all; struct parameter *own; struct shards shards; };

static enum error_code find_place(const struct trainer *trainer, int rank, int index, int tile,
                                  struct place_in_unit *at, struct error *err)
{
    const struct plan *plan = &trainer->plan;
    const struct param_spec of_sought = trainer_spec(trainer, index);
    const struct parameter sought = plan_piece(plan, rank, index, &of_sought, tile);
    const int unit = data_unit_of(&plan->model, &plan->data, &sought);
    const int first = param_of_layer(&plan->model, of_sought.layer),
              end = param_of_layer(&plan->model, of_sought.layer + 1);
    int count = 0;
    at->all = calloc((size_t)(end - first), sizeof *at->all);
    if (at->all == NULL) return fail(err, ERR_MEMORY, "no memory to find %s in its unit", of_sought.name);
    for (int i = first; i < end; i++) {
        const struct param_spec spec = trainer_spec(trainer, i);
        at->all[count] = plan_piece(plan, rank, i, &spec, tile);
        if (!plan_has_expert(plan, rank, &spec)) continue;
        if (data_unit_of(&plan->model, &plan->data, &at->all[count]) != unit) continue;
        if (i == index) at->own = &at->all[count];
        count++;
    }
    const enum error_code e = plan_shards(&at->shards, plan, rank, sought.apart, err);
    unit_lay_out(&at->unit, at->all, count, &at->shards, trainer->data.scheme->rows);
    return e;
}

enum error_code holding_of(const struct trainer *section, int rank, int index, int tile, enum tensor_kind kind,
                           struct holding *holding, struct error *err)
{
    struct place_in_unit at = { 0 };
    const struct param_spec own = trainer_spec(section, index), spec = data_spec(&section->data, &own, kind);
    const bool whole = data_keeps_whole(&section->data, kind);
    *holding = (struct holding){ .layout = whole ? layout_whole(spec.ndim, spec.dim)
                                     : plan_tile_layout(&section->plan, rank, &own, tile) };
    holding_exists(section, rank, &own, &holding->first);
    if (whole) {
        holding->kept = (struct interval){ 0, layout_count(&holding->layout) };
        holding->keeps_first = plan_copy_of(&section->plan, rank) == 0;
        return OK;
    }
    const enum error_code e = find_place(section, rank, index, tile, &at, err);
    if (!e) {
        holding->kept = unit_owned(&at.unit, data_kept(&at.shards, &at.unit, kind), at.own);
        holding->keeps_first = data_keeps_first(&at.shards, kind);
        holding->replica = kind_is_common(kind) ? 0 : shards_replica_of(&at.shards, at.shards.rank);
    }
    free(at.all);
    return e;
}
