#include "emulated_devices/comm/transport.h"
#include "emulated_devices/comm/patience.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static double environment(const char *name, double otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text == '\0') return otherwise;
    const double x = strtod(text, &end);
    return *end == '\0' && x >= 0 ? x : otherwise;
}

static bool duplicate(MPI_Comm *comm)
{
    MPI_Request request;
    /* it inherits the world's error handler */
    if (MPI_Comm_idup(MPI_COMM_WORLD, comm, &request) == MPI_SUCCESS && patience_settle(&request)) return true;
    *comm = MPI_COMM_NULL;
    return false;
}

static void free_communicators(struct transport *t)
{
    MPI_Comm *const all[] = { &t->heads, &t->bodies, &t->answers };
    for (int i = 0; i < 3; i++)
        if (*all[i] != MPI_COMM_NULL) MPI_Comm_free(all[i]);
}

/* Every device creates all communicators, even after a failure, because the others wait in each call. */
static enum error_code connect(struct comm *c, struct transport *t, struct error *err)
{
    bool made = duplicate(&t->heads);
    made = duplicate(&t->bodies) && made;
    if (clock_has_rendezvous(&c->device->clock)) made = duplicate(&t->answers) && made;
    return made ? OK : fail(err, ERR_COMM, "device %d: MPI could not make a communicator", c->rank);
}

/* The same as group_agree, with MPI's collective: there are no groups yet. */
static enum error_code agree_to_connect(const struct comm *c, enum error_code local, struct error *err)
{
    const int mine = local == OK ? c->size : c->rank;
    int first = c->rank;
    struct { int code; struct error error; } said = { .code = local };
    MPI_Request request;
    if (local != OK) said.error = *err;
    bool told = MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request) == MPI_SUCCESS &&
                patience_settle(&request);
    if (told && first == c->size) return OK;
    told = told && MPI_Ibcast(&said, sizeof said, MPI_BYTE, first, MPI_COMM_WORLD, &request) == MPI_SUCCESS &&
           patience_settle(&request);
    if (!told)
        return fail(err, ERR_COMM, "device %d could not agree with the others on whether all are connected", c->rank);
    return fail(err, (enum error_code)said.code, "%s", said.error.text);
}

/* MPI starts once in a process: in the first transport_begin, or earlier in code that is not ours.  A device of
 * `verify` opens a comm for each case beside its own: MPI ends with the last one. */
static struct { bool started_here; int open; } mpi;

static void finalize(void)
{
    mpi.open--;
    if (mpi.open > 0 || !mpi.started_here) return;
    MPI_Finalize();
    mpi.started_here = false;
}

bool comm_uses_ucx(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    return MPI_Get_library_version(version, &length) == MPI_SUCCESS && strstr(version, "ch4:ucx") != NULL;
}

enum error_code transport_begin(struct comm *c, struct error *err)
{
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized && MPI_Init(NULL, NULL) != MPI_SUCCESS) return fail(err, ERR_COMM, "MPI could not be started");
    mpi.started_here = mpi.started_here || !initialized;
    mpi.open++;
    /* Where MPI_Test finds an error, MPICH asks not the message's communicator but the world's. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->size);
    return OK;
}

enum error_code transport_open(struct comm *c, enum error_code local, struct error *err)
{
    struct transport made = {
        .heads = MPI_COMM_NULL, .bodies = MPI_COMM_NULL, .answers = MPI_COMM_NULL, .first_free = -1, .piece = 1u << 30
    };
    struct transport *t = malloc(sizeof *t);
    if (t == NULL && local == OK) local = fail(err, ERR_COMM, "device %d has no memory for the transport", c->rank);
    const enum error_code connected = connect(c, &made, local == OK ? err : NULL);
    const enum error_code code = agree_to_connect(c, local != OK ? local : connected, err);
    if (code != OK) {
        free_communicators(&made);
        free(t);
        finalize();
        return code;
    }
    bells_open(&made.bells, made.heads);
    progress_open(&made.progress, made.heads, environment("ORRERY_WAIT_LIMIT", WAIT_LIMIT));
    made.synchronous = environment("ORRERY_SYNCHRONOUS", 0) != 0;
    made.delay = (uint64_t)(environment("ORRERY_DELAY", 0) * 1000);
    made.random = 0x9e3779b97f4a7c15u * (uint64_t)(c->rank + 1);
    *t = made;
    c->transport = t;
    return OK;
}

/* Give MPI access to the data of a send, or of a receive whose data is neither in the head nor goes to a copy. */
static void open_view(struct comm *c, struct slot *s)
{
    /* MPI takes void * */
    if (s->sending) s->view = (char *)(uintptr_t)host_read(c->device, s->data, s->bytes);
    else if (s->pieces > 0 && !s->late) s->view = host_write(c->device, s->data, s->bytes);
}

