/* transport.c -- messages: starting them, waiting for them. */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/device/pool.h"
#include <stdlib.h>
#include <string.h>

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static int send(struct transport *t, const void *data, int bytes, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    return (t->synchronous ? MPI_Issend : MPI_Isend)(data, bytes, MPI_BYTE, to, tag, comm, request);
}

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

static void write_head(const struct transport *t, struct slot *s)
{
    const bool receipt = s->near && (has_body(s) || t->synchronous);
    *s->stage = (struct head){ .bytes = s->bytes, .stamp = s->passage.stamp, .number = s->exchange.number,
                               .context = s->exchange.group->context[s->peer], .call = s->exchange.call,
                               .body = s->near && has_body(s) ? pool_offset(body_of(s), s->bytes) : 0,
                               .receipt = receipt ? pool_offset(s->receipt, sizeof *s->receipt) : 0,
                               .serial = s->passage.serial,
                               .named = s->exchange.named, .rendezvous = s->passage.rendezvous };
    /* A short payload follows the head in the same message. */
    if (!has_body(s) && s->bytes > 0) memcpy(s->stage + 1, body_of(s), (size_t)s->bytes);
    if (s->near) atomic_store(&s->receipt->taken, !receipt);
}

static void start_send(struct transport *t, struct slot *s, int peer)
{
    const int inside = has_body(s) ? 0 : (int)s->bytes;
    write_head(t, s);
    s->failed = send(t, s->stage, (int)sizeof *s->stage + inside, peer, slot_tag(s), t->heads, &s->head);
    if (s->failed != MPI_SUCCESS) s->head = MPI_REQUEST_NULL;
}

/* Head and answer are complete before a letter is sent, because the other side may look at once. */
static void start_near(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    s->answer = (int64_t *)((char *)s->stage + STAGE);
    *s->answer = s->passage.posted;
    if (s->sending) write_head(c->transport, s);
    if (s->passage.rendezvous && s->sending) letters_expect(c, (struct half){ slot, true });
    else if (s->passage.rendezvous) letters_send(c, (struct half){ slot, true });
    if (s->sending) letters_send(c, (struct half){ slot, false });
    else letters_expect(c, (struct half){ slot, false });
}

/* Hand the message to MPI, or to a near device. */
static void start(struct comm *c, int slot)
{
    struct transport *t = c->transport;
    struct slot *s = &t->slot[slot];
    if (s->near) {
        start_near(c, slot);
        return;
    }
    const int rank = s->exchange.group->member[s->peer];
    /* Everything is started at once: answer, head and pieces of the body; waiting comes later. */
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

/* MPI may read a body later, when the sending stream's results are already poison; so it gets a copy. */
static bool copy_aside(struct comm *c, struct slot *s)
{
    if (flight_of(c, s) == NULL || !slot_make_room_aside(s)) return false;
    flight_snapshot(flight_of(c, s), s->stream, s->aside, s->data, s->bytes);
    return true;
}

/* A near device reads only the pool. */
static bool copy_to_pool(struct comm *c, struct slot *s)
{
    if (!s->near || !has_body(s) || pool_offset(body_of(s), s->bytes) > 0) return true;
    if (!slot_make_room_aside(s)) return false;
    memcpy(s->aside, s->view, s->bytes);
    s->late = true;
    slot_close_view(c, s);
    return true;
}

static void start_send_now(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    s->late = copy_aside(c, s);
    if (!s->late) slot_open_view(c, s);
    if (copy_to_pool(c, s)) start(c, slot);
    else s->failed = MPI_ERR_NO_MEM;
    if (!has_body(s)) slot_close_view(c, s);                    /* the head has all of it */
}

/* MPI keeps the order in which messages are started, so held messages are started first. */
static void start_held(struct comm *c)
{
    struct transport *t = c->transport;
    for (int i = 0; i < t->helds; i++) start_send_now(c, t->held[i]);
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
    /* The race detector sends late: the buffer is read when the device next waits. */
    if (flight_late(flight_of(c, s)) && hold(c->transport, slot)) return;
    start_held(c);
    start_send_now(c, slot);
}

static void begin_receive(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    s->late = flight_of(c, s) != NULL;
    flight_reuse(flight_of(c, s), s->stream, s->data, s->bytes);
    /* Bytes that arrive go aside, and into the buffer when the device waits for them. */
    if (s->late) arena_poison(&c->device->arena, s->data, s->bytes);
    slot_open_view(c, s);
    if (!s->late || !has_body(s) || slot_make_room_aside(s)) start(c, slot);
    else s->failed = MPI_ERR_NO_MEM;
}

/* Bytes of a body that stays with its sender until it is looked at.  A copy of fewer takes less time than the wait of a
 * sender for a device that has to get a core. */
enum { LENT_FROM = 1 << 16 };

int transport_start(struct exchange *x, int peer, void *data, uint64_t bytes, const struct passage *passage,
                    enum side side)
{
    struct comm *c = x->group->comm;
    struct transport *t = c->transport;
    const bool sending = side == SENDS;
    const int i = slot_take(t, bytes, is_near(&t->near, x->group->member[peer]));
    if (i < 0) return -1;
    struct slot *s = &t->slot[i];

    s->exchange = *x;
    s->data = data;
    s->peer = peer;
    s->sending = sending;
    s->stream = c->device->clock.current;
    s->late = s->here = s->answered = s->written = s->whole = false;
    s->view = NULL;
    s->lent = NULL, s->lender = NULL;
    s->head = s->reply = MPI_REQUEST_NULL;
    s->failed = MPI_SUCCESS;
    s->passage = *passage;
    s->passage.rendezvous = passage->rendezvous && t->answers != MPI_COMM_NULL;
    /* A long body of a near sender is read where it lies, without a copy. */
    s->stays = side == LOOKS && s->near && flight_of(c, s) == NULL && bytes >= LENT_FROM;
    if (t->delay > 0 && sending) patience_delay(t->delay, &t->random);
    if (sending) begin_send(c, i);
    else begin_receive(c, i);
    return i;
}

/* ---- what can be wrong with a message ---------------------------------------------------------------------------- */

static int self_of(const struct slot *s) { return s->exchange.group->comm->rank; }

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
    /* The device writes down what it waits for, so that others can see a ring of waits. */
    const struct wait wait = { peer_of(s), s->sending, s->exchange.named, s->exchange.operation,
                               s->exchange.group->axes, s->exchange.number };
    struct progress *p = &c->transport->progress;
    if (!progress_has_ended(p, v, &wait) || !progress_may_speak(p)) return;
    progress_explain(p, &wait);
    comm_abort(c, 1);
}

