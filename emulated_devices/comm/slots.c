/* slots.c -- what the transport remembers of messages in flight.
 *
 * transport.c and letters.c use slots.  Where there is no memory a function returns -1 or false, and the message
 * fails.
 */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/device/pool.h"
#include <stdlib.h>

void slot_open_view(struct comm *comm, struct slot *slot)
{
    const bool into = !slot->sending && has_body(slot) && !slot->late && !slot->stays;
    if (slot->direct && (slot->sending || into))
        slot->view = comm->device->backend->direct(comm->device, slot->data, slot->bytes, into);
    /* MPI takes void * */
    else if (slot->sending) slot->view = (char *)(uintptr_t)host_read(comm->device, slot->data, slot->bytes);
    else if (into) slot->view = host_write(comm->device, slot->data, slot->bytes);
}

void slot_close_view(struct comm *comm, struct slot *slot)
{
    if (slot->view != NULL && !slot->direct) host_done(comm->device, slot->view);
    slot->view = NULL;
}

int slot_tag(const struct slot *slot)
{
    const uint32_t context = slot->exchange.group->context[slot->peer] % (1u << TAG_CONTEXT_BITS);
    const uint32_t number = slot->exchange.number % (1u << TAG_NUMBER_BITS);
    return (int)(((uint32_t)slot->exchange.named << TAG_CONTEXT_BITS | context) << TAG_NUMBER_BITS | number);
}

enum { FIRST_SLOTS = 16 };              /* their number doubles; each time the new ones get one block of receipts */

/* Double the slots.  Each block of new slots has one block of receipts in the pool, for letters. */
static bool slots_grow(struct transport *transport)
{
    const int more = transport->slots > 0 ? transport->slots : FIRST_SLOTS;
    if (!letters_make_room(&transport->letters, transport->slots + more)) return false;
    struct slot *slot = realloc(transport->slot, sizeof *slot * (size_t)(transport->slots + more));
    if (slot == NULL) return false;
    transport->slot = slot;
    struct receipt *receipt = transport->near.devices > 0 ? pool_take(sizeof *receipt * (size_t)more) : NULL;
    if (receipt == NULL && transport->near.devices > 0) return false;
    for (int i = transport->slots + more - 1; i >= transport->slots; i--) {
        slot[i] = (struct slot){ .next_free = transport->first_free,
                                .receipt = receipt ? &receipt[i - transport->slots] : NULL };
        transport->first_free = i;
    }
    transport->slots += more;
    return true;
}

int slot_take(struct transport *transport, uint64_t bytes, bool near)
{
    if (transport->first_free < 0 && !slots_grow(transport)) return -1;
    struct slot *s = &transport->slot[transport->first_free];
    const int pieces = near ? 0 : transport_pieces(transport, bytes);

    /* The stage stays with the slot; the answer of a rendezvous lies behind it. */
    if (s->stage == NULL && (s->stage = malloc(STAGE + sizeof *s->answer)) == NULL) return -1;
    if (pieces > s->room) {
        MPI_Request *body = realloc(s->body, sizeof *body * (size_t)pieces);
        if (body == NULL) return -1;
        s->body = body;
        s->room = pieces;
    }
    s->bytes = bytes;
    s->near = near;
    s->direct = transport->direct;
    s->pieces = pieces;
    const int taken = transport->first_free;
    transport->first_free = s->next_free;
    return taken;
}

/* Free the copy of a body, which lies in the pool or in the heap. */
static void drop_aside(struct slot *slot)
{
    if (!pool_give(slot->aside, slot->aside_room)) free(slot->aside);
    slot->aside = NULL;
    slot->aside_room = 0;
}

bool slot_make_room_aside(struct slot *slot)
{
    const bool pooled = slot->near && slot->sending;          /* the receiver reads there */
    if (slot->aside != NULL && slot->aside_room >= slot->bytes
        && (!pooled || pool_offset(slot->aside, slot->bytes) > 0)) return true;
    drop_aside(slot);
    slot->aside = pooled ? pool_take(slot->bytes) : malloc((size_t)slot->bytes + 1);
    slot->aside_room = slot->aside != NULL ? slot->bytes : 0;
    return slot->aside != NULL;
}

void slot_free(struct transport *transport, int slot)
{
    if (transport->slot[slot].aside_room > KEPT_ASIDE) drop_aside(&transport->slot[slot]);
    transport->slot[slot].next_free = transport->first_free;
    transport->first_free = slot;
}

void transport_free_slots(struct comm *comm)
{
    struct transport *t = comm->transport;
    for (int i = 0; i < t->slots; i++) {
        slot_close_view(comm, &t->slot[i]);
        free(t->slot[i].stage);
        free(t->slot[i].body);
        drop_aside(&t->slot[i]);
    }
    /* Blocks of receipts begin at slots 0, 16, 32, 64, ..: the sizes to which the list has grown. */
    for (int i = 0; i < t->slots; i += i > 0 ? i : FIRST_SLOTS)
        if (t->slot[i].receipt != NULL)
            pool_give(t->slot[i].receipt, sizeof(struct receipt) * (size_t)(i > 0 ? i : FIRST_SLOTS));
    free(t->held), free(t->slot);
}
