/* books.c -- keeps the time and the energy of devices and jobs, and holds the sums at the end.  simulate.c and place.c
 * call.  Errors: ERR_MEMORY; ERR_INTERNAL if the books do not close. */
#include "emulated_devices/cluster/engine.h"
#include <stdlib.h>

__extension__ typedef __int128 wide;

const char *const device_state_names[DEVICE_STATES] = {
#define X(state, name) name,
    DEVICE_STATES_ALL(X)
#undef X
};

static int64_t whole_steps(int64_t millionths) { return (millionths + 999999) / 1000000 * 1000000; }

void books_update(struct engine *engine, struct engine_job *job)
{
    const int64_t now = engine->scheduling.now, ran = now - job->piece.starts;
    if (job->active.now.devices == 0) return;
    const int64_t done = ran > 0 ? price_millionths(job->price, ran) : 0;
    job->active.left = done < job->left ? job->left - done : 0;
    job->active.served = job->served + job->piece.devices * (now - job->piece.from);
}

void books_note_saves(struct engine *engine, struct engine_job *job)
{
    const int64_t every = engine->setting->save, now = engine->scheduling.now;
    if (every <= 0 || now <= job->saved_at) return;
    const int64_t at = job->saved_at + (now - job->saved_at) / every * every, ran = at - job->piece.starts;
    if (at == job->saved_at || ran <= 0) return;
    const int64_t done = price_millionths(job->price, ran);
    job->saved = whole_steps(done < job->left ? job->left - done : 0), job->saved_at = at;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void book_device(struct engine *engine, int device, enum device_state state, int64_t time, int64_t watts)
{
    struct device_books *const b = &engine->out->device[device];
    b->time[state] += time, b->energy[state] += time * watts;
}

void books_flush_device(struct engine *engine, int device)
{
    const int64_t time = engine->scheduling.now - engine->since[device], watts = engine->pricing->power.idle;
    const bool broken = engine->owner[device] == OWNER_BROKEN;
    book_device(engine, device, broken ? DEVICE_BROKEN : DEVICE_IDLE, time, watts);
    engine->out->energy += time * watts;
    engine->since[device] = engine->scheduling.now;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

enum error_code books_open_piece(struct engine *engine, struct engine_job *job, int64_t moves, struct error *err)
{
    const struct allocation *const a = &job->active.now;
    const int64_t now = engine->scheduling.now;
    for (int d = a->place; d < a->place + a->devices; d++) {
        const int owner = engine->owner[d];
        if (owner >= 0 || owner == OWNER_BROKEN)
            return fail(err, ERR_INTERNAL, "device %d is given to job %s while %s", d, job->active.job->name,
                        owner >= 0 ? engine->jobs->at[owner].name : "it is broken");
        books_flush_device(engine, d);
        engine->owner[d] = job->active.number;
    }
    job->piece = (struct job_piece){ job->active.number, a->place, a->devices, a->clock, now, now + moves, now, 0 };
    job->left = job->active.left, job->served = job->active.served;
    job->active.since = now + moves;
    return OK;
}

static enum error_code keep_piece(struct simulated *out, const struct job_piece *piece, struct error *err)
{
    if (out->pieces == out->room) {
        const int room = out->room > 0 ? 2 * out->room : 256;
        struct job_piece *const grown = realloc(out->piece, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for %d pieces of jobs", room);
        out->piece = grown, out->room = room;
    }
    out->piece[out->pieces++] = *piece;
    return OK;
}

enum error_code books_close_piece(struct engine *engine, struct engine_job *job, struct error *err)
{
    struct job_piece *const p = &job->piece;
    struct job_outcome *const o = &engine->out->job[p->job];
    const struct device_power *const power = &engine->pricing->power;
    const int64_t now = p->to = engine->scheduling.now, began = p->starts < now ? p->starts : now,
                  ran = now - began, watts = pricing_watts(engine->pricing, p->clock);
    const int64_t computing = job->price->step > 0
        ? (int64_t)((wide)ran * job->price->computing / job->price->step) : 0;
    books_update(engine, job);
    for (int d = p->place; d < p->place + p->devices; d++) {
        book_device(engine, d, DEVICE_MOVES, began - p->from, power->steady);
        book_device(engine, d, DEVICE_COMPUTES, computing, watts);
        book_device(engine, d, DEVICE_WAITS, ran - computing, power->steady);
        engine->owner[d] = OWNER_NONE, engine->since[d] = now;
    }
    const int64_t energy = p->devices * ((began - p->from + ran - computing) * power->steady + computing * watts);
    p->energy = energy, o->energy += energy, engine->out->energy += energy;
    o->served += p->devices * (now - p->from), o->done += job->left - job->active.left;
    if (now == p->from) return OK;
    return keep_piece(engine->out, p, err);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static enum error_code check_devices(const struct simulated *out, struct error *err)
{
    for (int d = 0; d < out->devices; d++) {
        int64_t time = 0;
        for (int s = 0; s < DEVICE_STATES; s++) time += out->device[d].time[s];
        if (time != out->end)
            return fail(err, ERR_INTERNAL, "the books do not close: device %d has states of %lld ms, and the jobs took "
                        "%lld ms", d, (long long)time, (long long)out->end);
    }
    return OK;
}

static enum error_code check_jobs(const struct engine *engine, struct error *err)
{
    for (int i = 0; i < engine->jobs->count; i++) {
        const struct job_outcome *const o = &engine->out->job[i];
        const int64_t steps = engine->jobs->at[i].steps;
        if (o->done - o->redone != 1000000 * steps)
            return fail(err, ERR_INTERNAL, "the books do not close: job %s has done %.6f steps, %.6f of them again, of "
                        "%lld", engine->jobs->at[i].name, 1e-6 * (double)o->done, 1e-6 * (double)o->redone,
                        (long long)steps);
    }
    return OK;
}

enum error_code books_close(struct engine *engine, struct error *err)
{
    struct simulated *const out = engine->out;
    int64_t energy = 0;
    out->end = engine->scheduling.now;
    for (int d = 0; d < out->devices; d++) {
        books_flush_device(engine, d);
        for (int s = 0; s < DEVICE_STATES; s++) {
            out->all.time[s] += out->device[d].time[s], out->all.energy[s] += out->device[d].energy[s];
            energy += out->device[d].energy[s];
        }
    }
    if (energy != out->energy)
        return fail(err, ERR_INTERNAL, "the books do not close: devices took %lld mJ; jobs, idle and broken devices "
                    "%lld mJ", (long long)energy, (long long)out->energy);
    const enum error_code e = check_devices(out, err);
    return e ? e : check_jobs(engine, err);
}
