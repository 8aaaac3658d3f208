/* bell.c -- bells in shared memory: a counter of rings and a wake-up for each device.  Waits in patience.h sleep
 * by bells; transport.c and letters.c ring.  Nothing here reports an error: without shared memory there are no
 * bells. */
#include "emulated_devices/comm/bell.h"
#include "emulated_devices/comm/patience.h"
#include "emulated_devices/comm/shared.h"
#include "ref/machine/system.h"
#include <stdatomic.h>

struct bell {
    _Alignas(128) atomic_int rings;     /* until it wakes; 0: it does not listen.  In lines of the cache of its own */
    struct system_wake rung;
};

/* The shared memory has one bell for each device of the program. */
static size_t bytes(const struct bells *bells) { return sizeof *bells->bell * (size_t)bells->size; }

/* Each device initialises its own wake-up: others use it only after its device has listened for the first time. */
void bells_open(struct bells *bells, MPI_Comm comm)
{
    *bells = (struct bells){ .bell = NULL };
    MPI_Comm_rank(comm, &bells->rank);
    MPI_Comm_size(comm, &bells->size);
    if (bells->size > 1) bells->bell = shared_open(comm, bytes(bells));
    if (bells->bell != NULL && !system_wake_open(&bells->bell[bells->rank].rung)) bells_close(bells);
}

void bells_close(struct bells *bells)
{
    shared_close(bells->bell, bytes(bells));
    bells->bell = NULL;
}

void bells_ring(const struct bells *bells, int rank)
{
    if (bells->bell == NULL) return;
    struct bell *bell = &bells->bell[rank];
    atomic_thread_fence(memory_order_seq_cst);          /* the sent data must be visible before `rings` is read */
    if (atomic_load(&bell->rings) > 0 && atomic_fetch_sub(&bell->rings, 1) == 1) system_wake_post(&bell->rung);
}

void bells_listen(const struct bells *bells, int rings)
{
    atomic_exchange(&bells->bell[bells->rank].rings, rings);
}

void bells_wait(const struct bells *bells, int64_t nanoseconds)
{
    system_wake_wait(&bells->bell[bells->rank].rung, nanoseconds);
}
