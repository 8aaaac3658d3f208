/* saving.c -- charges saves that run beside training to the virtual clock, and holds them to the formulas.
 * session.c and between.c call.  Every error is agreed on by all devices. */
#include "emulated_devices/run/saving.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/run/session.h"
#include "ref/io/figures.h"
#include <stdlib.h>

static picoseconds at_least_zero(picoseconds time) { return time > 0 ? time : 0; }

static picoseconds longer(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* ---- one save ---------------------------------------------------------------------------------------------------- */

static struct clock *clock_of(struct session *session) { return &session->trainer.device->clock; }

/* The current stream waits.  @return how long. */
static picoseconds count_wait(struct clock *clock, picoseconds until)
{
    const picoseconds before = clock->now;
    clock_wait(clock, until);
    return clock->now - before;
}

enum error_code saving_begin(struct session *session, const char *dir, const cJSON *run, const char *origin,
                             struct error *err)
{
    struct saving *const s = &session->saving;
    struct clock *const clock = clock_of(session);
    struct comm *const comm = session->trainer.comm;
    enum error_code e = s->now ? saving_look(session, true, err) : OK;
    if (!e && !s->open)
        s->open = true, e = comm_agree(comm, votes_open(&s->votes, comm, &session->options->cluster, err), err);
    if (e) return e;
    s->foreseen = (struct stall){ .waited = at_least_zero(s->foreseen_committed - clock->now) };
    s->counted = (struct stall){ .waited = count_wait(clock, s->committed) };
    e = meanwhile_begin(&s->now, &s->votes, &session->trainer, dir, run, origin, err);
    if (e) return e;
    const uint64_t bytes = meanwhile_bytes(s->now);
    s->due = true, s->step = session->trainer.step, s->begun = clock->now;
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    s->copy = time_at_rate(bytes, clock->cluster.copy_rate);
    s->write = time_at_rate(bytes, clock->cluster.host.drive_rate);
    s->copied = clock_copy(clock, FLUSH, clock->now, bytes);
    s->written = clock_job(clock, DRIVE, "checkpoint", s->copied, s->write, bytes);
    return OK;
}

void saving_before_update(struct session *session)
{
    struct saving *const s = &session->saving;
    struct clock *const clock = clock_of(session);
    if (!s->due) return;
    s->due = false;
    s->foreseen.held = at_least_zero(s->copy - (clock->now - s->begun));
    meanwhile_copied(s->now);
    s->counted.held = count_wait(clock, s->copied);
}

/* ---- what it has cost -------------------------------------------------------------------------------------------- */

/* One device's part, for rank 0. */
struct save_part {
    uint64_t bytes;
    picoseconds copy, write, written, foreseen_written;
    struct stall counted, foreseen;
    struct meanwhile_seconds wall;
};

static struct save_part saving_part(const struct saving *saving)
{
    return (struct save_part){ meanwhile_bytes(saving->now), saving->copy, saving->write, saving->written,
                               saving->begun + saving->copy + saving->write, saving->counted, saving->foreseen,
                               meanwhile_seconds(saving->now) };
}

static void add_stall(struct stall *to, const struct stall *more)
{
    to->held = longer(to->held, more->held), to->waited = longer(to->waited, more->waited);
}

static void add_seconds(struct meanwhile_seconds *to, const struct meanwhile_seconds *more)
{
    double *const into[] = { &to->begun, &to->copied, &to->written, &to->waited };
    const double from[] = { more->begun, more->copied, more->written, more->waited };
    for (int i = 0; i < 4; i++)
        if (from[i] > *into[i]) *into[i] = from[i];
}

static enum error_code check_part(const struct save_part *part, int device, int64_t step, struct error *err)
{
    const struct stall *const c = &part->counted, *const f = &part->foreseen;
    if (c->held == f->held && c->waited == f->waited && part->written == part->foreseen_written) return OK;
    return fail(err, ERR_CHECK, "--save-async: saving step %lld held device %d for %s and waited %s for the buffer, "
                "not %s and %s", (long long)step, device, time_format(1e-12 * (double)c->held).text,
                time_format(1e-12 * (double)c->waited).text, time_format(1e-12 * (double)f->held).text,
                time_format(1e-12 * (double)f->waited).text);
}

/* Rank 0 notes the save; then all devices know when it counts. */
static enum error_code note_parts(struct session *session, const struct save_part *all, struct error *err)
{
    struct saving *const s = &session->saving;
    struct saves *const saves = &session->record.saves;
    enum error_code e = OK;
    if (saves->count == saves->room) {
        const int room = 2 * saves->room + 8;
        struct save_record *const more = realloc(saves->at, (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d saves", room);
        saves->at = more, saves->room = room;
    }
    struct save_record one = { .step = s->step, .known = session->trainer.step };
    for (int d = 0; d < session->trainer.comm->size && !e; d++) {
        const struct save_part *const p = &all[d];
        one.bytes += p->bytes, one.most = p->bytes > one.most ? p->bytes : one.most;
        one.copy = longer(one.copy, p->copy), one.write = longer(one.write, p->write);
        add_stall(&one.counted, &p->counted), add_stall(&one.foreseen, &p->foreseen);
        add_seconds(&one.wall, &p->wall);
        s->committed = longer(s->committed, p->written);
        s->foreseen_committed = longer(s->foreseen_committed, p->foreseen_written);
        e = check_part(p, d, s->step, err);
    }
    saves->at[saves->count++] = one;
    return e;
}

static enum error_code finish(struct session *session, struct error *err)
{
    struct saving *const s = &session->saving;
    const struct train_options *const o = session->options;
    struct comm *const comm = session->trainer.comm;
    const struct save_part own = saving_part(s);
    struct save_part *const all = session->speaks ? calloc((size_t)comm->size, sizeof *all) : NULL;
    enum error_code e = session->speaks && all == NULL ? fail(err, ERR_MEMORY, "no memory for a save") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    if (!e && session->speaks) e = note_parts(session, all, err);
    free(all);
    e = comm_agree(comm, e, err);
    picoseconds when[2] = { s->committed, s->foreseen_committed };
    if (!e) e = comm_tell(comm, when, sizeof when, err);
    s->committed = when[0], s->foreseen_committed = when[1];
    if (!e && session->speaks) e = run_log_saved(&session->log, s->step, s->dir, err);
    if (!e && session->speaks && o->keep) e = series_prune(o->save, o->keep, err);
    meanwhile_close(s->now);
    s->now = NULL;
    return comm_agree(comm, e, err);
}

enum error_code saving_look(struct session *session, bool waits, struct error *err)
{
    enum outcome outcome;
    if (session->saving.now == NULL) return OK;
    const enum error_code e = meanwhile_settle(session->saving.now, waits, &outcome, err);
    return !e && outcome == SAVE_COMMITTED ? finish(session, err) : e;
}

void saving_close(struct session *session)
{
    meanwhile_close(session->saving.now);
    if (session->saving.open) votes_close(&session->saving.votes);
    free(session->record.saves.at);
    session->saving = (struct saving){ .now = NULL };
}
