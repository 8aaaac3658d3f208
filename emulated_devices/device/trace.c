#include "emulated_devices/device/trace.h"
#include "emulated_devices/device/streams.h"
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
        /* A trace that is full keeps what it has, and says that it is not all. */
        t->full = t->full || span == NULL;
        if (span == NULL) return NULL;
        t->span = span;
        t->room = more;
    }
    return &t->span[t->count++];
}

void trace_announce(struct trace *t, const char *name, const char *scheme, uint64_t bytes, int peer, int64_t flow)
{
    t->label = (struct trace_label){ .scheme = scheme, .bytes = bytes, .peer = peer, .flow = flow };
    snprintf(t->label.name, sizeof t->label.name, "%s", name);
    t->fresh = true;
}

void trace_enter_action(struct trace *t, const char *pass, int micro)
{
    if (t != NULL) t->place = (struct trace_place){ .pass = pass, .micro = micro };
}

void trace_enter_layer(struct trace *t, bool in_layer, int layer)
{
    if (t != NULL) t->place.in_layer = in_layer, t->place.layer = layer;
}

struct trace_text trace_layer_name(const struct trace *t, const struct trace_place *p)
{
    struct trace_text name = { "" };
    if (!p->in_layer) return name;
    if (p->layer < 0) snprintf(name.text, sizeof name.text, "embedding");
    else if (p->layer == t->layers) snprintf(name.text, sizeof name.text, "loss");
    else snprintf(name.text, sizeof name.text, "h.%d", p->layer);
    return name;
}

/* A sample for each time: the last one. */
void trace_arena(struct trace *t, picoseconds at, const struct arena_use *use)
{
    if (t->memories > 0 && t->memory[t->memories - 1].at == at) t->memories--;
    if (t->memories == t->memory_room) {
        const size_t more = t->memory_room > 0 ? 2 * t->memory_room : 1024;
        struct trace_memory *m = t->memory_room < TRACE_LIMIT ? realloc(t->memory, more * sizeof *m) : NULL;
        t->full = t->full || m == NULL;
        if (m == NULL) return;
        t->memory = m;
        t->memory_room = more;
    }
    t->memory[t->memories++] = (struct trace_memory){ at, *use };
}

void trace_work(struct trace *t, int row, const char *name, struct op_cost cost, picoseconds start, picoseconds end)
{
    struct span *s = next_span(t);
    if (s == NULL) return;
    *s = (struct span){ .row = row, .place = t->place, .flops = cost.flops, .bytes = cost.bytes, .start = start,
                        .end = end };
    snprintf(s->what.name, sizeof s->what.name, "%s", name);
}

void trace_message(struct trace *t, int row, picoseconds start, picoseconds end)
{
    struct span *s = next_span(t);
    if (s == NULL) return;
    *s = (struct span){ .what = t->label, .row = row, .first = t->fresh, .place = t->place, .start = start,
                        .end = end };
    /* A message may make several spans; only the first of them has its arrow. */
    t->fresh = false;
}

void trace_free(struct trace *t)
{
    free(t->span), free(t->memory);
    *t = (struct trace){ .span = NULL };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Microseconds, the format's unit, exact to the picosecond. */
#define TIME "%" PRId64 ".%06" PRId64
#define TIME_OF(ps) (int64_t)((ps) / 1000000), (int64_t)((ps) % 1000000)

static void write_row_name(FILE *f, const struct clock *c, int device, int row)
{
    char name[40];
    if (row < STREAMS) snprintf(name, sizeof name, "%s", stream_name((enum stream)row));
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

/* Where it is: layer, microbatch and pass, as far as there are. */
static void write_place(FILE *f, const struct trace *t, const struct span *s)
{
    const struct trace_text layer = trace_layer_name(t, &s->place);
    if (layer.text[0]) fprintf(f, ",\"layer\":\"%s\"", layer.text);
    if (s->place.pass) fprintf(f, ",\"microbatch\":%d,\"pass\":\"%s\"", s->place.micro, s->place.pass);
}

/* "matmul h.3 m1": what, layer, microbatch. */
static void write_name(FILE *f, const struct trace *t, const struct span *s)
{
    const struct trace_text layer = trace_layer_name(t, &s->place);
    fprintf(f, "{\"ph\":\"X\",\"name\":\"%s", s->what.name);
    if (layer.text[0]) fprintf(f, " %s", layer.text);
    if (s->place.pass) fprintf(f, " m%d", s->place.micro);
    fprintf(f, "\"");
}

static void write_span(FILE *f, const struct trace *t, const struct span *s, int device)
{
    const bool message = s->row >= STREAMS, receives = message && (s->row - STREAMS) % 2;
    write_name(f, t, s);
    fprintf(f, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" TIME ",\"dur\":" TIME, message ? "message" : "compute",
            device, s->row, TIME_OF(s->start), TIME_OF(s->end - s->start));
    if (message)
        fprintf(f, ",\"args\":{\"bytes\":%" PRIu64 ",\"%s\":%d", s->what.bytes, receives ? "from" : "to", s->what.peer);
    else fprintf(f, ",\"args\":{\"bytes\":%.0f,\"flops\":%.0f", s->bytes, s->flops);
    if (s->what.scheme) fprintf(f, ",\"scheme\":\"%s\"", s->what.scheme);
    write_place(f, t, s);
    fprintf(f, "}},\n");
    if (s->first)
        fprintf(f,
                "{\"ph\":\"%s\",\"name\":\"message\",\"cat\":\"message\",\"id\":%" PRId64
                ",\"pid\":%d,\"tid\":%d,\"ts\":" TIME "%s},\n",
                receives ? "f" : "s", s->what.flow, device, s->row, TIME_OF(s->start), receives ? ",\"bp\":\"e\"" : "");
}

/* A counter with a band for each kind of memory. */
static void write_memory(FILE *f, const struct trace_memory *m, int device)
{
    fprintf(f, "{\"ph\":\"C\",\"name\":\"memory\",\"pid\":%d,\"ts\":" TIME ",\"args\":{", device, TIME_OF(m->at));
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        fprintf(f, "%s\"%s\":%" PRIu64, tag ? "," : "", arena_tag_name(tag), m->use.tag[tag]);
    fprintf(f, "}},\n");
}

enum error_code trace_format(const struct trace *t, const struct clock *c, int device, const char *place, char **text,
                             size_t *length, struct error *err)
{
    *text = NULL;
    FILE *f = open_memstream(text, length);
    if (f != NULL) {
        write_names(f, t, c, device, place);
        for (size_t i = 0; i < t->count; i++) write_span(f, t, &t->span[i], device);
        for (size_t i = 0; i < t->memories; i++) write_memory(f, &t->memory[i], device);
        const bool good = !ferror(f);
        if (fclose(f) == 0 && good) return OK;
    }
    free(*text);
    *text = NULL;
    return fail(err, ERR_MEMORY, "device %d has no memory to write down %zu events of its trace", device, t->count);
}
