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
};

/* A message, named by its sender and serial. */
struct known {
    bool sent, posted;                  /* both sides of a rendezvous have come */
    bool arrived;
    picoseconds at, left;
    int receiver, sender;               /* actors that wait for it; -1: none */
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

static bool before(const struct run *r, int a, int b)
{
    const picoseconds x = r->actor[a].now, y = r->actor[b].now;
    return x != y ? x < y : a < b;
}

static void set(struct run *r, int i, int a) { r->heap[i] = a, r->actor[a].place = i; }

static void rise(struct run *r, int i)
{
    const int a = r->heap[i];
    for (; i > 0 && before(r, a, r->heap[(i - 1) / 2]); i = (i - 1) / 2) set(r, i, r->heap[(i - 1) / 2]);
    set(r, i, a);
}

static void sink(struct run *r, int i)
{
    const int a = r->heap[i];
    for (int child; (child = 2 * i + 1) < r->waiting; i = child) {
        /* The earlier of the two children may rise. */
        if (child + 1 < r->waiting && before(r, r->heap[child + 1], r->heap[child])) child++;
        if (!before(r, r->heap[child], a)) break;
        set(r, i, r->heap[child]);
    }
    set(r, i, a);
}

static void put(struct run *r, int a)
{
    if (r->actor[a].place >= 0) return;
    set(r, r->waiting++, a);
    rise(r, r->waiting - 1);
}

static int take(struct run *r)
{
    /* The last entry takes the root's place and sinks. */
    const int first = r->heap[0], last = r->heap[--r->waiting];
    r->actor[first].place = -1;
    if (r->waiting == 0) return first;
    set(r, 0, last);
    sink(r, 0);
    return first;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static struct known *message_of(struct run *r, int sender, uint32_t serial)
{
    return &r->message[r->first[sender] + serial];
}

static void depart(struct run *r, picoseconds at, int from, int to, const struct event *v)
{
    const uint64_t name = (uint64_t)(message_of(r, from, v->serial) - r->message);
    if (!r->e) r->e = network_send(r->network, at, from, to, v->bytes, name,
                                r->cluster->no_progress && v->rendezvous, r->err);
}

static void wake(struct run *r, int *actor)
{
    if (*actor >= 0) put(r, *actor);
    *actor = -1;
}

static void arrive(struct run *r, const struct change *a)
{
    struct known *m = &r->message[a->name];
    m->arrived = true, m->at = a->at, m->left = a->left;
    wake(r, &m->receiver);
    wake(r, &m->sender);
}

/* ---- work that takes as long as others let it -------------------------------------------------------------------- */

static picoseconds later(picoseconds a, picoseconds b) { return a > b ? a : b; }
static int compute_stream(int device) { return device * EVENT_ACTORS + COMPUTE; }

/* The time of work now, in percent of its usual time; 0: a pass beside another that computes stands still. */
static int64_t slowness(const struct run *r, int number)
{
    const int device = number / EVENT_ACTORS;
    if (number != compute_stream(device) && r->actor[compute_stream(device)].works) return 0;
    return r->talks[device] > 0 ? r->cluster->contention.compute_percent : 100;
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
static void change_pace(struct run *r, picoseconds at, int number, int64_t before)
{
    struct actor *a = &r->actor[number];
    const int64_t after = slowness(r, number);
    if (!a->works || before == after) return;
    /* Work that was done at the old pace is done; the rest takes longer or shorter. */
    if (before > 0) a->left = later(0, a->left - shrunk(at - a->since, before));
    a->since = at, a->now = after > 0 ? at + stretched(a->left, after) : INT64_MAX;
    rise(r, a->place);
    sink(r, a->place);
}

/* A message comes to a device's ports, or leaves them. */
static void count_message(struct run *r, picoseconds at, int device, int more)
{
    const int compute = compute_stream(device), second = compute + BESIDE;
    const int64_t before = slowness(r, compute), before_second = slowness(r, second);
    r->talks[device] += more;
    change_pace(r, at, compute, before);
    change_pace(r, at, second, before_second);
}

/* The compute stream works from now on, or no longer: the pass beside it stands still, or goes on. */
static void set_works(struct run *r, int number, bool works)
{
    struct actor *a = &r->actor[number];
    const int second = number + BESIDE;
    const bool compute = number % EVENT_ACTORS == COMPUTE;
    const int64_t before = compute ? slowness(r, second) : 0;
    a->works = works;
    if (compute) change_pace(r, a->now, second, before);
}

/* A message that waits for both devices is on no port while either works. */
static void hear_of(struct run *r, const struct change *c)
{
    if (!c->begins) arrive(r, c);
    if (r->cluster->contention.compute_percent == 0 || c->both) return;
    count_message(r, c->at, c->from, c->begins ? 1 : -1);
    count_message(r, c->at, c->to, c->begins ? 1 : -1);
}

static void begin_work(struct run *r, int number, picoseconds takes)
{
    struct actor *a = &r->actor[number];
    const bool compute = number % EVENT_ACTORS == COMPUTE;
    if (r->cluster->no_progress && compute) network_busy(r->network, a->now, number / EVENT_ACTORS, true);
    set_works(r, number, true);
    const int64_t slow = slowness(r, number);
    a->began = a->since = a->now, a->left = takes;
    /* The work ends then, if no message comes or goes until then. */
    a->now = slow > 0 ? a->now + stretched(takes, slow) : INT64_MAX;
    put(r, number);
}

/* Work after work is no call in between. */
static bool works_on(const struct actor *a)
{
    return a->at + 1 < a->list->count && a->list->event[a->at + 1].kind == EVENT_WORK;
}

static void end_work(struct run *r, int number)
{
    struct actor *a = &r->actor[number];
    const bool compute = number % EVENT_ACTORS == COMPUTE;
    set_works(r, number, false);
    /* The list keeps how long the work has taken in this replay. */
    if (compute) a->list->event[a->at].takes = a->now - a->began;
    if (!compute || !r->cluster->no_progress || works_on(a)) return;
    network_busy(r->network, a->now, number / EVENT_ACTORS, false);
    for (int i = number; i < number + EVENT_ACTORS; i++) {
        struct actor *other = &r->actor[i];
        if (!other->put_off) continue;
        other->put_off = false, other->now = later(other->now, a->now);
        put(r, i);
    }
}

/* Whether a stream has to wait with this event of a message until its device's compute stream does not work. */
static bool put_off(const struct run *r, int number, const struct event *v, const struct known *m)
{
    const struct actor *compute = &r->actor[compute_stream(number / EVENT_ACTORS)];
    const bool waits = v->kind == EVENT_RECEIVE || v->kind == EVENT_SENT;
    const picoseconds at = later(r->actor[number].now, waits && m->arrived ? m->at : 0);
    return r->cluster->no_progress && compute->works && m && at > compute->began;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* The message is one side of a rendezvous: it departs when both have come. */
static void meet(struct run *r, const struct actor *a, struct known *m, bool *own, int from, int to,
                 const struct event *v)
{
    *own = true;
    if (m->sent && m->posted) depart(r, a->now, from, to, v);
}

/* Whether its pace depends on others. */
static bool is_pass(int number) { return number % EVENT_ACTORS == COMPUTE || number % EVENT_ACTORS == BESIDE; }

/* Do an actor's next event.  @return whether it could. */
static bool do_event(struct run *r, int number)
{
    struct actor *a = &r->actor[number];
    const struct event *v = &a->list->event[a->at];
    const int device = number / EVENT_ACTORS;
    const struct actor *other = &r->actor[device * EVENT_ACTORS + v->other];
    struct known *m = NULL;
    if (v->kind != EVENT_WORK && v->kind != EVENT_AFTER)
        m = message_of(r, v->kind == EVENT_SEND || v->kind == EVENT_SENT ? device : v->peer, v->serial);
    if ((a->put_off = put_off(r, number, v, m))) return false;
    switch ((enum event_kind)v->kind) {
    case EVENT_WORK:
        /* The event is done when the work ends; until then its pace may change. */
        if (r->paces && !a->works && is_pass(number)) {
            begin_work(r, number, v->takes);
            return false;
        }
        if (a->works) end_work(r, number);
        else a->now += v->takes;
        break;
    case EVENT_AFTER:
        if (other->at < v->place) return false;
        a->now = later(a->now, other->done[v->place - 1]);
        break;
    case EVENT_SEND:
        if (v->rendezvous) meet(r, a, m, &m->sent, device, v->peer, v);
        else depart(r, a->now, device, v->peer, v);
        break;
    case EVENT_POST:
        if (v->rendezvous) meet(r, a, m, &m->posted, v->peer, device, v);
        break;
    case EVENT_SENT:
        m->sender = m->arrived ? -1 : number;
        if (!m->arrived) return false;
        a->now = later(a->now, m->left);
        break;
    case EVENT_RECEIVE:
        m->receiver = m->arrived ? -1 : number;
        if (!m->arrived) return false;
        a->now = later(a->now, m->at);
        break;
    }
    a->done[a->at] = a->now;
    a->list->event[a->at++].at = a->now;
    return true;
}

/* Others of the device may wait for this actor. */
static void step(struct run *r, int number)
{
    const int first = number / EVENT_ACTORS * EVENT_ACTORS;
    struct actor *a = &r->actor[number];
    if (!do_event(r, number)) return;
    if (a->at < a->list->count) put(r, number);
    for (int i = first; i < first + EVENT_ACTORS; i++) {
        const struct actor *w = &r->actor[i];
        const struct event *v = w->at < w->list->count ? &w->list->event[w->at] : NULL;
        if (v && v->kind == EVENT_AFTER && first + v->other == number && v->place <= a->at) put(r, i);
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool next_changes(struct run *r, struct change *c)
{
    return network_next(r->network, r->waiting > 0 ? r->actor[r->heap[0]].now : INT64_MAX, c);
}

static void go(struct run *r)
{
    struct change c;
    for (int i = 0; i < r->actors; i++)
        if (r->actor[i].list->count > 0) put(r, i);
    while (!r->e) {
        /* Network and actors go on in one order of time. */
        if (next_changes(r, &c)) hear_of(r, &c);
        else if (r->waiting > 0) step(r, take(r));
        else break;
    }
    for (int i = 0; i < r->actors && !r->e; i++)
        if (r->actor[i].at < r->actor[i].list->count)
            r->e = fail(r->err, ERR_FORMAT, "device %d waits in its event %u for what no device does", i / EVENT_ACTORS,
                        (unsigned)r->actor[i].at);
}

/* How many messages a device sends: one more than the last serial. */
static uint64_t messages_of(const struct events *e)
{
    uint64_t most = 0;
    for (int a = 0; a < EVENT_ACTORS; a++)
        for (uint32_t i = 0; i < e->of[a].count; i++)
            if (e->of[a].event[i].kind == EVENT_SEND && e->of[a].event[i].serial >= most)
                most = (uint64_t)e->of[a].event[i].serial + 1;
    return most;
}

static bool open_actors(struct run *r, struct events *const *events)
{
    bool opened = true;
    for (int i = 0; i < r->actors && opened; i++) {
        struct actor *a = &r->actor[i];
        a->list = &events[i / EVENT_ACTORS]->of[i % EVENT_ACTORS];
        a->place = -1;
        a->done = malloc(((size_t)a->list->count + 1) * sizeof *a->done);
        opened = a->done && !events[i / EVENT_ACTORS]->lost;
        r->paces = r->paces || (i % EVENT_ACTORS == BESIDE && a->list->count > 0);
    }
    return opened;
}

static bool open_run(struct run *r, struct events *const *events)
{
    uint64_t messages = 0;
    r->actor = calloc((size_t)r->actors, sizeof *r->actor);
    r->heap = calloc((size_t)r->actors, sizeof *r->heap);
    r->first = calloc((size_t)r->devices, sizeof *r->first);
    r->talks = calloc((size_t)r->devices, sizeof *r->talks);
    r->network = network_open(r->cluster, r->devices);
    /* Messages of all senders are numbered through. */
    for (int d = 0; d < r->devices && r->first; d++) r->first[d] = messages, messages += messages_of(events[d]);
    r->message = calloc((size_t)messages + 1, sizeof *r->message);
    for (uint64_t i = 0; i < messages && r->message; i++) r->message[i].receiver = r->message[i].sender = -1;
    return r->actor && r->heap && r->first && r->talks && r->network && r->message && open_actors(r, events);
}

enum error_code contention_replay(const struct cluster *c, struct events *const *events, int devices, picoseconds *end,
                                  struct error *err)
{
    struct run r = { .cluster = c, .devices = devices, .actors = devices * EVENT_ACTORS, .err = err,
                     .paces = c->contention.compute_percent > 0 || c->no_progress };
    if (open_run(&r, events)) go(&r);
    else r.e = fail(err, ERR_MEMORY, "no memory to replay %d devices on shared links", devices);
    for (int d = 0; d < devices && !r.e; d++) end[d] = r.actor[d * EVENT_ACTORS].now;
    for (int i = 0; i < r.actors && r.actor; i++) free(r.actor[i].done);
    free(r.actor), free(r.heap), free(r.first), free(r.talks), free(r.message);
    network_close(r.network);
    return r.e;
}
