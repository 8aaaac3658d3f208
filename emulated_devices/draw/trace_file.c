/* trace_file.c -- joins the traces of all devices in one JSON file.  run/session.c and test_trace.c call.
 * Errors are the same on every device; after an error there is no file. */
#include "emulated_devices/draw/trace_file.h"
#include "emulated_devices/draw/gather.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Write a text behind what the file has so far. */
static enum error_code trace_file_put(struct output *out, int64_t *at, const char *text, size_t length,
                                      struct error *err)
{
    const enum error_code e = output_write(out, text, length, *at, err);
    *at += (int64_t)length;
    return e;
}

/* This is the file so far: how far it goes, and whether something was left out of a trace. */
struct writing { struct output out; int64_t at; bool full; };

/* Write one device's events; gather_texts calls this on rank 0, rank by rank. */
static enum error_code put_events(void *context, int rank, const struct gathered *gathered, struct error *err)
{
    struct writing *w = context;
    (void)rank;
    w->full = w->full || gathered->full;
    return trace_file_put(&w->out, &w->at, gathered->text, gathered->length, err);
}

/* Close the list of events; "complete" tells whether all events of all devices are there. */
static enum error_code put_end(struct output *out, int64_t *at, const char *cluster, bool full, struct error *err)
{
    char text[256];
    const int n = snprintf(
        text, sizeof text,
        "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":0,\"args\":{\"labels\":\"virtual time\"}}\n],\n"
        "\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"time\":\"virtual\",\"cluster\":\"%.60s\",\"complete\":%s}}\n",
        cluster, full ? "false" : "true");
    return trace_file_put(out, at, text, (size_t)n, err);
}

enum error_code trace_write(struct comm *comm, const struct mesh *mesh, const struct trace *trace, const char *cluster,
                            const char *path, struct error *err)
{
    static const char begin[] = "{\"traceEvents\":[\n";
    struct gathered own = { .full = trace->full };
    struct writing w = { .at = 0 };
    char place[64];
    size_t length = 0;
    bool open = false;
    /* Each device formats its own events; rank 0 alone has the file. */
    enum error_code e = trace_format(trace, &comm->device->clock, comm->rank,
                                     mesh_describe(mesh, comm->rank, place, sizeof place), &own.text, &length, err);
    own.length = length;
    if (!e && comm->rank == 0) {
        e = output_create(&w.out, path, err);
        open = e == OK;
        if (!e) e = trace_file_put(&w.out, &w.at, begin, sizeof begin - 1, err);
    }
    e = comm_agree(comm, e, err);
    if (!e) e = gather_texts(comm, &own, put_events, &w, err);
    if (!e && comm->rank == 0) e = put_end(&w.out, &w.at, cluster, w.full, err);
    if (!e && comm->rank == 0) e = output_commit(&w.out, err);
    else if (open) output_abort(&w.out);
    free(own.text);
    return comm_agree(comm, e, err);
}
