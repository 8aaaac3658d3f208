#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/flight.h"
#include "emulated_devices/device/events.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/device/trace.h"
#include <stdlib.h>
#include <string.h>

static picoseconds later(picoseconds a, picoseconds b) { return a > b ? a : b; }

void clock_open(struct clock *c, const struct cluster *m, enum dtype t)
{
    *c = (struct clock){ .cluster = *m, .dtype = t, .comm_streams = USUAL_COMM_STREAMS };
}

void clock_reset(struct clock *c)
{
    const struct cluster m = c->cluster;
    clock_restart(c, &m, c->dtype);
}

void clock_restart(struct clock *c, const struct cluster *m, enum dtype t)
{
    struct flight *const flight = c->flight;
    struct events *const events = c->events;
    const int *const places = c->places, streams = c->comm_streams;
    flight_settle(flight);
    clock_open(c, m, t);
    c->flight = flight, c->events = events, c->places = places, c->comm_streams = streams;
    if (events) events_clear(events);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void note(struct pass_work *w, picoseconds start, picoseconds end)
{
    if (start == end || w->lost) return;
    /* Work after work is one interval. */
    if (w->count > 0 && w->span[w->count - 1].end == start) {
        w->span[w->count - 1].end = end;
        return;
    }
    if (w->count == w->room) {
        const int room = w->room > 0 ? 2 * w->room : 64;
        struct busy *span = realloc(w->span, sizeof *span * (size_t)room);
        w->lost = span == NULL;
        if (w->lost) return;
        w->span = span, w->room = room;
    }
    w->span[w->count++] = (struct busy){ start, end };
}

/* Fill work of a second pass into the time that the first pass leaves free.  @return its end. */
static picoseconds fill(struct clock *c, const char *what, struct op_cost cost, picoseconds left)
{
    const struct pass_work *w = c->noted;
    picoseconds at = c->now;
    for (int i = 0; left > 0; i++) {
        const bool last = i == w->count;
        if (!last && w->span[i].end <= at) continue;
        /* The gap before the next interval of the first pass takes a piece of the work. */
        const picoseconds room = last ? left : w->span[i].start - at, piece = room < left ? room : left;
        if (piece > 0 && c->trace != NULL) trace_work(c->trace, (int)c->current, what, cost, at, at + piece);
        if (piece > 0) at += piece, left -= piece, cost = (struct op_cost){ 0 };
        if (left > 0) at = w->span[i].end;
    }
    return at;
}

void clock_compute(struct clock *c, const char *what, struct op_cost cost)
{
    const picoseconds start = c->now, takes = kernel_time(&c->cluster, c->dtype, what, cost);
    /* A pass beside another one computes only while that one does not. */
    c->now = c->current == BESIDE ? fill(c, what, cost, takes) : start + takes;
    c->flops += cost.flops;
    c->computing += takes;
    if (c->noted && c->current == COMPUTE) note(c->noted, start, c->now);
    if (c->events)
        events_add(c->events, (int)c->current,
                   (struct event){ .kind = EVENT_WORK, .what = what, .takes = takes, .at = c->now });
    if (c->trace != NULL && c->current != BESIDE) trace_work(c->trace, (int)c->current, what, cost, start, c->now);
}

static picoseconds job(struct clock *c, enum stream engine, const char *what, picoseconds from, picoseconds takes,
                       struct op_cost cost)
{
    /* An engine does one job at a time. */
    const picoseconds start = later(from, c->stream[engine]);
    c->stream[engine] = start + takes;
    if (c->events) events_job(c->events, (int)c->current, (int)engine, what, from, takes, c->stream[engine]);
    if (c->trace != NULL && takes > 0) trace_work(c->trace, (int)engine, what, cost, start, c->stream[engine]);
    return c->stream[engine];
}

picoseconds clock_job(struct clock *c, enum stream engine, const char *what, picoseconds from, picoseconds takes,
                      uint64_t bytes)
{
    return job(c, engine, what, from, takes, (struct op_cost){ .bytes = (double)bytes });
}

picoseconds clock_copy(struct clock *c, enum stream engine, picoseconds from, uint64_t bytes)
{
    return clock_job(c, engine, "copy", from, time_at_rate(bytes, c->cluster.copy_rate), bytes);
}

picoseconds clock_host(struct clock *c, const char *what, picoseconds from, struct op_cost cost, enum dtype t)
{
    const struct host *h = &c->cluster.host;
    return job(c, HOST, what, from,
               /* The slower one of computing and moving bytes decides. */
               later(time_at_rate(whole_units(cost.flops), h->flop_rate[t]),
                     time_at_rate(whole_units(cost.bytes), h->memory_rate)),
               cost);
}

void clock_begin(struct clock *c, enum stream s)
{
    if (c->events) events_after(c->events, (int)s, (int)c->current, later(c->now, c->stream[s]));
    /* The stream that is left keeps its time; the new one begins when both are there. */
    c->stream[c->current] = c->now;
    c->current = s;
    c->now = later(c->now, c->stream[s]);
    flight_enter(c->flight, s);
}

void clock_end(struct clock *c)
{
    const bool second = c->current == BESIDE;
    if (second) c->home = COMPUTE, c->noted = NULL;
    else flight_leave(c->flight);
    c->stream[c->current] = c->now;
    c->current = c->home;
    c->now = c->stream[c->home];
}

void clock_note(struct clock *c, struct pass_work *w)
{
    w->from = c->now, w->count = 0, w->lost = false;
    w->place = c->events ? c->events->of[COMPUTE].count : 0;
    c->noted = w;
}

void clock_beside(struct clock *c)
{
    const struct pass_work *w = c->noted;
    c->stream[COMPUTE] = c->now;
    c->current = c->home = BESIDE;
    /* The second pass begins with the first, or where its own work last ended. */
    c->now = w->lost ? c->now : later(w->from, c->stream[BESIDE]);
    const uint32_t place = c->events && w->lost ? c->events->of[COMPUTE].count : w->place;
    if (c->events && place > 0)
        events_add(c->events, BESIDE, (struct event){ .kind = EVENT_AFTER, .other = COMPUTE, .place = place,
                                                      .at = c->now });
}

void clock_join(struct clock *c, enum stream s)
{
    c->now = later(c->now, s == c->current ? c->now : c->stream[s]);
    if (c->events) events_after(c->events, (int)c->current, (int)s, c->now);
    if (s != c->current) flight_join(c->flight, s);
}

void clock_wait(struct clock *c, picoseconds until)
{
    if (c->events) events_until(c->events, (int)c->current, c->now, until);
    c->now = later(c->now, until);
    flight_wait(c->flight, until);
}

void clock_made(struct clock *c, void *data, uint64_t bytes) { flight_wrote(c->flight, c->now, data, bytes); }

/* ---- ports ------------------------------------------------------------------------------------------------------- */

static void record(struct clock *c, int row, picoseconds start, picoseconds end)
{
    if (c->trace != NULL) trace_message(c->trace, row, start, end);
}

/* Mark [start, end] as busy; it replaces intervals first .. last-1. */
static void make_busy(struct port *p, int first, int last, picoseconds start, picoseconds end)
{
    if (first == last && p->count == PORT_MEMORY) {             /* drop the oldest */
        if (first == 0) return;
        memmove(&p->busy[0], &p->busy[1], sizeof p->busy[0] * (size_t)(PORT_MEMORY - 1));
        p->count--, first--, last--;
    }
    memmove(&p->busy[first + 1], &p->busy[last], sizeof p->busy[0] * (size_t)(p->count - last));
    p->count += 1 - (last - first);
    p->busy[first].start = start;
    p->busy[first].end = end;
}

/* Use `left` of the port's free time, from `from` on.  @return the end of the used time. */
static picoseconds take(struct clock *c, struct port *p, int row, picoseconds from, picoseconds left)
{
    int first = p->count;
    /* Intervals that end before `from` do not matter. */
    while (first > 0 && p->busy[first - 1].end >= from) first--;
    int i = first;
    picoseconds at = from;
    for (; i < p->count; i++) {
        /* Free time between two intervals is used; the rest goes behind them. */
        const picoseconds gap = p->busy[i].start - at;
        if (gap > left || (gap == left && left > 0)) break;
        if (gap > 0) {
            record(c, row, at, at + gap);
            left -= gap;
        }
        at = later(at, p->busy[i].end);
    }
    record(c, row, at, at + left);
    const picoseconds end = at + left;
    if (end == from) return end;                                /* nothing to send, and the port is free */
    /* The used time and the intervals it touches become one. */
    const picoseconds start = i > first && p->busy[first].start < from ? p->busy[first].start : from;
    picoseconds until = end;
    if (i < p->count && p->busy[i].start == end) until = p->busy[i++].end;
    make_busy(p, first, i, start, until);
    return end;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static picoseconds on_the_port(const struct clock *c, const struct passage *p)
{
    return c->cluster.link[p->level].gap + time_at_rate(p->bytes, c->cluster.link[p->level].rate);
}

static int place_of_rank(const struct clock *c, int rank) { return c->places ? c->places[rank] : rank; }

static struct passage passage(const struct clock *c, int from, int to, uint64_t bytes)
{
    struct passage p = { .charged = true,
                         .bytes = bytes,
                         .posted = c->now,
                         .level = link_between(c->cluster.link, c->cluster.levels, place_of_rank(c, from),
                                               place_of_rank(c, to)) };
    p.rendezvous = bytes > c->cluster.link[p.level].eager;
    return p;
}

static uint32_t tell(struct clock *c, const struct passage *p, enum event_kind kind, int peer)
{
    return events_add(c->events, (int)c->current,
                      (struct event){ .kind = (uint8_t)kind, .label = c->label, .peer = peer, .bytes = p->bytes,
                                      .serial = kind == EVENT_POST ? UINT32_MAX : p->serial,
                                      .rendezvous = p->rendezvous, .at = c->now });
}

/* Only the arrival says which message it is: its posting learns it now. */
static void tell_arrival(struct clock *c, const struct passage *p)
{
    struct event *posting = &c->events->of[p->stream].event[p->event];
    if (c->events->lost) return;
    posting->serial = p->serial;
    events_add(c->events, (int)c->current,
               (struct event){ .kind = EVENT_RECEIVE, .label = posting->label, .peer = posting->peer,
                               .serial = p->serial, .other = (uint8_t)p->stream, .place = p->event,
                               .rendezvous = p->rendezvous, .at = c->now });
}

bool clock_has_rendezvous(const struct clock *c)
{
    for (int l = 0; l < c->cluster.levels; l++)
        if (c->cluster.link[l].eager != ALWAYS_EAGER) return true;
    return false;
}

struct passage clock_send(struct clock *c, int from, int to, uint64_t bytes)
{
    struct passage p = passage(c, from, to, bytes);
    p.serial = c->sent++;
    if (c->events) tell(c, &p, EVENT_SEND, to);
    /* The last byte can arrive a latency after it has left the port. */
    p.stamp = take(c, &c->send[p.level], trace_port(p.level, true), c->now, on_the_port(c, &p)) +
              c->cluster.link[p.level].latency;
    return p;
}

void clock_sent(struct clock *c, const struct passage *p)
{
    if (!p->rendezvous) return;
    /* In a rendezvous the bytes leave only after the receiver was ready. */
    c->now = later(c->now, later(p->stamp - c->cluster.link[p->level].latency, p->ready + on_the_port(c, p)));
    if (c->events) tell(c, p, EVENT_SENT, 0);
}

struct passage clock_post(struct clock *c, int from, int to, uint64_t bytes)
{
    struct passage p = passage(c, from, to, bytes);
    p.stream = c->current;
    if (c->events) p.event = tell(c, &p, EVENT_POST, from);
    return p;
}

void clock_receive(struct clock *c, const struct passage *p)
{
    const picoseconds d = on_the_port(c, p);
    /* This is the earliest end if both sides had to meet; the port then ends not before the sender's stamp. */
    const picoseconds met = p->rendezvous ? p->posted + d + c->cluster.link[p->level].latency : 0;
    c->received = take(c, &c->receive[p->level], trace_port(p->level, false), later(p->stamp, met) - d, d);
    c->now = later(c->now, c->received);
    if (c->events) tell_arrival(c, p);
}
