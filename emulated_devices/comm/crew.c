#include "emulated_devices/comm/crew.h"
#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/fiber.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK = 1 << 21, SAID = 8 };     /* bytes, of which few are touched; waiting devices that a report names */

/* ---- mail -------------------------------------------------------------------------------------------------------- */

/* Which message: nth mail with equal keys from the nth send meets the nth receive.  Of the devices of a class, all send
 * the same: keys are those of the device that stands for the sender's. */
struct key { uint64_t pair, exchange; };        /* from, to, whether it is named; context, number */

/* A message, made by whichever side comes first. */
struct mail {
    struct key key;
    struct mail *next;                  /* of the same bucket, with another key; of those not used */
    struct mail *behind, *last;         /* with the same key, made later; of the first with a key: the last one */
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

/* Mails are made many at a time, and used again. */
enum { BATCH = 256 };
struct mails { struct mails *before; struct mail mail[BATCH]; };

/* ---- fibers ------------------------------------------------------------------------------------------------------ */

struct life {
    struct fiber fiber;
    struct crew *crew;
    int rank;
    bool ready;                         /* in the queue */
    int next;                           /* device ready to run after this one; -1: the last */
    const struct exchange *waits_over;  /* while it waits for a message */
    int waits_for;                      /* device */
    bool sends;
    enum error_code code;
    struct error err;
};

struct crew {
    int size, lives, left;              /* devices; those that run; that have not returned */
    struct folding folding;
    bool folds;
    struct life *life;                  /* [lives] */
    int *life_of;                       /* [size] where a device's life is; of those that do not run -1 */
    struct fiber home;                  /* crew_run */
    int running, first, last;           /* a device; the queue of those that can run, -1: it is empty */
    crew_fn *run;
    const void *asked;
    struct mail **bucket;               /* [buckets] that one side waits for */
    size_t buckets;
    struct mail *unused;
    struct mails *mails;
    struct crew_outcome *outcome;
};

static struct life *life_of(const struct crew *c, int device) { return &c->life[c->life_of[device]]; }

static void make_ready(struct crew *c, int device)
{
    struct life *l = life_of(c, device);
    if (l->ready) return;
    l->ready = true, l->next = -1;
    if (c->first < 0) c->first = device;
    else life_of(c, c->last)->next = device;
    c->last = device;
}

/* ---- what ends early --------------------------------------------------------------------------------------------- */

/* Nothing is true any more: nobody waits for anything again, so that all devices come to their ends. */
static bool is_void(const struct crew *c) { return c->outcome->inexact[0] != '\0'; }

bool crew_is_inexact(const struct crew *c) { return is_void(c); }

static void make_void(struct crew *c, unsigned axes, const char *why)
{
    if (is_void(c)) return;
    c->outcome->axes = axes;
    snprintf(c->outcome->inexact, sizeof c->outcome->inexact, "%s", why);
    /* Waiting devices are woken, and see at their next step that nothing is true any more. */
    for (int i = 0; i < c->lives; i++)
        if (c->life[i].waits_over) make_ready(c, c->life[i].rank);
}

/* No device can go on. */
static void report_deadlock(const struct crew *c)
{
    char axes[64];
    int said = 0;
    fflush(stdout);
    for (int i = 0; i < c->lives && said < SAID; i++) {
        const struct life *l = &c->life[i];
        const struct exchange *x = l->waits_over;
        if (x == NULL) continue;
        fprintf(stderr, "device %d waits for device %d to %s: %s over %s, %s %u\n", l->rank, l->waits_for,
                l->sends ? "receive" : "send", operation_name(x->operation),
                axes_describe(x->group->axes, axes, sizeof axes), x->named ? "named" : "exchange", (unsigned)x->number);
        said++;
    }
    fprintf(stderr, "orrery: %d of %d devices wait for each other, and none can go on\n", c->left, c->size);
    fflush(NULL);
    _exit(1);
}

/* Leave this device for the next one that can run. */
static void go_on(struct crew *c, struct fiber *from, bool ends)
{
    if (c->first < 0 && c->folds) make_void(c, 0, "devices that stand for others wait for each other");
    if (c->first < 0) report_deadlock(c);
    c->running = c->first;
    struct life *next = life_of(c, c->running);
    c->first = next->next;
    next->ready = false;
    c->outcome->switches++;
    if (&next->fiber != from) fiber_switch(from, &next->fiber, ends);
}

static void live(void *argument)
{
    struct life *own = argument;
    struct crew *c = own->crew;
    own->code = c->run(c, own->rank, c->asked, &own->err);
    /* The last device to return goes back to crew_run's own stack. */
    if (--c->left > 0) go_on(c, &own->fiber, true);
    else fiber_switch(&own->fiber, &c->home, true);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static bool crew_open(struct crew *c, struct stacks *stacks)
{
    /* A table of at least 16 buckets a device keeps the lines of mails short. */
    for (c->buckets = 64; c->buckets < 16 * (size_t)c->lives; c->buckets *= 2) continue;
    c->life = calloc((size_t)c->lives, sizeof *c->life);
    c->life_of = malloc(sizeof *c->life_of * (size_t)c->size);
    c->bucket = calloc(c->buckets, sizeof *c->bucket);
    if (!c->life || !c->life_of || !c->bucket || !stacks_open(stacks, c->lives, STACK)) return false;
    int lives = 0;
    bool ok = true;
    for (int rank = 0; rank < c->size && ok; rank++) {
        const bool runs = !c->folds || folding_stands_for(&c->folding, rank) == rank;
        c->life_of[rank] = runs ? lives++ : -1;
        if (!runs) continue;
        struct life *l = life_of(c, rank);
        l->crew = c, l->rank = rank;
        ok = fiber_make(&l->fiber, stacks_at(stacks, c->life_of[rank]), STACK, live, l);
        make_ready(c, rank);
    }
    return ok;
}

static void crew_free(struct crew *c, struct stacks *stacks)
{
    for (struct mails *m = c->mails, *before; m; m = before) {
        for (int i = 0; i < BATCH; i++) free(m->mail[i].copy);          /* nobody waited for it */
        before = m->before;
        free(m);
    }
    stacks_close(stacks);
    free(c->life), free(c->life_of), free(c->bucket);
}

static enum error_code run_all(int devices, const struct folding *folding, crew_fn *run, const void *asked,
                               struct crew_outcome *outcome, struct error *err)
{
    struct crew c = { .size = devices, .lives = devices, .first = -1, .run = run, .asked = asked, .outcome = outcome };
    struct stacks stacks = { 0 };
    enum error_code e = OK;
    if (folding && !folding_is_none(folding))
        c.folds = true, c.folding = *folding, c.lives = folding_lives(folding);
    c.left = c.lives;
    *outcome = (struct crew_outcome){ .lives = c.lives };
    if (!crew_open(&c, &stacks))
        e = fail(err, ERR_MEMORY, "no memory for the stacks of %d devices in one process", c.lives);
    else go_on(&c, &c.home, false);
    for (int i = 0; i < c.lives && !e; i++) {
        e = c.life[i].code;
        if (e && err) *err = c.life[i].err;
    }
    crew_free(&c, &stacks);
    return e;
}

enum error_code crew_run(int devices, crew_fn *run, const void *asked, struct error *err)
{
    struct crew_outcome unread;
    return run_all(devices, NULL, run, asked, &unread, err);
}

enum error_code crew_run_folded(const struct folding *f, crew_fn *run, const void *asked, struct crew_outcome *outcome,
                                struct error *err)
{
    return run_all(f->mesh.devices, f, run, asked, outcome, err);
}

/* ---- finding the other side -------------------------------------------------------------------------------------- */

static size_t bucket_of(const struct crew *c, struct key k)
{
    uint64_t h = (k.pair ^ k.pair >> 31) * UINT64_C(0x7fb5d329728ea185) + k.exchange;
    h = (h ^ h >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return (size_t)(h ^ h >> 33) & (c->buckets - 1);
}

static struct mail *new_mail(struct crew *c)
{
    if (c->unused == NULL) {
        struct mails *more = calloc(1, sizeof *more);
        if (more == NULL) return NULL;
        more->before = c->mails, c->mails = more;
        for (int i = 0; i < BATCH; i++) more->mail[i].next = c->unused, c->unused = &more->mail[i];
    }
    struct mail *m = c->unused;
    c->unused = m->next;
    return m;
}

static bool is_same(struct key a, struct key b) { return a.pair == b.pair && a.exchange == b.exchange; }

/* Take the first mail of its key out of its bucket: the next one with this key, if any, is in its place. */
static struct mail *take_first(struct mail **at)
{
    struct mail *first = *at, *after = first->behind;
    *at = after ? after : first->next;
    if (after) after->next = first->next, after->last = first->last;
    return first;
}

/* The mail that this side completes, taken out of its bucket; or a new one.  Those of a key wait in a line, all for the
 * same side: a pipeline sends all its segments before one is received.  NULL: no memory. */
static struct mail *meet(struct crew *c, struct key k, bool sending)
{
    struct mail **at = &c->bucket[bucket_of(c, k)];
    while (*at && !is_same((*at)->key, k)) at = &(*at)->next;
    struct mail *const first = *at;
    /* A first mail that lacks this side is completed; if it has this side, this one waits behind. */
    if (first && !(sending ? first->sent : first->received)) return take_first(at);
    struct mail *m = new_mail(c);
    if (m == NULL) return NULL;
    *m = (struct mail){ .key = k, .last = m, .ends = 2, .waits = -1 };
    if (first) first->last->behind = m, first->last = m;
    else *at = m;
    return m;
}

static void leave(struct crew *c, struct mail *m)
{
    if (--m->ends > 0) return;
    free(m->copy), m->copy = NULL;
    m->next = c->unused, c->unused = m;
}

/* ---- the carrier ------------------------------------------------------------------------------------------------- */

static int take_parcel(struct post *p)
{
    if (p->first_free < 0) {
        /* Room doubles; the new slots form the list of free ones, lowest first. */
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

static bool post(struct comm *c, struct parcel *p, struct key k)
{
    struct crew *crew = c->post->crew;
    struct mail *m = p->mail = meet(crew, k, p->delivery.sending);
    if (m == NULL) return false;
    if (p->delivery.sending) {
        m->sent = true, m->bytes = p->bytes, m->call = p->delivery.exchange.call;
        m->stamp = p->delivery.passage.stamp, m->serial = p->delivery.passage.serial;
        if (!copy_data(c->device, m, p->delivery.data, p->bytes)) return false;
    } else m->received = true, m->ready = p->delivery.passage.posted;
    /* The other side waits for this one, so it can run again. */
    if (m->waits >= 0) make_ready(crew, m->waits), m->waits = -1;
    return true;
}

/* A message to this device has the key that the device standing for its sender gives it. */
static struct key key_of(const struct comm *c, const struct exchange *x, int peer, bool sending)
{
    const struct crew *crew = c->post->crew;
    const int other = x->group->member[peer];
    int from = sending ? c->rank : other, to = sending ? other : c->rank;
    /* The device that stands for the sender has sent to this one's image, moved by the same steps. */
    if (!sending && crew->folds) {
        to = folding_move(&crew->folding, to, from);
        from = folding_stands_for(&crew->folding, from);
    }
    return (struct key){ (uint64_t)from << 32 | (uint32_t)to << 1 | x->named,
                         (uint64_t)x->group->context[peer] << 32 | x->number };
}

static int crew_start(struct exchange *x, int peer, void *data, uint64_t bytes, const struct passage *passage,
                      enum side side)
{
    struct comm *c = x->group->comm;
    const int slot = take_parcel(c->post);
    if (slot < 0) return -1;
    struct parcel *p = &c->post->parcel[slot];
    *p = (struct parcel){ { *x, *passage, data, peer, side == SENDS }, bytes, NULL, -1 };
    c->post->crew->outcome->events++;
    /* After the run has become void messages only need a slot. */
    if (is_void(c->post->crew)) return slot;
    return post(c, p, key_of(c, x, peer, side == SENDS)) ? slot : -1;
}

/* Whether this side's part is done: a send needs its receiver only for a rendezvous. */
static bool is_done(const struct parcel *p)
{
    return p->delivery.sending ? p->mail->received || !p->delivery.passage.rendezvous : p->mail->sent;
}

static void wait_for_the_other(struct comm *c, const struct parcel *p)
{
    struct crew *crew = c->post->crew;
    struct life *own = life_of(crew, c->rank);
    own->waits_over = &p->delivery.exchange, own->sends = p->delivery.sending;
    own->waits_for = p->delivery.exchange.group->member[p->delivery.peer];
    p->mail->waits = c->rank;
    go_on(crew, &own->fiber, false);
    own->waits_over = NULL;
}

static void deliver(struct device *d, void *data, const struct mail *m)
{
    if (m->copy) device_copy(d, data, m->copy, m->bytes);
    else if (m->bytes > 0 && !device_holds_zeros(d, data)) memset(data, 0, (size_t)m->bytes);
}

static enum error_code take(struct comm *c, struct parcel *p, const struct mail *m, struct error *err)
{
    if (p->delivery.sending) {
        p->delivery.passage.ready = p->delivery.passage.rendezvous ? m->ready : 0;
        return OK;
    }
    p->delivery.passage.stamp = m->stamp, p->delivery.passage.serial = m->serial;
    if (m->bytes != p->bytes)
        return message_wrong_length(&p->delivery.exchange, p->delivery.peer, p->bytes, m->bytes, err);
    if (m->call != p->delivery.exchange.call) return message_wrong_call(&p->delivery.exchange, p->delivery.peer, err);
    deliver(c->device, p->delivery.data, m);
    return OK;
}

static enum error_code crew_wait(struct comm *c, int slot, struct delivery *delivery, struct error *err)
{
    struct crew *crew = c->post->crew;
    struct parcel *p = &c->post->parcel[slot];
    enum error_code e = OK;
    if (!is_void(crew) && !is_done(p)) wait_for_the_other(c, p);
    if (!is_void(crew)) e = take(c, p, p->mail, err);
    if (e && crew->folds) {                             /* they do not do the same */
        make_void(crew, p->delivery.exchange.group->axes, err ? err->text : "a class sends different messages");
        e = OK;
    }
    if (!is_void(crew)) leave(crew, p->mail);
    *delivery = p->delivery;
    p->next_free = c->post->first_free, c->post->first_free = slot;
    return e;
}

/* All devices are in this process.  An error of one cannot be met by the others, so it is the crew's. */
static enum error_code crew_agree(struct group *g, enum error_code local, struct error *err)
{
    (void)err;
    if (local != OK) make_void(g->comm->post->crew, g->axes, "a device has failed");
    return local;
}

/* Devices of a class are in the group, so that its messages are of the class with itself.  Then moving to the next of
 * the class must be turning the group by some places. */
static bool turns_along(const struct folding *f, enum axis a, const int *member, int size)
{
    const int first = folding_next(f, member[0], a);
    int by = 0;
    while (by < size && member[by] != first) by++;
    if (by == size || f->every[a] == f->mesh.size[a]) return true;      /* another group */
    for (int i = 0; i < size; i++)
        if (folding_next(f, member[i], a) != member[(i + by) % size]) return false;
    return true;
}

static enum group_folds crew_folds(const struct comm *c, const int *member, int size)
{
    const struct crew *crew = c->post->crew;
    const struct folding *f = &crew->folding;
    bool folds = false, turns = true;
    for (int i = 0; i < size && crew->folds && !folds; i++)
        folds = member[i] != c->rank && folding_stands_for(f, member[i]) == folding_stands_for(f, c->rank);
    for (enum axis a = 0; a < AXIS_COUNT && folds && turns; a++) turns = turns_along(f, a, member, size);
    return !folds ? GROUP_WHOLE : turns ? GROUP_TURNS : GROUP_BREAKS;
}

static void crew_uneven(const struct group *g, const char *why) { make_void(g->comm->post->crew, g->axes, why); }

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

void crew_agree_by_messages(struct comm *c)
{
    static const struct carrier carrier = { .start = crew_start, .wait = crew_wait, .abort = crew_abort,
                                            .close = crew_close, .folds = crew_folds, .uneven = crew_uneven };
    c->carrier = &carrier;
}

enum error_code crew_join(struct comm *c, struct crew *crew, int rank, struct device *d, struct error *err)
{
    static const struct carrier carrier = { .start = crew_start, .wait = crew_wait, .abort = crew_abort,
                                            .close = crew_close, .agree = crew_agree, .folds = crew_folds,
                                            .uneven = crew_uneven };
    struct post *p = calloc(1, sizeof *p);
    *c = (struct comm){ .device = d, .rank = rank, .size = crew->size, .carrier = &carrier, .post = p,
                        .contexts = calloc((size_t)crew->size, sizeof *c->contexts),
                        .everyone = calloc(1, sizeof *c->everyone) };
    if (p) *p = (struct post){ .crew = crew, .first_free = -1 };
    if (p && c->contexts && c->everyone && group_world(c->everyone, c, err) == OK) return OK;
    free(p), free(c->contexts), free(c->everyone);
    return fail(err, ERR_MEMORY, "device %d has no memory to connect to %d others", rank, crew->size - 1);
}
