/* crew.c -- runs many devices in one process as fibers, and carries their messages as mail in memory.  Callers are
 * dry runs (train/dry_run/), `train` in one process, the course's judge and tests.  Errors: ERR_MEMORY without room
 * for the devices, and those of a device.  A deadlock ends the process with status 1. */
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/fiber.h"
#include "emulated_devices/comm/recorder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAID = 8 };                      /* waiting devices that a report names */
enum { GROWS_BY = 4 };                  /* a full table of mail */
enum { STOP_EVERY = 16 };               /* messages: some microseconds */

/* ---- mail -------------------------------------------------------------------------------------------------------- */

/* A key says which message: of equal keys the nth send meets the nth receive.  All devices of a class send the same,
 * so the key has the device that stands for the sender. */
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
    picoseconds stamp, slowed, carried, ready;
    uint32_t serial;
};

/* A parcel is one side's record of a message. */
struct parcel {
    struct delivery delivery;
    uint64_t bytes;
    struct mail *mail;
    int next_free;
};

/* A device has the records of its messages in flight here, in slots that are used again. */
struct post {
    struct crew *crew;
    struct parcel *parcel;
    int parcels, first_free;            /* first_free: -1 if all are in use */
};

/* Mails are made many at a time, and used again. */
enum { BATCH = 256 };
struct mails { struct mails *before; struct mail mail[BATCH]; };

/* ---- fibers ------------------------------------------------------------------------------------------------------ */

/* This is a device that runs: its fiber, its place in the queue, and the message that it waits for. */
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
    struct fiber home;                  /* crew_run */
    int running, first, last;           /* a device; the queue of those that can run, -1: it is empty */
    crew_fn *run;
    const void *asked;
    const struct crew_stop *stop;       /* NULL: it runs to its end */
    struct mail **bucket;               /* [buckets] that one side waits for */
    size_t buckets, keys;               /* keys: of mails in them */
    struct mail *unused;
    struct mails *mails;
    struct crew_outcome *outcome;
};

static struct life *life_of(const struct crew *crew, int device)
{
    return &crew->life[crew->folds ? folding_class(&crew->folding, device) : device];
}

/* Put a device at the end of the queue of those that can run.  A queued device stays where it is. */
static void make_ready(struct crew *crew, int device)
{
    struct life *l = life_of(crew, device);
    if (l->ready) return;
    l->ready = true, l->next = -1;
    if (crew->first < 0) crew->first = device;
    else life_of(crew, crew->last)->next = device;
    crew->last = device;
}

/* ---- what ends early --------------------------------------------------------------------------------------------- */

/* Nothing that follows is true.  Nobody waits for anything again, so that all devices come to their ends. */
static bool is_void(const struct crew *crew) { return crew->outcome->inexact[0] != '\0'; }

bool crew_is_inexact(const struct crew *crew) { return is_void(crew); }

/* Note why the run means nothing, and wake all devices that wait.  The first reason is kept. */
static void make_void(struct crew *crew, unsigned axes, const char *why)
{
    if (is_void(crew)) return;
    crew->outcome->axes = axes;
    snprintf(crew->outcome->inexact, sizeof crew->outcome->inexact, "%s", why);
    /* Waiting devices are woken, and see at their next step that nothing is true any more. */
    for (int i = 0; i < crew->lives; i++)
        if (crew->life[i].waits_over) make_ready(crew, crew->life[i].rank);
}

/* Ask now and then whether the run shall end.  Nothing of a run that ends early is true. */
static void look_at_stop(struct crew *crew)
{
    const struct crew_stop *const s = crew->stop;
    if (s == NULL || s->asked == NULL || is_void(crew) || crew->outcome->events % STOP_EVERY != 0) return;
    if (!s->asked(s->context)) return;
    make_void(crew, 0, "the run was asked to end");
    crew->outcome->stopped = true;
}

