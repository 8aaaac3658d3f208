#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/comm/carrier.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 1 << 20, SAID = 8 };     /* bytes, of which a device touches few; waiting devices that a report names */

/* ---- mail -------------------------------------------------------------------------------------------------------- */

/* Which message: nth mail with equal keys from the nth send meets the nth receive. */
struct key { int from, to; uint32_t context, number; bool named; };

/* A message, made by whichever side comes first. */
struct mail {
    struct key key;
    struct mail *next;                  /* of the same bucket, in the order in which they were made */
    bool sent, received;                /* which sides have come */
    int ends;                           /* sides that still need it */
    int waits;                          /* device that waits for the other side; -1: none */
    uint64_t bytes, call;               /* as sent */
    void *copy;                         /* of the data; NULL: zeros of a device without numbers */
    picoseconds stamp, ready;
    uint32_t serial;
};

/* A side's record. */
struct parcel {
    struct delivery delivery;
    uint64_t bytes;
    struct mail *mail;
    int next_free;
};

struct post {
    struct crew *crew;
    struct parcel *parcel;
    int parcels, first_free;            /* first_free: -1 if all are in use */
};

/* ---- fibers ------------------------------------------------------------------------------------------------------ */

struct fiber {
    ucontext_t context;
    void *stack;
    int next;                           /* ready to run after this one; -1: the last */
    const struct exchange *waits_over;  /* while it waits for a message */
    int waits_for;                      /* device */
    bool sends;
    enum error_code code;
    struct error err;
};

struct crew {
    int size, left;                     /* devices; those that have not returned */
    struct fiber *fiber;
    ucontext_t home;                    /* crew_run */
    int running, first, last;           /* the queue of those that can run; -1: it is empty */
    crew_fn *run;
    const void *asked;
    struct mail **bucket;               /* [buckets] that one side waits for */
    size_t buckets;
    uint64_t switches;
};

uint64_t crew_switches(const struct crew *c) { return c->switches; }

static void make_ready(struct crew *c, int device)
{
    c->fiber[device].next = -1;
    if (c->first < 0) c->first = device;
    else c->fiber[c->last].next = device;
    c->last = device;
}

/* No device can go on. */
static void report_deadlock(const struct crew *c)
{
    char axes[64];
    int said = 0;
    fflush(stdout);
    for (int d = 0; d < c->size && said < SAID; d++) {
        const struct exchange *x = c->fiber[d].waits_over;
        if (x == NULL) continue;
        fprintf(stderr, "device %d waits for device %d to %s: %s over %s, %s %u\n", d, c->fiber[d].waits_for,
                c->fiber[d].sends ? "receive" : "send", operation_name(x->operation),
                axes_describe(x->group->axes, axes, sizeof axes), x->named ? "named" : "exchange", (unsigned)x->number);
        said++;
    }
    fprintf(stderr, "orrery: %d of %d devices wait for each other, and none can go on\n", c->left, c->size);
    fflush(NULL);
    _exit(1);
}

/* Leave this device for the next one that can run.  @param from  where to come back to. */
static void go_on(struct crew *c, ucontext_t *from)
{
    const int next = c->first;
    if (next < 0) report_deadlock(c);
    c->first = c->fiber[next].next;
    c->running = next;
    c->switches++;
    swapcontext(from, &c->fiber[next].context);
}

/* makecontext hands over ints: the two halves of the crew's address. */
static void live(unsigned high, unsigned low)
{
    struct crew *c = (struct crew *)((uintptr_t)high << 16 << 16 | low);
    struct fiber *f = &c->fiber[c->running];
    f->code = c->run(c, c->running, c->asked, &f->err);
    if (--c->left > 0) go_on(c, &f->context);
    else setcontext(&c->home);
}

static bool fiber_open(struct crew *c, int device)
{
    struct fiber *f = &c->fiber[device];
    const uintptr_t address = (uintptr_t)c;
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) return false;
    f->stack = stack;
    if (getcontext(&f->context) != 0) return false;
    f->context.uc_stack.ss_sp = stack, f->context.uc_stack.ss_size = STACK;
    makecontext(&f->context, (void (*)(void))live, 2, (unsigned)(address >> 16 >> 16), (unsigned)address);
    make_ready(c, device);
    return true;
}

