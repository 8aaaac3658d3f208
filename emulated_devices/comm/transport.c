/* transport.c -- messages: their slots, starting them, waiting for them. */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/comm/patience.h"
#include <stdlib.h>
#include <string.h>

/* ---- slots ------------------------------------------------------------------------------------------------------- */

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

void transport_free_slots(struct comm *c)
{
    struct transport *t = c->transport;
    for (int i = 0; i < t->slots; i++) {
        close_view(c, &t->slot[i]);
        free(t->slot[i].stage);
        free(t->slot[i].body);
        free(t->slot[i].aside);
    }
    free(t->held), free(t->slot);
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

/* ---- what can be wrong with a message ---------------------------------------------------------------------------- */

static int self_of(const struct slot *s) { return s->exchange.group->comm->rank; }
static int peer_of(const struct slot *s) { return s->exchange.group->member[s->peer]; }

static enum error_code changed(const struct slot *s, struct error *err)
{
    return message_wrong(&s->exchange, err,
                         "device %d changed the %llu bytes that it sends to device %d before they had left: a buffer "
                         "is used again before message_wait",
                         self_of(s), (unsigned long long)s->bytes, peer_of(s));
}

static enum error_code mpi_failed(const struct slot *s, int rc, struct error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(rc, text, &length);
    return message_wrong(&s->exchange, err, "device %d could not %s device %d: %.*s", self_of(s),
                 s->sending ? "send to" : "receive from", peer_of(s), (int)strcspn(text, "\n"), text);
}

static enum error_code wrong_exchange(const struct slot *s, struct error *err)
{
    return message_wrong(&s->exchange, err,
                         "device %d received a message of another exchange from device %d (context %u number %u, "
                         "expected %u and %u)",
                         self_of(s), peer_of(s), (unsigned)s->stage->context, (unsigned)s->stage->number,
                         (unsigned)s->exchange.group->context[s->peer], (unsigned)s->exchange.number);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* End the job if there is no more progress.  The first device that detects it reports it; the others wait for the
 * end. */
static void give_up_if_ended(struct comm *c, const struct slot *s, struct vigil *v)
{
    const struct wait wait = { peer_of(s), s->sending, s->exchange.named, s->exchange.operation,
                               s->exchange.group->axes, s->exchange.number };
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
        if (nowhere != NULL &&
            MPI_Irecv(nowhere, bytes, MPI_BYTE, peer_of(s), slot_tag(s), t->bodies, &request) == MPI_SUCCESS)
            finish(c, s, &request, MPI_STATUS_IGNORE);
        free(nowhere);
    }
}

/* The received message needs an answer, although the expected one did not. */
static void answer_after_all(struct comm *c, struct slot *s)
{
    if (!s->stage->rendezvous || s->passage.rendezvous) return;
    if (start_answer(c->transport, s, peer_of(s)) == MPI_SUCCESS)
        finish(c, s, &s->reply, MPI_STATUS_IGNORE);
}

/* Tags repeat after 1024 contexts or 2^17 numbers, so two groups can share one: the head has the full numbers. */
static bool of_this_exchange(const struct slot *s)
{
    return s->stage->context == s->exchange.group->context[s->peer]
        && s->stage->number == s->exchange.number && s->stage->named == s->exchange.named;
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
                    peer_of(s));
    if (s->stage->bytes != s->bytes) {
        drain(c, s, s->stage->bytes);
        answer_after_all(c, s);
        return message_wrong_length(&s->exchange, s->peer, s->bytes, s->stage->bytes, err);
    }
    rc = finish_body(c, s);
    bells_ring(&c->transport->bells, peer_of(s));       /* its buffer is free again */
    if (rc == MPI_SUCCESS && s->passage.rendezvous) rc = finish(c, s, &s->reply, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    if (!of_this_exchange(s)) return wrong_exchange(s, err);
    if (s->stage->call != s->exchange.call) return message_wrong_call(&s->exchange, s->peer, err);
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
static struct delivery hear(const struct slot *s)
{
    struct delivery d = { s->exchange, s->passage, s->data, s->peer, s->sending };
    if (s->sending) d.passage.ready = s->passage.rendezvous ? *s->answer : 0;
    else d.passage.stamp = s->stage->stamp, d.passage.serial = s->stage->serial;
    return d;
}

enum error_code transport_wait(struct comm *c, int slot, struct delivery *delivery, struct error *err)
{
    struct transport *t = c->transport;
    struct slot *s = &t->slot[slot];
    enum error_code code;

    if (t->delay > 0) patience_delay(t->delay, &t->random);
    start_held(c);
    if (s->failed != MPI_SUCCESS) code = mpi_failed(s, s->failed, err);
    else code = s->sending ? finish_send(c, s, err) : finish_receive(c, s, err);
    *delivery = hear(s);
    if (code != OK && !abandon(s)) return code;
    close_view(c, s);
    slot_free(t, slot);
    return code;
}
