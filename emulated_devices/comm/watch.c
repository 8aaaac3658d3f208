#include "emulated_devices/comm/watch.h"
#include "emulated_devices/device/flight.h"
#include <stdio.h>
#include <stdlib.h>

/* A message between its start and its wait. */
struct watched {
    int slot, peer;                     /* peer: rank in the group */
    struct exchange exchange;
    bool sends, poisoned, gone;         /* poisoned: its buffer is poison until its wait; gone: it was freed */
    enum stream stream;                 /* that sends */
    const char *data;
    uint64_t bytes, hash;               /* hash: of what is sent, at the start */
    struct doing started, touched;      /* what the device did when it started, and when it last touched the buffer */
    const char *by;                     /* what touched a send's buffer last; NULL: nothing has */
};

struct message_watch {
    struct watch watch;                 /* first: it is what the device knows */
    struct comm *comm;
    struct watched *list;
    int count, room;
    char trouble[sizeof ((struct error *)NULL)->text];
};

static struct device *device_of(const struct message_watch *w) { return w->comm->device; }

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* "bytes 0 to 511 of a block of 512 (buffers)". */
static void describe_place(const struct message_watch *w, const struct watched *m, char *text, size_t size)
{
    enum arena_tag tag;
    uint64_t block;
    const char *first = arena_look(&device_of(w)->arena, m->data, &tag, &block);
    if (first == NULL) snprintf(text, size, "%llu bytes of the host's", (unsigned long long)m->bytes);
    else
        snprintf(text, size, "bytes %lld to %lld of a block of %llu (%s)", (long long)(m->data - first),
                 (long long)(m->data - first) + (long long)m->bytes - 1, (unsigned long long)block,
                 arena_tag_name(tag));
}

/* " (forward of microbatch 0, layer 1)", or nothing. */
static void describe_pass(const struct doing *d, char *text, size_t size)
{
    char pass[80];
    text[0] = '\0';
    if (d != NULL && d->pass != NULL) snprintf(text, size, " (%s)", doing_describe(d, pass, sizeof pass));
}

/* Keep what a device does with a message, if it is the first violation.
 * @param does  "frees them before message_wait".  @param now  what the device did then, or NULL. */
