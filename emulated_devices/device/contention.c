/* contention.c -- replays the events of all devices in one order of time.
 *
 * orrery train, search/ and tests call contention_replay after a run.  An actor is a stream or engine of a device; a
 * heap has those that can go on.  Errors are ERR_MEMORY, and ERR_FORMAT where an actor waits for ever.
 */
#include "emulated_devices/device/contention.h"
#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/network.h"
#include <stdlib.h>

/* A stream or engine of a device on its way through its list. */
struct actor {
    const struct event_list *list;
    picoseconds now, *done;             /* done: [list->count] when each of its events was */
    uint32_t at;
    int place;                          /* in the heap; -1: it waits */
    /* The rest is for passes, whose work takes longer or shorter as messages come and go. */
    bool works;                         /* in the middle of event `at`, which ends at `now` */
    picoseconds since, left, began;     /* at `since` so much was left of it */
    bool put_off;                       /* of other streams: until the compute stream does not work */
    bool meets;                         /* it has come to a meeting, and waits for others */
};

/* A message, named by its sender and serial. */
struct known {
    bool sent, posted;                  /* both sides of a rendezvous have come */
    bool arrived;
    picoseconds at, left;
    int receiver, sender;               /* actors that wait for it; -1: none */
    struct { uint32_t came; picoseconds last; } met[2]; /* devices that came to the meetings before and after it; when
                                         * the last of them did */
};

struct run {
    const struct cluster *cluster;
    struct network *network;
    int devices, actors;
    bool paces;                         /* how long work takes depends on messages, or they on it */
    struct actor *actor;                /* [devices][EVENT_ACTORS] */
    struct known *message;              /* of all senders */
    uint64_t *first;                    /* [devices] a sender's message 0 */
    int *talks;                         /* [devices] messages on its ports that move while it computes */
    int *heap, waiting;                 /* actors that can go on, the earliest first */
    struct error *err;
    enum error_code e;
};

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* Actors at one time go in the order of their numbers, so that a replay is the same each time. */
static bool contention_before(const struct run *run, int a, int b)
{
    const picoseconds x = run->actor[a].now, y = run->actor[b].now;
    return x != y ? x < y : a < b;
}

static void contention_set(struct run *run, int i, int a) { run->heap[i] = a, run->actor[a].place = i; }

/* The heap's root is the earliest actor; `place` says where in the heap an actor is. */
static void rise(struct run *run, int i)
{
    const int a = run->heap[i];
    for (; i > 0 && contention_before(run, a, run->heap[(i - 1) / 2]); i = (i - 1) / 2)
        contention_set(run, i, run->heap[(i - 1) / 2]);
    contention_set(run, i, a);
}

static void sink(struct run *run, int i)
{
    const int a = run->heap[i];
    for (int child; (child = 2 * i + 1) < run->waiting; i = child) {
        /* The earlier of the two children may rise. */
        if (child + 1 < run->waiting && contention_before(run, run->heap[child + 1], run->heap[child])) child++;
        if (!contention_before(run, run->heap[child], a)) break;
        contention_set(run, i, run->heap[child]);
    }
    contention_set(run, i, a);
}

/* An actor that is in the heap already stays where it is. */
static void contention_put(struct run *run, int a)
{
    if (run->actor[a].place >= 0) return;
    contention_set(run, run->waiting++, a);
    rise(run, run->waiting - 1);
}

