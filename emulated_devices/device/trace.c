/* trace.c -- records spans of work and messages, and writes them in Chrome's trace format.
 *
 * clock.c and arena.c record, comm/ names messages, draw/trace_file.c calls trace_format.  Only trace_format reports
 * an error, ERR_MEMORY; a trace that is full drops what comes later and says so (`full`).
 */
#include "emulated_devices/device/trace.h"
#include "emulated_devices/device/streams.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording --------------------------------------------------------------------------------------------------- */

static struct span *next_span(struct trace *trace)
{
    if (trace->count == trace->room) {
        const size_t more = trace->room > 0 ? 2 * trace->room : 1024;
        struct span *span = trace->room < TRACE_LIMIT ? realloc(trace->span, more * sizeof *span) : NULL;
        /* A trace that is full keeps what it has, and says that it is not all. */
        trace->full = trace->full || span == NULL;
        if (span == NULL) return NULL;
        trace->span = span;
        trace->room = more;
    }
    return &trace->span[trace->count++];
}

/* The next spans on ports belong to this message, until another is announced. */
void trace_announce(struct trace *trace, const char *name, const char *scheme, uint64_t bytes, int peer, int64_t flow)
{
    trace->label = (struct trace_label){ .scheme = scheme, .bytes = bytes, .peer = peer, .flow = flow };
    snprintf(trace->label.name, sizeof trace->label.name, "%s", name);
    trace->fresh = true;
}

/* The device's pass and microbatch; what is recorded from now on carries them. */
void trace_enter_action(struct trace *trace, const char *pass, int micro)
{
    if (trace != NULL) trace->place = (struct trace_place){ .pass = pass, .micro = micro };
}

void trace_enter_layer(struct trace *trace, bool in_layer, int layer)
{
    if (trace != NULL) trace->place.in_layer = in_layer, trace->place.layer = layer;
}

struct trace_text trace_layer_name(const struct trace *trace, const struct trace_place *place)
{
    struct trace_text name = { "" };
    if (!place->in_layer) return name;
    if (place->layer < 0) snprintf(name.text, sizeof name.text, "embedding");
    else if (place->layer == trace->layers) snprintf(name.text, sizeof name.text, "loss");
    else snprintf(name.text, sizeof name.text, "h.%d", place->layer);
    return name;
}

/* A sample for each time: the last one. */
void trace_arena(struct trace *trace, picoseconds at, const struct arena_use *use)
{
    if (trace->memories > 0 && trace->memory[trace->memories - 1].at == at) trace->memories--;
    if (trace->memories == trace->memory_room) {
        const size_t more = trace->memory_room > 0 ? 2 * trace->memory_room : 1024;
        struct trace_memory *m = trace->memory_room < TRACE_LIMIT ? realloc(trace->memory, more * sizeof *m) : NULL;
        trace->full = trace->full || m == NULL;
        if (m == NULL) return;
        trace->memory = m;
        trace->memory_room = more;
    }
    trace->memory[trace->memories++] = (struct trace_memory){ at, *use };
}

/* A span of a stream or engine, row = its number. */
void trace_work(struct trace *trace, int row, const char *name, struct op_cost cost, picoseconds start, picoseconds end)
{
    struct span *s = next_span(trace);
    if (s == NULL) return;
    *s = (struct span){ .row = row, .place = trace->place, .flops = cost.flops, .bytes = cost.bytes, .start = start,
                        .end = end };
    snprintf(s->what.name, sizeof s->what.name, "%s", name);
}

void trace_message(struct trace *trace, int row, picoseconds start, picoseconds end)
{
    struct span *s = next_span(trace);
    if (s == NULL) return;
    *s = (struct span){ .what = trace->label, .row = row, .first = trace->fresh, .place = trace->place, .start = start,
                        .end = end };
    /* A message may make several spans; only the first of them has its arrow. */
    trace->fresh = false;
}

void trace_free(struct trace *trace)
{
    free(trace->span), free(trace->memory);
    *trace = (struct trace){ .span = NULL };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Microseconds, the format's unit, exact to the picosecond. */
#define TIME "%" PRId64 ".%06" PRId64
#define TIME_OF(ps) (int64_t)((ps) / 1000000), (int64_t)((ps) % 1000000)

/* A port's row is named by direction and level, by its number where the level has several, and by the stream whose
 * messages share the port with those of others. */
static void write_port_name(char *name, size_t size, const struct cluster *cluster, int row)
{
    const int port = (row - STREAMS) / 2 % CLUSTER_MOST_PORTS, rows = (row - STREAMS) / (2 * CLUSTER_MOST_PORTS);
    int level = 0;
    while (level + 1 < cluster->levels && link_first_port(cluster->link, level + 1) <= port) level++;
    snprintf(name, size, "%s, %s", (row - STREAMS) % 2 ? "receive" : "send", cluster->link[level].level);
    if (cluster->link[level].ports > 1)
        snprintf(name + strlen(name), size - strlen(name), " %d", port - link_first_port(cluster->link, level));
    if (rows > 0)
        snprintf(name + strlen(name), size - strlen(name), ", shared by %s", stream_name((enum stream)(rows - 1)));
}

/* Rows are streams, engines and ports. */
static void write_row_name(FILE *file, const struct clock *clock, int device, int row)
{
    char name[64];
    if (row < STREAMS) snprintf(name, sizeof name, "%s", stream_name((enum stream)row));
    else write_port_name(name, sizeof name, &clock->cluster, row);
    fprintf(file, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", device,
            row, name);
    fprintf(file, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}},\n",
            device, row, row);
}

