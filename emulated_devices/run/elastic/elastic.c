/* elastic.c -- runs the phases of a run whose mesh changes, and moves the state between them.
 * session_start.c calls.  Every error is agreed on by all devices, also by those that wait. */
#include "emulated_devices/run/elastic/elastic.h"
#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "emulated_devices/run/elastic/phase.h"
#include "emulated_devices/run/elastic/raising.h"
#include "emulated_devices/run/session.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICOSECONDS 1e12                /* in a second */
enum { USUAL_PERCENT = 100 };           /* of a clock rate */

int elastic_changes(const struct train_options *options) { return options->elastic ? options->elastic->count : 0; }

int elastic_devices(const struct train_options *options)
{
    int most = options->plan.mesh.devices;
    for (int i = 0; i < elastic_changes(options); i++) {
        const int devices = options->elastic->change[i].options->plan.mesh.devices;
        most = devices > most ? devices : most;
    }
    return most;
}

enum error_code elastic_about(const struct train_options *options, int change, enum error_code e, struct error *err)
{
    char where[sizeof(struct printable) + 40];
    if (e == OK) return OK;
    if (options->elastic->change[change].loss.devices.count > 0) return fail_about(err, e, "--lose:");
    snprintf(where, sizeof where, "--elastic %s, line %d:", printable_path(options->elastic_file).text,
             options->elastic->change[change].line);
    return fail_about(err, e, where);
}

void elastic_json(cJSON *root, const struct train_options *options)
{
    const struct elastic *const run = options->elastic;
    const int64_t first = options->resume ? options->saved.step : 0;
    char mesh[MESH_WORDS_LINE];
    if (run == NULL) return;
    cJSON *const o = cJSON_AddObjectToObject(root, "elastic"), *const changes = cJSON_AddArrayToObject(o, "changes");
    for (int i = 0; i < run->count; i++) {
        const struct elastic_change *const c = &run->change[i];
        cJSON *const row = json_row(changes);
        json_add(row, "after_step %g mesh %s devices %d moved_bytes %g stayed_bytes %g boxes %d "
                 "messages %d one_shot_pairs %d staged_pairs %d direct_pairs %d virtual_ps %g",
                 (double)(first + c->step),
                 mesh_words(&c->options->plan, mesh, sizeof mesh), c->options->plan.mesh.devices, (double)c->moved,
                 (double)c->stays, c->boxes, c->messages, c->pairs[ONE_SHOT], c->pairs[STAGED], c->pairs[DIRECT],
                 (double)c->time);
        if (c->raised > 0) json_add(row, "raised_devices %d raised_percent %d", c->raised, c->raised_most);
        for (int d = 0; d < c->loss.devices.count; d++)
            json_add(json_row(d ? cJSON_GetObjectItemCaseSensitive(row, "lost") : cJSON_AddArrayToObject(row, "lost")),
                     "device %d moment %s done_ps %g noticed_ps %g agreed_ps %g restored_bytes %g",
                     c->loss.devices.device[d], lose_moment_words[c->loss.moment], (double)c->loss.done,
                     (double)c->loss.noticed, (double)c->loss.agreed, (double)c->loss.restored);
    }
    cJSON *const losses = cJSON_AddArrayToObject(o, "earlier_losses");
    for (int64_t i = 0; i < run->losses; i++) cJSON_AddItemToArray(losses, cJSON_CreateNumber(run->loss[i]));
}

/* This holds a run on one device: the plan of the phase that has ended, or runs, and its numbers. */
struct elastic_device {
    struct comm *comm;                  /* all devices */
    const struct train_options *options;        /* of the run */
    struct outlined *now;               /* the current phase's plan */
    int *places;                        /* [devices] the rank in it of each; NULL: the same */
    struct carried numbers;             /* this device's, between two phases */
    uint64_t print;                     /* the fingerprint of all weights, between two phases */
};

/* ---- who reports ------------------------------------------------------------------------------------------------- */

/* Rank 0 of a phase reports, and knows what has come of it.  If device 0 is lost, that is another device of the job. */
static int speaker_of(const struct elastic *elastic, int number)
{
    const int *const process = number > 0 ? elastic->change[number - 1].process : NULL;
    return process ? process[0] : 0;
}

