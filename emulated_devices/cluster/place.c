/* place.c -- puts jobs into blocks of devices.  A job stays where it is if it may, grows around its block, shrinks
 * inside its block, or goes to the smallest free block.  If free devices suffice but no block is free, a scheduler that
 * moves jobs has smaller ones moved out of the emptiest block.  simulate.c calls place_jobs.  Errors: ERR_MEMORY,
 * ERR_INTERNAL, those of prices. */
#include "emulated_devices/cluster/engine.h"
#include <stdlib.h>

static bool is_other_block(const struct active_job *active)
{
    return active->next.devices != active->now.devices
           || (active->next.place >= 0 && active->next.place != active->now.place);
}

/* A change that was made now, and is made once more elsewhere, has not been. */
static void forget_change(struct engine *engine, struct engine_job *job)
{
    struct job_outcome *const o = &engine->out->job[job->active.number];
    if (job->before != STATE_NEW) o->changes--;
    o->bytes -= job->moved, engine->out->bytes -= job->moved;
    job->state = job->before;
}

/* A job leaves its devices.  Where the state was is kept in `was`. */
static enum error_code leave(struct engine *engine, struct engine_job *job, struct error *err)
{
    const bool again = job->piece.from == engine->scheduling.now;
    const enum error_code e = books_close_piece(engine, job, err);
    buddy_give(&engine->buddy, job->active.now.devices, job->active.now.place);
    if (again) forget_change(engine, job);
    else job->was = job->active.now;
    job->active.now = (struct allocation){ 0, 0, -1 };
    return e;
}

/* The step in which a job stops is thrown away; its state is that of the step before. */
static void throw_step_away(struct engine *engine, struct engine_job *job)
{
    const int64_t whole = (job->active.left + 999999) / 1000000 * 1000000;
    engine->out->job[job->active.number].redone += whole - job->active.left;
    job->active.left = whole;
}

/* Other jobs leave the block of this size with the fewest devices in use that no larger or equal job is in, and nothing
 * broken.  @return its first device; -1: there is none. */
static int emptiest_block(const struct engine *engine, int size)
{
    int best = -1, fewest = size;
    for (int at = 0; at < engine->buddy.devices; at += size) {
        int used = 0;
        bool may = true;
        for (int d = at; d < at + size && may; d++) {
            const int owner = engine->owner[d];
            may = owner == OWNER_NONE || (owner >= 0 && engine->job[owner].active.now.devices < size);
            used += owner >= 0;
        }
        if (may && used < fewest) best = at, fewest = used;
    }
    return best;
}

static enum error_code place_put(struct engine *, struct engine_job *, struct error *);

/* Move smaller jobs out of a block, and take it.  They go to other blocks, the largest first. */
static enum error_code clear_block(struct engine *engine, int size, int *place, struct error *err)
{
    struct engine_job *out[JOB_DEVICES_MOST];
    int n = 0;
    enum error_code e = OK;
    *place = emptiest_block(engine, size);
    for (int d = *place; *place >= 0 && d < *place + size && !e;) {
        if (engine->owner[d] < 0) {
            d++;
            continue;
        }
        struct engine_job *const j = &engine->job[engine->owner[d]];
        d += j->active.now.devices;
        j->active.next = j->active.now, j->active.next.place = -1;
        out[n++] = j;
        e = leave(engine, j, err);
        if (!e) throw_step_away(engine, j);
    }
    if (*place < 0 || e) return e;
    if (!buddy_take_at(&engine->buddy, size, *place))
        return fail(err, ERR_INTERNAL, "devices %d-%d are not free, although all jobs have left them", *place,
                    *place + size - 1);
    for (int d = *place; d < *place + size; d++) engine->owner[d] = OWNER_PROMISED;
    for (int devices = size; devices >= 1 && !e; devices /= 2)
        for (int i = 0; i < n && !e; i++)
            if (out[i]->active.next.devices == devices) e = place_put(engine, out[i], err);
    return e;
}

/* Find a block for a job: beside or inside its old one, or elsewhere.  -1: there is none. */
static enum error_code find_block(struct engine *engine, struct engine_job *job, int *place, struct error *err)
{
    const struct allocation *const next = &job->active.next;
    const int size = next->devices;
    *place = next->place;
    if (*place >= 0 && buddy_take_at(&engine->buddy, size, *place)) return OK;
    *place = job->was.place / size * size;
    if (job->was.devices > 0 && buddy_take_at(&engine->buddy, size, *place)) return OK;
    *place = buddy_take(&engine->buddy, size);
    if (*place >= 0 || !engine->setting->scheduler->moves || engine->buddy.free < size) return OK;
    return clear_block(engine, size, place, err);
}