/* Only rows with spans get a name, so that the viewer shows no empty ones. */
static void write_names(FILE *file, const struct trace *trace, const struct clock *clock, int device, const char *place)
{
    fprintf(file, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"device %d  %s\"}},\n",
            device, device, place);
    fprintf(file, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}},\n", device,
            device);
    /* Streams and engines come first, then the ports, two for each that sends. */
    bool used[TRACE_ROWS] = { false };
    for (size_t i = 0; i < trace->count; i++) used[trace->span[i].row] = true;
    for (int row = 0; row < TRACE_ROWS; row++)
        if (used[row]) write_row_name(file, clock, device, row);
}

/* Where it is: layer, microbatch and pass, as far as there are. */
static void write_place(FILE *file, const struct trace *trace, const struct span *span)
{
    const struct trace_text layer = trace_layer_name(trace, &span->place);
    if (layer.text[0]) fprintf(file, ",\"layer\":\"%s\"", layer.text);
    if (span->place.pass) fprintf(file, ",\"microbatch\":%d,\"pass\":\"%s\"", span->place.micro, span->place.pass);
}

/* "matmul h.3 m1": what, layer, microbatch. */
static void write_name(FILE *file, const struct trace *trace, const struct span *span)
{
    const struct trace_text layer = trace_layer_name(trace, &span->place);
    fprintf(file, "{\"ph\":\"X\",\"name\":\"%s", span->what.name);
    if (layer.text[0]) fprintf(file, " %s", layer.text);
    if (span->place.pass) fprintf(file, " m%d", span->place.micro);
    fprintf(file, "\"");
}

/* An event of the format for a span, and for a message's first span the end of its arrow. */
static void write_span(FILE *file, const struct trace *trace, const struct span *span, int device)
{
    const bool message = span->row >= STREAMS, receives = message && (span->row - STREAMS) % 2;
    write_name(file, trace, span);
    fprintf(file, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":" TIME ",\"dur\":" TIME,
            message ? "message" : "compute", device, span->row, TIME_OF(span->start), TIME_OF(span->end - span->start));
    if (message)
        fprintf(file, ",\"args\":{\"bytes\":%" PRIu64 ",\"%s\":%d", span->what.bytes, receives ? "from" : "to",
                span->what.peer);
    else fprintf(file, ",\"args\":{\"bytes\":%.0f,\"flops\":%.0f", span->bytes, span->flops);
    if (span->what.scheme) fprintf(file, ",\"scheme\":\"%s\"", span->what.scheme);
    write_place(file, trace, span);
    fprintf(file, "}},\n");
    if (span->first)
        fprintf(file,
                "{\"ph\":\"%s\",\"name\":\"message\",\"cat\":\"message\",\"id\":%" PRId64
                ",\"pid\":%d,\"tid\":%d,\"ts\":" TIME "%s},\n",
                receives ? "f" : "s", span->what.flow, device, span->row, TIME_OF(span->start), receives
                    ? ",\"bp\":\"e\"" : "");
}

/* A counter with a band for each kind of memory. */
static void write_memory(FILE *file, const struct trace_memory *memory, int device)
{
    fprintf(file, "{\"ph\":\"C\",\"name\":\"memory\",\"pid\":%d,\"ts\":" TIME ",\"args\":{", device,
            TIME_OF(memory->at));
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        fprintf(file, "%s\"%s\":%" PRIu64, tag ? "," : "", arena_tag_name(tag), memory->use.tag[tag]);
    fprintf(file, "}},\n");
}

/* The text is the device's part of the file; the caller frees it, and joins those of all devices. */
enum error_code trace_format(const struct trace *trace, const struct clock *clock, int device,
                             const char *place, char **text, size_t *length, struct error *err)
{
    *text = NULL;
    FILE *f = open_memstream(text, length);
    if (f != NULL) {
        write_names(f, trace, clock, device, place);
        for (size_t i = 0; i < trace->count; i++) write_span(f, trace, &trace->span[i], device);
        for (size_t i = 0; i < trace->memories; i++) write_memory(f, &trace->memory[i], device);
        /* Errors of single prints show here, all at once. */
        const bool good = !ferror(f);
        if (fclose(f) == 0 && good) return OK;
    }
    free(*text);
    *text = NULL;
    return fail(err, ERR_MEMORY, "device %d has no memory to write down %zu events of its trace", device, trace->count);
}
