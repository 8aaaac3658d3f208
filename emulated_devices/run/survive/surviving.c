/* surviving.c -- one device of a run that survives kills: its state goes into shared memory at the beginning of every
 * step, and comes from there after a kill.
 * session_start.c, session.c and report_json.c call.  Every error is agreed on by all devices. */
#include "emulated_devices/run/survive/surviving.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/run/elastic/phase.h"
#include "emulated_devices/run/session.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>

bool surviving_again(const struct train_options *options)
{
    struct snapshot_memory memory;
    struct error unread;
    if (options->survive == 0 || snapshot_memory_join(&memory, options->plan.mesh.devices, &unread)) return false;
    const bool again = memory.front->kills > 0;
    snapshot_memory_close(&memory);
    return again;
}

/* ---- the state out of a trainer and into one --------------------------------------------------------------------- */

static uint64_t tensor_part(const struct collection *collection, int tensor, const struct boxes *boxes)
{
    return (uint64_t)boxes_total(boxes, collection->tensor[tensor].ndim) * collection_size(collection, tensor);
}

static enum error_code wrong_bytes(int device, uint64_t bytes, uint64_t foreseen, struct error *err)
{
    return fail(err, ERR_CHECK, "a snapshot of device %d has %llu bytes, not %llu", device, (unsigned long long)bytes,
                (unsigned long long)foreseen);
}

static enum error_code write_state(struct surviving *surviving, struct trainer *trainer, struct error *err)
{
    const struct collection *const collection = surviving->collection;
    const int device = trainer->comm->rank;
    const uint64_t room = surviving->memory.slot[device].bytes;
    char *const half = snapshot_memory_begin(&surviving->memory, device, trainer->step);
    uint64_t used = 0;
    enum error_code e = OK;
    if (half == NULL) return OK;        /* the devices have just begun with it */
    for (int t = 0; t < collection->count && !e; t++) {
        struct boxes boxes = { 0 };
        char *data = NULL;
        e = collection_take(collection, t, device, trainer, &boxes, &data, err);
        const uint64_t bytes = e ? 0 : tensor_part(collection, t, &boxes);
        if (used + bytes > room) e = wrong_bytes(device, used + bytes, room, err);
        else if (data) memcpy(half + used, data, bytes), used += bytes;
        boxes_free(&boxes), free(data);
    }
    if (!e && used != room) e = wrong_bytes(device, used, room, err);
    if (!e) snapshot_memory_commit(&surviving->memory, device, trainer->step);
    return e;
}

/* The snapshot has what the device had, and the trainer takes what it wants: less, where it makes rounded weights of
 * its masters. */
static enum error_code surviving_read(const struct collection *collection, int tensor, int device, const char **from,
                                   struct carried *comes, struct error *err)
{
    struct boxes has = { 0 }, *const wants = &comes->boxes[tensor];
    const int ndim = collection->tensor[tensor].ndim;
    enum error_code e = collection_has(collection, tensor, device, &has, err);
    if (!e) e = collection_wants(collection, tensor, device, wants, err);
    char *const data = e ? NULL : calloc(tensor_part(collection, tensor, wants) + 1, 1);
    if (!e && data == NULL) e = fail(err, ERR_MEMORY, "no memory for a device's state");
    for (int b = 0; b < wants->count && !e; b++)
        boxes_copy(data, wants, *from, &has, &wants->at[b], ndim, collection_size(collection, tensor));
    comes->data[tensor] = data;
    *from += tensor_part(collection, tensor, &has);
    boxes_free(&has);
    return e;
}

static enum error_code read_state(struct surviving *surviving, int device, struct carried *comes, struct error *err)
{
    const struct collection *const collection = surviving->collection;
    const char *from = snapshot_memory_find(&surviving->memory, device, surviving->memory.front->from);
    enum error_code e = from ? carried_take(comes, collection, device, NULL, err)
        : fail(err, ERR_INTERNAL, "device %d has no snapshot of step %lld", device,
               (long long)surviving->memory.front->from);
    for (int t = 0; t < collection->count && !e; t++) e = surviving_read(collection, t, device, &from, comes, err);
    return e;
}

/* ---- after a kill ------------------------------------------------------------------------------------------------ */

static struct survived_kill *last_kill(const struct surviving *surviving)
{
    struct snapshot_front *const front = surviving->memory.front;
    return front->kills > 0 ? &front->kill[front->kills - 1] : NULL;
}

static void say_survived(FILE *out, const struct surviving *surviving)
{
    const struct snapshot_front *const front = surviving->memory.front;
    const struct survived_kill *const k = last_kill(surviving);
    char where[64];
    if (k->from >= 0) snprintf(where, sizeof where, "from the snapshots of step %lld", (long long)k->from);
    else snprintf(where, sizeof where, "from the beginning, for there was no snapshot");
    say(out, 8, "survived %s; all were started again %s, kill %d of at most %d; all had ended %s after it, and had "
        "their state after %s; step %lld was done %s after the kill, with %s of processors", k->cause, where,
        front->kills, front->most, time_format(k->ended - k->died).text, time_format(k->began - k->died).text,
        (long long)(k->from >= 0 ? k->from : front->first) + 1, time_format(k->stepped - k->died).text,
        time_format(k->processor).text);
    fflush(out);
}