/* A phase leaves this to all devices: the one that reported tells them, since any of them may report the next. */
struct phase_left { uint64_t print; int64_t losses; picoseconds done, noticed, agreed; int32_t stopped; };

/* Bring the bytes of one device to rank 0, and tell them to all. */
static enum error_code tell_from(struct comm *comm, int from, void *own, size_t bytes, struct error *err)
{
    char *const all = comm->rank == 0 ? malloc((size_t)comm->size * bytes + 1) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for what devices know") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, own, bytes, all, err);
    if (!e && all) memcpy(own, all + (size_t)from * bytes, bytes);
    free(all);
    return e ? e : comm_tell(comm, own, bytes, err);
}

static enum error_code share_phase(struct elastic_device *device, int number, const struct phase *phase, bool *stopped,
                                   struct error *err)
{
    struct elastic *const elastic = device->options->elastic;
    struct loss *const loss = number < elastic->count ? &elastic->change[number].loss : NULL;
    struct phase_left left = { phase->after, elastic->losses, loss ? loss->done : 0, loss ? loss->noticed : 0,
                               loss ? loss->agreed : 0, phase->stopped };
    const int speaker = speaker_of(elastic, number);
    enum error_code e = tell_from(device->comm, speaker, &left, sizeof left, err);
    if (e) return e;
    device->print = left.print, *stopped = left.stopped != 0;
    if (loss) loss->done = left.done, loss->noticed = left.noticed, loss->agreed = left.agreed;
    if (left.losses > 0)
        e = tell_from(device->comm, speaker, elastic->loss, (size_t)left.losses * sizeof *elastic->loss, err);
    elastic->losses = left.losses;
    return e;
}

/* ---- a phase ----------------------------------------------------------------------------------------------------- */

/* The run's options with a phase's plan and number of steps.  Rates and checkpoints are those of the whole run. */
static struct train_options options_of_phase(const struct train_options *run, int phase)
{
    const struct elastic *const elastic = run->elastic;
    const int64_t begin = phase > 0 ? elastic->change[phase - 1].step : 0;
    const bool loses = phase < elastic->count && elastic->change[phase].loss.devices.count > 0;
    const int64_t end = phase < elastic->count ? elastic->change[phase].step : run->steps;
    struct train_options o = phase > 0 ? *elastic->change[phase - 1].options : *run;
    o.lr_steps = run->lr_steps ? run->lr_steps : (run->resume ? run->saved.step : 0) + run->steps;
    /* The step in which a device is lost is begun, and done again on the mesh after it. */
    o.steps = end - begin + loses, o.later_steps = run->steps - end - loses;
    o.elastic = run->elastic, o.elastic_file = run->elastic_file;
    return o;
}

/* The snapshots of a phase, if the run takes them. */
static void begin_losing(struct losing *losing, struct elastic *elastic, int number,
                         const struct collection *collection)
{
    static struct loss none;
    const struct elastic_change *const before = number > 0 ? &elastic->change[number - 1] : NULL;
    struct elastic_change *const after = number < elastic->count ? &elastic->change[number] : NULL;
    *losing = (struct losing){ .loss = after ? &after->loss : &none, .collection = collection,
                               .snapshot = { .step = -1 },
                               .index = after ? after->step - (before ? before->step : 0) : -1 };
}

static void say_snapshots(FILE *out, const struct losing *losing)
{
    if (losing->taken == 0) return;
    say(out, 8, "snapshots of %lld step%s: %s of a device copied, %s of them to its keeper, as foreseen on every "
        "device; held %s at most", (long long)losing->taken, plural(losing->taken),
        size_format(losing->most_copied).text, size_format(losing->most_sent).text,
        time_format((double)losing->held / PICOSECONDS).text);
}

/* After a loss the devices with the most work compute faster (raising.h), until the mesh changes because it was asked
 * for. */
