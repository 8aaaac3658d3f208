#include "emulated_devices/device/trace.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording --------------------------------------------------------------------------------------------------- */

static struct span *next_span(struct trace *t)
{
    if (t->count == t->room) {
        const size_t more = t->room > 0 ? 2 * t->room : 1024;
        struct span *span = t->room < TRACE_LIMIT ? realloc(t->span, more * sizeof *span) : NULL;
        t->full = t->full || span == NULL;
        if (span == NULL) return NULL;
        t->span = span;
        t->room = more;
    }
    return &t->span[t->count++];
}

void trace_announce(struct trace *t, const char *name, uint64_t bytes, int peer, int64_t flow)
{
    t->label = (struct trace_label){ .bytes = bytes, .peer = peer, .flow = flow };
    snprintf(t->label.name, sizeof t->label.name, "%s", name);
    t->fresh = true;
}

void trace_work(struct trace *t, int row, const char *name, picoseconds start, picoseconds end)
{
    struct span *s = next_span(t);
    if (s == NULL) return;
    *s = (struct span){ .row = row, .start = start, .end = end };
    snprintf(s->what.name, sizeof s->what.name, "%s", name);
}

void trace_message(struct trace *t, int row, picoseconds start, picoseconds end)
{
    struct span *s = next_span(t);
    if (s == NULL) return;
    *s = (struct span){ .what = t->label, .row = row, .first = t->fresh, .start = start, .end = end };
    t->fresh = false;
}

void trace_free(struct trace *t)
{
    free(t->span);
    *t = (struct trace){ .span = NULL };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Microseconds, the format's unit, exact to the picosecond. */
#define TIME "%" PRId64 ".%06" PRId64
#define TIME_OF(ps) (int64_t)((ps) / 1000000), (int64_t)((ps) % 1000000)

static void write_row_name(FILE *f, const struct clock *c, int device, int row)
{
    static const char *const stream[] = {
        "compute", "communication", "dispatch", "copy from host", "copy to host", "drive", "host"
    };
    char name[40];
    if (row < STREAMS) snprintf(name, sizeof name, "%s", stream[row]);
    else
        snprintf(name, sizeof name, "%s, %s", (row - STREAMS) % 2 ? "receive" : "send",
                 c->cluster.link[(row - STREAMS) / 2].level);
    fprintf(f, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", device,
            row, name);
    fprintf(f, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}},\n",
            device, row, row);
}

static void write_names(FILE *f, const struct trace *t, const struct clock *c, int device, const char *place)
{
    fprintf(f, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"device %d  %s\"}},\n", device,
            device, place);
    fprintf(f, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}},\n", device,
            device);
    for (int row = 0; row < STREAMS + 2 * CLUSTER_LEVELS; row++) {
        bool used = false;
        for (size_t i = 0; i < t->count && !used; i++) used = t->span[i].row == row;
        if (used) write_row_name(f, c, device, row);
    }
}

static void write_span(FILE *f, const struct span *s, int device)
{
    fprintf(f, "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" TIME ",\"dur\":" TIME,
            s->what.name, s->row < STREAMS ? "compute" : "message", device, s->row, TIME_OF(s->start),
            TIME_OF(s->end - s->start));
    if (s->row < STREAMS) {
        fprintf(f, "},\n");
        return;
    }
    const bool receives = (s->row - STREAMS) % 2;
    fprintf(f, ",\"args\":{\"bytes\":%" PRIu64 ",\"%s\":%d}},\n", s->what.bytes, receives ? "from" : "to",
            s->what.peer);
    if (s->first)
        fprintf(f,
                "{\"ph\":\"%s\",\"name\":\"message\",\"cat\":\"message\",\"id\":%" PRId64
                ",\"pid\":%d,\"tid\":%d,\"ts\":" TIME "%s},\n",
                receives ? "f" : "s", s->what.flow, device, s->row, TIME_OF(s->start), receives ? ",\"bp\":\"e\"" : "");
}

enum error_code trace_format(const struct trace *t, const struct clock *c, int device, const char *place, char **text,
                             size_t *length, struct error *err)
{
    *text = NULL;
    FILE *f = open_memstream(text, length);
    if (f != NULL) {
        write_names(f, t, c, device, place);
        for (size_t i = 0; i < t->count; i++) write_span(f, &t->span[i], device);
        const bool good = !ferror(f);
        if (fclose(f) == 0 && good) return OK;
    }
    free(*text);
    *text = NULL;
    return fail(err, ERR_MEMORY, "device %d has no memory to write down %zu events of its trace", device, t->count);
}
