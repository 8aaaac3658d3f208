#include "emulated_devices/comm/transport.h"
#include "emulated_devices/device/pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before the payload, if that is small. */
struct letter {
    int tag;
    bool answer;                        /* the head's stamp is the time at which the receive was posted */
    struct head head;
};

/* A letter in memory of this process: of a receive that has not been posted. */
struct stray { struct stray *next; int from; size_t bytes; struct letter letter; };

bool letters_make_room(struct letters *l, int slots)
{
    const size_t bytes = sizeof(struct half) * 2 * (size_t)slots;
    struct half *expected = realloc(l->expected, bytes);
    if (expected != NULL) l->expected = expected;
    struct half *waiting = realloc(l->waiting, bytes);
    if (waiting != NULL) l->waiting = waiting;
    if (l->last == NULL) l->last = &l->first;
    return expected != NULL && waiting != NULL;
}

void letters_close(struct letters *l)
{
    while (l->first != NULL) {
        struct stray *s = l->first;
        l->first = s->next;
        free(s);
    }
    free(l->expected), free(l->waiting);
    *l = (struct letters){ .first = NULL };
}

static void remove_at(struct half *list, int *count, int i)
{
    memmove(&list[i], &list[i + 1], sizeof *list * (size_t)(--*count - i));
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* The head, or the answer, is in the slot's stage; so is a small payload. */
static bool write_half(struct comm *c, struct half h)
{
    struct transport *t = c->transport;
    struct slot *s = &t->slot[h.slot];
    struct letter l = { .tag = slot_tag(s), .answer = h.answer };
    if (h.answer) l.head.stamp = *s->answer;
    else l.head = *s->stage;
    /* A short payload travels in the letter; a body stays in the sender's pool. */
    const size_t inside = h.answer || has_body(s) ? 0 : (size_t)s->bytes;
    if (!near_write(&t->near, peer_of(s), &l, sizeof l, s->stage + 1, inside)) return false;
    if (h.answer) s->answered = true;
    else s->written = true;
    bells_ring(&t->bells, peer_of(s));
    return true;
}

/* Letters to one device keep their order. */
static bool has_waiting(const struct transport *t, int to)
{
    const struct letters *l = &t->letters;
    for (int i = 0; i < l->waitings; i++)
        if (peer_of(&t->slot[l->waiting[i].slot]) == to) return true;
    return false;
}

void letters_send(struct comm *c, struct half h)
{
    struct letters *l = &c->transport->letters;
    const int to = peer_of(&c->transport->slot[h.slot]);
    /* A letter does not overtake another one to the same device. */
    if (has_waiting(c->transport, to) || !write_half(c, h)) l->waiting[l->waitings++] = h;
}

static void write_waiting(struct comm *c)
{
    struct transport *t = c->transport;
    struct letters *l = &t->letters;
    int left = 0;
    for (int i = 0, n = l->waitings; i < n; i++) {
        const struct half h = l->waiting[i];
        l->waitings = left;                             /* those before it that still wait */
        if (has_waiting(t, peer_of(&t->slot[h.slot])) || !write_half(c, h)) l->waiting[left++] = h;
    }
    l->waitings = left;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static bool belongs(const struct slot *s, struct half h, int from, const struct letter *l)
{
    return h.answer == l->answer && peer_of(s) == from && slot_tag(s) == l->tag;
}

void letters_return(struct comm *c, struct slot *s)
{
    if (s->lender == NULL) return;
    atomic_store(&s->lender->taken, 1);
    s->lender = NULL;
    bells_ring(&c->transport->bells, peer_of(s));
}

/* Copy the body out of the sender's memory, and tell the sender; but not if it stays there. */
static void take(struct comm *c, struct half h, const struct letter *l, size_t bytes)
{
    struct transport *t = c->transport;
    struct slot *s = &t->slot[h.slot];
    if (h.answer) {
        *s->answer = l->head.stamp;
        s->answered = true;
        return;
    }
    char *const pool = t->near.base[peer_of(s)];
    /* The slot looks as if MPI had received the head, so the rest of the code is the same. */
    s->got = (int)(bytes - sizeof *l + sizeof l->head);
    memcpy(s->stage, (const char *)l + offsetof(struct letter, head), (size_t)s->got);
    s->here = true;
    s->lender = l->head.receipt > 0 ? (struct receipt *)(pool + l->head.receipt) : NULL;
    if (l->head.body > 0 && l->head.bytes == s->bytes) {
        s->lent = pool + l->head.body;
        /* The receiver reads it in the sender's memory, and signs the receipt later. */
        if (s->stays) return;
        memcpy(body_of(s), s->lent, s->bytes);
    }
    letters_return(c, s);
}

/* @return whether somebody expects it. */
static bool deliver(struct comm *c, int from, const struct letter *l, size_t bytes)
{
    struct transport *t = c->transport;
    struct letters *all = &t->letters;
    for (int i = 0; i < all->expecteds; i++) {
        const struct half h = all->expected[i];
        if (!belongs(&t->slot[h.slot], h, from, l)) continue;
        remove_at(all->expected, &all->expecteds, i);
        take(c, h, l, bytes);
        return true;
    }
    return false;
}

static void keep_stray(struct comm *c, int from, const struct letter *l, size_t bytes)
{
    struct letters *all = &c->transport->letters;
    struct stray *s = malloc(offsetof(struct stray, letter) + bytes);
    if (s == NULL) {
        fprintf(stderr, "orrery: device %d has no memory for a message from device %d\n", c->rank, from);
        comm_abort(c, error_exit_status(ERR_MEMORY));
    }
    s->next = NULL, s->from = from, s->bytes = bytes;
    memcpy(&s->letter, l, bytes);
    if (all->last == NULL) all->last = &all->first;
    *all->last = s;
    all->last = &s->next;
}

void letters_expect(struct comm *c, struct half h)
{
    struct transport *t = c->transport;
    struct letters *all = &t->letters;
    /* The letter may have come before anybody expected it. */
    for (struct stray **at = &all->first, *s; (s = *at) != NULL; at = &s->next) {
        if (!belongs(&t->slot[h.slot], h, s->from, &s->letter)) continue;
        take(c, h, &s->letter, s->bytes);
        *at = s->next;
        if (all->last == &s->next) all->last = at;
        free(s);
        return;
    }
    all->expected[all->expecteds++] = h;
}

void letters_look(struct comm *c)
{
    struct transport *t = c->transport;
    if (t->letters.waitings > 0) write_waiting(c);
    for (int from = 0; from < t->near.size && t->near.devices > 0; from++) {
        size_t bytes;
        const struct letter *l;
        while (is_near(&t->near, from) && (l = near_read(&t->near, from, &bytes)) != NULL) {
            /* Rings must be emptied, or senders could not go on: unexpected letters are copied. */
            if (!deliver(c, from, l, bytes)) keep_stray(c, from, l, bytes);
            near_drop(&t->near, from);
        }
    }
}

static void forget(struct half *list, int *count, int slot)
{
    for (int i = *count - 1; i >= 0; i--)
        if (list[i].slot == slot) remove_at(list, count, i);
}

void letters_forget(struct comm *c, int slot)
{
    struct letters *l = &c->transport->letters;
    forget(l->expected, &l->expecteds, slot);
    forget(l->waiting, &l->waitings, slot);
}