static enum error_code raise_clock(const struct elastic_device *device, int number, int place, struct cluster *own,
                                   struct error *err)
{
    struct elastic_change *const before = number > 0 ? &device->options->elastic->change[number - 1] : NULL;
    if (before == NULL || before->loss.devices.count == 0 || device->options->raise == 0) return OK;
    const struct plan *const plan = &device->now->trainer.plan;
    int *const percent = calloc((size_t)plan->mesh.devices + 1, sizeof *percent);
    enum error_code e = percent ? raising_percents(plan, device->options->raise, percent, err)
        : fail(err, ERR_MEMORY, "no memory for the clock rates of %d devices", plan->mesh.devices);
    int raised = 0, most = 0;
    for (int rank = 0; rank < plan->mesh.devices && !e; rank++) {
        raised += percent[rank] > USUAL_PERCENT;
        most = percent[rank] > most ? percent[rank] : most;
    }
    before->raised = raised, before->raised_most = most;
    if (!e && percent[place] > USUAL_PERCENT) *own = raising_cluster(own, percent[place]);
    if (!e && place == 0)
        say(run_stream(device->options), 8, "raised  the clock rates of %d device%s, by up to %d %%", raised,
            plural(raised), raised ? most - USUAL_PERCENT : 0);
    free(percent);
    return e;
}

/* Devices of the mesh train; the others only learn how that ended. */
static enum error_code run_phase(struct elastic_device *device, int number, const struct train_data *data,
                                 const char *overridden, int *status, bool *stopped, struct error *err)
{
    const struct train_options options = options_of_phase(device->options, number);
    struct cluster own = cluster_of_rank(&device->options->cluster, device->comm->rank);
    struct elastic *const elastic = device->options->elastic;
    struct losing losing;
    struct phase phase = { .plan = device->now, .comes = number > 0 ? &device->numbers : NULL,
                           .last = number == elastic->count, .run = elastic,
                           .losing = elastic->snapshots ? &losing : NULL };
    struct comm part;
    enum error_code e = OK;
    begin_losing(&losing, elastic, number, &device->now->collection);
    const int place = collection_place(&device->now->collection, device->comm->rank);
    const bool takes_part = place >= 0 && mesh_has(&options.plan.mesh, place);
    if (takes_part) e = raise_clock(device, number, place, &own, err);
    e = comm_agree(device->comm, e, err);
    if (!e && takes_part) {
        clock_restart(&device->comm->device->clock, &own, options.plan.dtype);
        device_count_anew(device->comm->device);
        e = comm_part(&part, device->comm, options.plan.mesh.devices,
                      number > 0 ? elastic->change[number - 1].process : NULL, err);
        if (!e) {
            e = session_on_device(&part, &options, data, overridden, &phase, status, err);
            comm_part_close(&part, device->comm);
        }
    }
    e = comm_agree(device->comm, e, err);
    const bool speaks = device->comm->rank == speaker_of(elastic, number);
    if (!e && speaks) say_snapshots(run_stream(device->options), &losing);
    snapshot_free(&losing.snapshot);
    if (!e && speaks && number > 0 && phase.before != device->print)
        e = fail(err, ERR_CHECK, "weights have the fingerprint %016llx after the mesh has changed, and %016llx before",
                 (unsigned long long)phase.before, (unsigned long long)device->print);
    e = comm_agree(device->comm, e, err);
    carried_free(&device->numbers);
    device->numbers = phase.goes;
    return e ? e : share_phase(device, number, &phase, stopped, err);
}

/* ---- between phases ---------------------------------------------------------------------------------------------- */

static double elastic_seconds(picoseconds time) { return (double)time / PICOSECONDS; }

/* How the boxes of the pairs of devices were sent; nothing, if all are packed in one message. */
static struct ways_text { char text[96]; } ways_of(const struct elastic_change *change)
{
    struct ways_text t = { "" };
    size_t used = 0;
    if (change->pairs[STAGED] + change->pairs[DIRECT] == 0) return t;
    for (enum strided_way way = ONE_SHOT; way < STRIDED_WAYS; way++)
        if (change->pairs[way] > 0)
            used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%d %s",
                                     used ? ", " : " (pairs of devices: ", change->pairs[way], strided_way_name(way));
    snprintf(t.text + used, sizeof t.text - used, ")");
    return t;
}

