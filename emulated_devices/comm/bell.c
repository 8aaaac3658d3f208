#include "emulated_devices/comm/bell.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/shared.h"
#include <semaphore.h>
#include <stdatomic.h>

struct bell {
    _Alignas(128) atomic_int rings;     /* until it wakes; 0: it does not listen.  In lines of the cache of its own */
    sem_t rung;
};

static size_t bytes(const struct bells *b) { return sizeof *b->bell * (size_t)b->size; }

/* Each device initialises its own semaphore: others use it only after its device has listened for the first time. */
void bells_open(struct bells *b, MPI_Comm comm)
{
    *b = (struct bells){ .bell = NULL };
    MPI_Comm_rank(comm, &b->rank);
    MPI_Comm_size(comm, &b->size);
    if (b->size > 1) b->bell = shared_open(comm, bytes(b));
    if (b->bell != NULL && sem_init(&b->bell[b->rank].rung, 1, 0) != 0) bells_close(b);
}

void bells_close(struct bells *b)
{
    shared_close(b->bell, bytes(b));
    b->bell = NULL;
}

void bells_ring(const struct bells *b, int rank)
{
    if (b->bell == NULL) return;
    struct bell *bell = &b->bell[rank];
    atomic_thread_fence(memory_order_seq_cst);          /* the sent data must be visible before `rings` is read */
    if (atomic_load(&bell->rings) > 0 && atomic_fetch_sub(&bell->rings, 1) == 1) sem_post(&bell->rung);
}

void bells_listen(const struct bells *b, int rings)
{
    atomic_exchange(&b->bell[b->rank].rings, rings);
}

void bells_wait(const struct bells *b, int64_t nanoseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);                  /* the clock of sem_timedwait */
    t.tv_nsec += (long)nanoseconds;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    sem_timedwait(&b->bell[b->rank].rung, &t);
}
