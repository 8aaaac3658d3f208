#include "emulated_devices/comm/bell.h"
#include "emulated_devices/comm/patience.h"
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct bell {
    _Alignas(128) atomic_bool listens;  /* in lines of the cache of its own */
    sem_t rung;
};

enum { NAME = 64 };

static struct bell *map(int file, int size)
{
    void *at = mmap(NULL, sizeof(struct bell) * (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? NULL : at;
}

static bool make_semaphores(struct bell *bell, int size)
{
    for (int i = 0; i < size; i++)
        if (sem_init(&bell[i].rung, 1, 0) != 0) return false;
    return true;
}

/* Device 0 makes the memory; the name is empty if it cannot. */
static struct bell *make(char name[NAME], int size)
{
    snprintf(name, NAME, "/orrery-%ld-%llx", (long)getpid(), (unsigned long long)patience_now());
    const int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    struct bell *bell = NULL;
    if (file >= 0 && ftruncate(file, (off_t)(sizeof *bell * (size_t)size)) == 0) bell = map(file, size);
    if (file >= 0) close(file);
    if (bell != NULL && make_semaphores(bell, size)) return bell;
    if (bell != NULL) munmap(bell, sizeof *bell * (size_t)size);
    if (file >= 0) shm_unlink(name);
    name[0] = '\0';
    return NULL;
}

/* On another machine than device 0's there is no such name, and so no bell. */
static struct bell *join(const char *name, int size)
{
    const int file = name[0] != '\0' ? shm_open(name, O_RDWR, 0) : -1;
    if (file < 0) return NULL;
    struct bell *bell = map(file, size);
    close(file);
    return bell;
}

void bells_open(struct bells *b, MPI_Comm comm)
{
    char name[NAME] = "";
    MPI_Request request;
    *b = (struct bells){ .bell = NULL };
    MPI_Comm_rank(comm, &b->rank);
    MPI_Comm_size(comm, &b->size);
    if (b->size == 1) return;
    if (b->rank == 0) b->bell = make(name, b->size);
    if (MPI_Ibcast(name, NAME, MPI_CHAR, 0, comm, &request) == MPI_SUCCESS && patience_settle(&request) && b->rank > 0) b->bell = join(name, b->size);
    if (MPI_Ibarrier(comm, &request) == MPI_SUCCESS) patience_settle(&request);
    if (b->rank == 0 && b->bell != NULL) shm_unlink(name);          /* all who can have it: it goes with the last of them */
}

void bells_close(struct bells *b)
{
    if (b->bell == NULL) return;
    munmap(b->bell, sizeof *b->bell * (size_t)b->size);
    b->bell = NULL;
}

void bells_ring(const struct bells *b, int rank)
{
    if (b->bell == NULL) return;
    struct bell *bell = &b->bell[rank];
    atomic_thread_fence(memory_order_seq_cst);          /* what was sent is seen before this looks who listens */
    if (atomic_load(&bell->listens) && atomic_exchange(&bell->listens, false)) sem_post(&bell->rung);
}

void bells_listen(const struct bells *b)
{
    atomic_exchange(&b->bell[b->rank].listens, true);
}

void bells_wait(const struct bells *b, int64_t nanoseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);                  /* sem_timedwait's own */
    t.tv_nsec += (long)nanoseconds;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    sem_timedwait(&b->bell[b->rank].rung, &t);
}