static int contention_take(struct run *run)
{
    /* The last entry takes the root's place and sinks. */
    const int first = run->heap[0], last = run->heap[--run->waiting];
    run->actor[first].place = -1;
    if (run->waiting == 0) return first;
    contention_set(run, 0, last);
    sink(run, 0);
    return first;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static struct known *message_of(struct run *run, int sender, uint32_t serial)
{
    return &run->message[run->first[sender] + serial];
}

/* The message leaves for the network, which names it by its place in run->message. */
static void depart(struct run *run, picoseconds at, int from, int to, const struct event *event)
{
    const uint64_t name = (uint64_t)(message_of(run, from, event->serial) - run->message);
    if (!run->e) run->e = network_send(run->network, at, from, to, event->bytes, name,
                                run->cluster->no_progress && event->rendezvous, run->err);
}

static void wake(struct run *run, int *actor)
{
    if (*actor >= 0) contention_put(run, *actor);
    *actor = -1;
}

/* The network says when the last byte left and arrived; whoever waits for that goes on. */
static void contention_arrive(struct run *run, const struct change *change)
{
    struct known *m = &run->message[change->name];
    m->arrived = true, m->at = change->at, m->left = change->left;
    wake(run, &m->receiver);
    wake(run, &m->sender);
}

/* ---- work that takes as long as others let it -------------------------------------------------------------------- */

static picoseconds later(picoseconds a, picoseconds b) { return a > b ? a : b; }
static int compute_stream(int device) { return device * EVENT_ACTORS + COMPUTE; }

/* The time of work now, in percent of its usual time; 0: a pass beside another that computes stands still. */
static int64_t slowness(const struct run *run, int number)
{
    const int device = number / EVENT_ACTORS;
    if (number != compute_stream(device) && run->actor[compute_stream(device)].works) return 0;
    return run->talks[device] > 0 ? run->cluster->contention.compute_percent : 100;
}

/* x percent / 100, rounded up, and x 100 / percent, rounded down; no product leaves 64 bits. */
static picoseconds stretched(picoseconds x, int64_t percent)
{
    return x / 100 * percent + (x % 100 * percent + 99) / 100;
}

static picoseconds shrunk(picoseconds x, int64_t percent)
{
    return x / percent * 100 + x % percent * 100 / percent;
}

/* The rest of an actor's work goes on at another pace. */
static void change_pace(struct run *run, picoseconds at, int number, int64_t before)
{
    struct actor *a = &run->actor[number];
    const int64_t after = slowness(run, number);
    if (!a->works || before == after) return;
    /* Work that was done at the old pace is done; the rest takes longer or shorter. */
    if (before > 0) a->left = later(0, a->left - shrunk(at - a->since, before));
    a->since = at, a->now = after > 0 ? at + stretched(a->left, after) : INT64_MAX;
    rise(run, a->place);
    sink(run, a->place);
}

/* A message comes to a device's ports, or leaves them. */
static void count_message(struct run *run, picoseconds at, int device, int more)
{
    const int compute = compute_stream(device), second = compute + BESIDE;
    const int64_t before = slowness(run, compute), before_second = slowness(run, second);
    run->talks[device] += more;
    change_pace(run, at, compute, before);
    change_pace(run, at, second, before_second);
}

/* The compute stream works from now on, or no longer: the pass beside it stands still, or goes on. */
static void set_works(struct run *run, int number, bool works)
{
    struct actor *a = &run->actor[number];
    const int second = number + BESIDE;
    const bool compute = number % EVENT_ACTORS == COMPUTE;
    const int64_t before = compute ? slowness(run, second) : 0;
    a->works = works;
    if (compute) change_pace(run, a->now, second, before);
}

/* A message that waits for both devices is on no port while either works. */
static void hear_of(struct run *run, const struct change *change)
{
    if (!change->begins) contention_arrive(run, change);
    if (run->cluster->contention.compute_percent == 0 || change->both) return;
    count_message(run, change->at, change->from, change->begins ? 1 : -1);
    count_message(run, change->at, change->to, change->begins ? 1 : -1);
}

/* Work begins at its usual time or another pace, and goes into the heap with its expected end. */
static void begin_work(struct run *run, int number, picoseconds takes)
{
    struct actor *a = &run->actor[number];
    const bool compute = number % EVENT_ACTORS == COMPUTE;
    if (run->cluster->no_progress && compute) network_busy(run->network, a->now, number / EVENT_ACTORS, true);
    set_works(run, number, true);
    const int64_t slow = slowness(run, number);
    a->began = a->since = a->now, a->left = takes;
    /* The work ends then, if no message comes or goes until then. */
    a->now = slow > 0 ? a->now + stretched(takes, slow) : INT64_MAX;
    contention_put(run, number);
}

/* Work after work is no call in between. */
static bool works_on(const struct actor *actor)
{
    return actor->at + 1 < actor->list->count && actor->list->event[actor->at + 1].kind == EVENT_WORK;
}

/* Work has ended: the compute stream's stops to hold up other streams, unless more work follows at once. */
static void end_work(struct run *run, int number)
{
    struct actor *a = &run->actor[number];
    const bool compute = number % EVENT_ACTORS == COMPUTE;
    set_works(run, number, false);
    /* The list keeps how long the work has taken in this replay. */
    if (compute) a->list->event[a->at].takes = a->now - a->began;
    if (!compute || !run->cluster->no_progress || works_on(a)) return;
    network_busy(run->network, a->now, number / EVENT_ACTORS, false);
    /* Streams that were put off go on not before the end of the work. */
    for (int i = number; i < number + EVENT_ACTORS; i++) {
        struct actor *other = &run->actor[i];
        if (!other->put_off) continue;
        other->put_off = false, other->now = later(other->now, a->now);
        contention_put(run, i);
    }
}

/* Whether a stream has to wait with this event of a message until its device's compute stream does not work. */
static bool put_off(const struct run *run, int number, const struct event *event, const struct known *known)
{
    const struct actor *compute = &run->actor[compute_stream(number / EVENT_ACTORS)];
    const bool waits = event->kind == EVENT_RECEIVE || event->kind == EVENT_SENT;
    const picoseconds at = later(run->actor[number].now, waits && known->arrived ? known->at : 0);
    return run->cluster->no_progress && compute->works && known && at > compute->began;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* A rendezvous departs when both sides have come, at the time of the later one, which calls this. */
static void contention_meet(struct run *run, const struct actor *actor, struct known *known, bool *own,
                            int from, int to, const struct event *event)
{
    *own = true;
    if (known->sent && known->posted) depart(run, actor->now, from, to, event);
}

/* Whether the pace of an actor's work depends on others: that of the two passes does. */
static bool is_pass(int number) { return number % EVENT_ACTORS == COMPUTE || number % EVENT_ACTORS == BESIDE; }

/* Whether an actor waits at the same meeting as another. */
static bool meets_there(const struct actor *actor, const struct event *meeting)
{
    const struct event *v = actor->meets ? &actor->list->event[actor->at] : NULL;
    return v && v->peer == meeting->peer && v->serial == meeting->serial && v->other == meeting->other;
}

/* An actor comes to a meeting, or goes on from there: the last one wakes those that wait.  @return whether it goes. */
static bool contention_gather(struct run *run, int number, const struct event *event, struct known *known)
{
    struct actor *a = &run->actor[number];
    const int which = event->other;
    if (!a->meets) known->met[which].came++, known->met[which].last = later(known->met[which].last, a->now);
    a->meets = known->met[which].came < event->place;
    if (a->meets) return false;
    for (int i = 0; i < run->actors; i++)
        if (i != number && meets_there(&run->actor[i], event)) contention_put(run, i);
    a->now = later(a->now, known->met[which].last);
    return true;
}

/* Do an actor's next event.  @return whether it could. */
static bool do_event(struct run *run, int number)
{
    struct actor *a = &run->actor[number];
    const struct event *v = &a->list->event[a->at];
    const int device = number / EVENT_ACTORS;
    const struct actor *other = &run->actor[device * EVENT_ACTORS + v->other];
    struct known *m = NULL;
    if (v->kind != EVENT_WORK && v->kind != EVENT_AFTER && v->kind != EVENT_SHARED)
        m = message_of(run, v->kind == EVENT_SEND || v->kind == EVENT_SENT ? device : v->peer, v->serial);
    if ((a->put_off = put_off(run, number, v, m))) return false;
    switch ((enum event_kind)v->kind) {
    case EVENT_WORK:
        /* The event is done when the work ends; until then its pace may change. */
        if (run->paces && !a->works && is_pass(number)) {
            begin_work(run, number, v->takes);
            return false;
        }
        if (a->works) end_work(run, number);
        else a->now += v->takes;
        break;
    case EVENT_SHARED:
        break;
    /* The actor goes on when the other one has done so many of its events. */
    case EVENT_AFTER:
        if (other->at < v->place) return false;
        a->now = later(a->now, other->done[v->place - 1]);
        break;
    /* An eager message leaves at once; a rendezvous waits for the posted receive. */
    case EVENT_SEND:
        if (v->rendezvous) contention_meet(run, a, m, &m->sent, device, v->peer, v);
        else depart(run, a->now, device, v->peer, v);
        break;
    case EVENT_POST:
        if (v->rendezvous) contention_meet(run, a, m, &m->posted, v->peer, device, v);
        break;
    /* The sender waits until the last byte has left. */
    case EVENT_SENT:
        m->sender = m->arrived ? -1 : number;
        if (!m->arrived) return false;
        a->now = later(a->now, m->left);
        break;
    case EVENT_MEET:
        if (!contention_gather(run, number, v, m)) return false;
        break;
    /* The receiver waits until the last byte has arrived. */
    case EVENT_RECEIVE:
        m->receiver = m->arrived ? -1 : number;
        if (!m->arrived) return false;
        a->now = later(a->now, m->at);
        break;
    }
    /* Others wait for this time, and the list keeps it for traces. */
    a->done[a->at] = a->now;
    a->list->event[a->at++].at = a->now;
    return true;
}

/* Do one event of an actor.  Afterwards other actors of its device may go on, if they waited for this event. */
static void contention_step(struct run *run, int number)
{
    const int first = number / EVENT_ACTORS * EVENT_ACTORS;
    struct actor *a = &run->actor[number];
    if (!do_event(run, number)) return;
    if (a->at < a->list->count) contention_put(run, number);
    for (int i = first; i < first + EVENT_ACTORS; i++) {
        const struct actor *w = &run->actor[i];
        const struct event *v = w->at < w->list->count ? &w->list->event[w->at] : NULL;
        if (v && v->kind == EVENT_AFTER && first + v->other == number && v->place <= a->at) contention_put(run, i);
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Changes of the network that are not later than the earliest actor come first. */
static bool next_changes(struct run *run, struct change *change)
{
    return network_next(run->network, run->waiting > 0 ? run->actor[run->heap[0]].now : INT64_MAX, change);
}

/* The replay: all actors start, then network and actors go on in order of time until nobody can. */
static void go(struct run *run)
{
    struct change c;
    for (int i = 0; i < run->actors; i++)
        if (run->actor[i].list->count > 0) contention_put(run, i);
    while (!run->e) {
        /* Network and actors go on in one order of time. */
        if (next_changes(run, &c)) hear_of(run, &c);
        else if (run->waiting > 0) contention_step(run, contention_take(run));
        else break;
    }
    /* An actor that has not done all its events waits for an event that never comes. */
    for (int i = 0; i < run->actors && !run->e; i++)
        if (run->actor[i].at < run->actor[i].list->count)
            run->e = fail(run->err, ERR_FORMAT, "device %d waits in its event %u for what no device does",
                          i / EVENT_ACTORS, (unsigned)run->actor[i].at);
}

/* How many messages a device sends: one more than the last serial. */
static uint64_t messages_of(const struct events *events)
{
    uint64_t most = 0;
    for (int a = 0; a < EVENT_ACTORS; a++)
        for (uint32_t i = 0; i < events->of[a].count; i++)
            if (events->of[a].event[i].kind == EVENT_SEND && events->of[a].event[i].serial >= most)
                most = (uint64_t)events->of[a].event[i].serial + 1;
    return most;
}

/* A second pass makes work depend on the first, so paces are needed also without contention. */
static bool open_actors(struct run *run, struct events *const *events)
{
    bool opened = true;
    for (int i = 0; i < run->actors && opened; i++) {
        struct actor *a = &run->actor[i];
        a->list = &events[i / EVENT_ACTORS]->of[i % EVENT_ACTORS];
        a->place = -1;
        a->done = malloc(((size_t)a->list->count + 1) * sizeof *a->done);
        opened = a->done && !events[i / EVENT_ACTORS]->lost;
        run->paces = run->paces || (i % EVENT_ACTORS == BESIDE && a->list->count > 0);
    }
    return opened;
}

/* All arrays of a replay.  On a failure the caller frees those that there are. */
static bool open_run(struct run *run, struct events *const *events)
{
    uint64_t messages = 0;
    run->actor = calloc((size_t)run->actors, sizeof *run->actor);
    run->heap = calloc((size_t)run->actors, sizeof *run->heap);
    run->first = calloc((size_t)run->devices, sizeof *run->first);
    run->talks = calloc((size_t)run->devices, sizeof *run->talks);
    run->network = network_open(run->cluster, run->devices);
    /* Messages of all senders are numbered through. */
    for (int d = 0; d < run->devices && run->first; d++) run->first[d] = messages, messages += messages_of(events[d]);
    run->message = calloc((size_t)messages + 1, sizeof *run->message);
    for (uint64_t i = 0; i < messages && run->message; i++) run->message[i].receiver = run->message[i].sender = -1;
    return run->actor && run->heap && run->first && run->talks && run->network && run->message
           && open_actors(run, events);
}

enum error_code contention_replay(const struct cluster *cluster, struct events *const *events, int devices,
                                  picoseconds *end, struct error *err)
{
    struct run r = { .cluster = cluster, .devices = devices, .actors = devices * EVENT_ACTORS, .err = err,
                     .paces = cluster->contention.compute_percent > 0 || cluster->no_progress };
    if (open_run(&r, events)) go(&r);
    else r.e = fail(err, ERR_MEMORY, "no memory to replay %d devices on shared links", devices);
    /* The time of a device is that of its compute stream. */
    for (int d = 0; d < devices && !r.e; d++) end[d] = r.actor[d * EVENT_ACTORS].now;
    for (int i = 0; i < r.actors && r.actor; i++) free(r.actor[i].done);
    free(r.actor), free(r.heap), free(r.first), free(r.talks), free(r.message);
    network_close(r.network);
    return r.e;
}