/* A device is lost: what the others do about that, and how long each part takes. */
static void say_lost(FILE *out, const struct elastic_change *change, int64_t step, const struct plan *before)
{
    const struct loss *const l = &change->loss;
    char old[MESH_WORDS_LINE], new[MESH_WORDS_LINE], names[80] = "";
    for (int i = 0; i < l->devices.count; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%d", i ? ", " : "", l->devices.device[i]);
    say(out, 8, "lost    device%s %s in step %lld, %s: %s of the step are lost; noticed %s later, agreed on in %s",
        plural(l->devices.count), names, (long long)step, lose_moment_says[l->moment],
        time_format(elastic_seconds(l->done)).text, time_format(elastic_seconds(l->noticed)).text,
        time_format(elastic_seconds(l->agreed)).text);
    say(out, 8, "        %s becomes %s, and step %lld is done again; %s moved in %d boxes and %d message%s%s, the "
        "fewest bytes there can be, of them %s that only keepers had; %s stayed; virtual %s; recovered in %s",
        mesh_words(before, old, sizeof old), mesh_words(&change->options->plan, new, sizeof new), (long long)step,
        size_format(change->moved).text, change->boxes, change->messages, plural(change->messages),
        ways_of(change).text, size_format(l->restored).text, size_format(change->stays).text,
        time_format(elastic_seconds(change->time)).text,
        time_format(elastic_seconds(l->done + l->noticed + l->agreed + change->time)).text);
    fflush(out);
}

static void say_moved(FILE *out, const struct elastic_change *change, int64_t step, const struct plan *before)
{
    char old[MESH_WORDS_LINE], new[MESH_WORDS_LINE];
    if (change->loss.devices.count > 0) {
        say_lost(out, change, step + 1, before);
        return;
    }
    say(out, 8, "elastic after step %lld: %s becomes %s; %s moved in %d boxes and %d message%s%s, the fewest bytes "
        "there can be; %s stayed; virtual %s", (long long)step, mesh_words(before, old, sizeof old),
        mesh_words(&change->options->plan, new, sizeof new), size_format(change->moved).text, change->boxes,
        change->messages, plural(change->messages), ways_of(change).text, size_format(change->stays).text,
        time_format((double)change->time / PICOSECONDS).text);
    fflush(out);
}

/* The slowest device's time, on all devices. */
static enum error_code bring_time(struct comm *comm, picoseconds *time, struct error *err)
{
    const picoseconds own = comm->device->clock.now;
    picoseconds *const all = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for a list of devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    for (int r = 0; all && r < comm->size && !e; r++) *time = all[r] > *time ? all[r] : *time;
    free(all);
    return e ? e : comm_tell(comm, time, sizeof *time, err);
}

/* Devices were lost together with the copies that only they had of each other. */
static enum error_code fail_without_copy(const struct elastic_change *change, struct error *err)
{
    char what[sizeof err->text];
    snprintf(what, sizeof what, "%s", err->text);
    return fail(err, ERR_COMM, "%d devices are lost together, and with them the only copies of a part of the state; "
                "--resume continues from the last checkpoint (%.200s)", change->loss.devices.count, what);
}

static enum error_code move_state(struct elastic_device *device, struct elastic_change *change, struct outlined *next,
                                  struct error *err)
{
    struct comm *const comm = device->comm;
    const struct train_options *const o = change->options;
    /* Ranks are those of the whole job here; the cluster of a plan after a loss has places of its own ranks. */
    const struct cluster *const whole = &device->options->cluster, own = cluster_of_rank(whole, comm->rank);
    struct moves moves = { .count = 0 };
    struct group everyone = { .comm = NULL };
    struct carried fresh = { .count = 0 };
    struct transferred did = { 0 };
    clock_restart(&comm->device->clock, &own, o->plan.dtype);
    enum error_code e = moves_open(&moves, comm->size, whole, err);
    if (!e) e = moves_between(&moves, &device->now->collection, &next->collection, err);
    if (e == ERR_PLAN && change->loss.devices.count > 0) e = fail_without_copy(change, err);
    if (!e && device->numbers.count == 0)
        e = carried_take(&device->numbers, &device->now->collection, comm->rank, NULL, err);
    e = comm_agree(comm, e, err);
    if (!e) e = comm_agree(comm, group_world(&everyone, comm, err), err);
    if (!e)
        e = transfer_run(&everyone, &moves, &device->now->collection, &next->collection, &device->numbers, &fresh,
                         &did, err);
    if (!e) e = bring_time(comm, &change->time, err);
    change->moved = moves.bytes, change->stays = moves.stays, change->boxes = moves.count;
    change->messages = did.messages;
    memcpy(change->pairs, did.pairs, sizeof did.pairs);
    carried_free(&device->numbers);
    device->numbers = fresh;
    group_close(&everyone);
    moves_close(&moves);
    return e;
}

/* The rank in a plan of each device of the job. */
static enum error_code find_places(struct outlined *plan, const int *process, int devices, int **places,
                                   struct error *err)
{
    *places = NULL;
    if (process == NULL) return OK;
    *places = malloc((size_t)devices * sizeof **places);
    if (*places == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", devices);
    for (int d = 0; d < devices; d++) (*places)[d] = -1;
    for (int r = 0; r < plan->trainer.plan.mesh.devices; r++) (*places)[process[r]] = r;
    plan->collection.place = *places;
    return OK;
}

/* Add up what only the lost devices had, which is at their keepers. */
static enum error_code count_restored(const struct collection *collection, struct loss *loss, struct error *err)
{
    uint64_t restored = 0;
    enum error_code e = OK;
    for (int i = 0; i < loss->devices.count && !e; i++) {
        uint64_t copied, sent;
        e = snapshot_bytes(collection, loss->devices.device[i], &copied, &sent, err);
        restored += sent;
    }
    loss->restored = restored;
    return e;
}

/* From the plan of one phase to that of the next. */
static enum error_code change_mesh(struct elastic_device *device, int number, struct error *err)
{
    struct elastic_change *const change = &device->options->elastic->change[number];
    const int64_t first = device->options->resume ? device->options->saved.step : 0;
    struct outlined *const next = calloc(1, sizeof *next);
    enum error_code e = next ? OK : fail(err, ERR_MEMORY, "no memory for another mesh");
    const bool open = !e && (e = outlined_open(next, &change->options->plan, FOR_DEVICES, -1, err)) == OK;
    int *places = NULL;
    if (!e) e = find_places(next, change->process, device->comm->size, &places, err);
    if (!e && change->loss.devices.count > 0) {
        device->now->collection.losses = NULL;
        e = count_restored(&device->now->collection, &change->loss, err);
        device->now->collection.losses = &change->loss.devices;
    }
    e = comm_agree(device->comm, e, err);
    if (!e) e = move_state(device, change, next, err);
    if (!e && device->comm->rank == 0)
        say_moved(run_stream(device->options), change, first + change->step, &device->now->trainer.plan);
    if (e && open) outlined_close(next);
    if (e) {
        free(next), free(places);
        return e;
    }
    outlined_close(device->now);
    free(device->now), free(device->places);
    device->now = next, device->places = places;
    return OK;
}

enum error_code elastic_run(struct comm *comm, const struct train_options *options, const struct train_data *data,
                            const char *overridden, int *status, struct error *err)
{
    struct elastic *const elastic = options->elastic;
    struct elastic_device device = { .comm = comm, .options = options, .now = calloc(1, sizeof *device.now) };
    bool stopped = false;
    enum error_code e = device.now ? OK : fail(err, ERR_MEMORY, "no memory for a mesh");
    const bool open = !e && (e = outlined_open(device.now, &options->plan, FOR_DEVICES, -1, err)) == OK;
    /* Devices of one process share the list: the first makes it, and nobody frees it before all have ended. */
    if (elastic->loss == NULL) elastic->loss = calloc((size_t)options->steps + 1, sizeof *elastic->loss);
    elastic->losses = 0;
    if (!e && elastic->loss == NULL)
        e = fail(err, ERR_MEMORY, "no memory for the losses of %lld steps", (long long)options->steps);
    e = comm_agree(comm, e, err);
    for (int n = 0; n <= elastic->count && !e && !stopped; n++) {
        if (n > 0) e = elastic_about(options, n - 1, change_mesh(&device, n - 1, err), err);
        if (!e) e = run_phase(&device, n, data, overridden, status, &stopped, err);
    }
    e = comm_agree(comm, e, err);
    carried_free(&device.numbers);
    if (open) outlined_close(device.now);
    free(device.now), free(device.places), free(elastic->loss);
    elastic->loss = NULL;
    return e;
}
