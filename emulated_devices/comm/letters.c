/* letters.c -- matches letters of near devices with the slots that expect them.  transport.c calls.  Missing memory
 * for an unexpected letter ends the job, because nobody could report it. */
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

/* A stray letter is in memory of this process, as its receive has not been posted. */
struct stray { struct stray *next; int from; size_t bytes; struct letter letter; };

bool letters_make_room(struct letters *letters, int slots)
{
    const size_t bytes = sizeof(struct half) * 2 * (size_t)slots;
    /* Each slot has at most two halves, so both lists need twice as many entries as there are slots. */
    struct half *expected = realloc(letters->expected, bytes);
    if (expected != NULL) letters->expected = expected;
    struct half *waiting = realloc(letters->waiting, bytes);
    if (waiting != NULL) letters->waiting = waiting;
    if (letters->last == NULL) letters->last = &letters->first;
    return expected != NULL && waiting != NULL;
}

void letters_close(struct letters *letters)
{
    while (letters->first != NULL) {
        struct stray *s = letters->first;
        letters->first = s->next;
        free(s);
    }
    free(letters->expected), free(letters->waiting);
    *letters = (struct letters){ .first = NULL };
}

static void remove_at(struct half *list, int *count, int i)
{
    memmove(&list[i], &list[i + 1], sizeof *list * (size_t)(--*count - i));
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Write one half into the peer's inbox and ring.  The head is in the slot's stage, and so is a small payload.
 * Without room in the inbox the result is false. */
static bool write_half(struct comm *comm, struct half half)
{
    struct transport *t = comm->transport;
    struct slot *s = &t->slot[half.slot];
    struct letter l = { .tag = slot_tag(s), .answer = half.answer };
    if (half.answer) l.head.stamp = *s->answer;
    else l.head = *s->stage;
    /* A short payload travels in the letter; a body stays in the sender's pool. */
    const size_t inside = half.answer || has_body(s) ? 0 : (size_t)s->bytes;
    if (!near_write(&t->near, peer_of(s), &l, sizeof l, s->stage + 1, inside)) return false;
    if (half.answer) s->answered = true;
    else s->written = true;
    bells_ring(&t->bells, peer_of(s));
    return true;
}

/* Letters to one device keep their order. */
static bool has_waiting(const struct transport *transport, int to)
{
    const struct letters *l = &transport->letters;
    for (int i = 0; i < l->waitings; i++)
        if (peer_of(&transport->slot[l->waiting[i].slot]) == to) return true;
    return false;
}

void letters_send(struct comm *comm, struct half half)
{
    struct letters *l = &comm->transport->letters;
    const int to = peer_of(&comm->transport->slot[half.slot]);
    /* A letter does not overtake another one to the same device. */
    if (has_waiting(comm->transport, to) || !write_half(comm, half)) l->waiting[l->waitings++] = half;
}

/* Write what had no room before, oldest first; a device whose inbox is full holds up only its own letters. */
static void write_waiting(struct comm *comm)
{
    struct transport *t = comm->transport;
    struct letters *l = &t->letters;
    int left = 0;
    for (int i = 0, n = l->waitings; i < n; i++) {
        const struct half h = l->waiting[i];
        l->waitings = left;                             /* those before it that still wait */
        if (has_waiting(t, peer_of(&t->slot[h.slot])) || !write_half(comm, h)) l->waiting[left++] = h;
    }
    l->waitings = left;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* Whether a letter is the half that a slot expects: the same sender, tag and kind.  The tag may be shared; the head
 * is checked later. */
static bool belongs(const struct slot *slot, struct half half, int from, const struct letter *letter)
{
    return half.answer == letter->answer && peer_of(slot) == from && slot_tag(slot) == letter->tag;
}

void letters_return(struct comm *comm, struct slot *slot)
{
    if (slot->lender == NULL) return;
    atomic_store(&slot->lender->taken, 1);
    slot->lender = NULL;
    bells_ring(&comm->transport->bells, peer_of(slot));
}

/* Copy the body out of the sender's memory, and tell the sender; but not if it stays there. */
static void letters_take(struct comm *comm, struct half half, const struct letter *letter, size_t bytes)
{
    struct transport *t = comm->transport;
    struct slot *s = &t->slot[half.slot];
    if (half.answer) {
        *s->answer = letter->head.stamp;
        s->answered = true;
        return;
    }
    char *const pool = t->near.base[peer_of(s)];
    /* The slot looks as if MPI had received the head, so the rest of the code is the same. */
    s->got = (int)(bytes - sizeof *letter + sizeof letter->head);
    memcpy(s->stage, (const char *)letter + offsetof(struct letter, head), (size_t)s->got);
    s->here = true;
    s->lender = letter->head.receipt > 0 ? (struct receipt *)(pool + letter->head.receipt) : NULL;
    if (letter->head.body > 0 && letter->head.bytes == s->bytes) {
        s->lent = pool + letter->head.body;
        /* The receiver reads it in the sender's memory, and signs the receipt later. */
        if (s->stays) return;
        memcpy(body_of(s), s->lent, s->bytes);
    }
    letters_return(comm, s);
}

/* Give a letter to the oldest slot that expects it.  @return whether there is one. */
static bool deliver(struct comm *comm, int from, const struct letter *letter, size_t bytes)
{
    struct transport *t = comm->transport;
    struct letters *all = &t->letters;
    for (int i = 0; i < all->expecteds; i++) {
        const struct half h = all->expected[i];
        if (!belongs(&t->slot[h.slot], h, from, letter)) continue;
        remove_at(all->expected, &all->expecteds, i);
        letters_take(comm, h, letter, bytes);
        return true;
    }
    return false;
}

/* Keep a copy of a letter that nobody expects yet, behind the older ones. */
static void keep_stray(struct comm *comm, int from, const struct letter *l, size_t bytes)
{
    struct letters *all = &comm->transport->letters;
    struct stray *s = malloc(offsetof(struct stray, letter) + bytes);
    if (s == NULL) {
        fprintf(stderr, "orrery: device %d has no memory for a message from device %d\n", comm->rank, from);
        comm_abort(comm, error_exit_status(ERR_MEMORY));
    }
    s->next = NULL, s->from = from, s->bytes = bytes;
    memcpy(&s->letter, l, bytes);
    if (all->last == NULL) all->last = &all->first;
    *all->last = s;
    all->last = &s->next;
}

void letters_expect(struct comm *comm, struct half half)
{
    struct transport *t = comm->transport;
    struct letters *all = &t->letters;
    /* The letter may have come before anybody expected it. */
    for (struct stray **at = &all->first, *s; (s = *at) != NULL; at = &s->next) {
        if (!belongs(&t->slot[half.slot], half, s->from, &s->letter)) continue;
        letters_take(comm, half, &s->letter, s->bytes);
        *at = s->next;
        if (all->last == &s->next) all->last = at;
        free(s);
        return;
    }
    all->expected[all->expecteds++] = half;
}

/* Rings must be emptied, or senders could not go on: unexpected letters are copied. */
static void empty_ring(struct comm *comm, int from)
{
    const struct near *near = &comm->transport->near;
    size_t bytes;
    for (const struct letter *l; (l = near_read(near, from, &bytes)) != NULL; near_drop(near, from))
        if (!deliver(comm, from, l, bytes)) keep_stray(comm, from, l, bytes);
}

void letters_look(struct comm *comm)
{
    struct transport *t = comm->transport;
    if (t->letters.waitings > 0) write_waiting(comm);
    for (int word = 0; word < near_words(&t->near); word++)
        for (uint64_t flags = near_flags(&t->near, word); flags != 0; flags &= flags - 1)
            empty_ring(comm, 64 * word + __builtin_ctzll(flags));
}

/* Remove a slot's halves from one list. */
static void comm_letters_forget(struct half *list, int *count, int slot)
{
    for (int i = *count - 1; i >= 0; i--)
        if (list[i].slot == slot) remove_at(list, count, i);
}

void letters_forget(struct comm *comm, int slot)
{
    struct letters *l = &comm->transport->letters;
    comm_letters_forget(l->expected, &l->expecteds, slot);
    comm_letters_forget(l->waiting, &l->waitings, slot);
}
