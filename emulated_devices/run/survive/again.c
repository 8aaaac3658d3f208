/* again.c -- the launcher of a run that survives kills: it makes the memory for snapshots, and starts the devices
 * again.
 * cli/train/train.c calls.  Errors are those of the memory, before a device starts, and of launch_devices_again. */
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/model/collection/snapshot.h"
#include "emulated_devices/run/survive/surviving.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of every device's state: those of its boxes. */
static enum error_code find_bytes(const struct train_options *options, uint64_t *bytes, struct error *err)
{
    struct outlined *const plan = calloc(1, sizeof *plan);
    enum error_code e = plan ? OK : fail(err, ERR_MEMORY, "no memory for a plan");
    const bool open = !e && (e = outlined_open(plan, &options->plan, FOR_DEVICES, -1, err)) == OK;
    for (int d = 0; d < options->plan.mesh.devices && !e; d++)
        e = snapshot_copied(&plan->collection, d, &bytes[d], err);
    if (open) outlined_close(plan);
    free(plan);
    return e;
}

static void say_size(const struct train_options *options, const struct snapshot_memory *memory)
{
    uint64_t most = 0;
    for (int d = 0; d < memory->front->devices; d++)
        most = memory->slot[d].bytes > most ? memory->slot[d].bytes : most;
    say(run_stream(options), 8, "survive up to %d kill%s: snapshots take %s of shared memory, twice %s of a device at "
        "most", options->survive, plural(options->survive), size_format(memory->front->bytes).text,
        size_format(most).text);
}

/* All processes of the job have ended. */
static bool begin_again(void *context, const struct job_death *death)
{
    struct snapshot_memory *const memory = context;
    struct snapshot_front *const front = memory->front;
    front->ended = death->ended, front->status = death->status;
    if (front->ended || front->kills == front->most) return false;
    struct survived_kill *const k = &front->kill[front->kills++];
    *k = (struct survived_kill){ .died = death->when, .ended = measure_now() };
    snprintf(k->cause, sizeof k->cause, "%.*s", (int)strcspn(death->what, ";"), death->what);
    k->from = front->from = snapshot_memory_latest(memory);
    snapshot_memory_keep(memory, front->from);
    return true;
}

/* A process has died when the run had nothing more to do.  @return OK: its results are those of any run. */
static enum error_code say_late_death(const struct train_options *options, const struct snapshot_front *front,
                                      int *status, const struct error *err)
{
    say(run_stream(options), 8, "survived a death after the run had ended: %.*s", (int)strcspn(err->text, ";"),
        err->text);
    *status = front->status;
    return OK;
}

enum error_code surviving_launch(const struct train_options *options, int argc, char **argv, int *status,
                                 struct error *err)
{
    const int devices = options->plan.mesh.devices;
    const int64_t first = options->resume ? options->saved.step : 0;
    uint64_t *const bytes = calloc((size_t)devices, sizeof *bytes);
    struct snapshot_memory memory = { .file = -1 };
    enum error_code e = bytes ? find_bytes(options, bytes, err)
        : fail(err, ERR_MEMORY, "no memory for a list of %d devices", devices);
    if (!e) e = snapshot_memory_make(&memory, bytes, devices, first, options->steps, options->survive, err);
    free(bytes);
    if (!e) {
        say_size(options, &memory);
        e = launch_devices_again(devices, argc, argv, begin_again, &memory, status, err);
        const int kills = memory.front->kills;
        if (e == ERR_COMM && memory.front->ended) e = say_late_death(options, memory.front, status, err);
        else if (e == ERR_COMM && kills > 0) {
            const size_t used = strlen(err->text);
            snprintf(err->text + used, sizeof err->text - used, "; %d kill%s had been survived (--survive)", kills,
                     plural(kills));
        }
    }
    snapshot_memory_close(&memory);
    return e;
}