/* The job waits this long until its steps run: for moves between devices, to hosts and back, or from a save. */
static enum error_code moving_time(struct engine *engine, struct engine_job *job, int64_t *time, struct error *err)
{
    const struct allocation *const now = &job->active.now;
    struct job_outcome *const o = &engine->out->job[job->active.number];
    struct job_move move = { 0 };
    const int kind = job->active.job->kind, from = job->was.devices;
    picoseconds moving = 0;
    enum error_code e = OK;
    *time = 0, job->before = job->state, job->moved = 0;
    if (job->state == STATE_NEW) return OK;
    if (from > 0) e = pricing_move(engine->pricing, kind, from, job->was.place, now->devices, now->place, &move, err);
    else e = pricing_move(engine->pricing, kind, now->devices, 0, now->devices, now->devices, &move, err);
    if (e) return e;
    const int copies = job->state == STATE_ON_HOSTS ? 2 : 1;
    moving = from > 0 ? move.time : copies * time_at_rate(move.most, engine->setting->copy_rate);
    const int64_t again = job->state == STATE_SAVED ? engine->setting->restart : engine->setting->how.change;
    *time = again + (moving + 999999999) / 1000000000;
    job->moved = move.bytes;
    o->bytes += move.bytes, engine->out->bytes += move.bytes, o->changes++;
    return OK;
}

/* Give a job devices, or none.  A job that finds no block waits. */
static enum error_code place_put(struct engine *engine, struct engine_job *job, struct error *err)
{
    struct active_job *const a = &job->active;
    int place = -1;
    int64_t time = 0;
    enum error_code e = a->next.devices > 0 ? find_block(engine, job, &place, err) : OK;
    if (e) return e;
    if (place < 0) {
        if (job->was.devices > 0) {
            job->state = STATE_ON_HOSTS, engine->out->job[a->number].pauses++;
            a->since = engine->scheduling.now;
        }
        return OK;
    }
    a->now = (struct allocation){ a->next.devices, a->next.clock, place };
    e = pricing_step(engine->pricing, a->job->kind, a->now.devices, a->now.clock, &job->price, err);
    if (!e) e = moving_time(engine, job, &time, err);
    if (e) return e;
    if (job->state == STATE_NEW) engine->out->job[a->number].began = engine->scheduling.now;
    job->state = STATE_ON_DEVICES;
    e = books_open_piece(engine, job, time, err);
    job->saved = a->left, job->saved_at = a->since;
    return e;
}

/* A job runs on at another clock rate, without a stop. */
static enum error_code change_clock(struct engine *engine, struct engine_job *job, struct error *err)
{
    struct active_job *const a = &job->active;
    const int64_t now = engine->scheduling.now, moves = job->piece.starts > now ? job->piece.starts - now : 0,
                  since = a->since;
    books_note_saves(engine, job);
    enum error_code e = books_close_piece(engine, job, err);
    a->now.clock = a->next.clock;
    if (!e) e = pricing_step(engine->pricing, a->job->kind, a->now.devices, a->now.clock, &job->price, err);
    if (!e) e = books_open_piece(engine, job, moves, err);
    a->since = since;
    return e;
}

/* Large jobs find their blocks first; of one size those that came first. */
static int by_size(const void *a, const void *b)
{
    const struct active_job *const x = *(struct active_job *const *)a, *const y = *(struct active_job *const *)b;
    if (x->next.devices != y->next.devices) return x->next.devices > y->next.devices ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

enum error_code place_jobs(struct engine *engine, struct error *err)
{
    struct scheduling *const s = &engine->scheduling;
    int n = 0;
    enum error_code e = OK;
    for (int i = 0; i < s->count && !e; i++) {
        struct active_job *const a = s->at[i];
        struct engine_job *const j = engine_job_of(a);
        j->was = (struct allocation){ 0, 0, -1 };
        if (!is_other_block(a)) {
            if (a->now.devices > 0 && a->next.clock != a->now.clock) e = change_clock(engine, j, err);
            continue;
        }
        engine->placing[n++] = a;
        if (a->now.devices == 0) continue;
        e = leave(engine, j, err);
        if (!e) throw_step_away(engine, j);
    }
    qsort(engine->placing, (size_t)n, sizeof *engine->placing, by_size);
    for (int i = 0; i < n && !e; i++) e = place_put(engine, engine_job_of(engine->placing[i]), err);
    return e;
}