/* A wait is for a request of MPI, or for a near device to change the slot. */
struct awaited {
    MPI_Request *request;
    MPI_Status *status;
    bool (*near)(const struct slot *);
};

/* One test processes only a few of the messages that have arrived. */
enum { TESTS = 4 };

static int look(struct comm *c, const struct slot *s, const struct awaited *a, int *done)
{
    struct transport *t = c->transport;
    int rc = MPI_SUCCESS, anything;
    letters_look(c);
    if (a->near != NULL) *done = a->near(s);
    for (int i = 0; a->near == NULL && i < TESTS && !*done && rc == MPI_SUCCESS; i++)
        rc = MPI_Test(a->request, done, a->status);
    /* messages of devices that are not near make no progress by themselves */
    if (a->near != NULL && !*done && t->near.devices < t->near.size)
        rc = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, t->heads, &anything, MPI_STATUS_IGNORE);
    return rc;
}

static int finish_awaited(struct comm *c, const struct slot *s, const struct awaited *a)
{
    const struct bells *bells = &c->transport->bells;
    struct patience p = { .bells = bells->bell != NULL ? bells : NULL };
    struct vigil v = { 0 };
    int done = 0, rc;
    for (;;) {
        /* Listen first, then look: a bell that rings in between is not missed. */
        patience_listen(&p);
        rc = look(c, s, a, &done);
        if (rc != MPI_SUCCESS || done) break;
        patience_pause(&p);
        if (p.sleep > 0) give_up_if_ended(c, s, &v);
    }
    progress_goes_on(&c->transport->progress, &v);
    return rc;
}

/* Wait until one request is complete.  Testing one request makes progress on all of MPI's messages, so waiting one by
 * one costs nothing. */
static int finish(struct comm *c, const struct slot *s, MPI_Request *request, MPI_Status *status)
{
    return finish_awaited(c, s, &(struct awaited){ .request = request, .status = status });
}

static bool head_is_here(const struct slot *s) { return s->here; }
static bool has_left(const struct slot *s) { return s->written && atomic_load(&s->receipt->taken) != 0; }
static bool is_answered(const struct slot *s) { return s->answered; }

/* ---- meeting: several messages of near devices are waited for in one sleep --------------------------------------- */

static bool is_due(const struct slot *s, bool sending)
{
    return s->near && s->failed == MPI_SUCCESS && s->sending == sending && !(sending ? has_left(s) : head_is_here(s));
}

/* How many are not here yet; when all are, how many have not left.  What has come may have to be copied before another
 * device can go on, so leaving is not waited for before. */
static int due(const struct transport *t, const struct message *m, int number, bool sent, int *first)
{
    int n = 0;
    for (int sending = 0; sending <= (sent ? 1 : 0) && n == 0; sending++)
        for (int i = number - 1; i >= 0; i--)
            if (m[i].slot >= 0 && is_due(&t->slot[m[i].slot], sending == 1)) n++, *first = m[i].slot;
    return n;
}

