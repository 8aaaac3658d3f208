/* dispatch_load.c -- counts how even the rows of devices are on a load by Zipf's law.
 * bench/schemes/dispatch_count.c calls on all ranks together.  The rows of the table are for 0, 1, 2 and 4 copies;
 * only rank 0 has the sums.  Errors of the expert layer are passed on. */
#include "emulated_devices/bench/schemes/dispatch_load.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/verify/cases/experts.h"
#include <math.h>

static const int copies[LOAD_ROWS] = { 0, 1, 2, 4 };

/* These numbers are of one device. */
struct own { double rows, copies; };

static struct own dispatch_load_own_of(const struct expert_layer *layer)
{
    struct own own = { (double)layer->routing.received, 0 };
    for (int64_t e = 0; layer->routing.held && e < layer->shape.E; e++)
        own.copies += layer->routing.held[e * layer->ep.devices + layer->ep.rank]
            && layer->routing.owner[e] != layer->ep.rank;
    return own;
}

static enum error_code schemes_dispatch_load_count(struct load_row *row, struct comm *world, struct expert_shape shape,
                                                   struct error *err)
{
    static struct expert_layer layer;
    struct own all[MESH_MOST_LISTED];
    const struct expert_scheme *s;
    shape.copying.slots = row->copies;
    enum error_code e = expert_scheme_find(&s, row->copies ? "fssdp" : "alltoall", err);
    if (!e) e = expert_layer_open(&layer, world, s, shape, err);
    e = comm_agree(world, e, err);
    if (!e) e = expert_layer_learn(&layer, err);
    if (!e) e = expert_layer_announce(&layer, err);
    const struct own own = dispatch_load_own_of(&layer);
    if (!e) e = comm_bring(world, &own, sizeof own, all, err);
    const double bytes = 3.0 * (double)(shape.F * shape.D) * (double)dtype_size(world->device->dtype);
    double rows = 0;
    for (int i = 0; i < world->size && !e && world->rank == 0; i++) {
        rows += all[i].rows;
        row->busiest = fmax(row->busiest, all[i].rows);
        row->sent += all[i].copies * bytes, row->kept = fmax(row->kept, all[i].copies * bytes);
    }
    row->busiest *= rows > 0 ? world->size / rows : 0;
    expert_layer_close(&layer);
    return e;
}

enum error_code dispatch_load_count(struct load_row row[LOAD_ROWS], struct comm *world, const struct expert_shape *even,
                                    struct error *err)
{
    struct expert_shape shape = *even;
    enum error_code e = OK;
    shape.ep = world->size, shape.etp = 1, shape.zipf = true;
    for (int i = 0; i < LOAD_ROWS && !e; i++) {
        row[i] = (struct load_row){ .copies = copies[i] };
        e = schemes_dispatch_load_count(&row[i], world, shape, err);
    }
    return e;
}
