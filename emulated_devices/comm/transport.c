/* transport.c -- starts messages by MPI and waits for them.
 *
 * comm.c names these functions as the carrier of a comm.  An error of MPI is kept in the slot and reported by
 * transport_wait as ERR_COMM.
 */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/recorder.h"
#include "emulated_devices/device/pool.h"
#include <stdlib.h>
#include <string.h>

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* Send by MPI; a synchronous send ends only when its receive has begun. */
static int send(struct transport *transport, const void *data, int bytes, int to, int tag, MPI_Comm comm,
                MPI_Request *request)
{
    return (transport->synchronous ? MPI_Issend : MPI_Isend)(data, bytes, MPI_BYTE, to, tag, comm, request);
}

/* Start all pieces of a body; a piece that cannot start has no request, and the others go on. */
static int start_body(struct transport *transport, struct slot *slot, int peer, int tag)
{
    int failed = MPI_SUCCESS;
    for (int i = 0; i < slot->pieces; i++) {
        char *piece = body_of(slot) + (uint64_t)i * transport->piece;
        const int bytes = transport_piece_bytes(transport, slot->bytes, i);
        const int rc = slot->sending ? send(transport, piece, bytes, peer, tag, transport->bodies, &slot->body[i])
                                  : MPI_Irecv(piece, bytes, MPI_BYTE, peer, tag, transport->bodies, &slot->body[i]);
        if (rc != MPI_SUCCESS) {
            slot->body[i] = MPI_REQUEST_NULL;
            failed = rc;
        }
    }
    return failed;
}

/* A rendezvous: the receiver sends the time at which it is ready.  Nothing may wait for this answer, even if sends are
 * synchronous. */
static int start_answer(struct transport *transport, struct slot *slot, int peer)
{
    slot->answer = (int64_t *)((char *)slot->stage + STAGE);
    *slot->answer = slot->passage.posted;
    if (slot->sending)
        return MPI_Irecv(slot->answer, (int)sizeof *slot->answer, MPI_BYTE, peer, slot_tag(slot), transport->answers,
                         &slot->reply);
    return MPI_Isend(slot->answer, (int)sizeof *slot->answer, MPI_BYTE, peer, slot_tag(slot), transport->answers,
                     &slot->reply);
}

/* Write the head of a send: length, stamps, and the exchange in full.  For a near receiver add where body and
 * receipt lie. */
static void write_head(const struct transport *transport, struct slot *slot)
{
    const bool receipt = slot->near && (has_body(slot) || transport->synchronous);
    *slot->stage = (struct head){ .bytes = slot->bytes, .stamp = slot->passage.stamp,
                               .slowed = slot->passage.slowed,
                               .carried = slot->passage.carried, .number = slot->exchange.number,
                               .context = slot->exchange.group->context[slot->peer], .call = slot->exchange.call,
                               .body = slot->near && has_body(slot) ? pool_offset(body_of(slot), slot->bytes) : 0,
                               .receipt = receipt ? pool_offset(slot->receipt, sizeof *slot->receipt) : 0,
                               .serial = slot->passage.serial,
                               .named = slot->exchange.named, .rendezvous = slot->passage.rendezvous };
    /* A short payload follows the head in the same message. */
    if (!has_body(slot) && slot->bytes > 0) memcpy(slot->stage + 1, body_of(slot), (size_t)slot->bytes);
    if (slot->near) atomic_store(&slot->receipt->taken, !receipt);
}

/* Send the head, with a short payload inside. */
static void start_send(struct transport *transport, struct slot *slot, int peer)
{
    const int inside = has_body(slot) ? 0 : (int)slot->bytes;
    write_head(transport, slot);
    slot->failed = send(transport, slot->stage, (int)sizeof *slot->stage + inside, peer, slot_tag(slot),
                        transport->heads, &slot->head);
    if (slot->failed != MPI_SUCCESS) slot->head = MPI_REQUEST_NULL;
}

/* Head and answer are complete before a letter is sent, because the other side may look at once. */
static void start_near(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    s->answer = (int64_t *)((char *)s->stage + STAGE);
    *s->answer = s->passage.posted;
    if (s->sending) write_head(comm->transport, s);
    if (s->passage.rendezvous && s->sending) letters_expect(comm, (struct half){ slot, true });
    else if (s->passage.rendezvous) letters_send(comm, (struct half){ slot, true });
    if (s->sending) letters_send(comm, (struct half){ slot, false });
    else letters_expect(comm, (struct half){ slot, false });
}