/* No device can go on: say who waits for whom, at most SAID lines, and end the process. */
static void report_deadlock(const struct crew *crew)
{
    char axes[64];
    int said = 0;
    fflush(stdout);
    for (int i = 0; i < crew->lives && said < SAID; i++) {
        const struct life *l = &crew->life[i];
        const struct exchange *x = l->waits_over;
        if (x == NULL) continue;
        fprintf(stderr, "device %d waits for device %d to %s: %s over %s, %s %u\n", l->rank, l->waits_for,
                l->sends ? "receive" : "send", operation_name(x->operation),
                axes_describe(x->group->axes, axes, sizeof axes), x->named ? "named" : "exchange", (unsigned)x->number);
        said++;
    }
    fprintf(stderr, "orrery: %d of %d devices wait for each other, and none can go on\n", crew->left, crew->size);
    fflush(NULL);
    _exit(1);
}

/* Leave this device for the next one that can run. */
static void go_on(struct crew *crew, struct fiber *from, bool ends)
{
    if (crew->first < 0 && crew->folds) make_void(crew, 0, "devices that stand for others wait for each other");
    if (crew->first < 0) report_deadlock(crew);
    crew->running = crew->first;
    struct life *next = life_of(crew, crew->running);
    crew->first = next->next;
    next->ready = false;
    crew->outcome->switches++;
    if (&next->fiber != from) fiber_switch(from, &next->fiber, ends);
}

/* This is the body of a fiber: run the device's work, then leave the fiber for good. */
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

/* Make the table of mail, a stack and a fiber for each device that runs, and queue all devices.  Without memory the
 * result is false. */
static bool crew_open(struct crew *crew, struct stacks *stacks)
{
    /* The table begins with at least 16 buckets a device, and grows with the mails (grow_table). */
    for (crew->buckets = 64; crew->buckets < 16 * (size_t)crew->lives; crew->buckets *= 2) continue;
    crew->life = calloc((size_t)crew->lives, sizeof *crew->life);
    crew->bucket = calloc(crew->buckets, sizeof *crew->bucket);
    if (!crew->life || !crew->bucket || !stacks_open(stacks, crew->lives, FIBER_STACK)) return false;
    bool ok = true;
    for (int i = 0; i < crew->lives && ok; i++) {
        struct life *l = &crew->life[i];
        l->crew = crew, l->rank = crew->folds ? folding_first(&crew->folding, i) : i;
        ok = fiber_make(&l->fiber, stacks_at(stacks, i), FIBER_STACK, live, l);
        make_ready(crew, l->rank);
    }
    return ok;
}

static void crew_free(struct crew *crew, struct stacks *stacks)
{
    for (struct mails *m = crew->mails, *before; m; m = before) {
        for (int i = 0; i < BATCH; i++) free(m->mail[i].copy);          /* nobody waited for it */
        before = m->before;
        free(m);
    }
    stacks_close(stacks);
    free(crew->life), free(crew->bucket);
}

/* Run all devices to their ends.  The error of the lowest rank that has one is the result. */
static enum error_code run_all(int devices, const struct folding *folding, const struct crew_stop *stop, crew_fn *run,
                               const void *asked, struct crew_outcome *outcome, struct error *err)
{
    struct crew c = { .size = devices, .lives = devices, .first = -1, .run = run, .asked = asked, .stop = stop,
                      .outcome = outcome };
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
    return run_all(devices, NULL, NULL, run, asked, &unread, err);
}

enum error_code crew_run_folded(const struct folding *folding, const struct crew_stop *stop, crew_fn *run,
                                const void *asked, struct crew_outcome *outcome, struct error *err)
{
    return run_all(folding->mesh.devices, folding, stop, run, asked, outcome, err);
}

/* ---- finding the other side -------------------------------------------------------------------------------------- */

