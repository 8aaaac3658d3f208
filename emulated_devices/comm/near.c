/* near.c -- finds the devices of this machine, maps their pools, and writes and reads their rings.  The callers are
 * connect.c, which opens and closes, and letters.c.  Nothing here is an error: a device that is not near uses MPI. */
#include "emulated_devices/comm/near.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/device/pool.h"
#include <stdlib.h>
#include <string.h>

/* ---- rings ------------------------------------------------------------------------------------------------------- */

/* The counters only grow; an entry is never cut by the end of the ring. */
struct ring {
    _Alignas(64) atomic_ulong written;  /* bytes, by the sender */
    _Alignas(64) atomic_ulong read;     /* bytes, by the receiver */
    _Alignas(64) char data[RING_BYTES];
};

/* An inbox begins with a bit for each sender.  A look at these words costs less than one at a ring of each sender. */
static size_t flag_bytes(const struct near *n) { return ((size_t)n->size + 63) / 64 * sizeof(uint64_t); }
static size_t rings_at(const struct near *n) { return (flag_bytes(n) + 63) / 64 * 64; }

/* The letter is written before the flag is raised.  A flag that is up has not been seen: its reader lowers it first and
 * looks into the ring then. */
static void raise_flag(const struct near *n, int rank)
{
    const uint64_t own = (uint64_t)1 << n->rank % 64;
    if (!(atomic_load(n->flags[rank]) & own)) atomic_fetch_or(n->flags[rank], own);
}

uint64_t near_flags(const struct near *n, int word)
{
    atomic_uint_least64_t *const flags = (atomic_uint_least64_t *)n->inbox + word;
    return atomic_load(flags) != 0 ? atomic_exchange(flags, 0) : 0;
}

/* Before each entry: the bytes of its letter; SKIP: the rest of the ring is empty. */
struct entry { uint64_t bytes; char letter[]; };

static const uint64_t SKIP = UINT64_MAX;
enum { LINE = 64 };                     /* entries begin at its multiples */

/* An entry takes its length, its letter, and what is left of the last line of the cache. */
static uint64_t room_for(uint64_t bytes) { return (sizeof(struct entry) + bytes + LINE - 1) / LINE * LINE; }
static struct entry *entry_at(struct ring *ring, uint64_t at) { return (struct entry *)&ring->data[at % RING_BYTES]; }

bool near_write(const struct near *n, int rank, const void *head, size_t head_bytes, const void *rest,
                size_t rest_bytes)
{
    struct ring *r = n->to[rank];
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    /* An entry that does not fit before the end of the ring begins at its start; the rest is skipped. */
    const uint64_t need = room_for(head_bytes + rest_bytes), left = RING_BYTES - at % RING_BYTES;
    const uint64_t skipped = need > left ? left : 0;
    if (at + skipped + need - atomic_load(&r->read) > RING_BYTES) return false;
    if (skipped > 0) entry_at(r, at)->bytes = SKIP;
    at += skipped;
    struct entry *e = entry_at(r, at);
    e->bytes = head_bytes + rest_bytes;
    memcpy(e->letter, head, head_bytes);
    if (rest_bytes > 0) memcpy(e->letter + head_bytes, rest, rest_bytes);
    /* The entry is complete before the counter tells of it. */
    atomic_store(&r->written, at + need);
    raise_flag(n, rank);
    return true;
}

const void *near_read(const struct near *n, int rank, size_t *bytes)
{
    struct ring *r = n->from[rank];
    uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
    const uint64_t written = atomic_load(&r->written);
    if (at == written) return NULL;
    if (entry_at(r, at)->bytes == SKIP) atomic_store(&r->read, at += RING_BYTES - at % RING_BYTES);
    /* Behind a skip there is always an entry: the sender counts both at once. */
    *bytes = entry_at(r, at)->bytes;
    return entry_at(r, at)->letter;
}

void near_drop(const struct near *n, int rank)
{
    struct ring *r = n->from[rank];
    const uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
    atomic_store(&r->read, at + room_for(entry_at(r, at)->bytes));
}

/* ---- who is near ------------------------------------------------------------------------------------------------- */