static void violated(struct message_watch *w, const struct watched *m, const char *does, const struct doing *now)
{
    const struct group *g = m->exchange.group;
    char axes[64], place[80], started[84], then[84];
    if (w->trouble[0] != '\0') return;
    describe_place(w, m, place, sizeof place);
    describe_pass(&m->started, started, sizeof started), describe_pass(now, then, sizeof then);
    snprintf(w->trouble, sizeof w->trouble, "%s %s over %s, %s %u: device %d %s %s %s device %d%s and %s%s",
             traffic_kind_name(g->kind), operation_name(m->exchange.operation),
             axes_describe(g->axes, axes, sizeof axes), m->exchange.named ? "named" : "exchange",
             (unsigned)m->exchange.number, w->comm->rank, m->sends ? "sends" : "receives", place,
             m->sends ? "to" : "from", g->member[m->peer], started, does, then);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static void drop(struct message_watch *w, int i)
{
    w->list[i] = w->list[--w->count];
    if (w->count == 0) w->watch.first = w->watch.end = NULL;
}

static struct watched *watch_add(struct message_watch *w)
{
    if (w->count == w->room) {
        const int room = w->room > 0 ? 2 * w->room : 16;
        struct watched *list = realloc(w->list, sizeof *list * (size_t)room);
        if (list == NULL) {
            snprintf(w->trouble, sizeof w->trouble, "device %d has no memory to watch another message", w->comm->rank);
            return NULL;
        }
        w->list = list, w->room = room;
    }
    return &w->list[w->count++];
}

static void widen(struct watch *w, const char *data, uint64_t bytes)
{
    if (bytes == 0) return;
    if (w->first == w->end) w->first = data, w->end = data + bytes;
    if (data < w->first) w->first = data;
    if (data + bytes > w->end) w->end = data + bytes;
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

/* Whether a send's bytes are still the same is judged at its wait: an operation may leave them as they are. */
static void send_used(struct message_watch *w, struct watched *m, enum memory_use use, const char *by)
{
    const struct doing *const now = &device_of(w)->arena.doing;
    if (use == MEMORY_FREED) violated(w, m, "frees them before message_wait", now), m->gone = true;
    if (use == MEMORY_RECEIVED) violated(w, m, "receives into them before message_wait", now);
    if (use == MEMORY_WRITTEN || use == MEMORY_OPERAND) m->by = by, m->touched = *now;
}

static void receive_used(struct message_watch *w, struct watched *m, enum memory_use use, const char *by)
{
    static const char *const does[] = { [MEMORY_READ] = "reads them", [MEMORY_WRITTEN] = "writes to them",
                                        [MEMORY_OPERAND] = "computes with them",
                                        [MEMORY_RECEIVED] = "receives into them again",
                                        [MEMORY_FREED] = "frees them" };
    char text[96];
    snprintf(text, sizeof text, "%s before message_wait%s%s", does[use], by ? ": " : "", by ? by : "");
    violated(w, m, text, &device_of(w)->arena.doing);
    m->gone = m->gone || use == MEMORY_FREED;
}

static bool used(struct watch *watch, enum memory_use use, const void *data, uint64_t bytes, const char *by)
{
    struct message_watch *const w = (struct message_watch *)watch;
    const char *const first = data;
    bool stays = false;
    for (int i = 0; i < w->count; i++) {
        struct watched *const m = &w->list[i];
        /* Only messages whose bytes overlap those of this use are concerned. */
        if (m->gone || first >= m->data + m->bytes || m->data >= first + bytes) continue;
        if (m->sends) send_used(w, m, use, by);
        else receive_used(w, m, use, by);
        stays = stays || use == MEMORY_FREED;           /* a late send still reads the bytes, a receive writes them */
    }
    return stays;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void watch_begin(struct comm *c, int slot, const struct exchange *x, int peer, const void *data, uint64_t bytes,
                 bool sends)
{
    struct message_watch *const w = c->watch;
    if (w == NULL || slot < 0) return;
    const struct device *const d = c->device;
    device_used(d, sends ? MEMORY_READ : MEMORY_RECEIVED, data, bytes, sends ? "a send" : NULL);
    struct watched *const m = watch_add(w);
    if (m == NULL) return;
    *m = (struct watched){ .slot = slot, .peer = peer, .exchange = *x, .sends = sends, .data = data, .bytes = bytes,
                           .poisoned = !sends && x->operation != CONTROL && d->backend->has_numbers,
                           .stream = d->clock.current, .started = d->arena.doing };
    if (sends) m->hash = flight_hash_sent(d->clock.flight, m->stream, data, bytes);
    widen(&w->watch, data, bytes);
}

static void judge(struct message_watch *w, const struct watched *m)
{
    const struct device *const d = device_of(w);
    char does[96];
    if (m->gone) return;
    if (m->sends && flight_hash_sent(d->clock.flight, m->stream, m->data, m->bytes) != m->hash) {
        snprintf(does, sizeof does, "changes them before message_wait%s%s", m->by ? ": " : "", m->by ? m->by : "");
        violated(w, m, does, m->by ? &m->touched : &d->arena.doing);
    }
    /* A receive's buffer was filled with poison when it was posted: any other byte was written too early. */
    if (m->poisoned && !arena_is_poison(&d->arena, m->data, m->bytes))
        violated(w, m, "writes to them before message_wait", &d->arena.doing);
}

void watch_end(struct comm *c, int slot)
{
    struct message_watch *const w = c->watch;
    for (int i = w ? w->count - 1 : -1; i >= 0; i--) {
        if (w->list[i].slot != slot) continue;
        const struct watched m = w->list[i];
        drop(w, i);
        judge(w, &m);
        return;
    }
}

void watch_nothing_left(struct comm *c, const struct group *g, const char *when)
{
    struct message_watch *const w = c->watch;
    char does[120];
    snprintf(does, sizeof does, "has not waited for the message %s", when);
    for (int i = w ? w->count - 1 : -1; i >= 0; i--) {
        if (g != NULL && w->list[i].exchange.group != g) continue;
        violated(w, &w->list[i], does, NULL);
        drop(w, i);
    }
}

void watch_forgive(struct comm *c)
{
    while (c->watch && c->watch->count > 0) drop(c->watch, c->watch->count - 1);
}

enum error_code watch_verdict(struct comm *c, enum error_code local, struct error *err)
{
    struct message_watch *const w = c->watch;
    if (local != OK || w == NULL || w->trouble[0] == '\0') return local;
    fail(err, ERR_CHECK, "%s", w->trouble);
    w->trouble[0] = '\0';
    return ERR_CHECK;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

enum error_code watch_open(struct comm *c, struct error *err)
{
    if (c->device->clock.flight == NULL) return OK;
    struct message_watch *w = calloc(1, sizeof *w);
    if (w == NULL) return fail(err, ERR_COMM, "device %d has no memory to watch its messages", c->rank);
    w->watch.used = used;
    w->comm = c;
    c->watch = w;
    c->device->watch = &w->watch;
    return OK;
}

void watch_close(struct comm *c)
{
    if (c->watch == NULL) return;
    c->device->watch = NULL;
    free(c->watch->list);
    free(c->watch);
    c->watch = NULL;
}
