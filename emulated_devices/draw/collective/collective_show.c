/* collective_show.c -- runs a collective on symbols, on all devices, and collects the events on rank 0.
 * cli/show/collective.c starts collective_show on every device.  ERR_USAGE says what the algorithm needs of devices
 * or root; ERR_MEMORY; other errors are those of messages. */
#include "emulated_devices/draw/collective/collective.h"
#include "emulated_devices/draw/record.h"
#include "emulated_devices/device/trace.h"
#include "emulated_devices/draw/page/page_html.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error_code collective_shown_check(const struct collective_shown *shown, struct error *err)
{
    const char *op = operation_name(shown->operation);
    enum error_code e = algorithm_check(shown->operation, op, shown->algorithm, err);
    const struct algorithm *found = algorithm_find(shown->operation, shown->algorithm);
    const struct collective c = { .count = shown->count, .dtype = I64,
                                 .nodes = nodes_on(&shown->cluster, NULL, shown->devices) };
    if (!e && shown->root >= shown->devices)
        e = fail(err, ERR_USAGE, "show %s: --root %d must be one of the %d devices", op, shown->root, shown->devices);
    const char *needs = !e && found != NULL ? algorithm_refuses(found, shown->devices, &c) : NULL;
    if (needs == NULL) return e;
    return fail(err, ERR_USAGE, "%s %s needs %s; --devices is %d, --cluster %s", op, found->name, needs, shown->devices,
                shown->cluster.name);
}

/* A link whose time counts rounds: a message occupies its ports for one round; nothing else takes time. */
static const struct link round_link = { .gap = 1000000, .eager = ALWAYS_EAGER };

/* A cluster with equal distances; for an algorithm that depends on nodes, with the nodes of the shown cluster. */
static struct cluster rounds_on(const struct cluster *cluster, const struct algorithm *algorithm, int P)
{
    const int devices = algorithm->by_nodes ? nodes_on(cluster, NULL, P).devices : 0;
    struct cluster rounds = { .name = "rounds", .levels = devices > 0 ? 2 : 1, .link = { round_link, round_link } };
    rounds.link[0].devices = devices;
    /* The shown cluster was asked whether its switches add. */
    rounds.link[rounds.levels - 1].reduces = nodes_on(cluster, NULL, P).reduces;
    return rounds;
}

/* ---- what happens here ------------------------------------------------------------------------------------------- */

static void add_event(struct record *record, struct device *device, int from, picoseconds time, const void *symbols,
                      int64_t count)
{
    const int64_t *seen = host_read(device, symbols, (uint64_t)count * sizeof *seen);
    record_event(record, from, time, count);
    for (int64_t i = 0; i < count; i++) record_number(record, seen[i]);
    host_done(device, seen);
}

static void note_received(void *record, const struct exchange *exchange, int from, const void *data, uint64_t bytes)
{
    add_event(record, exchange->group->comm->device, from, exchange->group->comm->device->clock.received, data,
              (int64_t)(bytes / sizeof(int64_t)));
}

static void note_reduced(void *record, const struct exchange *exchange, enum dtype dtype, const void *into,
                         int64_t count)
{
    (void)dtype;
    add_event(record, exchange->group->comm->device, -1, exchange->group->comm->device->clock.now, into, count);
}

/* Record when messages and sums begin on this device, in the order of the trace: an enum spanned, the begin, and the
 * message's number, the same at both ends. */
enum spanned { SPAN_SENT, SPAN_RECEIVED, SPAN_SUM };

