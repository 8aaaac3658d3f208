/* port.c -- a message takes a port's free time, and its part of the time of other streams' messages.
 *
 * clock.c calls port_take for each side of a message.  The walk goes through the port's intervals once, from the
 * message's arrival on, and writes them anew.  Times are picoseconds.  No function here can fail.
 */
#include "emulated_devices/device/port.h"
#include "emulated_devices/device/trace.h"
#include <string.h>

/* A message on its way through the intervals. */
struct walk {
    struct port *port;
    const struct port_message *message;
    picoseconds at, left, end;          /* so far; of the message; its end, once `done` */
    bool done;
    picoseconds slowed;                 /* time beside others, less what it has moved then */
    picoseconds owed;                   /* to streams whose time the message has taken */
    unsigned owners;                    /* these streams */
    picoseconds *paid;                  /* [PORT_LANES] */
};

static picoseconds less(picoseconds a, picoseconds b) { return a < b ? a : b; }

/* An interval becomes part of the one before it if they touch and are of the same streams. */
static void port_add(struct port *port, picoseconds start, picoseconds end, unsigned lanes)
{
    struct port_interval *const last = port->count > 0 ? &port->busy[port->count - 1] : NULL;
    if (start == end) return;
    if (last && last->end == start && last->lanes == lanes) {
        last->end = end;
        return;
    }
    if (port->count == PORT_MEMORY)
        memmove(&port->busy[0], &port->busy[1], sizeof port->busy[0] * (size_t)--port->count);
    port->busy[port->count++] = (struct port_interval){ start, end, (uint8_t)lanes };
}

/* The port is busy until a time.  own: the message moves, too, and a trace shows it. */
static void walk_to(struct walk *w, picoseconds until, unsigned others, bool own)
{
    const struct port_message *const m = w->message;
    port_add(w->port, w->at, until, others | (own ? 1u << m->lane : 0u));
    if (own && m->trace && until > w->at)
        trace_message(m->trace, others ? m->shared_row : m->row, w->at, until);
    w->at = until;
}

static void walk_done(struct walk *w)
{
    if (w->done || w->left > 0) return;
    w->done = true, w->end = w->at;
}

static void walk_paid(struct walk *w)
{
    for (int lane = 0; lane < PORT_LANES && w->owed == 0; lane++)
        if (w->owners >> lane & 1u && w->paid[lane] < w->at) w->paid[lane] = w->at;
    if (w->owed == 0) w->owners = 0;
}

static int lanes_in(unsigned lanes)
{
    int n = 0;
    for (; lanes; lanes &= lanes - 1) n++;
    return n;
}

/* Free time is the message's and, while the port owes others some, theirs in equal parts. */
static void walk_free(struct walk *w, picoseconds until)
{
    for (walk_done(w); w->at < until && (!w->done || w->owed > 0); walk_done(w)) {
        const picoseconds room = until - w->at, before = w->at;
        const int others = w->owed > 0 ? lanes_in(w->owners) : 0;
        if (w->done) {
            walk_to(w, w->at + less(room, w->owed), w->owners, false);
            w->owed -= w->at - before;
        } else if (others == 0) {
            walk_to(w, w->at + less(room, w->left), 0, true);
            w->left -= w->at - before;
        } else {
            const picoseconds both = less(w->left * (others + 1), w->owed + w->owed / others);
            walk_to(w, w->at + less(room, both), w->owners, true);
            const picoseconds moved = (w->at - before) / (others + 1);
            w->left -= moved, w->owed -= w->at - before - moved, w->slowed += w->at - before - moved;
        }
        walk_paid(w);
    }
}

/* The message has an equal part of others' time.  Behind messages of its own stream it waits. */
static void walk_busy(struct walk *w, const struct port_interval *interval)
{
    const unsigned own = 1u << w->message->lane;
    if (!(interval->lanes & own)) walk_done(w);
    if (!w->done && !(interval->lanes & own)) {
        const int others = lanes_in(interval->lanes);
        const picoseconds before = w->at;
        walk_to(w, w->at + less(interval->end - w->at, w->left * (others + 1)), interval->lanes, true);
        const picoseconds moved = (w->at - before) / (others + 1);
        w->left -= moved, w->owed += moved, w->slowed += w->at - before - moved;
        w->owners |= interval->lanes;
        walk_done(w);
    }
    walk_to(w, interval->end, interval->lanes, false);
}

struct port_passed port_take(struct port *port, const struct port_message *message, picoseconds paid[PORT_LANES])
{
    struct port_interval behind[PORT_MEMORY];
    struct walk w = { .port = port, .message = message, .at = message->from, .left = message->takes, .paid = paid };
    int first = port->count;
    /* Intervals that end by then stay as they are; the others are taken out, and put back as the walk passes them. */
    while (first > 0 && port->busy[first - 1].end > message->from) first--;
    const int count = port->count - first;
    memcpy(behind, &port->busy[first], sizeof behind[0] * (size_t)count);
    port->count = first;
    for (int i = 0; i < count; i++) {
        if (behind[i].start < w.at) port_add(port, behind[i].start, w.at, behind[i].lanes);
        if (behind[i].start > w.at) walk_free(&w, behind[i].start);
        /* The time until this interval is nobody's if the message is done. */
        if (behind[i].start > w.at) w.at = behind[i].start;
        walk_busy(&w, &behind[i]);
    }
    walk_free(&w, INT64_MAX);
    return (struct port_passed){ w.end, w.slowed };
}
