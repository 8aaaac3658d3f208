#include "emulated_devices/draw/trace_file.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A device's events as text, and whether they are complete. */
struct events {
    char *text;
    uint64_t length;
    bool full;
};

static enum error_code put(struct output *out, int64_t *at, const char *text, size_t length, struct error *err)
{
    const enum error_code e = output_write(out, text, length, *at, err);
    *at += (int64_t)length;
    return e;
}

/* Bring the events of one device to rank 0.  Collective. */
static enum error_code bring(struct comm *c, int rank, const struct events *own, struct events *got, struct error *err)
{
    struct { uint64_t length, full; } head = { own->length, own->full };
    enum error_code e = OK;
    *got = (struct events){ .text = NULL };
    if (rank == 0) {
        if (c->rank != 0) return OK;
        *got = *own;
        return (got->text = malloc(own->length + 1)) ? (memcpy(got->text, own->text, own->length), OK)
                                                     : fail(err, ERR_MEMORY, "no memory for a trace");
    }
    struct exchange x = exchange_begin(c->everyone, CONTROL);
    if (c->rank == rank) e = exchange_both(&x, 0, &head, sizeof head, -1, NULL, 0, err);
    if (c->rank == 0) e = exchange_both(&x, -1, NULL, 0, rank, &head, sizeof head, err);
    if (c->rank == 0 && !e && (got->text = malloc(head.length + 1)) == NULL)
        e = fail(err, ERR_MEMORY, "no memory for %llu bytes of device %d's trace", (unsigned long long)head.length,
                 rank);
    e = comm_agree(c, e, err);
    if (e) return e;
    if (c->rank == rank) e = exchange_both(&x, 0, own->text, own->length, -1, NULL, 0, err);
    if (c->rank != 0) return e;
    got->length = head.length;
    got->full = head.full != 0;
    return exchange_both(&x, -1, NULL, 0, rank, got->text, head.length, err);
}

static enum error_code collect_pieces(struct comm *c, const struct events *own, struct output *out, int64_t *at,
                                      bool *full, struct error *err)
{
    enum error_code e = OK;
    for (int rank = 0; rank < c->size && !e; rank++) {
        struct events got;
        e = bring(c, rank, own, &got, err);
        if (!e && c->rank == 0) e = put(out, at, got.text, got.length, err);
        *full = *full || got.full;
        free(got.text);
        e = comm_agree(c, e, err);
    }
    return e;
}

static enum error_code put_end(struct output *out, int64_t *at, const char *cluster, bool full, struct error *err)
{
    char text[256];
    const int n = snprintf(
        text, sizeof text,
        "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":0,\"args\":{\"labels\":\"virtual time\"}}\n],\n"
        "\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"time\":\"virtual\",\"cluster\":\"%.60s\",\"complete\":%s}}\n",
        cluster, full ? "false" : "true");
    return put(out, at, text, (size_t)n, err);
}

enum error_code trace_write(struct comm *c, const struct mesh *m, const struct trace *trace, const char *cluster,
                            const char *path, struct error *err)
{
    static const char begin[] = "{\"traceEvents\":[\n";
    struct events own = { .full = trace->full };
    struct output out;
    char place[64];
    size_t length = 0;
    int64_t at = 0;
    bool full = false, open = false;
    enum error_code e = trace_format(trace, &c->device->clock, c->rank, mesh_describe(m, c->rank, place, sizeof place),
                                     &own.text, &length, err);
    own.length = length;
    if (!e && c->rank == 0) {
        e = output_create(&out, path, err);
        open = e == OK;
        if (!e) e = put(&out, &at, begin, sizeof begin - 1, err);
    }
    e = comm_agree(c, e, err);
    if (!e) e = collect_pieces(c, &own, &out, &at, &full, err);
    if (!e && c->rank == 0) e = put_end(&out, &at, cluster, full, err);
    if (!e && c->rank == 0) e = output_commit(&out, err);
    else if (open) output_abort(&out);
    free(own.text);
    return comm_agree(c, e, err);
}
