/* slots.c -- what the transport remembers of messages in flight. */
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/device/pool.h"
#include <stdlib.h>

void slot_open_view(struct comm *c, struct slot *s)
{
    const bool into = !s->sending && has_body(s) && !s->late && !s->stays;
    if (s->direct && (s->sending || into)) s->view = c->device->backend->direct(c->device, s->data, s->bytes, into);
    /* MPI takes void * */
    else if (s->sending) s->view = (char *)(uintptr_t)host_read(c->device, s->data, s->bytes);
    else if (into) s->view = host_write(c->device, s->data, s->bytes);
}

void slot_close_view(struct comm *c, struct slot *s)
{
    if (s->view != NULL && !s->direct) host_done(c->device, s->view);
    s->view = NULL;
}

int slot_tag(const struct slot *s)
{
    const uint32_t context = s->exchange.group->context[s->peer] % (1u << TAG_CONTEXT_BITS);
    const uint32_t number = s->exchange.number % (1u << TAG_NUMBER_BITS);
    return (int)(((uint32_t)s->exchange.named << TAG_CONTEXT_BITS | context) << TAG_NUMBER_BITS | number);
}

enum { FIRST_SLOTS = 16 };              /* their number doubles; each time the new ones get one block of receipts */

static bool slots_grow(struct transport *t)
{
    const int more = t->slots > 0 ? t->slots : FIRST_SLOTS;
    if (!letters_make_room(&t->letters, t->slots + more)) return false;
    struct slot *slot = realloc(t->slot, sizeof *slot * (size_t)(t->slots + more));
    if (slot == NULL) return false;
    t->slot = slot;
    struct receipt *receipt = t->near.devices > 0 ? pool_take(sizeof *receipt * (size_t)more) : NULL;
    if (receipt == NULL && t->near.devices > 0) return false;
    for (int i = t->slots + more - 1; i >= t->slots; i--) {
        slot[i] = (struct slot){ .next_free = t->first_free, .receipt = receipt ? &receipt[i - t->slots] : NULL };
        t->first_free = i;
    }
    t->slots += more;
    return true;
}

int slot_take(struct transport *t, uint64_t bytes, bool near)
{
    if (t->first_free < 0 && !slots_grow(t)) return -1;
    struct slot *s = &t->slot[t->first_free];
    const int pieces = near ? 0 : transport_pieces(t, bytes);

    if (s->stage == NULL && (s->stage = malloc(STAGE + sizeof *s->answer)) == NULL) return -1;
    if (pieces > s->room) {
        MPI_Request *body = realloc(s->body, sizeof *body * (size_t)pieces);
        if (body == NULL) return -1;
        s->body = body;
        s->room = pieces;
    }
    s->bytes = bytes;
    s->near = near;
    s->direct = t->direct;
    s->pieces = pieces;
    const int taken = t->first_free;
    t->first_free = s->next_free;
    return taken;
}

static void drop_aside(struct slot *s)
{
    if (!pool_give(s->aside, s->aside_room)) free(s->aside);
    s->aside = NULL;
    s->aside_room = 0;
}

bool slot_make_room_aside(struct slot *s)
{
    const bool pooled = s->near && s->sending;          /* the receiver reads there */
    if (s->aside != NULL && s->aside_room >= s->bytes && (!pooled || pool_offset(s->aside, s->bytes) > 0)) return true;
    drop_aside(s);
    s->aside = pooled ? pool_take(s->bytes) : malloc((size_t)s->bytes + 1);
    s->aside_room = s->aside != NULL ? s->bytes : 0;
    return s->aside != NULL;
}

void slot_free(struct transport *t, int slot)
{
    if (t->slot[slot].aside_room > KEPT_ASIDE) drop_aside(&t->slot[slot]);
    t->slot[slot].next_free = t->first_free;
    t->first_free = slot;
}

void transport_free_slots(struct comm *c)
{
    struct transport *t = c->transport;
    for (int i = 0; i < t->slots; i++) {
        slot_close_view(c, &t->slot[i]);
        free(t->slot[i].stage);
        free(t->slot[i].body);
        drop_aside(&t->slot[i]);
    }
    for (int i = 0; i < t->slots; i += i > 0 ? i : FIRST_SLOTS)
        if (t->slot[i].receipt != NULL)
            pool_give(t->slot[i].receipt, sizeof(struct receipt) * (size_t)(i > 0 ? i : FIRST_SLOTS));
    free(t->held), free(t->slot);
}
