/* schedule_write.c -- writes a schedule as text.  The format is in schedule_file.h.
 *
 * draw/timeline.c writes a schedule to a file with schedule_write.  The only error is ERR_FILE, after all lines:
 * write errors stay in the stream until then.
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <errno.h>
#include <string.h>

/* A line has at most 12 actions, so that people can read the file.  The reader accepts any number. */
enum { PER_LINE = 12 };

/* write_routes writes the routes, or nothing where the places define the only route. */
static void write_routes(FILE *to, const struct schedule *schedule)
{
    if (schedule->routes == 1) {
        bool plain = true;              /* the places define the only route */
        for (int t = 0; t < schedule->stages; t++)
            plain = plain && schedule->route[0][t].device >= 0 && schedule_holders(schedule, t, NULL, 0) == 1;
        if (plain) return;
    }
    fprintf(to, "routes %d\n", schedule->routes);
    for (int r = 0; r < schedule->routes; r++) {
        fprintf(to, "route %d:", r);
        for (int t = 0; t < schedule->stages; t++) {
            const struct place p = schedule->route[r][t];
            if (p.device < 0) fputs(" -", to);
            else fprintf(to, " %d.%d", p.device, p.chunk);
        }
        fputc('\n', to);
    }
    /* A microbatch without a `takes` line takes route 0, so the lines begin with route 1. */
    for (int r = 1; r < schedule->routes; r++) {
        fprintf(to, "takes %d:", r);
        for (int m = 0; m < schedule->micros; m++)
            if (schedule->route_of[m] == r) fprintf(to, " %d", m);
        fputc('\n', to);
    }
}

/* write_device writes the list of a device with its sends and receives, each with the peer. */
static void write_device(FILE *to, const struct schedule *schedule, int device)
{
    for (int i = 0; i < schedule->count[device]; i++) {
        const struct action a = schedule->actions[device][i];
        if (i % PER_LINE == 0) fprintf(to, "%sdevice %d:", i > 0 ? "\n" : "", device);
        fprintf(to, " %s%s%d", a.beside ? "&" : "", action_letter(a.kind), a.micro);
        /* A chunk is written only where a device has several; without a number the reader takes chunk 0. */
        if (schedule->chunks > 1) fprintf(to, ".%d", a.chunk);
        const bool send = a.kind == SEND_ACTIVATION || a.kind == SEND_GRADIENT;
        if (action_is_message(a.kind)) fprintf(to, "%c%d", send ? '>' : '<', a.peer);
    }
    if (schedule->count[device] > 0) fputc('\n', to);
}

enum error_code schedule_write(FILE *to, const struct schedule *schedule, struct error *err)
{
    fprintf(to, "orrery schedule 1\nname %s\ndevices %d\nmicros %d\nchunks %d\n", schedule->name, schedule->devices,
            schedule->micros, schedule->chunks);
    /* These two lines are left out where the optimizer steps once, after the list. */
    if (schedule->update_every < schedule->micros || schedule->weight_versions > 1)
        fprintf(to, "update %d\nversions %d\n", schedule->update_every, schedule->weight_versions);
    for (int d = 0; d < schedule->devices; d++) {
        fprintf(to, "place %d:", d);
        for (int c = 0; c < schedule->chunks; c++)
            if (schedule->stage_of[d][c] < 0) fputs(" -", to);
            else fprintf(to, " %d", schedule->stage_of[d][c]);
        fputc('\n', to);
    }
    write_routes(to, schedule);
    for (int d = 0; d < schedule->devices; d++) write_device(to, schedule, d);
    if (fflush(to) != 0 || ferror(to))
        return fail(err, ERR_FILE, "schedule %s: cannot be written: %s", schedule->name, strerror(errno));
    return OK;
}
