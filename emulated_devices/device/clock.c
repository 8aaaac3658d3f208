/* clock.c -- the virtual time of a device: streams, engines and ports.
 *
 * backend.h charges operations to a clock, comm/ messages, tier.c copies; clock.h states the model.  No function
 * here can fail: without memory an interval or event counts as lost.  Times are picoseconds.
 */
#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/flight.h"
#include "emulated_devices/device/events.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/device/trace.h"
#include <stdlib.h>
#include <string.h>

static picoseconds later(picoseconds a, picoseconds b) { return a > b ? a : b; }

void clock_open(struct clock *clock, const struct cluster *cluster, enum dtype dtype)
{
    *clock = (struct clock){ .cluster = *cluster, .dtype = dtype, .comm_streams = USUAL_COMM_STREAMS,
                             .starts.pace = kernel_set_pace(cluster->kernels.set, cluster) };
}

void clock_reset(struct clock *clock)
{
    /* The cluster is copied first, because the restart overwrites the clock. */
    const struct cluster m = clock->cluster;
    clock_restart(clock, &m, clock->dtype);
}

/* Flight, events, places and streams belong to the device and stay; time, ports and trace start anew. */
void clock_restart(struct clock *clock, const struct cluster *cluster, enum dtype dtype)
{
    struct flight *const flight = clock->flight;
    struct events *const events = clock->events;
    const int *const places = clock->places, streams = clock->comm_streams;
    const struct disturbed disturbed = clock->disturbed;
    flight_settle(flight);
    clock_open(clock, cluster, dtype);
    clock->flight = flight, clock->events = events, clock->places = places, clock->comm_streams = streams;
    clock->disturbed = disturbed;
    if (events) events_clear(events);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* Note an interval in which the first pass computes, for the second pass beside it. */
static void device_clock_note(struct pass_work *pass_work, picoseconds start, picoseconds end)
{
    if (start == end || pass_work->lost) return;
    /* Work after work is one interval. */
    if (pass_work->count > 0 && pass_work->span[pass_work->count - 1].end == start) {
        pass_work->span[pass_work->count - 1].end = end;
        return;
    }
    /* Without memory the notes are lost, and the second pass begins after the first. */
    if (pass_work->count == pass_work->room) {
        const int room = pass_work->room > 0 ? 2 * pass_work->room : 64;
        struct busy *span = realloc(pass_work->span, sizeof *span * (size_t)room);
        pass_work->lost = span == NULL;
        if (pass_work->lost) return;
        pass_work->span = span, pass_work->room = room;
    }
    pass_work->span[pass_work->count++] = (struct busy){ start, end };
}

/* Fill work of a second pass into the time that the first pass leaves free.  @return its end. */
static picoseconds clock_fill(struct clock *clock, const char *what, struct op_cost cost, picoseconds left)
{
    const struct pass_work *w = clock->noted;
    picoseconds at = clock->now;
    for (int i = 0; left > 0; i++) {
        /* Behind the last interval all time is free. */
        const bool last = i == w->count;
        if (!last && w->span[i].end <= at) continue;
        /* The gap before the next interval of the first pass takes a piece of the work. */
        const picoseconds room = last ? left : w->span[i].start - at, piece = room < left ? room : left;
        if (piece > 0 && clock->trace != NULL)
            trace_work(clock->trace, (int)clock->current, what, cost, at, at + piece);
        if (piece > 0) at += piece, left -= piece, cost = (struct op_cost){ 0 };
        if (left > 0) at = w->span[i].end;
    }
    return at;
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

/* The current stream waits for the host until a time; the events get the host's work so far. */
static void clock_hold(struct clock *clock, picoseconds until)
{
    struct starts *const s = &clock->starts;
    if (until <= clock->now) return;
    if (clock->events) {
        events_add(clock->events, ISSUE, (struct event){ .kind = EVENT_WORK, .what = "starts of kernels",
                                                        .takes = until - s->told, .at = until });
        events_after(clock->events, (int)clock->current, ISSUE, until);
    }
    if (clock->current == COMPUTE) s->held += until - clock->now;
    clock->now = s->told = until;
}

/* The host starts the kernels of an operation.  The first may begin when it is started, and the last, which takes its
 * part of the operation's time, when all are.  So with kernels of equal time the operation ends when they would. */
static void clock_issue(struct clock *clock, int64_t kernels, picoseconds takes)
{
    struct starts *const s = &clock->starts;
    if (kernels == 0) return;
    const picoseconds first = s->done + s->pace, part = (takes + kernels - 1) / kernels;
    s->done += kernels * s->pace;
    clock_hold(clock, later(first, s->done + part - takes));
}

void clock_start_collective(struct clock *clock)
{
    const struct kernel_set *const set = clock->cluster.kernels.set;
    if (clock->starts.pace == 0) return;
    clock->starts.done += set->collective_kernels * clock->starts.pace;
    clock_hold(clock, clock->starts.done);
}

/* The host falls back to the device's time; what it does next begins there. */
static void clock_host_falls_back(struct clock *clock)
{
    struct starts *const s = &clock->starts;
    if (clock->now <= s->done) return;
    if (clock->events) events_after(clock->events, ISSUE, (int)clock->current, clock->now);
    s->done = s->told = clock->now;
}

void clock_host_waits(struct clock *clock, enum host_wait wait)
{
    if (clock->starts.pace > 0 && clock->cluster.kernels.set->waits[wait]) clock_host_falls_back(clock);
}

void clock_host_reads(struct clock *clock)
{
    if (clock->starts.pace > 0) clock_host_falls_back(clock);
}

/* A host that does not read the loss has its next step ready while its device still computes. */
void clock_end_step(struct clock *clock)
{
    if (clock->cluster.kernels.set == NULL) return;
    clock_host_waits(clock, WAIT_STEP);
    clock->starts.done += clock->cluster.host.issue.step;
    clock_hold(clock, clock->starts.done);
}

/* ---- work beside collectives ------------------------------------------------------------------------------------- */

void clock_talked(struct clock *clock, picoseconds from, int64_t percent)
{
    struct talk *const last = clock->talks > 0 ? &clock->talk[clock->talks - 1] : NULL;
    if (percent <= 100 || clock->now <= from || clock->current == COMPUTE || clock->current == BESIDE) return;
    const struct talk talk = { clock->current, from, clock->now, percent - 100 };
    /* Collectives that follow each other on a stream are one. */
    if (last && last->stream == talk.stream && last->until == from && last->more == talk.more) {
        last->until = clock->now;
        return;
    }
    /* Without room the one that began first is forgotten. */
    if (clock->talks == CLOCK_TALKS)
        memmove(&clock->talk[0], &clock->talk[1], sizeof clock->talk[0] * (size_t)--clock->talks);
    clock->talk[clock->talks++] = talk;
}

/* Collectives that end by the time at which work begins slow nothing any more. */
static void forget_talks(struct clock *clock, picoseconds by)
{
    int kept = 0;
    for (int i = 0; i < clock->talks; i++)
        if (clock->talk[i].until > by) clock->talk[kept++] = clock->talk[i];
    clock->talks = kept;
}

/* How much longer work takes at a time, in percent; `until`: when that changes next. */
static int64_t slower_at(const struct clock *clock, picoseconds at, picoseconds *until)
{
    int64_t percent = 100;
    *until = INT64_MAX;
    for (int i = 0; i < clock->talks; i++) {
        const struct talk *const t = &clock->talk[i];
        if (t->until <= at) continue;
        const bool runs = t->from <= at;
        if (runs) percent += t->more;
        const picoseconds change = runs ? t->until : t->from;
        if (change < *until) *until = change;
    }
    return percent;
}

/* The end of work that takes so long alone.  Times are rounded up, what is done by a change is rounded down. */
static picoseconds clock_end_of(struct clock *clock, picoseconds takes)
{
    picoseconds at = clock->now, change;
    forget_talks(clock, at);
    if (clock->talks == 0) return at + takes;
    for (picoseconds left = takes; left > 0; at = change) {
        const int64_t percent = slower_at(clock, at, &change);
        const picoseconds needs = left / 100 * percent + (left % 100 * percent + 99) / 100;
        if (needs <= change - at) return at + needs;
        left -= (change - at) / percent * 100 + (change - at) % percent * 100 / percent;
    }
    return at;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* The current stream is busy; a trace and a replay's list get the same interval. */
void clock_compute(struct clock *clock, const char *what, struct op_cost cost)
{
    const picoseconds usual = kernel_time(&clock->cluster, clock->dtype, what, cost);
    picoseconds takes = disturbed_time(&clock->disturbed, DISTURB_COMPUTE, clock->disturbed.rank, 0, usual);
    clock->usual += usual, clock->worked += takes;
    if (clock->starts.pace > 0) clock_issue(clock, kernel_starts(&clock->cluster, what, cost), takes);
    const picoseconds start = clock->now;
    /* A pass beside another one computes only while that one does not. */
    clock->now = clock->current == BESIDE ? clock_fill(clock, what, cost, takes)
               : clock->current == COMPUTE && clock->talks > 0 ? clock_end_of(clock, takes) : start + takes;
    if (clock->current == COMPUTE) takes = clock->now - start;
    /* Counts for reports are of all streams together. */
    clock->flops += cost.flops;
    clock->computing += takes;
    if (clock->noted && clock->current == COMPUTE) device_clock_note(clock->noted, start, clock->now);
    if (clock->events)
        events_add(clock->events, (int)clock->current,
                   (struct event){ .kind = EVENT_WORK, .what = what, .takes = takes, .at = clock->now });
    if (clock->trace != NULL && clock->current != BESIDE)
        trace_work(clock->trace, (int)clock->current, what, cost, start, clock->now);
}

/* A job of an engine: the current stream goes on at once. */
static picoseconds job(struct clock *clock, enum stream engine, const char *what, picoseconds from, picoseconds takes,
                       struct op_cost cost)
{
    /* An engine does one job at a time. */
    const picoseconds start = later(from, clock->stream[engine]);
    clock->stream[engine] = start + takes;
    if (clock->events) events_job(clock->events, (int)clock->current, (int)engine, what, from, takes,
                                  clock->stream[engine]);
    if (clock->trace != NULL && takes > 0)
        trace_work(clock->trace, (int)engine, what, cost, start, clock->stream[engine]);
    return clock->stream[engine];
}

picoseconds clock_job(struct clock *clock, enum stream engine, const char *what, picoseconds from, picoseconds takes,
                      uint64_t bytes)
{
    return job(clock, engine, what, from, takes, (struct op_cost){ .bytes = (double)bytes });
}

picoseconds clock_copy(struct clock *clock, enum stream engine, picoseconds from, uint64_t bytes)
{
    return clock_job(clock, engine, "copy", from, time_at_rate(bytes, clock->cluster.copy_rate), bytes);
}

picoseconds clock_host(struct clock *clock, const char *what, picoseconds from, struct op_cost cost, enum dtype dtype)
{
    const struct host *h = &clock->cluster.host;
    return job(clock, HOST, what, from,
               /* The slower one of computing and moving bytes decides. */
               later(time_at_rate(whole_units(cost.flops), h->flop_rate[dtype]),
                     time_at_rate(whole_units(cost.bytes), h->memory_rate)),
               cost);
}

/* A communication stream is done when the ports have moved all that it sent.  The streams that compute go on
 * without their messages. */
static void clock_settle(struct clock *clock, enum stream stream)
{
    const bool sends = stream == COMMUNICATION || stream == DISPATCH || stream == REDUCTION || stream == TENSOR_SUMS;
    if (!sends || stream == clock->current || clock->paid[stream] <= clock->stream[stream]) return;
    if (clock->events)
        events_add(clock->events, (int)stream,
                   (struct event){ .kind = EVENT_SHARED, .what = "port shared with other messages",
                                   .takes = clock->paid[stream] - clock->stream[stream], .at = clock->paid[stream] });
    clock->stream[stream] = clock->paid[stream];
}

/* Another stream becomes current.  Its time is at least now, since its work is issued now. */
void clock_begin(struct clock *clock, enum stream stream)
{
    clock_settle(clock, stream);
    if (clock->events) events_after(clock->events, (int)stream, (int)clock->current,
                                    later(clock->now, clock->stream[stream]));
    /* The stream that is left keeps its time; the new one begins when both are there. */
    clock->stream[clock->current] = clock->now;
    clock->current = stream;
    clock->now = later(clock->now, clock->stream[stream]);
    flight_enter(clock->flight, stream);
}

/* The stream that was current keeps its time for a join, and the home stream goes on where it was. */
void clock_end(struct clock *clock)
{
    const bool second = clock->current == BESIDE;
    /* A second pass puts no results aside; its home and its notes end here. */
    if (second) clock->home = COMPUTE, clock->noted = NULL;
    else flight_leave(clock->flight);
    clock->stream[clock->current] = clock->now;
    clock->current = clock->home;
    clock->now = clock->stream[clock->home];
}

/* The caller runs the first pass, then calls clock_beside for the second. */
void clock_note(struct clock *clock, struct pass_work *pass_work)
{
    pass_work->from = clock->now, pass_work->count = 0, pass_work->lost = false;
    pass_work->place = clock->events ? clock->events->of[COMPUTE].count : 0;
    clock->noted = pass_work;
}

void clock_beside(struct clock *clock)
{
    const struct pass_work *w = clock->noted;
    clock->stream[COMPUTE] = clock->now;
    clock->current = clock->home = BESIDE;
    /* The second pass begins with the first, or where its own work last ended. */
    clock->now = w->lost ? clock->now : later(w->from, clock->stream[BESIDE]);
    const uint32_t place = clock->events && w->lost ? clock->events->of[COMPUTE].count : w->place;
    if (clock->events && place > 0)
        events_add(clock->events, BESIDE, (struct event){ .kind = EVENT_AFTER, .other = COMPUTE, .place = place,
                                                      .at = clock->now });
}

void clock_join(struct clock *clock, enum stream stream)
{
    clock_settle(clock, stream);
    clock->now = later(clock->now, stream == clock->current ? clock->now : clock->stream[stream]);
    if (clock->events) events_after(clock->events, (int)clock->current, (int)stream, clock->now);
    if (stream != clock->current) flight_join(clock->flight, stream);
}

/* A replay learns when the last member comes from all members' events. */
void clock_meet(struct clock *clock, picoseconds until, struct meeting meeting)
{
    clock->now = later(clock->now, until);
    if (clock->events)
        events_add(clock->events, (int)clock->current,
                   (struct event){ .kind = EVENT_MEET, .label = clock->label, .other = meeting.after,
                                   .peer = meeting.leader, .serial = meeting.serial,
                                   .place = (uint32_t)meeting.members, .at = clock->now });
}

/* Waiting takes no time if the moment has passed; what ended by then is no longer in flight. */
void clock_wait(struct clock *clock, picoseconds until)
{
    if (clock->events) events_until(clock->events, (int)clock->current, clock->now, until);
    clock->now = later(clock->now, until);
    flight_wait(clock->flight, until);
}

void clock_made(struct clock *clock, void *data, uint64_t bytes) { flight_wrote(clock->flight, clock->now, data, bytes);
                                                                  }

/* ---- ports ------------------------------------------------------------------------------------------------------- */

/* A message of a stream takes a port's time. */
static struct port_passed clock_take(struct clock *clock, enum stream stream, int number, bool sends, picoseconds from,
                              picoseconds takes)
{
    const struct port_message message = { .lane = (int)stream, .from = from, .takes = takes, .trace = clock->trace,
                                          .row = trace_port(number, sends),
                                          .shared_row = trace_shared_port(number, sends, stream) };
    return port_take(sends ? &clock->send[number] : &clock->receive[number], &message, clock->paid);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The time that a message occupies a port, d = gap + bytes / rate. */
static picoseconds on_the_port(const struct clock *clock, const struct passage *passage)
{
    return clock->cluster.link[passage->level].gap + time_at_rate(passage->bytes,
                                                                  clock->cluster.link[passage->level].rate);
}

picoseconds clock_usual(const struct clock *clock, const struct passage *passage)
{
    return on_the_port(clock, passage) + clock->cluster.link[passage->level].latency;
}

/* Ranks of a trial are numbered from 0, wherever its devices are on the cluster. */
static int place_of_rank(const struct clock *clock, int rank)
{
    return cluster_slot(&clock->cluster, clock->places ? clock->places[rank] : rank);
}

/* Both sides of a message compute the same level and the same answer about rendezvous. */
static struct passage passage(const struct clock *clock, int from, int to, uint64_t bytes)
{
    const int sender = place_of_rank(clock, from), receiver = place_of_rank(clock, to);
    struct passage p = { .charged = true,
                         .bytes = bytes,
                         .posted = clock->now,
                         .level = link_between(clock->cluster.link, clock->cluster.levels, sender, receiver) };
    /* Both sides compute the same: a link has no noise of its own. */
    if (clock->disturbed.all) {
        struct disturbed way = clock->disturbed;
        const picoseconds usual = clock_usual(clock, &p);
        p.more = disturbed_time(&way, DISTURB_LINK, from, to, usual) - usual;
    }
    p.port = link_port(clock->cluster.link, p.level, sender, receiver);
    p.rendezvous = bytes > clock->cluster.link[p.level].eager;
    return p;
}

/* An event about a message; a receive that is posted cannot know yet which message will come. */
static uint32_t clock_tell(struct clock *clock, const struct passage *passage, enum event_kind kind, int peer)
{
    return events_add(clock->events, (int)clock->current,
                      (struct event){ .kind = (uint8_t)kind, .label = clock->label, .peer = peer,
                                     .bytes = passage->bytes,
                                      .serial = kind == EVENT_POST ? UINT32_MAX : passage->serial,
                                      .rendezvous = passage->rendezvous, .at = clock->now });
}

/* Only the arrival says which message it is: its posting learns it now. */
static void tell_arrival(struct clock *clock, const struct passage *passage)
{
    struct event *posting = &clock->events->of[passage->stream].event[passage->event];
    if (clock->events->lost) return;
    posting->serial = passage->serial;
    events_add(clock->events, (int)clock->current,
               (struct event){ .kind = EVENT_RECEIVE, .label = posting->label, .peer = posting->peer,
                               .serial = passage->serial, .other = (uint8_t)passage->stream, .place = passage->event,
                               .rendezvous = passage->rendezvous, .at = clock->now });
}

bool clock_has_rendezvous(const struct clock *clock)
{
    for (int l = 0; l < clock->cluster.levels; l++)
        if (clock->cluster.link[l].eager != ALWAYS_EAGER) return true;
    return false;
}

/* The stamp travels with the message: it is the earliest arrival of the last byte. */
struct passage clock_send(struct clock *clock, int from, int to, uint64_t bytes)
{
    struct passage p = passage(clock, from, to, bytes);
    p.serial = clock->sent++;
    if (clock->events) clock_tell(clock, &p, EVENT_SEND, to);
    /* The last byte can arrive a latency after it has left the port. */
    const picoseconds takes = disturbed_time(&clock->disturbed, DISTURB_OUT, clock->disturbed.rank, 0,
                                             on_the_port(clock, &p)),
                      way = clock->cluster.link[p.level].latency + p.more;
    const struct port_passed left = clock_take(clock, clock->current, p.port, true, clock->now, takes);
    p.stamp = left.end + way, p.slowed = left.slowed;
    p.carried = takes + way;
    return p;
}

void clock_sent(struct clock *clock, const struct passage *passage)
{
    if (!passage->rendezvous) return;
    /* In a rendezvous the bytes leave only after the receiver was ready. */
    clock->now = later(clock->now, later(passage->stamp - clock->cluster.link[passage->level].latency - passage->more,
                                         passage->ready + on_the_port(clock, passage)));
    if (clock->events) clock_tell(clock, passage, EVENT_SENT, 0);
}

/* The posting does not occupy the port; clock_receive does. */
struct passage clock_post(struct clock *clock, int from, int to, uint64_t bytes)
{
    struct passage p = passage(clock, from, to, bytes);
    p.stream = clock->current;
    if (clock->events) p.event = clock_tell(clock, &p, EVENT_POST, from);
    return p;
}

/* The port is busy for d until the arrival, or later if other messages were there.  A message that shared its sender's
 * port comes in as slowly as it left. */
void clock_receive(struct clock *clock, struct passage *passage)
{
    const picoseconds d = on_the_port(clock, passage),
                      takes = disturbed_time(&clock->disturbed, DISTURB_IN, clock->disturbed.rank, 0, d);
    /* This is the earliest end if both sides had to meet; the port then ends not before the sender's stamp. */
    const picoseconds met = passage->rendezvous ? passage->posted + clock_usual(clock, passage) + passage->more : 0;
    const picoseconds whole = later(passage->stamp, met), spread = passage->stamp >= met ? passage->slowed : 0;
    clock->received = later(whole, clock_take(clock, passage->stream, passage->port, false, whole - spread - d,
                                              takes).end);
    passage->carried += takes - d;
    clock->now = later(clock->now, clock->received);
    if (clock->events) tell_arrival(clock, passage);
}
