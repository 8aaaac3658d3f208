/* digest.c -- hashes what a device holds and counts, and joins the hashes of all devices.
 *
 * verify/cases/case.c calls; two builds are compared by what `orrery verify` prints of the digests.  Errors:
 * ERR_MEMORY, and ERR_COMM of a hash.
 */
#include "emulated_devices/verify/cases/digest.h"
#include "emulated_devices/verify/hash.h"
#include <stdlib.h>

#define DIGEST_ADD(hash, x) ((hash) = hash_bytes((hash), &(x), sizeof(x)))

struct digest digest_start(void)
{
    return (struct digest){ HASH_START, HASH_START, HASH_START, HASH_START };
}

/* Add one tensor's bytes as the device stores them.  A tensor without memory adds nothing. */
static void digest_add_tensor(struct digest *digest, struct device *device, struct tensor tensor)
{
    if (tensor.data == NULL) return;
    struct views views = views_of(device);
    const struct tensor shown = view_read(&views, tensor);
    digest->numbers = hash_bytes(digest->numbers, shown.data, tensor_bytes(shown));
    views_end(&views);
}

void digest_add_gradients(struct digest *digest, struct trainer *trainer, const struct step_result *result)
{
    DIGEST_ADD(digest->numbers, result->loss);
    struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++)
        for (int u = 0; u < part->data.units; u++)
            digest_add_tensor(digest, trainer->comm->device, data_own_gradient(&part->data.unit[u]));
}

void digest_add_weights(struct digest *digest, struct trainer *trainer)
{
    struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++)
        for (int u = 0; u < part->data.units; u++)
            digest_add_tensor(digest, trainer->comm->device, part->data.unit[u].own_w);
}

/* Messages of the emulation itself (CONTROL) are left out: checks may send more without another result. */
static void digest_add_counters(struct digest *digest, const struct ledger *ledger)
{
    for (int kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (int operation = 0; operation < OPERATION_COUNT; operation++)
            if (operation != CONTROL) DIGEST_ADD(digest->counters, ledger->of[kind].of[operation]);
}

enum error_code digest_finish(struct digest *digest, struct trainer *trainer, struct error *err)
{
    const struct device *const device = trainer->comm->device;
    const int devices = trainer->comm->size;
    struct digest *const all = calloc((size_t)devices, sizeof *all);
    enum error_code e = all ? OK : fail(err, ERR_MEMORY, "no memory for the digests of %d devices", devices);
    digest_add_counters(digest, &trainer->comm->counted);
    DIGEST_ADD(digest->memory, device->arena.peak);
    DIGEST_ADD(digest->time, device->clock.now);
    DIGEST_ADD(digest->time, device->clock.flops);
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = comm_bring(trainer->comm, digest, sizeof *digest, all, err);
    /* Joining: the digests of all ranks are hashed once more, in the order of ranks. */
    if (!e) *digest = digest_start();
    for (int d = 0; d < devices && !e; d++) {
        DIGEST_ADD(digest->numbers, all[d].numbers);
        DIGEST_ADD(digest->counters, all[d].counters);
        DIGEST_ADD(digest->memory, all[d].memory);
        DIGEST_ADD(digest->time, all[d].time);
    }
    free(all);
    return e;
}
