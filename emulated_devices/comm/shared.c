/* shared.c -- memory that device 0 makes and the other devices of its machine map.  The callers are bell.c and
 * progress.c.  A device that cannot map it gets NULL and does without. */
#include "emulated_devices/comm/shared.h"
#include "emulated_devices/comm/patience.h"
#include "ref/machine/system.h"
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Device 0 sends this to the others: the path of the memory and its first number. */
struct invitation {
    char path[SYSTEM_PATH];             /* empty: there is no shared memory */
    uint64_t token;                     /* detects another machine, which has another file at this path */
};

/* Before the callers' memory, in separate cache lines. */
struct front { _Alignas(128) uint64_t token; };

static struct front *shared_map(int file, size_t bytes)
{
    void *at = mmap(NULL, sizeof(struct front) + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void unmap(struct front *front, size_t bytes) { munmap(front, sizeof *front + bytes); }

/* Device 0 creates the memory.  @param[out] file  stays open until all devices have opened it. */
static struct front *shared_make(struct invitation *to, size_t bytes, int *file)
{
    struct front *f = NULL;
    *file = system_memory_make(to->path);
    if (*file >= 0 && ftruncate(*file, (off_t)(sizeof *f + bytes)) == 0) f = shared_map(*file, bytes);
    if (f != NULL) f->token = to->token = (uint64_t)patience_now() << 20 ^ (uint64_t)getpid();
    else if (*file >= 0) system_memory_unname(to->path);
    if (f == NULL) to->path[0] = '\0';
    return f;
}

/* Map device 0's memory.  @return NULL where this device cannot. */
static struct front *shared_join(const struct invitation *to, size_t bytes)
{
    const int file = to->path[0] != '\0' ? system_memory_join(to->path) : -1;
    if (file < 0) return NULL;
    /* A file of another machine may lie at this path: its size and token are compared. */
    struct stat st;
    const bool right_size = fstat(file, &st) == 0 && st.st_size >= (off_t)(sizeof(struct front) + bytes);
    struct front *f = right_size ? shared_map(file, bytes) : NULL;
    close(file);
    if (f == NULL || f->token == to->token) return f;
    unmap(f, bytes);
    return NULL;
}

void *shared_open(MPI_Comm comm, size_t bytes)
{
    struct invitation to = { .path = "" };
    struct front *f = NULL;
    MPI_Request request;
    int rank, file = -1;
    MPI_Comm_rank(comm, &rank);
    if (rank == 0) f = shared_make(&to, bytes, &file);
    if (MPI_Ibcast(&to, sizeof to, MPI_BYTE, 0, comm, &request) == MPI_SUCCESS && patience_meet(&request) && rank > 0)
        f = shared_join(&to, bytes);
    /* Behind the barrier all devices have opened the memory, so the name and descriptor can go. */
    if (MPI_Ibarrier(comm, &request) == MPI_SUCCESS) patience_meet(&request);
    if (rank == 0 && f != NULL) system_memory_unname(to.path);
    if (file >= 0) close(file);
    return f != NULL ? f + 1 : NULL;
}

void shared_close(void *memory, size_t bytes)
{
    if (memory != NULL) unmap((struct front *)memory - 1, bytes);
}
