/* simulators.c -- turns the events of each device's clock into a graph of nodes and writes the graph in two formats.
 * The caller on all devices is run/session.c.  Errors are ERR_FILE, ERR_MEMORY and ERR_COMM, the same on every
 * device. */
#include "emulated_devices/draw/simulators.h"
#include "emulated_devices/draw/gather.h"
#include "ref/io/output.h"
#include "ref/io/protobuf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the graph of one device ------------------------------------------------------------------------------------- */

/* A join is a point of a stream that takes no time and waits. */
enum node_kind { NODE_WORK, NODE_SEND, NODE_RECEIVE, NODE_JOIN };

/* A node waits for the last work of its own stream, and for at most one more event. */
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

/* An end is the node that sends or receives a message of this device.  The other device and the serial find the end. */
struct end { int peer; uint32_t serial; uint64_t id; };

struct graph {
    const struct events *events;
    uint64_t base[EVENT_ACTORS];        /* ids of an actor's events follow it */
    struct end *sent, *posted;
    size_t sends, posts;
};

/* Messages are ordered by device, then by serial, for the binary search. */
static int by_message(const void *a, const void *b)
{
    const struct end *x = a, *y = b;
    if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
    return (x->serial > y->serial) - (x->serial < y->serial);
}

/* Find the node of a message; 0: no such message. */
static uint64_t simulators_find(const struct end *list, size_t n, int peer, uint32_t serial)
{
    const struct end key = { peer, serial, 0 }, *found = n ? bsearch(&key, list, n, sizeof key, by_message) : NULL;
    return found ? found->id : 0;
}

/* Only what has arrived was received. */
static bool is_node(const struct event *event) { return event->kind != EVENT_POST || event->serial != UINT32_MAX; }

/* Number the nodes of all actors and list the ends of messages, sorted.  ERR_MEMORY also if events were lost,
 * because the graph would have gaps. */
static enum error_code open_graph(struct graph *graph, const struct events *events, struct error *err)
{
    uint64_t all = 0;
    *graph = (struct graph){ .events = events };
    /* The ids of an actor's events follow those of the actors before, from 1 on. */
    for (int a = 0; a < EVENT_ACTORS; a++) graph->base[a] = all, all += events->of[a].count;
    graph->sent = malloc(all * sizeof *graph->sent + 1), graph->posted = malloc(all * sizeof *graph->posted + 1);
    if (events->lost || graph->sent == NULL || graph->posted == NULL)
        return fail(err, ERR_MEMORY, "no memory for a trace of %" PRIu64 " events", all);
    for (int a = 0; a < EVENT_ACTORS; a++)
        for (uint32_t i = 0; i < events->of[a].count; i++) {
            const struct event *v = &events->of[a].event[i];
            if (v->kind == EVENT_MEET)
                return fail(err, ERR_PLAN, "other simulators have no switches that add: choose another --allreduce");
            const uint64_t id = graph->base[a] + i + 1;
            /* a serial is the sender's: of sends it alone is a name */
            if (v->kind == EVENT_SEND) graph->sent[graph->sends++] = (struct end){ 0, v->serial, id };
            if (v->kind == EVENT_POST && is_node(v))
                graph->posted[graph->posts++] = (struct end){ v->peer, v->serial, id };
        }
    qsort(graph->sent, graph->sends, sizeof *graph->sent, by_message);
    qsort(graph->posted, graph->posts, sizeof *graph->posted, by_message);
    return OK;
}

/* The result is the last of an actor's first events for which others can wait; 0: there is none. */
static uint64_t last_done(const struct graph *graph, int actor, uint32_t place)
{
    while (place > 0) {
        const struct event *v = &graph->events->of[actor].event[place - 1];
        if (v->kind != EVENT_SEND && v->kind != EVENT_POST) return graph->base[actor] + place;
        place--;
    }
    return 0;
}

/* Add a node to wait for; 0 stands for none. */
static void wait_for(struct node *node, uint64_t id)
{
    if (id != 0) node->after[node->afters++] = id;
}