static void close_view(struct comm *c, struct slot *s)
{
    if (s->view != NULL) host_done(c->device, s->view);
    s->view = NULL;
}

/* Discard answers of failed exchanges, whose messages turned out not to need an answer.  A message that a probe has
 * found is received at once. */
static void forget_answers(MPI_Comm answers)
{
    MPI_Status status;
    int64_t nothing;
    int there = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, answers, &there, &status) == MPI_SUCCESS && there) {
        const int from = status.MPI_SOURCE, tag = status.MPI_TAG;
        const int failed =
            MPI_Recv(&nothing, (int)sizeof nothing, MPI_BYTE, from, tag, answers, MPI_STATUS_IGNORE);  /* never waits */
        if (failed != MPI_SUCCESS) return;
    }
}

void transport_close(struct comm *c)
{
    struct transport *t = c->transport;
    bells_close(&t->bells);
    progress_close(&t->progress);
    if (t->answers != MPI_COMM_NULL) forget_answers(t->answers);
    free_communicators(t);
    for (int i = 0; i < t->slots; i++) {
        close_view(c, &t->slot[i]);
        free(t->slot[i].stage);
        free(t->slot[i].body);
        free(t->slot[i].aside);
    }
    free(t->held);
    finalize();
    free(t->slot);
    free(t);
    c->transport = NULL;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static bool slots_grow(struct transport *t)
{
    const int more = t->slots > 0 ? t->slots : 16;
    struct slot *slot = realloc(t->slot, sizeof *slot * (size_t)(t->slots + more));
    if (slot == NULL) return false;
    t->slot = slot;
    for (int i = t->slots + more - 1; i >= t->slots; i--) {
        slot[i] = (struct slot){ .next_free = t->first_free };
        t->first_free = i;
    }
    t->slots += more;
    return true;
}

/* Take a free slot with memory for its head and body; -1 if there is no memory. */
static int slot_take(struct transport *t, uint64_t bytes)
{
    if (t->first_free < 0 && !slots_grow(t)) return -1;
    struct slot *s = &t->slot[t->first_free];
    const int pieces = transport_pieces(t, bytes);

    if (s->stage == NULL && (s->stage = malloc(STAGE + sizeof *s->answer)) == NULL) return -1;
    if (pieces > s->room) {
        MPI_Request *body = realloc(s->body, sizeof *body * (size_t)pieces);
        if (body == NULL) return -1;
        s->body = body;
        s->room = pieces;
    }
    s->bytes = bytes;
    s->pieces = pieces;
    const int taken = t->first_free;
    t->first_free = s->next_free;
    return taken;
}

static void slot_free(struct transport *t, int slot)
{
    t->slot[slot].next_free = t->first_free;
    t->first_free = slot;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static int slot_tag(const struct slot *s)
{
    const uint32_t context = s->exchange.group->context[s->peer] % (1u << TAG_CONTEXT_BITS);
    const uint32_t number = s->exchange.number % (1u << TAG_NUMBER_BITS);
    return (int)(((uint32_t)s->exchange.named << TAG_CONTEXT_BITS | context) << TAG_NUMBER_BITS | number);
}

static int send(struct transport *t, const void *data, int bytes, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    return (t->synchronous ? MPI_Issend : MPI_Isend)(data, bytes, MPI_BYTE, to, tag, comm, request);
}

/* The memory from which the body is sent, or into which it is received. */
static char *body_of(const struct slot *s) { return s->late ? s->aside : s->view; }

static int start_body(struct transport *t, struct slot *s, int peer, int tag)
{
    int failed = MPI_SUCCESS;
    for (int i = 0; i < s->pieces; i++) {
        char *piece = body_of(s) + (uint64_t)i * t->piece;
        const int bytes = transport_piece_bytes(t, s->bytes, i);
        const int rc = s->sending ? send(t, piece, bytes, peer, tag, t->bodies, &s->body[i])
                                  : MPI_Irecv(piece, bytes, MPI_BYTE, peer, tag, t->bodies, &s->body[i]);
        if (rc != MPI_SUCCESS) {
            s->body[i] = MPI_REQUEST_NULL;
            failed = rc;
        }
    }
    return failed;
}

/* A rendezvous: the receiver sends the time at which it is ready.  Nothing may wait for this answer, even if sends are
 * synchronous. */
static int start_answer(struct transport *t, struct slot *s, int peer)
{
    s->answer = (int64_t *)((char *)s->stage + STAGE);
    *s->answer = s->passage.posted;
    if (s->sending)
        return MPI_Irecv(s->answer, (int)sizeof *s->answer, MPI_BYTE, peer, slot_tag(s), t->answers, &s->reply);
    return MPI_Isend(s->answer, (int)sizeof *s->answer, MPI_BYTE, peer, slot_tag(s), t->answers, &s->reply);
}

static void start_send(struct transport *t, struct slot *s, int peer)
{
    *s->stage = (struct head){ .bytes = s->bytes, .stamp = s->passage.stamp, .number = s->exchange.number,
                               .context = s->exchange.group->context[s->peer], .call = s->exchange.call,
                               .serial = s->passage.serial,
                               .named = s->exchange.named, .rendezvous = s->passage.rendezvous };
    const int inside = s->pieces == 0 ? (int)s->bytes : 0;
    if (inside > 0) memcpy(s->stage + 1, body_of(s), (size_t)inside);
    s->failed = send(t, s->stage, (int)sizeof *s->stage + inside, peer, slot_tag(s), t->heads, &s->head);
    if (s->failed != MPI_SUCCESS) s->head = MPI_REQUEST_NULL;
}

/* Hand the message to MPI. */
static void start(struct transport *t, struct slot *s)
{
    const int rank = s->exchange.group->member[s->peer];
    const int answer = s->passage.rendezvous ? start_answer(t, s, rank) : MPI_SUCCESS;
    if (s->sending) start_send(t, s, rank);
    else s->failed = MPI_Irecv(s->stage, STAGE, MPI_BYTE, rank, slot_tag(s), t->heads, &s->head);
    const int body = start_body(t, s, rank, slot_tag(s));
    if (s->failed == MPI_SUCCESS) s->failed = answer != MPI_SUCCESS ? answer : body;
    if (s->sending || s->passage.rendezvous) bells_ring(&t->bells, rank);
}

/* ---- what is in flight: flight.h --------------------------------------------------------------------------------- */

/* CONTROL messages take no virtual time, so they are never in flight. */
static struct flight *flight_of(const struct comm *c, const struct slot *s)
{
    return s->passage.charged ? c->device->clock.flight : NULL;
}

static bool make_room_aside(struct slot *s)
{
    if (s->aside != NULL && s->aside_room >= s->bytes) return true;
    free(s->aside);
    s->aside = malloc((size_t)s->bytes + 1);
    s->aside_room = s->aside != NULL ? s->bytes : 0;
    return s->aside != NULL;
}

/* MPI may read a body later, when the sending stream's results are already poison; so it gets a copy. */
static bool copy_aside(struct comm *c, struct slot *s)
{
    if (flight_of(c, s) == NULL || !make_room_aside(s)) return false;
    flight_snapshot(flight_of(c, s), s->stream, s->aside, s->data, s->bytes);
    return true;
}

static void start_send_now(struct comm *c, struct slot *s)
{
    s->late = copy_aside(c, s);
    if (s->late) s->hash = flight_hash(s->aside, s->bytes);
    else open_view(c, s);
    start(c->transport, s);
    if (s->pieces == 0) close_view(c, s);                       /* the head has all of it */
}

/* MPI keeps the order in which messages are started, so held messages are started first. */
static void start_held(struct comm *c)
{
    struct transport *t = c->transport;
    for (int i = 0; i < t->helds; i++) start_send_now(c, &t->slot[t->held[i]]);
    t->helds = 0;
}

static bool hold(struct transport *t, int slot)
{
    if (t->helds == t->held_room) {
        const int room = t->held_room > 0 ? 2 * t->held_room : 16;
        int *held = realloc(t->held, sizeof *held * (size_t)room);
        if (held == NULL) return false;
        t->held = held;
        t->held_room = room;
    }
    t->held[t->helds++] = slot;
    return true;
}

static void begin_send(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    if (flight_late(flight_of(c, s)) && hold(c->transport, slot)) return;
    start_held(c);
    start_send_now(c, s);
}

static void begin_receive(struct comm *c, struct slot *s)
{
    s->late = flight_late(flight_of(c, s));
    if (s->late && s->pieces > 0) s->late = make_room_aside(s);
    flight_reuse(flight_of(c, s), s->stream, s->data, s->bytes);
    if (s->late) arena_poison(&c->device->arena, s->data, s->bytes);
    open_view(c, s);
    start(c->transport, s);
}

static enum error_code changed(const struct slot *s, struct error *err)
{
    char axes[64];
    const struct group *g = s->exchange.group;
    return fail(err, ERR_COMM,
                "%s over %s: device %d changed the %llu bytes that it sends to device %d before they had left: a "
                "buffer is used "
                "again before message_wait",
                operation_name(s->exchange.operation), axes_describe(g->axes, axes, sizeof axes), g->comm->rank,
                (unsigned long long)s->bytes, g->member[s->peer]);
}

int transport_start(struct exchange *x, int peer, void *data, uint64_t bytes, const struct passage *passage,
                    bool sending)
{
    struct comm *c = x->group->comm;
    struct transport *t = c->transport;
    const int i = slot_take(t, bytes);
    if (i < 0) return -1;
    struct slot *s = &t->slot[i];

    s->exchange = *x;
    s->data = data;
    s->peer = peer;
    s->sending = sending;
    s->stream = c->device->clock.current;
    s->late = false;
    s->view = NULL;
    s->head = s->reply = MPI_REQUEST_NULL;
    s->failed = MPI_SUCCESS;
    s->passage = *passage;
    s->passage.rendezvous = passage->rendezvous && t->answers != MPI_COMM_NULL;
    if (t->delay > 0 && sending) patience_delay(t->delay, &t->random);
    if (sending) begin_send(c, i);
    else begin_receive(c, s);
    return i;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* End the job if there is no more progress.  The first device that detects it reports it; the others wait for the
 * end. */
static void give_up_if_ended(struct comm *c, const struct slot *s, struct vigil *v)
{
    const struct group *g = s->exchange.group;
    const struct wait wait = { g->member[s->peer],    s->sending, s->exchange.named,
                               s->exchange.operation, g->axes,    s->exchange.number };
    struct progress *p = &c->transport->progress;
    if (!progress_has_ended(p, v, &wait) || !progress_may_speak(p)) return;
    progress_explain(p, &wait);
    comm_abort(c, 1);
}

/* One test processes only a few of the messages that have arrived. */
enum { LOOKS = 4 };

static int look(MPI_Request *request, int *done, MPI_Status *status)
{
    int rc = MPI_SUCCESS;
    for (int i = 0; i < LOOKS && !*done && rc == MPI_SUCCESS; i++) rc = MPI_Test(request, done, status);
    return rc;
}

/* Wait until one request is complete.  Testing one request makes progress on all of MPI's messages, so waiting one by
 * one costs nothing. */
static int finish(struct comm *c, const struct slot *s, MPI_Request *request, MPI_Status *status)
{
    const struct bells *bells = &c->transport->bells;
    struct patience p = { .bells = bells->bell != NULL ? bells : NULL };
    struct vigil v = { 0 };
    int done = 0, rc;
    for (;;) {
        patience_listen(&p);
        rc = look(request, &done, status);
        if (rc != MPI_SUCCESS || done) break;
        patience_pause(&p);
        if (p.sleep > 0) give_up_if_ended(c, s, &v);
    }
    progress_goes_on(&c->transport->progress, &v);
    return rc;
}

static int finish_body(struct comm *c, struct slot *s)
{
    int worst = MPI_SUCCESS;
    for (int i = 0; i < s->pieces; i++) {
        const int rc = finish(c, s, &s->body[i], MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS) worst = rc;
    }
    return worst;
}

static enum error_code mpi_failed(const struct slot *s, int rc, struct error *err)
{
    char axes[64], text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    const struct group *g = s->exchange.group;
    MPI_Error_string(rc, text, &length);
    text[strcspn(text, "\n")] = '\0';
    return fail(err, ERR_COMM, "%s over %s: device %d could not %s device %d: %s",
                operation_name(s->exchange.operation), axes_describe(g->axes, axes, sizeof axes), g->comm->rank,
                s->sending ? "send to" : "receive from", g->member[s->peer], text);
}

/* Pieces were posted for one length, but a message of another length is coming: complete them, so that the next message
 * gets its own.  The sender's extra pieces are discarded. */
static void drain(struct comm *c, struct slot *s, uint64_t coming)
{
    struct transport *t = c->transport;
    const int pieces = transport_pieces(t, coming);
    for (int i = 0; i < s->pieces; i++) {
        if (i >= pieces) MPI_Cancel(&s->body[i]);
        finish(c, s, &s->body[i], MPI_STATUS_IGNORE);           /* a truncated piece is already a known error */
    }
    for (int i = s->pieces; i < pieces; i++) {
        const int bytes = transport_piece_bytes(t, coming, i);
        MPI_Request request;
        void *nowhere = malloc((size_t)bytes);
        if (nowhere != NULL && MPI_Irecv(nowhere, bytes, MPI_BYTE, s->exchange.group->member[s->peer], slot_tag(s),
                                         t->bodies, &request) == MPI_SUCCESS)
            finish(c, s, &request, MPI_STATUS_IGNORE);
        free(nowhere);
    }
}

/* The received message needs an answer, although the expected one did not. */
static void answer_after_all(struct comm *c, struct slot *s)
{
    if (!s->stage->rendezvous || s->passage.rendezvous) return;
    if (start_answer(c->transport, s, s->exchange.group->member[s->peer]) == MPI_SUCCESS)
        finish(c, s, &s->reply, MPI_STATUS_IGNORE);
}

static enum error_code wrong_length(const struct slot *s, struct error *err)
{
    char axes[64];
    const struct group *g = s->exchange.group;
    return fail(err, ERR_COMM, "%s over %s: device %d expected %llu bytes from device %d, which sent %llu",
                operation_name(s->exchange.operation), axes_describe(g->axes, axes, sizeof axes), g->comm->rank,
                (unsigned long long)s->bytes, g->member[s->peer], (unsigned long long)s->stage->bytes);
}

/* Tags repeat after 1024 contexts or 2^17 numbers, so two groups can share one: the head has the full numbers. */
static bool of_this_exchange(const struct slot *s)
{
    return s->stage->context == s->exchange.group->context[s->peer]
        && s->stage->number == s->exchange.number && s->stage->named == s->exchange.named;
}

static enum error_code wrong_exchange(const struct slot *s, struct error *err)
{
    char axes[64];
    const struct group *g = s->exchange.group;
    return fail(err, ERR_COMM,
                "%s over %s: device %d received a message of another exchange from device %d "
                "(context %u number %u, expected %u and %u)",
                operation_name(s->exchange.operation), axes_describe(g->axes, axes, sizeof axes), g->comm->rank,
                g->member[s->peer], (unsigned)s->stage->context, (unsigned)s->stage->number,
                (unsigned)g->context[s->peer], (unsigned)s->exchange.number);
}

static enum error_code wrong_call(const struct slot *s, struct error *err)
{
    char axes[64];
    const struct group *g = s->exchange.group;
    return fail(err, ERR_COMM,
                "%s over %s: devices %d and %d were called with different arguments (algorithm, count, dtype, "
                "reduction, root or "
                "counts); ORRERY_CHECK_CALLS=1 says which",
                operation_name(s->exchange.operation), axes_describe(g->axes, axes, sizeof axes), g->comm->rank,
                g->member[s->peer]);
}

static enum error_code finish_receive(struct comm *c, struct slot *s, struct error *err)
{
    MPI_Status status;
    int got = 0;
    int rc = finish(c, s, &s->head, &status);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got < (int)sizeof *s->stage)
        return fail(err, ERR_COMM, "device %d received %d bytes that are not a message from device %d", c->rank, got,
                    s->exchange.group->member[s->peer]);
    if (s->stage->bytes != s->bytes) {
        drain(c, s, s->stage->bytes);
        answer_after_all(c, s);
        return wrong_length(s, err);
    }
    rc = finish_body(c, s);
    bells_ring(&c->transport->bells, s->exchange.group->member[s->peer]);       /* its buffer is free again */
    if (rc == MPI_SUCCESS && s->passage.rendezvous) rc = finish(c, s, &s->reply, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    if (!of_this_exchange(s)) return wrong_exchange(s, err);
    if (s->stage->call != s->exchange.call) return wrong_call(s, err);
    close_view(c, s);
    if (s->pieces == 0) device_copy(c->device, s->data, s->stage + 1, s->bytes);
    else if (s->late) device_copy(c->device, s->data, s->aside, s->bytes);
    return OK;
}

/* Whether a send's data has changed since it was started.  Reuses the memory of the copy that was sent. */
static bool has_changed(struct comm *c, struct slot *s)
{
    return s->late && copy_aside(c, s) && flight_hash(s->aside, s->bytes) != s->hash;
}

static enum error_code finish_send(struct comm *c, struct slot *s, struct error *err)
{
    int rc = finish(c, s, &s->head, MPI_STATUS_IGNORE);
    const int body = finish_body(c, s);
    if (rc == MPI_SUCCESS) rc = body;
    if (rc == MPI_SUCCESS && s->passage.rendezvous) rc = finish(c, s, &s->reply, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    close_view(c, s);
    return has_changed(c, s) ? changed(s, err) : OK;
}

static bool abandon_request(MPI_Request *request, bool sending)
{
    int done = 0;
    if (*request == MPI_REQUEST_NULL) return true;
    if (!sending) MPI_Cancel(request);
    if (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) return true;
    if (*request != MPI_REQUEST_NULL) MPI_Request_free(request);
    return false;
}

/* Cancel MPI's requests of a message that failed.  @return whether none are left: only then is the slot, with the
 * memory that MPI uses, free for the next message. */
static bool abandon(struct slot *s)
{
    bool gone = abandon_request(&s->head, s->sending);
    for (int i = 0; i < s->pieces; i++) gone = abandon_request(&s->body[i], s->sending) && gone;
    return abandon_request(&s->reply, !s->sending) && gone;
}

/* Complete the passage for the clock with the other side's data. */
static void hear(struct passage *p, const struct slot *s)
{
    *p = s->passage;
    if (s->sending) p->ready = s->passage.rendezvous ? *s->answer : 0;
    else p->stamp = s->stage->stamp, p->serial = s->stage->serial;
}

enum error_code transport_wait(struct comm *c, int slot, struct passage *passage, struct error *err)
{
    struct transport *t = c->transport;
    struct slot *s = &t->slot[slot];
    enum error_code code;

    if (t->delay > 0) patience_delay(t->delay, &t->random);
    start_held(c);
    if (s->failed != MPI_SUCCESS) code = mpi_failed(s, s->failed, err);
    else code = s->sending ? finish_send(c, s, err) : finish_receive(c, s, err);
    hear(passage, s);
    if (code != OK && !abandon(s)) return code;
    close_view(c, s);
    slot_free(t, slot);
    return code;
}
