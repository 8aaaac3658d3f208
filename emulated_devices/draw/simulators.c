#include "emulated_devices/draw/simulators.h"
#include "emulated_devices/draw/gather.h"
#include "ref/io/output.h"
#include "ref/io/protobuf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the graph of one device ------------------------------------------------------------------------------------- */

enum node_kind { NODE_WORK, NODE_SEND, NODE_RECEIVE, NODE_JOIN };

enum { MOST_AFTER = 3 };
struct node {
    enum node_kind kind;
    uint64_t id;                        /* from 1 */
    uint64_t after[MOST_AFTER];         /* nodes that must be complete before it */
    int afters, actor, peer;
    uint64_t bytes;
    uint32_t serial;                    /* of the message, for its sender */
    picoseconds takes;
};

/* A message of this device, by the other one and its serial: the node that sends or receives it. */
struct end { int peer; uint32_t serial; uint64_t id; };

struct graph {
    const struct events *events;
    uint64_t base[EVENT_ACTORS];        /* ids of an actor's events follow it */
    struct end *sent, *posted;
    size_t sends, posts;
};

static int by_message(const void *a, const void *b)
{
    const struct end *x = a, *y = b;
    if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
    return (x->serial > y->serial) - (x->serial < y->serial);
}

static uint64_t find(const struct end *list, size_t n, int peer, uint32_t serial)
{
    const struct end key = { peer, serial, 0 }, *found = n ? bsearch(&key, list, n, sizeof key, by_message) : NULL;
    return found ? found->id : 0;
}

/* Only what has arrived was received. */
static bool is_node(const struct event *v) { return v->kind != EVENT_POST || v->serial != UINT32_MAX; }

static enum error_code open_graph(struct graph *g, const struct events *events, struct error *err)
{
    uint64_t all = 0;
    *g = (struct graph){ .events = events };
    for (int a = 0; a < EVENT_ACTORS; a++) g->base[a] = all, all += events->of[a].count;
    g->sent = malloc(all * sizeof *g->sent + 1), g->posted = malloc(all * sizeof *g->posted + 1);
    if (events->lost || g->sent == NULL || g->posted == NULL)
        return fail(err, ERR_MEMORY, "no memory for a trace of %" PRIu64 " events", all);
    for (int a = 0; a < EVENT_ACTORS; a++)
        for (uint32_t i = 0; i < events->of[a].count; i++) {
            const struct event *v = &events->of[a].event[i];
            const uint64_t id = g->base[a] + i + 1;
            /* a serial is the sender's: of sends it alone is a name */
            if (v->kind == EVENT_SEND) g->sent[g->sends++] = (struct end){ 0, v->serial, id };
            if (v->kind == EVENT_POST && is_node(v)) g->posted[g->posts++] = (struct end){ v->peer, v->serial, id };
        }
    qsort(g->sent, g->sends, sizeof *g->sent, by_message);
    qsort(g->posted, g->posts, sizeof *g->posted, by_message);
    return OK;
}

/* The last of an actor's first events after which others can wait; 0: there is none. */
static uint64_t last_done(const struct graph *g, int actor, uint32_t place)
{
    while (place > 0) {
        const struct event *v = &g->events->of[actor].event[place - 1];
        if (v->kind != EVENT_SEND && v->kind != EVENT_POST) return g->base[actor] + place;
        place--;
    }
    return 0;
}

static void wait_for(struct node *n, uint64_t id)
{
    if (id != 0) n->after[n->afters++] = id;
}

