/* meanwhile.c -- saves a sharded checkpoint with a thread on each device, which sends no messages.
 * run/saving.c calls.  The thread's error is kept until all devices vote, so that all end with the same line. */
#include "emulated_devices/model/checkpoint/sharded/meanwhile.h"
#include "emulated_devices/model/checkpoint/sharded/sharding.h"
#include "ref/machine/measure.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* How far the thread is.  It begins with COPYING, and stops at WRITTEN until rank 0 tells its own to commit. */
enum state { COPYING, COPIED, WRITTEN, COMMITTING, COMMITTED, FAILED };

struct meanwhile {
    struct sharding part;               /* what this device writes */
    struct votes *votes;                /* the caller's */
    struct model_config model;          /* of config.json */
    char *buffer;                       /* the host's copy of this device's boxes */
    uint64_t bytes, copied;             /* of it, as the plan says; as counted */
    bool at_once;                       /* meanwhile_begin has copied */
    pthread_t thread;
    bool started;                       /* the thread runs, or has ended */
    bool settled;                       /* all devices know what has become of the save */
    pthread_mutex_t lock;               /* of all below */
    pthread_cond_t changed;             /* state has changed */
    enum state state;
    bool ends;                          /* the thread is to end where it would wait */
    struct error err;                   /* of FAILED */
    struct meanwhile_seconds seconds;
};

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void set_state(struct meanwhile *save, enum state state)
{
    pthread_mutex_lock(&save->lock);
    save->state = state;
    pthread_cond_broadcast(&save->changed);
    pthread_mutex_unlock(&save->lock);
}

/* Wait until the state is at least this.  @return the state. */
static enum state wait_state(struct meanwhile *save, enum state least)
{
    pthread_mutex_lock(&save->lock);
    while (save->state < least) pthread_cond_wait(&save->changed, &save->lock);
    const enum state state = save->state;
    pthread_mutex_unlock(&save->lock);
    return state;
}

static enum error_code copy_own(struct meanwhile *save, struct error *err)
{
    const double begin = measure_now();
    const enum error_code e = sharding_take(&save->part, save->buffer, &save->copied, err);
    save->seconds.copied = measure_now() - begin;
    if (!e && save->copied != save->bytes)
        return fail(err, ERR_CHECK, "device %d has copied %llu bytes of its state, not %llu", save->part.rank,
                    (unsigned long long)save->copied, (unsigned long long)save->bytes);
    return e;
}

/* Whether rank 0 has told this thread to commit, and not to end. */
static bool may_commit(struct meanwhile *save)
{
    pthread_mutex_lock(&save->lock);
    while (save->state < COMMITTING && !save->ends) pthread_cond_wait(&save->changed, &save->lock);
    const bool may = save->state == COMMITTING;
    pthread_mutex_unlock(&save->lock);
    return may;
}

static void *run_thread(void *context)
{
    struct meanwhile *const save = context;
    enum error_code e = save->at_once ? OK : copy_own(save, &save->err);
    set_state(save, e ? FAILED : COPIED);
    const double begin = measure_now();
    if (!e) e = sharding_write_own(&save->part, save->buffer, &save->err);
    save->seconds.written = measure_now() - begin;
    set_state(save, e ? FAILED : WRITTEN);
    if (e || !may_commit(save)) return NULL;
    e = sharding_commit(&save->part, &save->model, &save->err);
    set_state(save, e ? FAILED : COMMITTED);
    return NULL;
}