/* Each device tells this to all others. */
struct near_place {
    struct pool_place pool;
    uint64_t inbox;                     /* its place in the pool */
};

static size_t inbox_bytes(const struct near *n) { return rings_at(n) + sizeof(struct ring) * (size_t)n->size; }

bool near_make(struct near *n, int rank, int size)
{
    const size_t P = (size_t)size;
    *n = (struct near){ .base = calloc(P, sizeof *n->base), .to = calloc(P, sizeof *n->to),
                        .from = calloc(P, sizeof *n->from), .flags = calloc(P, sizeof *n->flags),
                        .place = calloc(P, sizeof *n->place),
                        .mapped = calloc(P, 2), .rank = rank, .size = size };
    if (n->base && n->to && n->from && n->flags && n->place && n->mapped) return true;
    near_close(n);
    return false;
}

/* Make this device's inbox in the pool: a ring for each sender, all empty. */
static void open_inbox(struct near *n)
{
    n->inbox = pool_take(inbox_bytes(n));
    if (n->inbox != NULL) memset(n->inbox, 0, flag_bytes(n));
    for (int i = 0; i < n->size && n->inbox != NULL; i++) {
        struct ring *r = (struct ring *)(n->inbox + rings_at(n)) + i;
        atomic_store(&r->written, 0), atomic_store(&r->read, 0);
    }
}

/* Tell all others where the own inbox is, and map theirs. */
static void map_all(struct near *n, MPI_Comm comm, bool wanted)
{
    struct near_place own = { .pool = { .machine = pool_place().machine } };
    MPI_Request request;
    if (wanted && n->size > 1 && pool_open()) open_inbox(n);
    if (n->inbox != NULL) own = (struct near_place){ pool_place(), pool_offset(n->inbox, inbox_bytes(n)) };
    if (MPI_Iallgather(&own, sizeof own, MPI_BYTE, n->place, sizeof own, MPI_BYTE, comm, &request) != MPI_SUCCESS ||
        !patience_meet(&request))
        return;
    for (int i = 0; i < n->size; i++) n->elsewhere = n->elsewhere || n->place[i].pool.machine != own.pool.machine;
    for (int i = 0; i < n->size && n->inbox != NULL; i++)
        n->base[i] = i == n->rank ? n->inbox - own.inbox : pool_map(&n->place[i].pool);
}

static void unmap(struct near *n, int i)
{
    if (i != n->rank) pool_unmap(n->base[i]);
    n->base[i] = NULL;
}

/* A pair is near only if each has mapped the other's pool. */
static void keep_mutual(struct near *n, MPI_Comm comm)
{
    unsigned char *mine = n->mapped, *theirs = n->mapped + n->size;
    MPI_Request request;
    for (int i = 0; i < n->size; i++) mine[i] = n->base[i] != NULL;
    const bool told = MPI_Ialltoall(mine, 1, MPI_BYTE, theirs, 1, MPI_BYTE, comm, &request) == MPI_SUCCESS &&
                      patience_meet(&request);
    for (int i = 0; i < n->size; i++) {
        if (!told || !theirs[i]) unmap(n, i);
        if (n->base[i] == NULL) continue;
        char *const theirs_at = n->base[i] + n->place[i].inbox;
        n->flags[i] = (atomic_uint_least64_t *)theirs_at + n->rank / 64;
        n->to[i] = (struct ring *)(theirs_at + rings_at(n)) + n->rank;
        n->from[i] = (struct ring *)(n->inbox + rings_at(n)) + i;
        n->devices++;
    }
}

static void forget_lists(struct near *n)
{
    free(n->place), free(n->mapped);
    n->place = NULL, n->mapped = NULL;
}

void near_open(struct near *n, MPI_Comm comm, bool wanted)
{
    map_all(n, comm, wanted);
    keep_mutual(n, comm);
    forget_lists(n);
}

void near_close(struct near *n)
{
    for (int i = 0; i < n->size && n->base != NULL; i++) unmap(n, i);
    if (n->inbox != NULL) pool_give(n->inbox, inbox_bytes(n));
    forget_lists(n);
    free(n->base), free(n->to), free(n->from), free(n->flags);
    *n = (struct near){ .inbox = NULL };
}