/* Make the node of event i of an actor.  A join has no work: its stream waits there for another event or a message. */
static struct node simulators_node_of(const struct graph *graph, int actor, uint32_t i)
{
    const struct event *v = &graph->events->of[actor].event[i];
    struct node n = { .kind = NODE_JOIN, .id = graph->base[actor] + i + 1, .actor = actor, .peer = v->peer,
                      .bytes = v->bytes, .serial = v->serial };
    wait_for(&n, last_done(graph, actor, i));
    switch ((enum event_kind)v->kind) {
    case EVENT_WORK:    n.kind = NODE_WORK, n.takes = v->takes; break;
    case EVENT_SEND:    n.kind = NODE_SEND; break;
    case EVENT_POST:    n.kind = NODE_RECEIVE; break;
    case EVENT_SHARED:  break;                                 /* a simulator has ports of its own */
    case EVENT_MEET:    break;                                 /* open_graph has refused it */
    case EVENT_AFTER:   wait_for(&n, last_done(graph, v->other, v->place)); break;
    case EVENT_SENT:    wait_for(&n, simulators_find(graph->sent, graph->sends, 0, v->serial)); break;
    case EVENT_RECEIVE: wait_for(&n, simulators_find(graph->posted, graph->posts, v->peer, v->serial)); break;
    }
    return n;
}

/* Whole units of a sum, without those of the sum before: so that all together are the sum, rounded down once. */
static uint64_t units(picoseconds *sum, picoseconds takes, picoseconds unit)
{
    /* The difference of two rounded sums is what this computation gets. */
    const picoseconds before = *sum / unit;
    *sum += takes;
    return (uint64_t)(*sum / unit - before);
}

/* ---- goal -------------------------------------------------------------------------------------------------------- */

/* Write a node as a line of GOAL; computations are whole nanoseconds. */
static void goal_node(FILE *file, const struct node *node, picoseconds *sum)
{
    fprintf(file, "n%" PRIu64 ": ", node->id);
    if (node->kind == NODE_SEND || node->kind == NODE_RECEIVE)
        fprintf(file, "%s %" PRIu64 "b %s %d tag %" PRIu32, node->kind == NODE_SEND ? "send" : "recv", node->bytes,
                node->kind == NODE_SEND ? "to" : "from", node->peer, node->serial);
    /* nanoseconds */
    else fprintf(file, "calc %" PRIu64, node->kind == NODE_WORK ? units(sum, node->takes, 1000) : 0);
    fprintf(file, " cpu %d\n", node->actor);
}

/* Write one device's nodes, then what each requires. */
static void write_goal(FILE *file, const struct graph *graph, int rank)
{
    fprintf(file, "rank %d {\n", rank);
    for (int pass = 0; pass < 2; pass++)                /* labels before what uses them */
        for (int a = 0; a < EVENT_ACTORS; a++) {
            picoseconds sum = 0;
            for (uint32_t i = 0; i < graph->events->of[a].count; i++) {
                if (!is_node(&graph->events->of[a].event[i])) continue;
                const struct node n = simulators_node_of(graph, a, i);
                if (pass == 0) goal_node(file, &n, &sum);
                for (int k = 0; k < n.afters && pass == 1; k++)
                    fprintf(file, "n%" PRIu64 " requires n%" PRIu64 "\n", n.id, n.after[k]);
            }
        }
    fprintf(file, "}\n");
}

/* ---- chakra ------------------------------------------------------------------------------------------------------ */

/* Write a protobuf message behind its length, as Chakra's files have it. */
static void put_message(FILE *file, const struct proto *proto)
{
    struct proto length = { .used = 0 };
    proto_varint(&length, proto->used);
    fwrite(length.byte, 1, length.used, file);
    fwrite(proto->byte, 1, proto->used, file);
}

/* An attribute: a name, and its value in the field of its type. */
enum chakra_type { CHAKRA_INT32 = 7, CHAKRA_INT64 = 9, CHAKRA_UINT64 = 13, CHAKRA_BOOL = 27 };
/* Add an attribute to a node: field 10, with a name and a value. */
static void put_attribute(struct proto *node, const char *name, enum chakra_type type, uint64_t value)
{
    struct proto a = { .used = 0 };
    proto_text(&a, 1, name);
    proto_number(&a, (int)type, value);
    proto_bytes(node, 10, a.byte, a.used);
}