static void record_spans(struct record *record, const struct trace *trace)
{
    for (size_t i = 0; i < trace->count; i++) {
        const struct span *s = &trace->span[i];
        const bool message = s->row >= STREAMS;
        if (!message && strcmp(s->what.name, "reduce") != 0) continue;
        if (message && !s->first) continue;             /* a port that is shared gives a message several spans */
        record_event(record, !message ? SPAN_SUM : (s->row - STREAMS) % 2 ? SPAN_RECEIVED : SPAN_SENT, s->start, 1);
        record_number(record, s->what.flow);
    }
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

static bool gathers(enum operation op) { return op == ALLGATHER || op == GATHER || op == SPARSE_ALLGATHER; }

static void collective_fill(const struct collective_shown *shown, int P, int r, int64_t *in)
{
    if (shown->operation == ALLTOALL) {
        for (int64_t i = 0; i < (int64_t)P * shown->count; i++) in[i] = symbol(r, i);
        return;
    }
    const int64_t first = gathers(shown->operation) ? block_start(shown->count, P, r) : 0;
    const int64_t last = gathers(shown->operation) ? block_start(shown->count, P, r + 1) : shown->count;
    for (int64_t i = first; i < last; i++) in[i - first] = symbol(r, i);
}

/* Run once on a cluster and record every event.  spans: where begin and end of messages and sums go; NULL: nowhere. */
static enum error_code run_on(struct comm *world, const struct collective_shown *shown, const struct show_trace *trace,
                              const struct cluster *cluster, struct record *record, struct record *spans,
                              struct show_verdict *verdict, struct error *err)
{
    const size_t elements = (size_t)world->size * (size_t)(shown->count + 1);
    int64_t *in = calloc(elements, sizeof *in), *out = calloc(elements, sizeof *out);
    enum error_code e =
        comm_agree(world, in && out ? OK : fail(err, ERR_MEMORY, "no memory for %d elements", shown->count), err);
    if (!e) {
        const struct listener listener = { record, note_received, note_reduced };
        const struct collective c = {
            .in = in, .out = out, .count = shown->count, .dtype = I64, .reduction = SUM, .root = shown->root,
            .segment = trace->call.segment
        };
        collective_fill(shown, world->size, world->rank, in);
        struct trace spanned = { .span = NULL };
        clock_restart(&world->device->clock, cluster, F32);
        if (spans != NULL) world->device->clock.trace = &spanned;
        world->listener = &listener;
        e = collective_run(world->everyone, shown->operation, trace->algorithm->name, &c, err);
        world->listener = NULL;
        world->device->clock.trace = NULL;
        if (spans != NULL) record_spans(spans, &spanned);
        trace_free(&spanned);
        *verdict = show_judge(shown->operation, &c, world->rank, world->size);
    }
    free(in), free(out);
    if (!e && spans != NULL) e = record_check(spans, err);
    return comm_agree(world, e ? e : record_check(record, err), err);
}

/* ---- to rank 0 --------------------------------------------------------------------------------------------------- */

/* The nth event of a device is the same in both records, with different times. */
static enum error_code collective_join(struct show_trace *trace, const struct record *steps, const struct record *times,
                                       struct error *err)
{
    for (int pass = 0; pass < 2; pass++) {
        trace->events = 0;
        for (int r = 0; r < trace->P; r++)
            for (int64_t at = 0; at < steps[r].used; at += 3 + steps[r].number[at + 2], trace->events++)
                if (pass == 1)
                    trace->event[trace->events] = (struct show_event){ .device = r, .from = (int)steps[r].number[at],
                                             .time = times[r].number[at + 1],
                                             .step = (steps[r].number[at + 1] + round_link.gap / 2) / round_link.gap,
                                             .count = steps[r].number[at + 2], .symbols = &steps[r].number[at + 3] };
        if (pass == 0 && (trace->event = calloc((size_t)trace->events + 1, sizeof *trace->event)) == NULL)
            return fail(err, ERR_MEMORY, "no memory to draw");
    }
    return OK;
}

/* Find the entry of a record from `at` on that has this kind and, but for -1, this number of a message; -1: none. */
static int64_t find_span(const struct record *spans, int64_t at, enum spanned kind, int64_t flow)
{
    for (; at < spans->used; at += 3 + spans->number[at + 2])
        if (spans->number[at] == (int64_t)kind && (flow < 0 || spans->number[at + 3] == flow)) return at;
    return -1;
}

/* The nth arrival and the nth sum of a device are the nth spans of their kind there.  A message's number leads to its
 * sender's span.  Events without a span begin when they end. */
static void join_spans(struct show_trace *trace, const struct record *spans)
{
    int64_t at[SHOW_MOST_DEVICES][2] = { { 0 } };
    for (int64_t i = 0; i < trace->events; i++) {
        struct show_event *e = &trace->event[i];
        const struct record *own = &spans[e->device];
        int64_t *next = &at[e->device][e->from < 0];
        const int64_t found = *next < 0 ? -1 : find_span(own, *next, e->from < 0 ? SPAN_SUM : SPAN_RECEIVED, -1);
        *next = found < 0 ? -1 : found + 3 + own->number[found + 2];
        e->start = found >= 0 ? own->number[found + 1] : e->time;
        if (found < 0 || e->from < 0) continue;
        const int64_t sent = find_span(&spans[e->from], 0, SPAN_SENT, own->number[found + 3]);
        if (sent >= 0) e->start = spans[e->from].number[sent + 1];
    }
}

static enum error_code collective_page(const struct show_trace *trace, const char *path, struct error *err)
{
    struct film film, *const films[] = { &film };
    enum error_code e = collective_film(&film, trace, err);
    if (!e) e = page_html_write(path, films, 1, err);
    film_close(&film);
    return e;
}

static enum error_code collective_draw(struct show_trace *trace, struct record (*all)[SHOW_MOST_DEVICES],
                                       const struct collective_shown *shown, struct error *err)
{
    enum error_code e = collective_join(trace, all[0], all[1], err);
    if (!e) join_spans(trace, all[2]);
    if (!e) e = show_draw(trace, !shown->plain && terminal_has_colours(stdout), err);
    fflush(stdout);                     /* a file may be the standard output */
    if (!e && shown->svg != NULL) e = svg_file(shown->svg, collective_svg, trace, err);
    if (!e && shown->page != NULL) e = collective_page(trace, shown->page, err);
    if (!e) e = show_verdict_print(trace, err);
    free(trace->event);
    return e;
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

enum error_code collective_show(struct comm *world, const void *shown, struct error *err)
{
    const struct collective_shown *a = shown;
    /* The events in rounds, those on the cluster, and spans there. */
    struct record own[3] = { { 0 } }, all[3][SHOW_MOST_DEVICES] = { { { 0 } } };
    struct show_trace t = { .P = world->size, .cluster = &a->cluster,
                            .call = { .count = a->count, .dtype = I64, .reduction = SUM, .root = a->root,
                                      .nodes = group_nodes(world->everyone) } };
    struct traffic *counted = &world->counted.of[TRAFFIC_OTHER].of[a->operation];
    struct show_end end = { .time = 0 };
    enum error_code e = record_check_devices(world, a->devices, err);
    if (e) return e;
    t.algorithm = a->algorithm && strcmp(a->algorithm, ALGORITHM_AUTO) == 0
                      ? algorithm_choose(a->operation, t.P, &t.call, t.cluster)
                      : algorithm_find(a->operation, a->algorithm);
    t.call.segment = segment_choose(t.algorithm, t.P, &t.call, t.cluster);      /* the same where steps are counted */
    const struct cluster rounds = rounds_on(t.cluster, t.algorithm, t.P);
    e = run_on(world, a, &t, &rounds, &own[0], NULL, &end.verdict, err);
    *counted = (struct traffic){ 0 };
    if (!e) e = run_on(world, a, &t, t.cluster, &own[1], &own[2], &end.verdict, err);
    end.traffic = *counted, end.time = world->device->clock.now;
    if (!e) e = comm_bring(world, &end, sizeof end, t.end, err);
    for (int i = 0; i < 3 && !e; i++) e = record_bring(world, &own[i], all[i], err);
    if (!e && world->rank == 0) e = collective_draw(&t, all, a, err);
    for (int i = 0; i < 3; i++) {
        free(own[i].number);
        records_free(all[i], SHOW_MOST_DEVICES);
    }
    return comm_agree(world, e, err);
}