/* Hand the message to MPI, or to a near device. */
static void comm_transport_start(struct comm *comm, int slot)
{
    struct transport *t = comm->transport;
    struct slot *s = &t->slot[slot];
    if (s->near) {
        start_near(comm, slot);
        return;
    }
    const int rank = peer_of(s);
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
static struct flight *flight_of(const struct comm *comm, const struct slot *slot)
{
    return slot->passage.charged ? comm->device->clock.flight : NULL;
}

/* MPI may read a body later, when the sending stream's results are already poison; so it gets a copy. */
static bool copy_aside(struct comm *comm, struct slot *slot)
{
    if (flight_of(comm, slot) == NULL || !slot_make_room_aside(slot)) return false;
    flight_snapshot(flight_of(comm, slot), slot->stream, slot->aside, slot->data, slot->bytes);
    return true;
}

/* A near device reads only the pool. */
static bool copy_to_pool(struct comm *comm, struct slot *slot)
{
    if (!slot->near || !has_body(slot) || pool_offset(body_of(slot), slot->bytes) > 0) return true;
    if (!slot_make_room_aside(slot)) return false;
    memcpy(slot->aside, slot->view, slot->bytes);
    slot->late = true;
    slot_close_view(comm, slot);
    return true;
}

/* Choose the bytes to send: a copy where a flight follows them, the pool for a near device, else the buffer. */
static void start_send_now(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    s->late = copy_aside(comm, s);
    if (!s->late) slot_open_view(comm, s);
    if (copy_to_pool(comm, s)) comm_transport_start(comm, slot);
    else s->failed = MPI_ERR_NO_MEM;
    if (!has_body(s)) slot_close_view(comm, s);                    /* the head has all of it */
}

/* MPI keeps the order in which messages are started, so held messages are started first. */
static void start_held(struct comm *comm)
{
    struct transport *t = comm->transport;
    for (int i = 0; i < t->helds; i++) start_send_now(comm, t->held[i]);
    t->helds = 0;
}

/* Keep a late send for the device's next wait.  @return false: there is no memory, and it starts now. */
static bool transport_hold(struct transport *transport, int slot)
{
    if (transport->helds == transport->held_room) {
        const int room = transport->held_room > 0 ? 2 * transport->held_room : 16;
        int *held = realloc(transport->held, sizeof *held * (size_t)room);
        if (held == NULL) return false;
        transport->held = held;
        transport->held_room = room;
    }
    transport->held[transport->helds++] = slot;
    return true;
}

static void begin_send(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    /* The race detector sends late: the buffer is read when the device next waits. */
    if (flight_late(flight_of(comm, s)) && transport_hold(comm->transport, slot)) return;
    start_held(comm);
    start_send_now(comm, slot);
}

static void begin_receive(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    s->late = flight_of(comm, s) != NULL;
    flight_reuse(flight_of(comm, s), s->stream, s->data, s->bytes);
    /* Bytes that arrive go aside, and into the buffer when the device waits for them. */
    if (s->late) arena_poison(&comm->device->arena, s->data, s->bytes);
    slot_open_view(comm, s);
    if (!s->late || !has_body(s) || slot_make_room_aside(s)) comm_transport_start(comm, slot);
    else s->failed = MPI_ERR_NO_MEM;
}

/* From so many bytes on a body stays with its sender until it is looked at.  A copy of fewer takes less time than
 * the wait of a sender for a device that has to get a core. */
enum { LENT_FROM = 1 << 16 };

int transport_start(struct exchange *exchange, int peer, void *data, uint64_t bytes, const struct passage *passage,
                    enum side side)
{
    struct comm *c = exchange->group->comm;
    struct transport *t = c->transport;
    const bool sending = side == SENDS;
    const int rank = comm_process(exchange->group->comm, exchange->group->member[peer]);
    const int i = slot_take(t, bytes, is_near(&t->near, rank));
    if (i < 0) return -1;
    struct slot *s = &t->slot[i];

    s->exchange = *exchange;
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

static int self_of(const struct slot *slot)
{
    return comm_process(slot->exchange.group->comm, slot->exchange.group->comm->rank);
}

static enum error_code mpi_failed(const struct slot *slot, int rc, struct error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(rc, text, &length);
    return message_wrong(&slot->exchange, err, "device %d could not %s device %d: %.*s", self_of(slot),
                 slot->sending ? "send to" : "receive from", peer_of(slot), (int)strcspn(text, "\n"), text);
}

static enum error_code wrong_exchange(const struct slot *slot, struct error *err)
{
    return message_wrong(&slot->exchange, err,
                         "device %d received a message of another exchange from device %d (context %u number %u, "
                         "expected %u and %u)",
                         self_of(slot), peer_of(slot), (unsigned)slot->stage->context, (unsigned)slot->stage->number,
                         (unsigned)slot->exchange.group->context[slot->peer], (unsigned)slot->exchange.number);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* End the job if there is no more progress.  The first device that detects it reports it; the others wait for the
 * end. */
static void give_up_if_ended(struct comm *comm, const struct slot *slot, struct vigil *vigil)
{
    /* The device writes down what it waits for, so that others can see a ring of waits. */
    const struct waiting wait = { peer_of(slot), slot->sending, slot->exchange.named, slot->exchange.operation,
                               slot->exchange.group->axes, slot->exchange.number };
    struct progress *p = &comm->transport->progress;
    if (!progress_has_ended(p, vigil, &wait) || !progress_may_speak(p)) return;
    recorder_hangs(comm);
    progress_explain(p, &wait);
    comm_abort(comm, 1);
}

/* A wait is for a request of MPI, or for a near device to change the slot. */
struct awaited {
    MPI_Request *request;
    MPI_Status *status;
    bool (*near)(const struct slot *);
};

/* One test processes only a few of the messages that have arrived. */
enum { TESTS = 4 };

/* Look once: letters of near devices, then the awaited request or the slot. */
static int comm_transport_look(struct comm *comm, const struct slot *slot, const struct awaited *awaited, int *done)
{
    struct transport *t = comm->transport;
    int rc = MPI_SUCCESS, anything;
    letters_look(comm);
    if (awaited->near != NULL) *done = awaited->near(slot);
    for (int i = 0; awaited->near == NULL && i < TESTS && !*done && rc == MPI_SUCCESS; i++)
        rc = MPI_Test(awaited->request, done, awaited->status);
    /* messages of devices that are not near make no progress by themselves */
    if (awaited->near != NULL && !*done && t->near.devices < t->near.size)
        rc = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, t->heads, &anything, MPI_STATUS_IGNORE);
    return rc;
}

/* Wait for one request or for a near device: listen, look, pause.  End the job if nothing moves any more. */
static int finish_awaited(struct comm *comm, const struct slot *slot, const struct awaited *awaited)
{
    const struct bells *bells = &comm->transport->bells;
    struct patience p = { .bells = bells->bell != NULL ? bells : NULL };
    struct vigil v = { 0 };
    int done = 0, rc;
    recorder_waits(comm, &slot->exchange, peer_of(slot), slot->sending);
    for (;;) {
        /* Listen first, then look: a bell that rings in between is not missed. */
        patience_listen(&p);
        rc = comm_transport_look(comm, slot, awaited, &done);
        if (rc != MPI_SUCCESS || done) break;
        if (comm->transport->letters.waitings > 0) patience_hurry(&p);
        patience_pause(&p);
        if (p.sleep > 0) give_up_if_ended(comm, slot, &v);
    }
    progress_goes_on(&comm->transport->progress, &v);
    return rc;
}

/* Wait until one request is complete.  Testing one request makes progress on all of MPI's messages, so waiting one by
 * one costs nothing. */
static int transport_finish(struct comm *comm, const struct slot *slot, MPI_Request *request, MPI_Status *status)
{
    return finish_awaited(comm, slot, &(struct awaited){ .request = request, .status = status });
}

static bool head_is_here(const struct slot *slot) { return slot->here; }
static bool has_left(const struct slot *slot) { return slot->written && atomic_load(&slot->receipt->taken) != 0; }
static bool is_answered(const struct slot *slot) { return slot->answered; }

/* ---- meeting: several messages of near devices are waited for in one sleep --------------------------------------- */

static bool is_due(const struct slot *slot, bool sending)
{
    return slot->near && slot->failed == MPI_SUCCESS && slot->sending == sending
           && !(sending ? has_left(slot) : head_is_here(slot));
}

/* How many are not here yet; when all are, how many have not left.  Another device may need a copy of a message that
 * has come.  So messages that leave are waited for last. */
static int due(const struct transport *transport, const struct message *message, int number, bool sent, int *first)
{
    int n = 0;
    for (int sending = 0; sending <= (sent ? 1 : 0) && n == 0; sending++)
        for (int i = number - 1; i >= 0; i--)
            if (message[i].slot >= 0 && is_due(&transport->slot[message[i].slot], sending == 1))
                n++, *first = message[i].slot;
    return n;
}

/* Each of them rings once. */
void transport_meet(struct comm *comm, const struct message *message, int number, bool sent)
{
    struct transport *t = comm->transport;
    struct patience p = { .bells = t->bells.bell != NULL ? &t->bells : NULL };
    struct vigil v = { 0 };
    int first = -1, left;
    start_held(comm);
    if (t->near.devices < t->near.size) return;         /* others need calls of MPI */
    for (;;) {
        patience_listen(&p);
        letters_look(comm);
        if ((left = due(t, message, number, sent, &first)) == 0) break;
        const bool heard = p.rings == left;
        const struct slot *const awaited = &t->slot[first];
        recorder_waits(comm, &awaited->exchange, peer_of(awaited), awaited->sending);
        p.rings = left;
        if (t->letters.waitings > 0) patience_hurry(&p);
        if (heard || p.sleep == 0) patience_pause(&p);
        if (p.sleep > 0) give_up_if_ended(comm, &t->slot[first], &v);
    }
    progress_goes_on(&t->progress, &v);
}

static int finish_head(struct comm *comm, struct slot *slot)
{
    MPI_Status status;
    if (slot->near) return finish_awaited(comm, slot, &(struct awaited){ .near = head_is_here });
    if (slot->here) return MPI_SUCCESS;
    const int rc = transport_finish(comm, slot, &slot->head, &status);
    if (rc == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &slot->got);
    slot->here = rc == MPI_SUCCESS;
    return rc;
}

static int finish_answer(struct comm *comm, struct slot *slot)
{
    if (slot->near) return finish_awaited(comm, slot, &(struct awaited){ .near = is_answered });
    return transport_finish(comm, slot, &slot->reply, MPI_STATUS_IGNORE);
}

static int finish_body(struct comm *comm, struct slot *slot)
{
    int worst = MPI_SUCCESS;
    for (int i = 0; i < slot->pieces; i++) {
        const int rc = transport_finish(comm, slot, &slot->body[i], MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS) worst = rc;
    }
    return worst;
}

/* Pieces were posted for one length, but a message of another length is coming: complete them, so that the next message
 * gets its own.  The sender's extra pieces are discarded. */
static void drain(struct comm *comm, struct slot *slot, uint64_t coming)
{
    struct transport *t = comm->transport;
    const int pieces = transport_pieces(t, coming);
    for (int i = 0; i < slot->pieces; i++) {
        if (i >= pieces) MPI_Cancel(&slot->body[i]);
        /* a truncated piece is already a known error */
        transport_finish(comm, slot, &slot->body[i], MPI_STATUS_IGNORE);
    }
    for (int i = slot->pieces; i < pieces; i++) {
        const int bytes = transport_piece_bytes(t, coming, i);
        MPI_Request request;
        void *nowhere = malloc((size_t)bytes);
        if (nowhere != NULL &&
            MPI_Irecv(nowhere, bytes, MPI_BYTE, peer_of(slot), slot_tag(slot), t->bodies, &request) == MPI_SUCCESS)
            transport_finish(comm, slot, &request, MPI_STATUS_IGNORE);
        free(nowhere);
    }
}

/* The received message needs an answer, although the expected one did not. */
static void answer_after_all(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    if (!s->stage->rendezvous || s->passage.rendezvous) return;
    if (s->near) letters_send(comm, (struct half){ slot, true });
    if (s->near || start_answer(comm->transport, s, peer_of(s)) == MPI_SUCCESS)
        finish_answer(comm, s);
}

/* Tags repeat after 1024 contexts or 2^17 numbers, so two groups can share one: the head has the full numbers. */
static bool of_this_exchange(const struct slot *slot)
{
    return slot->stage->context == slot->exchange.group->context[slot->peer]
        && slot->stage->number == slot->exchange.number && slot->stage->named == slot->exchange.named;
}

/* Complete a receive: head, length, body, answer, exchange and call are checked in this order.  The order keeps
 * messages that follow paired, whatever is wrong with this one. */
static enum error_code finish_receive(struct comm *comm, int slot, struct error *err)
{
    struct slot *s = &comm->transport->slot[slot];
    if (s->whole) return OK;
    int rc = finish_head(comm, s);
    letters_return(comm, s);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    if (s->got < (int)sizeof *s->stage)
        return fail(err, ERR_COMM, "device %d received %d bytes that are not a message from device %d",
                    comm->rank, s->got, peer_of(s));
    /* Another length means that both sides run different collectives. */
    if (s->stage->bytes != s->bytes) {
        if (!s->near) drain(comm, s, s->stage->bytes);
        answer_after_all(comm, slot);
        return message_wrong_length(&s->exchange, s->peer, s->bytes, s->stage->bytes, err);
    }
    rc = finish_body(comm, s);
    if (!s->near) bells_ring(&comm->transport->bells, peer_of(s));         /* its buffer is free again */
    if (rc == MPI_SUCCESS && s->passage.rendezvous) rc = finish_answer(comm, s);
    if (rc != MPI_SUCCESS) return mpi_failed(s, rc, err);
    if (!of_this_exchange(s)) return wrong_exchange(s, err);
    /* Both sides are in this exchange, but called it with other arguments. */
    if (s->stage->call != s->exchange.call) return message_wrong_call(&s->exchange, s->peer, err);
    slot_close_view(comm, s);
    if (!has_body(s)) device_copy(comm->device, s->data, s->stage + 1, s->bytes);
    else if (s->late) device_copy(comm->device, s->data, s->aside, s->bytes);
    return OK;
}

/* The head has been received, and announces what is expected. */
static bool is_expected(const struct slot *slot)
{
    return slot->got >= (int)sizeof *slot->stage && slot->stage->bytes == slot->bytes && of_this_exchange(slot) &&
           slot->stage->call == slot->exchange.call;
}

/* A wrong message gives NULL here; transport_wait says what is wrong. */
const void *transport_look(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    start_held(comm);
    if (s->failed != MPI_SUCCESS || finish_head(comm, s) != MPI_SUCCESS || !is_expected(s)) return NULL;
    if (s->stays && s->lent != NULL) return s->lent;
    s->whole = finish_receive(comm, slot, NULL) == OK;
    return s->whole ? s->data : NULL;
}

/* Complete a send: all its parts are waited for, also after an error of one. */
static enum error_code finish_send(struct comm *comm, struct slot *slot, struct error *err)
{
    int rc = slot->near ? finish_awaited(comm, slot, &(struct awaited){ .near = has_left })
                     : transport_finish(comm, slot, &slot->head, MPI_STATUS_IGNORE);
    const int body = finish_body(comm, slot);
    if (rc == MPI_SUCCESS) rc = body;
    if (rc == MPI_SUCCESS && slot->passage.rendezvous) rc = finish_answer(comm, slot);
    if (rc != MPI_SUCCESS) return mpi_failed(slot, rc, err);
    slot_close_view(comm, slot);
    return OK;
}

/* Cancel or release one request.  @return whether MPI no longer uses its memory. */
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
static bool abandon(struct comm *comm, int slot)
{
    struct slot *s = &comm->transport->slot[slot];
    letters_forget(comm, slot);
    if (s->near && s->sending && s->written && atomic_load(&s->receipt->taken) == 0) return false;
    bool gone = abandon_request(&s->head, s->sending);
    for (int i = 0; i < s->pieces; i++) gone = abandon_request(&s->body[i], s->sending) && gone;
    return abandon_request(&s->reply, !s->sending) && gone;
}

/* Complete the passage for the clock with the other side's data. */
static struct delivery transport_hear(const struct slot *slot)
{
    struct delivery d = { slot->exchange, slot->passage, slot->data, slot->peer, slot->sending };
    if (slot->sending) d.passage.ready = slot->passage.rendezvous ? *slot->answer : 0;
    else d.passage.stamp = slot->stage->stamp, d.passage.serial = slot->stage->serial,
         d.passage.carried = slot->stage->carried, d.passage.slowed = slot->stage->slowed;
    return d;
}

enum error_code transport_wait(struct comm *comm, int slot, struct delivery *delivery, struct error *err)
{
    struct transport *t = comm->transport;
    struct slot *s = &t->slot[slot];
    enum error_code code;

    if (t->delay > 0) patience_delay(t->delay, &t->random);
    start_held(comm);
    if (s->failed != MPI_SUCCESS) code = mpi_failed(s, s->failed, err);
    else code = s->sending ? finish_send(comm, s, err) : finish_receive(comm, slot, err);
    *delivery = transport_hear(s);
    /* MPI may still use the slot's memory: it stays taken. */
    if (code != OK && !abandon(comm, slot)) return code;
    slot_close_view(comm, s);
    slot_free(t, slot);
    return code;
}
