/* schedule_write.c -- writes a schedule as text.  The format is in schedule_file.h. */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <errno.h>
#include <string.h>

enum { PER_LINE = 12 };

static void write_routes(FILE *to, const struct schedule *s)
{
    if (s->routes == 1) {
        bool plain = true;              /* the places define the only route */
        for (int t = 0; t < s->stages; t++)
            plain = plain && s->route[0][t].device >= 0 && schedule_holders(s, t, NULL, 0) == 1;
        if (plain) return;
    }
    fprintf(to, "routes %d\n", s->routes);
    for (int r = 0; r < s->routes; r++) {
        fprintf(to, "route %d:", r);
        for (int t = 0; t < s->stages; t++) {
            const struct place p = s->route[r][t];
            if (p.device < 0) fputs(" -", to);
            else fprintf(to, " %d.%d", p.device, p.chunk);
        }
        fputc('\n', to);
    }
    for (int r = 1; r < s->routes; r++) {
        fprintf(to, "takes %d:", r);
        for (int m = 0; m < s->micros; m++)
            if (s->route_of[m] == r) fprintf(to, " %d", m);
        fputc('\n', to);
    }
}

static void write_device(FILE *to, const struct schedule *s, int device)
{
    for (int i = 0; i < s->count[device]; i++) {
        const struct action a = s->actions[device][i];
        if (i % PER_LINE == 0) fprintf(to, "%sdevice %d:", i > 0 ? "\n" : "", device);
        fprintf(to, " %s%s%d", a.beside ? "&" : "", action_letter(a.kind), a.micro);
        if (s->chunks > 1) fprintf(to, ".%d", a.chunk);
        const bool send = a.kind == SEND_ACTIVATION || a.kind == SEND_GRADIENT;
        if (action_is_message(a.kind)) fprintf(to, "%c%d", send ? '>' : '<', a.peer);
    }
    if (s->count[device] > 0) fputc('\n', to);
}

enum error_code schedule_write(FILE *to, const struct schedule *s, struct error *err)
{
    fprintf(to, "orrery schedule 1\nname %s\ndevices %d\nmicros %d\nchunks %d\n", s->name, s->devices, s->micros,
            s->chunks);
    if (s->update_every < s->micros || s->weight_versions > 1)
        fprintf(to, "update %d\nversions %d\n", s->update_every, s->weight_versions);
    for (int d = 0; d < s->devices; d++) {
        fprintf(to, "place %d:", d);
        for (int c = 0; c < s->chunks; c++)
            if (s->stage_of[d][c] < 0) fputs(" -", to);
            else fprintf(to, " %d", s->stage_of[d][c]);
        fputc('\n', to);
    }
    write_routes(to, s);
    for (int d = 0; d < s->devices; d++) write_device(to, s, d);
    if (fflush(to) != 0 || ferror(to))
        return fail(err, ERR_FILE, "schedule %s: cannot be written: %s", s->name, strerror(errno));
    return OK;
}