/* Each of them rings once. */
void transport_meet(struct comm *c, const struct message *m, int number, bool sent)
{
    struct transport *t = c->transport;
    struct patience p = { .bells = t->bells.bell != NULL ? &t->bells : NULL };
    struct vigil v = { 0 };
    int first = -1, left;
    start_held(c);
    if (t->near.devices < t->near.size) return;         /* others need calls of MPI */
    for (;;) {
        patience_listen(&p);
        letters_look(c);
        if ((left = due(t, m, number, sent, &first)) == 0) break;
        const bool heard = p.rings == left;
        p.rings = left;
        if (heard || p.sleep == 0) patience_pause(&p);
        if (p.sleep > 0) give_up_if_ended(c, &t->slot[first], &v);
    }
    progress_goes_on(&t->progress, &v);
}

static int finish_head(struct comm *c, struct slot *s)
{
    MPI_Status status;
    if (s->near) return finish_awaited(c, s, &(struct awaited){ .near = head_is_here });
    if (s->here) return MPI_SUCCESS;
    const int rc = finish(c, s, &s->head, &status);
    if (rc == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &s->got);
    s->here = rc == MPI_SUCCESS;
    return rc;
}

static int finish_answer(struct comm *c, struct slot *s)
{
    if (s->near) return finish_awaited(c, s, &(struct awaited){ .near = is_answered });
    return finish(c, s, &s->reply, MPI_STATUS_IGNORE);
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
static void answer_after_all(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    if (!s->stage->rendezvous || s->passage.rendezvous) return;
    if (s->near) letters_send(c, (struct half){ slot, true });
    if (s->near || start_answer(c->transport, s, peer_of(s)) == MPI_SUCCESS)
        finish_answer(c, s);
}

/* Tags repeat after 1024 contexts or 2^17 numbers, so two groups can share one: the head has the full numbers. */
static bool of_this_exchange(const struct slot *s)
{
    return s->stage->context == s->exchange.group->context[s->peer]
        && s->stage->number == s->exchange.number && s->stage->named == s->exchange.named;
}

static enum error_code finish_receive(struct comm *c, int slot, struct error *err)
{
    struct slot *s = &c->transport->slot[slot];
    if (s->whole) return OK;
    int rc = finish_head(c, s);
    letters_return(c, s);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    if (s->got < (int)sizeof *s->stage)
        return fail(err, ERR_COMM, "device %d received %d bytes that are not a message from device %d", c->rank, s->got,
                    peer_of(s));
    /* Another length means that both sides run different collectives. */
    if (s->stage->bytes != s->bytes) {
        if (!s->near) drain(c, s, s->stage->bytes);
        answer_after_all(c, slot);
        return message_wrong_length(&s->exchange, s->peer, s->bytes, s->stage->bytes, err);
    }
    rc = finish_body(c, s);
    if (!s->near) bells_ring(&c->transport->bells, peer_of(s));         /* its buffer is free again */
    if (rc == MPI_SUCCESS && s->passage.rendezvous) rc = finish_answer(c, s);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    if (!of_this_exchange(s)) return wrong_exchange(s, err);
    /* Both sides are in this exchange, but called it with other arguments. */
    if (s->stage->call != s->exchange.call) return message_wrong_call(&s->exchange, s->peer, err);
    slot_close_view(c, s);
    if (!has_body(s)) device_copy(c->device, s->data, s->stage + 1, s->bytes);
    else if (s->late) device_copy(c->device, s->data, s->aside, s->bytes);
    return OK;
}

/* The head has been received, and announces what is expected. */
static bool is_expected(const struct slot *s)
{
    return s->got >= (int)sizeof *s->stage && s->stage->bytes == s->bytes && of_this_exchange(s) &&
           s->stage->call == s->exchange.call;
}

/* A wrong message gives NULL here; transport_wait says what is wrong. */
const void *transport_look(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    start_held(c);
    if (s->failed != MPI_SUCCESS || finish_head(c, s) != MPI_SUCCESS || !is_expected(s)) return NULL;
    if (s->stays && s->lent != NULL) return s->lent;
    s->whole = finish_receive(c, slot, NULL) == OK;
    return s->whole ? s->data : NULL;
}

static enum error_code finish_send(struct comm *c, struct slot *s, struct error *err)
{
    int rc = s->near ? finish_awaited(c, s, &(struct awaited){ .near = has_left })
                     : finish(c, s, &s->head, MPI_STATUS_IGNORE);
    const int body = finish_body(c, s);
    if (rc == MPI_SUCCESS) rc = body;
    if (rc == MPI_SUCCESS && s->passage.rendezvous) rc = finish_answer(c, s);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    slot_close_view(c, s);
    return OK;
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

/* Cancel what is left of a message that failed.  @return whether none are left: only then is the slot, with the
 * memory that MPI uses, free for the next message. */
static bool abandon(struct comm *c, int slot)
{
    struct slot *s = &c->transport->slot[slot];
    letters_forget(c, slot);
    if (s->near && s->sending && s->written && atomic_load(&s->receipt->taken) == 0) return false;
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
    else code = s->sending ? finish_send(c, s, err) : finish_receive(c, slot, err);
    *delivery = hear(s);
    /* MPI may still use the slot's memory: it stays taken. */
    if (code != OK && !abandon(c, slot)) return code;
    slot_close_view(c, s);
    slot_free(t, slot);
    return code;
}