/* Write a node as a Chakra Node message; computations are whole microseconds, and picoseconds in an attribute. */
static void chakra_node(FILE *file, const struct node *node, int rank, picoseconds *sum)
{
    static const char *const name[] = { "compute", "send", "receive", "wait" };
    static const uint64_t type[] = { 4, 5, 6, 4 };      /* COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE */
    struct proto m = { .used = 0 }, after = { .used = 0 };
    proto_number(&m, 1, node->id);
    proto_text(&m, 2, name[node->kind]);
    proto_number(&m, 3, type[node->kind]);
    for (int k = 0; k < node->afters; k++) proto_varint(&after, node->after[k]);
    if (node->afters) proto_bytes(&m, 5, after.byte, after.used);
    if (node->kind == NODE_WORK) proto_number(&m, 7, units(sum, node->takes, 1000000));      /* microseconds */
    put_attribute(&m, "is_cpu_op", CHAKRA_BOOL, 0);
    if (node->kind == NODE_WORK) put_attribute(&m, "duration_ps", CHAKRA_UINT64, (uint64_t)node->takes);
    if (node->kind == NODE_SEND || node->kind == NODE_RECEIVE) {
        put_attribute(&m, "comm_size", CHAKRA_INT64, node->bytes);
        put_attribute(&m, "comm_src", CHAKRA_INT32, (uint64_t)(node->kind == NODE_SEND ? rank : node->peer));
        put_attribute(&m, "comm_dst", CHAKRA_INT32, (uint64_t)(node->kind == NODE_SEND ? node->peer : rank));
        put_attribute(&m, "comm_tag", CHAKRA_INT32, node->serial);
    }
    put_message(file, &m);
}

/* Write the metadata, then all nodes of a device. */
static void write_chakra(FILE *file, const struct graph *graph, int rank)
{
    struct proto head = { .used = 0 };
    proto_text(&head, 1, "0.0.4");
    put_message(file, &head);
    for (int a = 0; a < EVENT_ACTORS; a++) {
        picoseconds sum = 0;
        for (uint32_t i = 0; i < graph->events->of[a].count; i++) {
            if (!is_node(&graph->events->of[a].event[i])) continue;
            const struct node n = simulators_node_of(graph, a, i);
            chakra_node(file, &n, rank, &sum);
        }
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Make one device's text in memory.  On an error the text may be there in part: the caller frees it. */
static enum error_code format(struct gathered *own, const struct events *events, enum simulator simulator, int rank,
                              struct error *err)
{
    struct graph g;
    size_t length = 0;
    enum error_code e = open_graph(&g, events, err);
    FILE *f = e ? NULL : open_memstream(&own->text, &length);
    if (f) simulator == SIMULATOR_GOAL ? write_goal(f, &g, rank) : write_chakra(f, &g, rank);
    if (!e && (f == NULL || fclose(f) != 0))
        e = fail(err, ERR_MEMORY, "no memory to write down device %d's trace", rank);
    own->length = length;
    free(g.sent), free(g.posted);
    return e;
}

/* This is rank 0's open file of GOAL, and where the next text goes. */
struct target { const char *path; enum simulator simulator; struct output out; int64_t at; };

/* Write one device's text: a file of its own for Chakra, the next part of the one file for GOAL. */
static enum error_code put_one(void *context, int rank, const struct gathered *gathered, struct error *err)
{
    struct target *t = context;
    char path[4096];
    if (t->simulator == SIMULATOR_CHAKRA) {
        snprintf(path, sizeof path, "%s.%d.et", t->path, rank);
        return file_write_all(path, gathered->text, gathered->length, err);
    }
    const enum error_code e = output_write(&t->out, gathered->text, gathered->length, t->at, err);
    t->at += (int64_t)gathered->length;
    return e;
}

/* Create the file of GOAL with its first line. */
static enum error_code begin_goal(struct target *target, int devices, struct error *err)
{
    char head[40];
    const int n = snprintf(head, sizeof head, "num_ranks %d\n", devices);
    enum error_code e = output_create(&target->out, target->path, err);
    if (!e) e = output_write(&target->out, head, (size_t)n, 0, err);
    target->at = n;
    return e;
}

enum error_code simulator_write(struct comm *comm, const struct events *events, enum simulator simulator,
                                const char *path, struct error *err)
{
    struct gathered own = { .text = NULL };
    struct target t = { .path = path, .simulator = simulator, .out = { .fd = -1 } };
    const bool one_file = comm->rank == 0 && simulator == SIMULATOR_GOAL;
    enum error_code e = format(&own, events, simulator, comm->rank, err);
    if (!e && one_file) e = begin_goal(&t, comm->size, err);
    e = comm_agree(comm, e, err);
    if (!e) e = gather_texts(comm, &own, put_one, &t, err);
    /* The file appears as a whole, or not at all. */
    if (!e && one_file) e = output_commit(&t.out, err);
    else if (one_file && t.out.fd >= 0) output_abort(&t.out);
    free(own.text);
    return comm_agree(comm, e, err);
}
