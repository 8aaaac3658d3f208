/* timeline.c -- gathers the times of a step's actions on rank 0 and draws the pipeline, for the terminal and as SVG.
 * The callers are cli/train and cli/show/schedule.c.  Errors are agreed on by all devices.  The only error of its own
 * is ERR_MEMORY. */
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/draw/svg.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>

void timeline_say_rest(FILE *to, const struct schedule *schedule)
{
    char peaks[200];
    int used = 0;
    for (int d = 0; d < schedule->devices && d < 16; d++)
        used += snprintf(peaks + used, sizeof peaks - (size_t)used, " %d", schedule_peak(schedule, d));
    say(to, 12, "  memory   %s%s %s held at most, device by device", peaks, schedule->devices > 16 ? " ..." : "",
        schedule->chunks > 1 ? "stages' microbatches" : "microbatches");
    fprintf(to, "  messages  %lld\n", (long long)schedule_messages(schedule));
    say(to, 12, "  order     weight gradients are %sadded in the order of the microbatches",
        schedule_adds_in_order(schedule) ? "" : "not ");
    fprintf(to, "  sends     %s if each send blocks until its receive\n",
            schedule_survives_blocking_sends(schedule) ? "it runs even" : "it would hang");
}

/* This is what svg_file passes on to write_drawn.  A NULL timing asks for the schedule as text. */
struct picture { const struct schedule *s; const struct timing *t; bool picoseconds; };

static enum error_code write_drawn(FILE *file, const void *context, struct error *err)
{
    const struct picture *d = context;
    return d->t != NULL ? schedule_draw_svg(file, d->s, d->t, d->picoseconds, err) : schedule_write(file, d->s, err);
}

enum error_code timeline_to_file(const char *path, const struct schedule *schedule, const struct timing *timing,
                                 bool picoseconds, struct error *err)
{
    return svg_file(path, write_drawn, &(struct picture){ schedule, timing, picoseconds }, err);
}

/* ---- of a run ---------------------------------------------------------------------------------------------------- */

/* Send a device's times to rank 0, which has memory for them.  A device that cannot send or receive ends the job. */
static void timeline_bring(struct trainer *trainer, struct exchange *exchange, int place, struct timing *all)
{
    /* Rank 0 has its own times already; it receives those of the other places one after another. */
    const int rank = (int)plan_place_devices(&trainer->plan, place).first, n = trainer->schedule.count[place];
    const uint64_t bytes = (uint64_t)n * sizeof *trainer->times;
    struct error err;
    enum error_code e = OK;
    if (trainer->comm->rank == rank && rank != 0)
        e = exchange_both(exchange, 0, trainer->times, bytes, -1, NULL, 0, &err);
    struct action_time *got = trainer->comm->rank != 0 ? NULL : rank == 0 ? trainer->times : malloc(bytes + 1);
    if (trainer->comm->rank == 0 && got == NULL) e = fail(&err, ERR_MEMORY, "no memory for the times of %d actions", n);
    if (got && rank != 0) e = exchange_both(exchange, -1, NULL, 0, rank, got, bytes, &err);
    if (e) comm_give_up(trainer->comm, &err);
    for (int i = 0; i < n && got; i++) all->start[place][i] = got[i].start, all->end[place][i] = got[i].end;
    if (rank != 0) free(got);
}

/* On rank 0: draw to the terminal with the numbers below, then write the file. */
static enum error_code timeline_draw(const struct schedule *schedule, struct timing *timing, const char *path,
                                     FILE *out, struct error *err)
{
    /* The summary gives makespan and bubble from the times that were gathered. */
    timing_summarise(timing, schedule);
    fprintf(out, "\nlast step's pipeline, in virtual time\n");
    schedule_draw_text(out, schedule, timing, picture_columns(out), terminal_has_colours(out));
    fprintf(out, "\n  time      %s from the first action to the last\n  bubble    %.2f %%",
            picoseconds_format((double)timing->makespan).text, 100 * timing->bubble);
    if (timing->makespan > timing->span) fprintf(out, ", and %.2f %% with fill and drain", 100 * timing->idle);
    fprintf(out, "\n");
    timeline_say_rest(out, schedule);
    return timeline_to_file(path, schedule, timing, true, err);
}

enum error_code timeline_write(struct trainer *trainer, const char *path, FILE *out, struct error *err)
{
    const bool here = trainer->comm->rank == 0;
    struct timing all = { 0 };
    struct exchange x = exchange_begin(&trainer->world, CONTROL);
    enum error_code e = comm_agree(trainer->comm, here ? timing_make(&all, &trainer->schedule, err) : OK, err);
    /* Only the devices of the first copy and the first part of each layer send; the others pass the loop. */
    for (int place = 0; place < trainer->schedule.devices && !e; place++) timeline_bring(trainer, &x, place, &all);
    if (!e && here) e = timeline_draw(&trainer->schedule, &all, path, out, err);
    if (here) timing_free(&all);
    return comm_agree(trainer->comm, e, err);
}