/* Processor time of the devices' processes, together: what the wall clock says depends on who else computes. */
static enum error_code tell_first_step(struct surviving *surviving, struct trainer *trainer, FILE *out,
                                       struct error *err)
{
    struct comm *const comm = trainer->comm;
    const double own = measure_processor();
    double *const all = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for a list of devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    if (!e && comm->rank == 0) {
        struct survived_kill *const k = last_kill(surviving);
        for (int r = 0; r < comm->size; r++) k->processor += all[r];
        k->stepped = measure_now();
        say_survived(out, surviving);
    }
    free(all);
    surviving->tells = false;
    return comm_agree(comm, e, err);
}

enum error_code surviving_at(struct surviving *surviving, enum moment moment, struct trainer *trainer,
                             const struct training_step *step, const struct train_options *options, struct error *err)
{
    if (surviving == NULL) return OK;
    if (moment == STEP_BEGINS) return comm_agree(trainer->comm, write_state(surviving, trainer, err), err);
    if (moment != STEP_ENDED) return OK;
    if (trainer->comm->rank == 0)
        surviving->memory.loss[trainer->step - 1 - surviving->memory.front->first] = step->result.loss;
    return surviving->tells ? tell_first_step(surviving, trainer, run_stream(options), err) : OK;
}

void surviving_json(cJSON *root, const struct train_options *options)
{
    const struct surviving *const surviving = options->surviving;
    if (surviving == NULL) return;
    const struct snapshot_front *const front = surviving->memory.front;
    cJSON *const o = cJSON_AddObjectToObject(root, "survived"), *const kills = cJSON_AddArrayToObject(o, "kills");
    json_add(o, "memory_bytes %g most_kills %d", (double)front->bytes, front->most);
    for (int i = 0; i < front->kills; i++) {
        const struct survived_kill *const k = &front->kill[i];
        cJSON *const row = json_add(json_row(kills), "cause %s from_step %g", k->cause,
                                    (double)(k->from >= 0 ? k->from : front->first));
        json_add(row, "snapshots %hhd ended_seconds %g", (bool)(k->from >= 0), k->ended - k->died);
        /* Who is killed before the first step has ended leaves no later times. */
        if (k->stepped > 0)
            json_add(row, "began_seconds %g stepped_seconds %g processor_seconds %g", k->began - k->died,
                     k->stepped - k->died, k->processor);
    }
    cJSON *const losses = cJSON_AddArrayToObject(o, "earlier_losses");
    for (int64_t i = 0; front->from > 0 && i < front->from - front->first; i++)
        cJSON_AddItemToArray(losses, cJSON_CreateNumber(surviving->memory.loss[i]));
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

/* The rest of the run's steps; rates and checkpoints are those of the whole run. */
static struct train_options rest_of_run(const struct train_options *run, struct surviving *surviving)
{
    const struct snapshot_front *const front = surviving->memory.front;
    struct train_options o = *run;
    o.surviving = surviving;
    o.lr_steps = run->lr_steps ? run->lr_steps : front->first + run->steps;
    if (front->from >= 0) o.steps = front->first + run->steps - front->from;
    return o;
}

enum error_code surviving_run(struct comm *comm, const struct train_options *options, const struct train_data *data,
                              const char *overridden, int *status, struct error *err)
{
    struct surviving surviving = { .tells = false };
    struct outlined *const plan = calloc(1, sizeof *plan);
    struct carried comes = { .count = 0 };
    enum error_code e = plan ? OK : fail(err, ERR_MEMORY, "no memory for a plan");
    const bool open = !e && (e = outlined_open(plan, &options->plan, FOR_DEVICES, -1, err)) == OK;
    const bool joined = !e && (e = snapshot_memory_join(&surviving.memory, comm->size, err)) == OK;
    if (open) surviving.collection = &plan->collection;
    const bool begins = joined && surviving.memory.front->from >= 0;
    if (!e && begins) e = read_state(&surviving, comm->rank, &comes, err);
    e = comm_agree(comm, e, err);
    if (!e) {
        const struct train_options rest = rest_of_run(options, &surviving);
        struct phase phase = { .plan = plan, .comes = begins ? &comes : NULL, .last = true, .surviving = &surviving };
        surviving.tells = surviving.memory.front->kills > 0;
        if (surviving.tells && comm->rank == 0) last_kill(&surviving)->began = measure_now();
        e = session_on_device(comm, &rest, data, overridden, &phase, status, err);
        if (!e && comm->rank == 0) announce_end(*status);
    }
    carried_free(&comes);
    if (joined) snapshot_memory_close(&surviving.memory);
    if (open) outlined_close(plan);
    free(plan);
    return e;
}