/* A key's bits are mixed to choose its bucket, because ranks and numbers are small. */
static size_t bucket_of(const struct crew *crew, struct key key)
{
    uint64_t h = (key.pair ^ key.pair >> 31) * UINT64_C(0x7fb5d329728ea185) + key.exchange;
    h = (h ^ h >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return (size_t)(h ^ h >> 33) & (crew->buckets - 1);
}

/* Take an unused mail, or make BATCH new ones.  @return NULL: there is no memory. */
static struct mail *new_mail(struct crew *crew)
{
    if (crew->unused == NULL) {
        struct mails *more = calloc(1, sizeof *more);
        if (more == NULL) return NULL;
        more->before = crew->mails, crew->mails = more;
        for (int i = 0; i < BATCH; i++) more->mail[i].next = crew->unused, crew->unused = &more->mail[i];
    }
    struct mail *m = crew->unused;
    crew->unused = m->next;
    return m;
}

static bool is_same(struct key a, struct key b) { return a.pair == b.pair && a.exchange == b.exchange; }

/* Take the first mail of its key out of its bucket: the next one with this key, if any, is in its place. */
static struct mail *take_first(struct crew *crew, struct mail **at)
{
    struct mail *first = *at, *after = first->behind;
    *at = after ? after : first->next;
    if (after) after->next = first->next, after->last = first->last;
    else crew->keys--;
    return first;
}

/* More buckets keep the lines short where each of P devices sends to all others: P P mails wait at once.  Without
 * memory the table stays as it is, and is slower. */
static void grow_table(struct crew *crew)
{
    struct mail **const old = crew->bucket, **const grown = calloc(GROWS_BY * crew->buckets, sizeof *grown);
    if (grown == NULL) return;
    const size_t buckets = crew->buckets;
    crew->bucket = grown, crew->buckets = GROWS_BY * buckets;
    for (size_t i = 0; i < buckets; i++)
        for (struct mail *m = old[i], *next; m; m = next) {
            struct mail **const at = &grown[bucket_of(crew, m->key)];
            next = m->next;
            m->next = *at, *at = m;
        }
    free(old);
}

/* The result is the mail that this side completes, taken out of its bucket, or a new mail.  Mails of a key wait in a
 * line, all for the same side: a pipeline sends all its segments before one is received.  NULL: no memory. */
static struct mail *crew_meet(struct crew *crew, struct key key, bool sending)
{
    if (crew->keys > crew->buckets) grow_table(crew);
    struct mail **at = &crew->bucket[bucket_of(crew, key)];
    while (*at && !is_same((*at)->key, key)) at = &(*at)->next;
    struct mail *const first = *at;
    /* A first mail that lacks this side is completed; if it has this side, this one waits behind. */
    if (first && !(sending ? first->sent : first->received)) return take_first(crew, at);
    struct mail *m = new_mail(crew);
    if (m == NULL) return NULL;
    *m = (struct mail){ .key = key, .last = m, .ends = 2, .waits = -1 };
    if (first) first->last->behind = m, first->last = m;
    else *at = m, crew->keys++;
    return m;
}

/* A side is done with its mail.  The second side frees the data and makes the mail unused. */
static void crew_leave(struct crew *crew, struct mail *mail)
{
    if (--mail->ends > 0) return;
    free(mail->copy), mail->copy = NULL;
    mail->next = crew->unused, crew->unused = mail;
}

/* ---- the carrier ------------------------------------------------------------------------------------------------- */

/* Take a free slot for a message.  @return -1: there is no memory.  Slots may move when the list grows. */
static int take_parcel(struct post *post)
{
    if (post->first_free < 0) {
        /* Room doubles; the new slots form the list of free ones, lowest first. */
        const int more = post->parcels > 0 ? post->parcels : 8;
        struct parcel *grown = realloc(post->parcel, sizeof *grown * (size_t)(post->parcels + more));
        if (grown == NULL) return -1;
        post->parcel = grown;
        for (int i = post->parcels + more - 1; i >= post->parcels; i--)
            grown[i].next_free = post->first_free, post->first_free = i;
        post->parcels += more;
    }
    const int taken = post->first_free;
    post->first_free = post->parcel[taken].next_free;
    return taken;
}

/* The sender's buffer is free as soon as a message has started. */
static bool copy_data(struct device *device, struct mail *mail, const void *data, uint64_t bytes)
{
    if (bytes == 0 || device_holds_zeros(device, data)) return true;
    mail->copy = malloc((size_t)bytes + 1);
    if (mail->copy == NULL) return false;
    const void *seen = host_read(device, data, bytes);
    memcpy(mail->copy, seen, (size_t)bytes);
    host_done(device, seen);
    return true;
}

/* Bring this side's part of a message: a sender its data and stamps, a receiver the time of posting.  Without memory
 * the result is false. */
static bool post(struct comm *comm, struct parcel *parcel, struct key key)
{
    struct crew *crew = comm->post->crew;
    struct mail *m = parcel->mail = crew_meet(crew, key, parcel->delivery.sending);
    if (m == NULL) return false;
    if (parcel->delivery.sending) {
        m->sent = true, m->bytes = parcel->bytes, m->call = parcel->delivery.exchange.call;
        m->stamp = parcel->delivery.passage.stamp, m->serial = parcel->delivery.passage.serial;
        m->carried = parcel->delivery.passage.carried, m->slowed = parcel->delivery.passage.slowed;
        if (!copy_data(comm->device, m, parcel->delivery.data, parcel->bytes)) return false;
    } else m->received = true, m->ready = parcel->delivery.passage.posted;
    /* The other side waits for this one, so it can run again. */
    if (m->waits >= 0) make_ready(crew, m->waits), m->waits = -1;
    return true;
}

/* A message to this device has the key that the device standing for its sender gives it. */
static struct key crew_key_of(const struct comm *comm, const struct exchange *exchange, int peer, bool sending)
{
    const struct crew *crew = comm->post->crew;
    const int other = comm_process(comm, exchange->group->member[peer]), own = comm_process(comm, comm->rank);
    int from = sending ? own : other, to = sending ? other : own;
    /* The device that stands for the sender has sent to this one's image, moved by the same steps. */
    if (!sending && crew->folds) {
        to = folding_move(&crew->folding, to, from);
        from = folding_stands_for(&crew->folding, from);
    }
    return (struct key){ (uint64_t)from << 32 | (uint32_t)to << 1 | exchange->named,
                         (uint64_t)exchange->group->context[peer] << 32 | exchange->number };
}

/* This is the carrier's start: take a slot, and meet the other side's mail if it is there. */
static int crew_start(struct exchange *exchange, int peer, void *data, uint64_t bytes, const struct passage *passage,
                      enum side side)
{
    struct comm *c = exchange->group->comm;
    const int slot = take_parcel(c->post);
    if (slot < 0) return -1;
    struct parcel *p = &c->post->parcel[slot];
    *p = (struct parcel){ { *exchange, *passage, data, peer, side == SENDS }, bytes, NULL, -1 };
    c->post->crew->outcome->events++;
    look_at_stop(c->post->crew);
    /* After the run has become void messages only need a slot. */
    if (is_void(c->post->crew)) return slot;
    return post(c, p, crew_key_of(c, exchange, peer, side == SENDS)) ? slot : -1;
}

/* Whether this side's part is done: a send needs its receiver only for a rendezvous. */
static bool is_done(const struct parcel *parcel)
{
    return parcel->delivery.sending ? parcel->mail->received || !parcel->delivery.passage.rendezvous
           : parcel->mail->sent;
}

/* Leave this device until the other side has come.  The device tells what it waits for, so that a deadlock can be
 * described. */
static void wait_for_the_other(struct comm *comm, const struct parcel *parcel)
{
    struct crew *crew = comm->post->crew;
    const int self = comm_process(comm, comm->rank);
    struct life *own = life_of(crew, self);
    own->waits_over = &parcel->delivery.exchange, own->sends = parcel->delivery.sending;
    own->waits_for = comm_process(comm, parcel->delivery.exchange.group->member[parcel->delivery.peer]);
    parcel->mail->waits = self;
    go_on(crew, &own->fiber, false);
    own->waits_over = NULL;
}

/* Copy the mail's data to the device; a mail without data has zeros. */
static void deliver(struct device *device, void *data, const struct mail *mail)
{
    if (mail->copy) device_copy(device, data, mail->copy, mail->bytes);
    else if (mail->bytes > 0 && !device_holds_zeros(device, data)) memset(data, 0, (size_t)mail->bytes);
}

/* Take what the other side has said: times for the clock, and for a receiver the data.  Another length or another
 * call is ERR_COMM. */
static enum error_code crew_take(struct comm *comm, struct parcel *parcel, const struct mail *mail, struct error *err)
{
    if (parcel->delivery.sending) {
        parcel->delivery.passage.ready = parcel->delivery.passage.rendezvous ? mail->ready : 0;
        return OK;
    }
    parcel->delivery.passage.stamp = mail->stamp, parcel->delivery.passage.serial = mail->serial;
    parcel->delivery.passage.carried = mail->carried, parcel->delivery.passage.slowed = mail->slowed;
    if (mail->bytes != parcel->bytes)
        return message_wrong_length(&parcel->delivery.exchange, parcel->delivery.peer, parcel->bytes, mail->bytes, err);
    if (mail->call != parcel->delivery.exchange.call)
        return message_wrong_call(&parcel->delivery.exchange, parcel->delivery.peer, err);
    deliver(comm->device, parcel->delivery.data, mail);
    return OK;
}

/* This is the carrier's wait: wait for the other side, take its part, free the slot.  In a folded crew a wrong
 * message makes the run void instead. */
static enum error_code crew_wait(struct comm *comm, int slot, struct delivery *delivery, struct error *err)
{
    struct crew *crew = comm->post->crew;
    struct parcel *p = &comm->post->parcel[slot];
    enum error_code e = OK;
    recorder_waits(comm, &p->delivery.exchange,
                   p->delivery.exchange.group->member[p->delivery.peer], p->delivery.sending);
    if (!is_void(crew) && !is_done(p)) wait_for_the_other(comm, p);
    if (!is_void(crew)) e = crew_take(comm, p, p->mail, err);
    if (e && crew->folds) {                             /* they do not do the same */
        make_void(crew, p->delivery.exchange.group->axes, err ? err->text : "a class sends different messages");
        e = OK;
    }
    if (!is_void(crew)) crew_leave(crew, p->mail);
    *delivery = p->delivery;
    p->next_free = comm->post->first_free, comm->post->first_free = slot;
    return e;
}

/* All devices are in this process.  An error of one cannot be met by the others, so it is the crew's. */
static enum error_code crew_agree(struct group *group, enum error_code local, struct error *err)
{
    (void)err;
    if (local != OK) make_void(group->comm->post->crew, group->axes, "a device has failed");
    return local;
}

/* Devices of a class are in the group, so that its messages are of the class with itself.  Then moving to the next of
 * the class must be turning the group by some places. */
static bool turns_along(const struct folding *folding, enum axis axis, const int *member, int size)
{
    /* by: how many places the group turns, so that member 0 comes to the next of its class. */
    const int first = folding_next(folding, member[0], axis);
    int by = 0;
    while (by < size && member[by] != first) by++;
    if (by == size || folding->every[axis] == folding->mesh.size[axis]) return true;      /* another group */
    for (int i = 0; i < size; i++)
        if (folding_next(folding, member[i], axis) != member[(i + by) % size]) return false;
    return true;
}

/* Whether some other member of the group is of this device's class. */
static bool has_likes(const struct folding *folding, int rank, const int *member, int size)
{
    const int own = folding_stands_for(folding, rank);
    for (int i = 0; i < size; i++)
        if (member[i] != rank && folding_stands_for(folding, member[i]) == own) return true;
    return false;
}

/* Whether a group has several devices of this device's class.  If so, moving along the class must turn the group. */
static enum group_folds crew_folds(const struct comm *comm, const int *member, int size)
{
    const struct crew *crew = comm->post->crew;
    const struct folding *f = &crew->folding;
    bool folds = false, turns = true;
    if (is_void(crew)) return GROUP_WHOLE;              /* nothing will be sent */
    if (crew->folds) folds = has_likes(f, comm->rank, member, size);
    for (enum axis a = 0; a < AXIS_COUNT && folds && turns; a++) turns = turns_along(f, a, member, size);
    return !folds ? GROUP_WHOLE : turns ? GROUP_TURNS : GROUP_BREAKS;
}

/* A collective of unequal blocks does not turn, however many devices run.  Then the next folding to try is the first
 * in which the group's members are of different classes; all foldings before it would only fail again. */
static int crew_apart(const struct group *group)
{
    struct folding f = group->comm->post->crew->folding;
    const int n = f.mesh.size[DP];
    if (f.first || group->folds != GROUP_TURNS || !(group->axes & AXIS_BIT(DP))) return 0;
    for (f.every[DP]++; f.every[DP] < n; f.every[DP]++)
        if (n % f.every[DP] == 0 && !has_likes(&f, group->comm->rank, group->member, group->size)) break;
    return f.every[DP];
}

static void crew_uneven(const struct group *group, const char *why)
{
    struct crew *const crew = group->comm->post->crew;
    if (is_void(crew)) return;
    make_void(crew, group->axes, why);
    crew->outcome->apart = crew_apart(group);
}

static int crew_parts(const struct comm *comm)
{
    const struct crew *const crew = comm->post->crew;
    return crew->folds && crew->folding.first ? folding_share(&crew->folding) : 1;
}

int comm_folded_parts(const struct comm *comm)
{
    return comm->carrier && comm->carrier->parts ? comm->carrier->parts(comm) : 1;
}

void comm_uneven(struct comm *comm, const char *why)
{
    if (comm->carrier && comm->carrier->parts) make_void(comm->post->crew, 0, why);
}

static bool crew_idle(const struct comm *comm) { return is_void(comm->post->crew); }

bool comm_is_idle(const struct comm *comm)
{
    return comm->carrier && comm->carrier->idle && comm->carrier->idle(comm);
}

static void crew_abort(struct comm *comm, int exit_status)
{
    (void)comm;
    fflush(NULL);
    _exit(exit_status);
}

static void crew_close(struct comm *comm)
{
    free(comm->post->parcel);
    free(comm->post);
}

void crew_agree_by_messages(struct comm *comm)
{
    static const struct carrier carrier = { .start = crew_start, .wait = crew_wait, .abort = crew_abort,
                                            .close = crew_close, .folds = crew_folds, .uneven = crew_uneven,
                                            .idle = crew_idle, .parts = crew_parts };
    comm->carrier = &carrier;
}

enum error_code crew_join(struct comm *comm, struct crew *crew, int rank, struct device *device, struct error *err)
{
    static const struct carrier carrier = { .start = crew_start, .wait = crew_wait, .abort = crew_abort,
                                            .close = crew_close, .agree = crew_agree, .folds = crew_folds,
                                            .uneven = crew_uneven, .idle = crew_idle, .parts = crew_parts };
    /* All memory is asked for first; after an error all of it is freed here. */
    struct post *p = calloc(1, sizeof *p);
    *comm = (struct comm){ .device = device, .rank = rank, .size = crew->size, .carrier = &carrier, .post = p,
                        .contexts = calloc((size_t)crew->size, sizeof *comm->contexts),
                        .everyone = calloc(1, sizeof *comm->everyone) };
    if (p) *p = (struct post){ .crew = crew, .first_free = -1 };
    if (p && comm->contexts && comm->everyone && group_world(comm->everyone, comm, err) == OK) return OK;
    free(p), free(comm->contexts), free(comm->everyone);
    return fail(err, ERR_MEMORY, "device %d has no memory to connect to %d others", rank, crew->size - 1);
}
