/* watch.c -- keeps the messages between start and wait, and finds uses of their buffers.  The callers are exchange.c
 * for messages and the device for other uses.  A violation is kept and becomes ERR_CHECK in comm_agree.  A device
 * without memory to watch is ERR_COMM. */
#include "emulated_devices/comm/watch.h"
#include "emulated_devices/device/flight.h"
#include <stdio.h>
#include <stdlib.h>

/* A message between its start and its wait. */
struct watched {
    int slot, peer;                     /* peer: rank in the group */
    struct exchange exchange;
    bool sends, judged, poisoned, gone; /* judged: a send whose bytes must stay; poisoned: its buffer is poison until
                                         * its wait; gone: it was freed */
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

static struct device *watch_device_of(const struct message_watch *watch) { return watch->comm->device; }

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* "bytes 0 to 511 of a block of 512 (buffers)". */
static void describe_place(const struct message_watch *watch, const struct watched *watched, char *text, size_t size)
{
    enum arena_tag tag;
    uint64_t block;
    const char *first = arena_look(&watch_device_of(watch)->arena, watched->data, &tag, &block);
    if (first == NULL) snprintf(text, size, "%llu bytes of the host's", (unsigned long long)watched->bytes);
    else
        snprintf(text, size, "bytes %lld to %lld of a block of %llu (%s)", (long long)(watched->data - first),
                 (long long)(watched->data - first) + (long long)watched->bytes - 1, (unsigned long long)block,
                 arena_tag_name(tag));
}

/* " (forward of microbatch 0, layer 1)", or nothing. */
static void describe_pass(const struct doing *doing, char *text, size_t size)
{
    char pass[80];
    text[0] = '\0';
    if (doing != NULL && doing->pass != NULL) snprintf(text, size, " (%s)", doing_describe(doing, pass, sizeof pass));
}

/* Keep what a device does with a message, if it is the first violation.
 * @param does  "frees them before message_wait".  @param now  what the device did then, or NULL. */
static void violated(struct message_watch *watch, const struct watched *watched, const char *does,
                     const struct doing *now)
{
    const struct group *g = watched->exchange.group;
    char axes[64], place[80], started[84], then[84];
    if (watch->trouble[0] != '\0') return;
    describe_place(watch, watched, place, sizeof place);
    describe_pass(&watched->started, started, sizeof started), describe_pass(now, then, sizeof then);
    snprintf(watch->trouble, sizeof watch->trouble, "%s %s over %s, %s %u: device %d %s %s %s device %d%s and %s%s",
             traffic_kind_name(g->kind), operation_name(watched->exchange.operation),
             axes_describe(g->axes, axes, sizeof axes), watched->exchange.named ? "named" : "exchange",
             (unsigned)watched->exchange.number, watch->comm->rank, watched->sends ? "sends" : "receives", place,
             watched->sends ? "to" : "from", g->member[watched->peer], started, does, then);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Watch a message no longer.  The last entry takes its place; without messages the range of bytes is empty. */
static void watch_drop(struct message_watch *watch, int i)
{
    watch->list[i] = watch->list[--watch->count];
    if (watch->count == 0) watch->watch.first = watch->watch.end = NULL;
}

/* Make room for another message.  @return NULL: there is no memory, which is reported like a violation. */
static struct watched *watch_add(struct message_watch *watch)
{
    if (watch->count == watch->room) {
        const int room = watch->room > 0 ? 2 * watch->room : 16;
        struct watched *list = realloc(watch->list, sizeof *list * (size_t)room);
        if (list == NULL) {
            snprintf(watch->trouble, sizeof watch->trouble, "device %d has no memory to watch another message",
                     watch->comm->rank);
            return NULL;
        }
        watch->list = list, watch->room = room;
    }
    return &watch->list[watch->count++];
}

/* The device tells only of uses within this range, so it must contain all watched bytes. */
static void widen(struct watch *watch, const char *data, uint64_t bytes)
{
    if (bytes == 0) return;
    if (watch->first == watch->end) watch->first = data, watch->end = data + bytes;
    if (data < watch->first) watch->first = data;
    if (data + bytes > watch->end) watch->end = data + bytes;
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

/* Whether a send's bytes are still the same is judged at its wait: an operation may leave them as they are. */
static void send_used(struct message_watch *watch, struct watched *watched, enum memory_use use, const char *by)
{
    const struct doing *const now = &watch_device_of(watch)->arena.doing;
    if (use == MEMORY_FREED) violated(watch, watched, "frees them before message_wait", now), watched->gone = true;
    if (use == MEMORY_RECEIVED) violated(watch, watched, "receives into them before message_wait", now);
    if (use == MEMORY_WRITTEN || use == MEMORY_OPERAND) watched->by = by, watched->touched = *now;
}

/* A receive's buffer may not be used at all before its wait: every use is a violation. */
static void receive_used(struct message_watch *watch, struct watched *watched, enum memory_use use, const char *by)
{
    static const char *const does[] = { [MEMORY_READ] = "reads them", [MEMORY_WRITTEN] = "writes to them",
                                        [MEMORY_OPERAND] = "computes with them",
                                        [MEMORY_RECEIVED] = "receives into them again",
                                        [MEMORY_FREED] = "frees them" };
    char text[96];
    snprintf(text, sizeof text, "%s before message_wait%s%s", does[use], by ? ": " : "", by ? by : "");
    violated(watch, watched, text, &watch_device_of(watch)->arena.doing);
    watched->gone = watched->gone || use == MEMORY_FREED;
}

/* The device calls this for a use within the range.  @return whether memory that is freed must stay. */
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

void watch_begin(struct comm *comm, int slot, const struct exchange *exchange, int peer, const void *data,
                 uint64_t bytes, bool sends)
{
    struct message_watch *const w = comm->watch;
    if (w == NULL || slot < 0) return;
    const struct device *const d = comm->device;
    device_used(d, sends ? MEMORY_READ : MEMORY_RECEIVED, data, bytes, sends ? "a send" : NULL);
    struct watched *const m = watch_add(w);
    if (m == NULL) return;
    *m = (struct watched){ .slot = slot, .peer = peer, .exchange = *exchange, .sends = sends, .data = data,
                          .bytes = bytes,
                           .poisoned = !sends && exchange->operation != CONTROL && d->backend->has_numbers,
                           .stream = d->clock.current, .started = d->arena.doing };
    /* A device that another one stands in for has no flight: its sends are not judged. */
    m->judged = sends && d->clock.flight != NULL;
    if (m->judged) m->hash = flight_hash_sent(d->clock.flight, m->stream, data, bytes);
    widen(&w->watch, data, bytes);
}

/* Judge a message's buffer at its wait: a send's bytes must be those of its start, a receive's still poison. */
static void watch_judge(struct message_watch *watch, const struct watched *watched)
{
    const struct device *const d = watch_device_of(watch);
    char does[96];
    if (watched->gone) return;
    if (watched->judged && flight_hash_sent(d->clock.flight, watched->stream, watched->data, watched->bytes)
        != watched->hash) {
        snprintf(does, sizeof does, "changes them before message_wait%s%s", watched->by ? ": " : "",
                 watched->by ? watched->by : "");
        violated(watch, watched, does, watched->by ? &watched->touched : &d->arena.doing);
    }
    /* A receive's buffer was filled with poison when it was posted: any other byte was written too early. */
    if (watched->poisoned && !arena_is_poison(&d->arena, watched->data, watched->bytes))
        violated(watch, watched, "writes to them before message_wait", &d->arena.doing);
}

void watch_end(struct comm *comm, int slot)
{
    struct message_watch *const w = comm->watch;
    for (int i = w ? w->count - 1 : -1; i >= 0; i--) {
        if (w->list[i].slot != slot) continue;
        const struct watched m = w->list[i];
        watch_drop(w, i);
        watch_judge(w, &m);
        return;
    }
}

void watch_nothing_left(struct comm *comm, const struct group *group, const char *when)
{
    struct message_watch *const w = comm->watch;
    char does[120];
    snprintf(does, sizeof does, "has not waited for the message %s", when);
    for (int i = w ? w->count - 1 : -1; i >= 0; i--) {
        if (group != NULL && w->list[i].exchange.group != group) continue;
        violated(w, &w->list[i], does, NULL);
        watch_drop(w, i);
    }
}

void watch_forgive(struct comm *comm)
{
    while (comm->watch && comm->watch->count > 0) watch_drop(comm->watch, comm->watch->count - 1);
}

enum error_code watch_verdict(struct comm *comm, enum error_code local, struct error *err)
{
    struct message_watch *const w = comm->watch;
    if (local != OK || w == NULL || w->trouble[0] == '\0') return local;
    fail(err, ERR_CHECK, "%s", w->trouble);
    w->trouble[0] = '\0';
    return ERR_CHECK;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

enum error_code watch_open(struct comm *comm, struct error *err)
{
    if (comm->device->clock.flight == NULL) return OK;
    struct message_watch *w = calloc(1, sizeof *w);
    if (w == NULL) return fail(err, ERR_COMM, "device %d has no memory to watch its messages", comm->rank);
    w->watch.used = used;
    w->comm = comm;
    comm->watch = w;
    comm->device->watch = &w->watch;
    return OK;
}

void watch_close(struct comm *comm)
{
    if (comm->watch == NULL) return;
    comm->device->watch = NULL;
    free(comm->watch->list);
    free(comm->watch);
    comm->watch = NULL;
}