/* No signal of the run comes to the thread. */
static enum error_code start_thread(struct meanwhile *save, struct error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    save->started = pthread_create(&save->thread, NULL, run_thread, save) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return save->started ? OK : fail(err, ERR_MEMORY, "--save-async: a thread cannot be started");
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* Whether the host reads this device's memory where it is, and nobody watches. */
static bool host_can_read(struct device *device)
{
    if (device_is_watched(device) || device->clock.flight) return false;
    void *const own = arena_alloc(&device->arena, BUFFERS, 1);
    if (own == NULL) return false;
    const void *const view = host_read(device, own, 1);
    const bool same = view == own;
    host_done(device, view);
    arena_free(&device->arena, own);
    return same;
}

static enum error_code make_buffer(struct meanwhile *save, struct error *err)
{
    save->bytes = sharding_bytes(&save->part, save->part.rank);
    save->buffer = malloc(save->bytes + 1);
    return save->buffer ? OK
        : fail(err, ERR_MEMORY, "--save-async: no memory for a copy of %llu bytes on device %d",
               (unsigned long long)save->bytes, save->part.rank);
}

enum error_code meanwhile_begin(struct meanwhile **out, struct votes *votes, struct trainer *trainer, const char *dir,
                                const cJSON *run, const char *origin, struct error *err)
{
    const double begin = measure_now();
    struct meanwhile *const save = calloc(1, sizeof *save);
    *out = NULL;
    enum error_code e = save ? OK : fail(err, ERR_MEMORY, "no memory for a save");
    e = comm_agree(trainer->comm, e, err);
    if (e) {
        free(save);
        return e;
    }
    pthread_mutex_init(&save->lock, NULL);
    pthread_cond_init(&save->changed, NULL);
    save->votes = votes, save->model = trainer->plan.model;
    e = sharding_open(&save->part, trainer, dir, err);
    if (!e) e = sharding_describe(&save->part, run, origin, err);
    if (!e) e = comm_agree(trainer->comm, make_buffer(save, err), err);
    if (!e) save->at_once = !host_can_read(trainer->device);
    if (!e && save->at_once) e = copy_own(save, err);
    if (!e) e = start_thread(save, err);
    e = comm_agree(trainer->comm, e, err);
    save->seconds.begun = measure_now() - begin;
    if (e) meanwhile_close(save);
    else *out = save;
    return e;
}

void meanwhile_copied(struct meanwhile *save)
{
    const double begin = measure_now();
    wait_state(save, COPIED);
    save->seconds.waited += measure_now() - begin;
}

uint64_t meanwhile_bytes(const struct meanwhile *save) { return save->bytes; }

struct meanwhile_seconds meanwhile_seconds(struct meanwhile *save) { return save->seconds; }

/* ---- votes ------------------------------------------------------------------------------------------------------- */

/* A device's vote: how far its thread is, and its file once that is written. */
struct vote { enum state state; struct shard_file file; };

static struct vote vote_of(struct meanwhile *save)
{
    pthread_mutex_lock(&save->lock);
    struct vote vote = { .state = save->state };
    pthread_mutex_unlock(&save->lock);
    if (vote.state == WRITTEN) vote.file = save->part.manifest.file[save->part.rank];
    return vote;
}

/* Rank 0: what all votes together mean.  Its own thread commits once every file is written. */
static enum outcome decide(struct meanwhile *save, const struct vote *vote, int devices)
{
    enum state least = FAILED;
    for (int r = 0; r < devices; r++) {
        if (vote[r].state == FAILED) return SAVE_FAILED;
        if (vote[r].state < least) least = vote[r].state;
    }
    if (vote[0].state == COMMITTED) return SAVE_COMMITTED;
    if (least < WRITTEN) return SAVE_RUNS;
    if (vote[0].state == WRITTEN) {
        for (int r = 0; r < devices; r++) save->part.manifest.file[r] = vote[r].file;
        set_state(save, COMMITTING);
    }
    return SAVE_PREPARED;
}

static enum error_code vote_once(struct meanwhile *save, struct vote *all, enum outcome *outcome, struct error *err)
{
    const struct vote own = vote_of(save);
    int32_t decision = SAVE_RUNS;
    enum error_code e = votes_bring(save->votes, &own, sizeof own, all, err);
    if (!e && all) decision = decide(save, all, save->votes->comm->size);
    if (!e) e = votes_tell(save->votes, &decision, sizeof decision, err);
    *outcome = decision;
    return e;
}

/* After a failure nothing of the save stays, unless the checkpoint counts already. */
static enum error_code meanwhile_give_up(struct meanwhile *save, struct error *err)
{
    struct comm *const comm = save->votes->comm;
    enum error_code e = wait_state(save, WRITTEN) == FAILED ? save->err.code : OK;
    if (e) *err = save->err;
    e = comm_agree(comm, e, err);
    int32_t committed = save->part.folder.committed;
    struct error unread;
    if (comm_tell(comm, &committed, sizeof committed, &unread)) committed = 1;
    if (!committed) sharding_forget_own(&save->part);
    return e;
}

enum error_code meanwhile_settle(struct meanwhile *save, bool waits, enum outcome *outcome, struct error *err)
{
    struct comm *const comm = save->votes->comm;
    struct vote *const all = comm->rank == 0 ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for votes") : OK;
    e = comm_agree(comm, e, err);
    *outcome = SAVE_RUNS;
    do {
        if (waits) wait_state(save, *outcome == SAVE_PREPARED && comm->rank == 0 ? COMMITTED : WRITTEN);
        if (!e) e = vote_once(save, all, outcome, err);
    } while (!e && waits && *outcome < SAVE_COMMITTED);
    free(all);
    if (!e && *outcome >= SAVE_COMMITTED) save->settled = true;
    if (!e && *outcome == SAVE_FAILED) e = meanwhile_give_up(save, err);
    return e;
}

void meanwhile_close(struct meanwhile *save)
{
    if (save == NULL) return;
    pthread_mutex_lock(&save->lock);
    save->ends = true;
    pthread_cond_broadcast(&save->changed);
    pthread_mutex_unlock(&save->lock);
    if (save->started) pthread_join(save->thread, NULL);
    /* The run has failed before all devices knew: what this device has written counts for nothing. */
    if (save->state == WRITTEN && !save->settled) sharding_forget_own(&save->part);
    sharding_close(&save->part);
    pthread_cond_destroy(&save->changed);
    pthread_mutex_destroy(&save->lock);
    free(save->buffer);
    free(save);
}