static struct node node_of(const struct graph *g, int actor, uint32_t i)
{
    const struct event *v = &g->events->of[actor].event[i];
    struct node n = { .kind = NODE_JOIN, .id = g->base[actor] + i + 1, .actor = actor, .peer = v->peer,
                      .bytes = v->bytes, .serial = v->serial };
    wait_for(&n, last_done(g, actor, i));
    switch ((enum event_kind)v->kind) {
    case EVENT_WORK:    n.kind = NODE_WORK, n.takes = v->takes; break;
    case EVENT_SEND:    n.kind = NODE_SEND; break;
    case EVENT_POST:    n.kind = NODE_RECEIVE; break;
    case EVENT_AFTER:   wait_for(&n, last_done(g, v->other, v->place)); break;
    case EVENT_SENT:    wait_for(&n, find(g->sent, g->sends, 0, v->serial)); break;
    case EVENT_RECEIVE: wait_for(&n, find(g->posted, g->posts, v->peer, v->serial)); break;
    }
    return n;
}

/* Whole units of a sum, without those of the sum before: so that all together are the sum, rounded down once. */
static uint64_t units(picoseconds *sum, picoseconds takes, picoseconds unit)
{
    const picoseconds before = *sum / unit;
    *sum += takes;
    return (uint64_t)(*sum / unit - before);
}

/* ---- goal -------------------------------------------------------------------------------------------------------- */

static void goal_node(FILE *f, const struct node *n, picoseconds *sum)
{
    fprintf(f, "n%" PRIu64 ": ", n->id);
    if (n->kind == NODE_SEND || n->kind == NODE_RECEIVE)
        fprintf(f, "%s %" PRIu64 "b %s %d tag %" PRIu32, n->kind == NODE_SEND ? "send" : "recv", n->bytes,
                n->kind == NODE_SEND ? "to" : "from", n->peer, n->serial);
    else fprintf(f, "calc %" PRIu64, n->kind == NODE_WORK ? units(sum, n->takes, 1000) : 0);        /* nanoseconds */
    fprintf(f, " cpu %d\n", n->actor);
}

static void write_goal(FILE *f, const struct graph *g, int rank)
{
    fprintf(f, "rank %d {\n", rank);
    for (int pass = 0; pass < 2; pass++)                /* labels before what uses them */
        for (int a = 0; a < EVENT_ACTORS; a++) {
            picoseconds sum = 0;
            for (uint32_t i = 0; i < g->events->of[a].count; i++) {
                if (!is_node(&g->events->of[a].event[i])) continue;
                const struct node n = node_of(g, a, i);
                if (pass == 0) goal_node(f, &n, &sum);
                for (int k = 0; k < n.afters && pass == 1; k++)
                    fprintf(f, "n%" PRIu64 " requires n%" PRIu64 "\n", n.id, n.after[k]);
            }
        }
    fprintf(f, "}\n");
}

/* ---- chakra ------------------------------------------------------------------------------------------------------ */

static void put_message(FILE *f, const struct proto *m)
{
    struct proto length = { .used = 0 };
    proto_varint(&length, m->used);
    fwrite(length.byte, 1, length.used, f);
    fwrite(m->byte, 1, m->used, f);
}

/* An attribute: a name, and its value in the field of its type. */
enum chakra_type { CHAKRA_INT32 = 7, CHAKRA_INT64 = 9, CHAKRA_UINT64 = 13, CHAKRA_BOOL = 27 };
static void put_attribute(struct proto *node, const char *name, enum chakra_type type, uint64_t value)
{
    struct proto a = { .used = 0 };
    proto_text(&a, 1, name);
    proto_number(&a, (int)type, value);
    proto_bytes(node, 10, a.byte, a.used);
}

