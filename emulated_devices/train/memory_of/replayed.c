/* replayed.c -- makes and drops the tensors of a replay.  replay.c and states.c call.  Without memory for a list the
 * field `failed` is set, and no function returns an error code. */
#include "emulated_devices/train/memory_of/replayed.h"
#include <stdlib.h>
#include <string.h>

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const name[] = {
#define X(id, text) [id] = text,
        MEMORY_KINDS(X)
#undef X
    };
    return kind < MEMORY_KIND_COUNT ? name[kind] : "unknown";
}

/* Keep the state at the highest number of allocated bytes. */
static void replayed_note_peak(struct pieces *pieces)
{
    if (pieces->allocator.now.allocated <= pieces->result->allocated) return;
    pieces->result->allocated = pieces->allocator.now.allocated;
    pieces->result->doing = pieces->doing;
    memcpy(pieces->result->held, pieces->held, sizeof pieces->held);
}

struct replayed *replayed_make(struct pieces *pieces, enum memory_kind kind, int stream, uint64_t bytes)
{
    struct replayed *p = malloc(sizeof *p);
    if (p == NULL) {
        pieces->failed = true;
        return NULL;
    }
    *p = (struct replayed){ .bytes = bytes, .kind = kind, .users = 1 };
    if (bytes == 0) return p;
    p->block = caching_allocate(&pieces->allocator, bytes, stream);
    pieces->failed = pieces->failed || p->block == NULL;
    pieces->held[kind] += bytes;
    pieces->result->segments++;
    replayed_note_peak(pieces);
    return p;
}

struct replayed *replayed_use(struct replayed *piece)
{
    if (piece) piece->users++;
    return piece;
}

void replayed_drop(struct pieces *pieces, struct replayed **piece)
{
    struct replayed *p = *piece;
    *piece = NULL;
    if (p == NULL || --p->users > 0) return;
    pieces->held[p->kind] -= p->bytes;
    caching_free(&pieces->allocator, p->block);
    free(p);
}

void replayed_push(struct replayed **list, struct replayed *piece)
{
    if (piece == NULL) return;
    piece->next = *list;
    *list = piece;
}

void replayed_drop_all(struct pieces *pieces, struct replayed **list)
{
    while (*list) {
        struct replayed *p = *list;
        *list = p->next;
        replayed_drop(pieces, &p);
    }
}
