/* losing.c -- takes a snapshot at the beginning of every step, and ends a step in which a device is lost.
 * session.c and elastic.c call.  Every error is agreed on by the phase's devices. */
#include "emulated_devices/run/elastic/losing.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include "ref/io/figures.h"
#include <stdlib.h>

#define X(moment, word, says) word,
const char *const lose_moment_words[LOSE_MOMENT_COUNT + 1] = { LOSE_MOMENTS(X) NULL };
#undef X
#define X(moment, word, says) says,
const char *const lose_moment_says[LOSE_MOMENT_COUNT] = { LOSE_MOMENTS(X) };
#undef X

static bool is_the_step(const struct losing *losing, const struct training_step *step)
{
    return losing->loss->devices.count > 0 && step->index == losing->index;
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

/* The message to the keeper goes over the nearest link between the two. */
static picoseconds message_time(const struct losing *losing, const struct trainer *trainer, uint64_t bytes)
{
    const struct cluster *const c = &trainer->device->clock.cluster;
    const struct comm *const comm = trainer->comm;
    const int keeper = collection_keeper(losing->collection, comm->rank);
    const struct link *const link = &c->link[cluster_level(c, comm_process(comm, comm->rank),
                                                           comm_process(comm, keeper))];
    return bytes > 0 ? link->latency + time_at_rate(bytes, link->rate) : 0;
}

static enum error_code take(struct losing *losing, struct trainer *trainer, struct error *err)
{
    struct clock *const clock = &trainer->device->clock;
    struct snapshot *const s = &losing->snapshot;
    uint64_t copied = 0, sent = 0;
    enum error_code e = snapshot_take(s, losing->collection, trainer, err);
    if (!e)
        e = snapshot_bytes(losing->collection, comm_process(trainer->comm, trainer->comm->rank), &copied, &sent, err);
    if (!e && (copied != s->copied || sent != s->sent))
        e = fail(err, ERR_CHECK, "a snapshot has copied %llu and sent %llu bytes, not %llu and %llu",
                 (unsigned long long)s->copied, (unsigned long long)s->sent, (unsigned long long)copied,
                 (unsigned long long)sent);
    e = comm_agree(trainer->comm, e, err);
    if (e) return e;
    const picoseconds busy = clock->stream[FLUSH] > clock->now ? clock->stream[FLUSH] - clock->now : 0;
    losing->foreseen = busy + time_at_rate(copied, clock->cluster.copy_rate) + message_time(losing, trainer, sent);
    losing->until = clock_copy(clock, FLUSH, clock->now, s->copied);
    losing->until = clock_job(clock, FLUSH, "snapshot to the keeper", losing->until,
                              message_time(losing, trainer, s->sent), s->sent);
    losing->due = true, losing->taken++;
    losing->most_copied = s->copied > losing->most_copied ? s->copied : losing->most_copied;
    losing->most_sent = s->sent > losing->most_sent ? s->sent : losing->most_sent;
    return OK;
}

/* The update changes what is copied. */
static enum error_code wait_for_copy(struct losing *losing, struct trainer *trainer, struct error *err)
{
    struct clock *const clock = &trainer->device->clock;
    const picoseconds before = clock->now, passes = before - losing->began;
    const picoseconds foreseen = losing->foreseen > passes ? losing->foreseen - passes : 0;
    if (!losing->due) return OK;
    losing->due = false;
    clock_wait(clock, losing->until);
    const picoseconds held = clock->now - before;
    losing->held = held > losing->held ? held : losing->held;
    return comm_agree(trainer->comm, held == foreseen ? OK
                      : fail(err, ERR_CHECK, "a snapshot held device %d for %s, not %s", trainer->comm->rank,
                             time_format(1e-12 * (double)held).text, time_format(1e-12 * (double)foreseen).text), err);
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

/* Half of the first action of a kind, on this device; plans with sections have no list: half of the passes. */
static picoseconds middle_of(const struct trainer *trainer, bool backward, picoseconds began, picoseconds now)
{
    const struct schedule *const s = &trainer->schedule;
    if (trainer->section || trainer->times == NULL) return began + (now - began) / (backward ? 2 : 6);
    const int place = trainer->pp.rank;
    for (int i = 0; i < s->count[place]; i++)
        if ((s->actions[place][i].kind != FORWARD) == backward && s->actions[place][i].kind != UPDATE)
            return (trainer->times[i].start + trainer->times[i].end) / 2;
    return now;
}

static picoseconds done_at(const struct losing *losing, const struct trainer *trainer)
{
    const picoseconds now = trainer->device->clock.now;
    switch (losing->loss->moment) {
    case LOST_FORWARD: return middle_of(trainer, false, losing->began, now) - losing->began;
    case LOST_BACKWARD: return middle_of(trainer, true, losing->began, now) - losing->began;
    default: return now - losing->began;
    }
}

static picoseconds agree_time(const struct trainer *trainer, int left)
{
    const struct cluster *const c = &trainer->device->clock.cluster;
    int rounds = 0;
    while (1 << rounds < left) rounds++;
    return 2 * rounds * c->link[c->levels - 1].latency;
}

/* Rank 0 learns when the lost device was lost; its own time counts where several are lost together. */
static enum error_code lose_now(struct losing *losing, struct trainer *trainer, struct training_step *step,
                                struct error *err)
{
    struct comm *const comm = trainer->comm;
    struct loss *const loss = losing->loss;
    const picoseconds own = done_at(losing, trainer);
    picoseconds *const all = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for a list of devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    for (int r = 0; all && r < comm->size && !e; r++)
        if (losses_has(&loss->devices, comm_process(comm, r))) loss->done = all[r] > loss->done ? all[r] : loss->done;
    free(all);
    /* In the first step nobody knows how long a step takes: the part that is done stands for it. */
    if (comm->rank == 0) loss->noticed = losing->took > 0 ? losing->took : trainer->device->clock.now - losing->began;
    if (comm->rank == 0) loss->agreed = agree_time(trainer, comm->size - loss->devices.count);
    losing->lost = step->stops = true;
    return comm_agree(comm, e, err);
}

static void stop_in_update(struct trainer *trainer)
{
    struct trainer *section;
    for (int s = 0; (section = trainer_section(trainer, s)) != NULL; s++) section->data.stops_half = true;
}

static enum error_code step_begins(struct losing *losing, struct trainer *trainer, const struct training_step *step,
                                   struct error *err)
{
    const picoseconds now = trainer->device->clock.now;
    losing->took = step->index > 0 ? now - losing->began : 0, losing->began = now;
    enum error_code e = take(losing, trainer, err);
    if (!e && is_the_step(losing, step)) e = checkpoint_fingerprint(trainer, &losing->print, err);
    return e;
}

enum error_code losing_at(struct losing *losing, enum moment moment, struct trainer *trainer,
                          struct training_step *step, struct error *err)
{
    static const enum moment ends[LOSE_MOMENT_COUNT] = {
        [LOST_FORWARD] = GRADIENTS_REDUCED, [LOST_BACKWARD] = GRADIENTS_REDUCED,
        [LOST_REDUCTION] = GRADIENTS_REDUCED, [LOST_UPDATE] = WEIGHTS_STEPPED, [LOST_GATHER] = WEIGHTS_STEPPED,
        [LOST_SAVE] = STEP_ENDED,
    };
    if (losing == NULL) return OK;
    enum error_code e = OK;
    if (moment == STEP_BEGINS) e = step_begins(losing, trainer, step, err);
    if (moment == GRADIENTS_REDUCED) e = wait_for_copy(losing, trainer, err);
    if (e || !is_the_step(losing, step)) return e;
    if (moment == GRADIENTS_REDUCED && losing->loss->moment == LOST_UPDATE) stop_in_update(trainer);
    return moment == ends[losing->loss->moment] ? lose_now(losing, trainer, step, err) : OK;
}

enum error_code losing_give(struct losing *losing, struct trainer *trainer, int device, struct carried *gives,
                            struct error *err)
{
    *gives = (struct carried){ 0 };
    if (!losses_has(&losing->loss->devices, device))
        return snapshot_give(&losing->snapshot, losing->collection, &losing->loss->devices, device, gives, err);
    arena_poison_all(&trainer->device->arena);
    snapshot_poison(&losing->snapshot, losing->collection);
    return OK;
}

enum error_code losing_gather(struct losing *losing, struct comm *comm, struct error *err)
{
    const uint64_t own[3] = { losing->most_copied, losing->most_sent, (uint64_t)losing->held };
    uint64_t (*const all)[3] = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for a list of devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, own, sizeof own, all, err);
    for (int r = 0; all && r < comm->size && !e; r++) {
        losing->most_copied = all[r][0] > losing->most_copied ? all[r][0] : losing->most_copied;
        losing->most_sent = all[r][1] > losing->most_sent ? all[r][1] : losing->most_sent;
        losing->held = (picoseconds)all[r][2] > losing->held ? (picoseconds)all[r][2] : losing->held;
    }
    free(all);
    return comm_agree(comm, e, err);
}