static void chakra_node(FILE *f, const struct node *n, int rank, picoseconds *sum)
{
    static const char *const name[] = { "compute", "send", "receive", "wait" };
    static const uint64_t type[] = { 4, 5, 6, 4 };      /* COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE */
    struct proto m = { .used = 0 }, after = { .used = 0 };
    proto_number(&m, 1, n->id);
    proto_text(&m, 2, name[n->kind]);
    proto_number(&m, 3, type[n->kind]);
    for (int k = 0; k < n->afters; k++) proto_varint(&after, n->after[k]);
    if (n->afters) proto_bytes(&m, 5, after.byte, after.used);
    if (n->kind == NODE_WORK) proto_number(&m, 7, units(sum, n->takes, 1000000));      /* microseconds */
    put_attribute(&m, "is_cpu_op", CHAKRA_BOOL, 0);
    if (n->kind == NODE_WORK) put_attribute(&m, "duration_ps", CHAKRA_UINT64, (uint64_t)n->takes);
    if (n->kind == NODE_SEND || n->kind == NODE_RECEIVE) {
        put_attribute(&m, "comm_size", CHAKRA_INT64, n->bytes);
        put_attribute(&m, "comm_src", CHAKRA_INT32, (uint64_t)(n->kind == NODE_SEND ? rank : n->peer));
        put_attribute(&m, "comm_dst", CHAKRA_INT32, (uint64_t)(n->kind == NODE_SEND ? n->peer : rank));
        put_attribute(&m, "comm_tag", CHAKRA_INT32, n->serial);
    }
    put_message(f, &m);
}

static void write_chakra(FILE *f, const struct graph *g, int rank)
{
    struct proto head = { .used = 0 };
    proto_text(&head, 1, "0.0.4");
    put_message(f, &head);
    for (int a = 0; a < EVENT_ACTORS; a++) {
        picoseconds sum = 0;
        for (uint32_t i = 0; i < g->events->of[a].count; i++) {
            if (!is_node(&g->events->of[a].event[i])) continue;
            const struct node n = node_of(g, a, i);
            chakra_node(f, &n, rank, &sum);
        }
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static enum error_code format(struct gathered *own, const struct events *events, enum simulator s, int rank,
                              struct error *err)
{
    struct graph g;
    size_t length = 0;
    enum error_code e = open_graph(&g, events, err);
    FILE *f = e ? NULL : open_memstream(&own->text, &length);
    if (f) s == SIMULATOR_GOAL ? write_goal(f, &g, rank) : write_chakra(f, &g, rank);
    if (!e && (f == NULL || fclose(f) != 0))
        e = fail(err, ERR_MEMORY, "no memory to write down device %d's trace", rank);
    own->length = length;
    free(g.sent), free(g.posted);
    return e;
}

struct target { const char *path; enum simulator simulator; struct output out; int64_t at; };

static enum error_code put_one(void *context, int rank, const struct gathered *g, struct error *err)
{
    struct target *t = context;
    char path[4096];
    if (t->simulator == SIMULATOR_CHAKRA) {
        snprintf(path, sizeof path, "%s.%d.et", t->path, rank);
        return file_write_all(path, g->text, g->length, err);
    }
    const enum error_code e = output_write(&t->out, g->text, g->length, t->at, err);
    t->at += (int64_t)g->length;
    return e;
}

static enum error_code begin_goal(struct target *t, int devices, struct error *err)
{
    char head[40];
    const int n = snprintf(head, sizeof head, "num_ranks %d\n", devices);
    enum error_code e = output_create(&t->out, t->path, err);
    if (!e) e = output_write(&t->out, head, (size_t)n, 0, err);
    t->at = n;
    return e;
}

enum error_code simulator_write(struct comm *c, const struct events *events, enum simulator s, const char *path,
                                struct error *err)
{
    struct gathered own = { .text = NULL };
    struct target t = { .path = path, .simulator = s, .out = { .fd = -1 } };
    const bool one_file = c->rank == 0 && s == SIMULATOR_GOAL;
    enum error_code e = format(&own, events, s, c->rank, err);
    if (!e && one_file) e = begin_goal(&t, c->size, err);
    e = comm_agree(c, e, err);
    if (!e) e = gather_texts(c, &own, put_one, &t, err);
    if (!e && one_file) e = output_commit(&t.out, err);
    else if (one_file && t.out.fd >= 0) output_abort(&t.out);
    free(own.text);
    return comm_agree(c, e, err);
}