static void crew_free(struct crew *c)
{
    for (int d = 0; d < c->size && c->fiber; d++)
        if (c->fiber[d].stack) munmap(c->fiber[d].stack, STACK);
    free(c->fiber), free(c->bucket);
}

enum error_code crew_run(int devices, crew_fn *run, const void *asked, struct error *err)
{
    struct crew c = { .size = devices, .left = devices, .first = -1, .run = run, .asked = asked };
    enum error_code e = OK;
    for (c.buckets = 64; c.buckets < 16 * (size_t)devices; c.buckets *= 2) continue;
    c.fiber = calloc((size_t)devices, sizeof *c.fiber);
    c.bucket = calloc(c.buckets, sizeof *c.bucket);
    bool opened = c.fiber && c.bucket;
    for (int d = 0; d < devices && opened; d++) opened = fiber_open(&c, d);
    if (!opened) e = fail(err, ERR_MEMORY, "no memory for the stacks of %d devices in one process", devices);
    else go_on(&c, &c.home);
    for (int d = 0; d < devices && !e; d++) {
        e = c.fiber[d].code;
        if (e && err) *err = c.fiber[d].err;
    }
    crew_free(&c);
    return e;
}

/* ---- finding the other side -------------------------------------------------------------------------------------- */

static size_t bucket_of(const struct crew *c, const struct key *k)
{
    uint64_t h = (uint64_t)k->from << 32 | (uint32_t)k->to;
    h = (h ^ h >> 31) * UINT64_C(0x7fb5d329728ea185) + ((uint64_t)k->context << 32 | k->number) + k->named;
    h = (h ^ h >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return (size_t)(h ^ h >> 33) & (c->buckets - 1);
}

static bool same_key(const struct key *a, const struct key *b)
{
    return a->from == b->from && a->to == b->to && a->context == b->context && a->number == b->number &&
           a->named == b->named;
}

/* The mail that this side completes, taken out of its bucket; or a new one.  NULL: no memory. */
static struct mail *meet(struct crew *c, struct key k, bool sending)
{
    struct mail **at = &c->bucket[bucket_of(c, &k)];
    for (; *at; at = &(*at)->next) {
        struct mail *m = *at;
        if (!same_key(&m->key, &k) || (sending ? m->sent : m->received)) continue;
        *at = m->next;
        return m;
    }
    struct mail *m = *at = calloc(1, sizeof *m);
    if (m) m->key = k, m->ends = 2, m->waits = -1;
    return m;
}

static void leave(struct mail *m)
{
    if (--m->ends > 0) return;
    free(m->copy);
    free(m);
}

/* ---- the carrier ------------------------------------------------------------------------------------------------- */

static int take_parcel(struct post *p)
{
    if (p->first_free < 0) {
        const int more = p->parcels > 0 ? p->parcels : 8;
        struct parcel *grown = realloc(p->parcel, sizeof *grown * (size_t)(p->parcels + more));
        if (grown == NULL) return -1;
        p->parcel = grown;
        for (int i = p->parcels + more - 1; i >= p->parcels; i--) grown[i].next_free = p->first_free, p->first_free = i;
        p->parcels += more;
    }
    const int taken = p->first_free;
    p->first_free = p->parcel[taken].next_free;
    return taken;
}

/* The sender's buffer is free as soon as a message has started. */
static bool copy_data(struct device *d, struct mail *m, const void *data, uint64_t bytes)
{
    if (bytes == 0 || device_holds_zeros(d, data)) return true;
    m->copy = malloc((size_t)bytes + 1);
    if (m->copy == NULL) return false;
    const void *seen = host_read(d, data, bytes);
    memcpy(m->copy, seen, (size_t)bytes);
    host_done(d, seen);
    return true;
}

static bool post(struct comm *c, struct parcel *p, const struct key *k)
{
    struct mail *m = p->mail = meet(c->post->crew, *k, p->delivery.sending);
    if (m == NULL) return false;
    if (p->delivery.sending) {
        m->sent = true, m->bytes = p->bytes, m->call = p->delivery.exchange.call;
        m->stamp = p->delivery.passage.stamp, m->serial = p->delivery.passage.serial;
        if (!copy_data(c->device, m, p->delivery.data, p->bytes)) return false;
    } else m->received = true, m->ready = p->delivery.passage.posted;
    if (m->waits >= 0) make_ready(c->post->crew, m->waits), m->waits = -1;
    return true;
}

static int crew_start(struct exchange *x, int peer, void *data, uint64_t bytes, const struct passage *passage,
                      bool sending)
{
    struct comm *c = x->group->comm;
    const int slot = take_parcel(c->post), other = x->group->member[peer];
    if (slot < 0) return -1;
    struct parcel *p = &c->post->parcel[slot];
    const struct key k = { sending ? c->rank : other, sending ? other : c->rank, x->group->context[peer], x->number,
                           x->named };
    *p = (struct parcel){ { *x, *passage, data, peer, sending }, bytes, NULL, -1 };
    return post(c, p, &k) ? slot : -1;
}

/* Whether this side's part is done: a send needs its receiver only for a rendezvous. */
static bool is_done(const struct parcel *p)
{
    return p->delivery.sending ? p->mail->received || !p->delivery.passage.rendezvous : p->mail->sent;
}

static void wait_for_the_other(struct comm *c, const struct parcel *p)
{
    struct crew *crew = c->post->crew;
    struct fiber *own = &crew->fiber[c->rank];
    own->waits_over = &p->delivery.exchange, own->sends = p->delivery.sending;
    own->waits_for = p->delivery.exchange.group->member[p->delivery.peer];
    p->mail->waits = c->rank;
    go_on(crew, &own->context);
    own->waits_over = NULL;
}

static void deliver(struct device *d, void *data, const struct mail *m)
{
    if (m->copy) device_copy(d, data, m->copy, m->bytes);
    else if (m->bytes > 0 && !device_holds_zeros(d, data)) memset(data, 0, (size_t)m->bytes);
}

static enum error_code crew_wait(struct comm *c, int slot, struct delivery *delivery, struct error *err)
{
    struct parcel *p = &c->post->parcel[slot];
    const struct mail *m = p->mail;
    enum error_code e = OK;
    if (!is_done(p)) wait_for_the_other(c, p);
    if (p->delivery.sending) p->delivery.passage.ready = p->delivery.passage.rendezvous ? m->ready : 0;
    else {
        p->delivery.passage.stamp = m->stamp, p->delivery.passage.serial = m->serial;
        if (m->bytes != p->bytes)
            e = message_wrong_length(&p->delivery.exchange, p->delivery.peer, p->bytes, m->bytes, err);
        else if (m->call != p->delivery.exchange.call)
            e = message_wrong_call(&p->delivery.exchange, p->delivery.peer, err);
        else deliver(c->device, p->delivery.data, m);
    }
    *delivery = p->delivery;
    leave(p->mail);
    p->next_free = c->post->first_free, c->post->first_free = slot;
    return e;
}

static void crew_abort(struct comm *c, int exit_status)
{
    (void)c;
    fflush(NULL);
    _exit(exit_status);
}

static void crew_close(struct comm *c)
{
    free(c->post->parcel);
    free(c->post);
}

enum error_code crew_join(struct comm *c, struct crew *crew, int rank, struct device *d, struct error *err)
{
    static const struct carrier carrier = { crew_start, crew_wait, crew_abort, crew_close };
    struct post *p = calloc(1, sizeof *p);
    *c = (struct comm){ .device = d, .rank = rank, .size = crew->size, .carrier = &carrier, .post = p,
                        .contexts = calloc((size_t)crew->size, sizeof *c->contexts),
                        .everyone = calloc(1, sizeof *c->everyone) };
    if (p && c->contexts && c->everyone && group_world(c->everyone, c, err) == OK) {
        *p = (struct post){ .crew = crew, .first_free = -1 };
        return OK;
    }
    free(p), free(c->contexts), free(c->everyone);
    return fail(err, ERR_MEMORY, "device %d has no memory to connect to %d others", rank, crew->size - 1);
}
