/* outlined.c -- opens a trainer's outline on a device without numbers, for a plan's collection.
 * run/elastic/, model/checkpoint/sharded/reshard.c and tests call.  Errors are those of an outline; after one
 * everything is closed. */
#include "emulated_devices/model/collection/outlined.h"

enum error_code outlined_open(struct outlined *outlined, const struct plan *plan, enum collection_use use,
                              int replicas, struct error *err)
{
    enum error_code e = device_open(&outlined->device, backend_find("count"), plan->dtype, 0, err);
    if (e) return e;
    if (plan->cluster) clock_open(&outlined->device.clock, plan->cluster, plan->dtype);
    e = comm_outline(&outlined->comm, &outlined->device, 0, plan->mesh.devices, err);
    if (e) {
        device_close(&outlined->device);
        return e;
    }
    outlined->collection = (struct collection){ 0 };
    e = trainer_outline(&outlined->trainer, plan, &outlined->comm, err);
    const bool apart = !e && outlined->trainer.data.shards.apart;
    const int own = apart ? shards_replicas(&outlined->trainer.data.shards) : 0;
    if (!e) e = collection_open(&outlined->collection, &outlined->trainer, use, replicas < 0 ? own : replicas, err);
    if (e) outlined_close(outlined);
    return e;
}

void outlined_close(struct outlined *outlined)
{
    collection_close(&outlined->collection);
    trainer_close(&outlined->trainer);
    comm_outline_close(&outlined->comm);
    device_close(&outlined->device);
}
