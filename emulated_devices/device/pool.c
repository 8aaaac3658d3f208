/* pool.c -- memory of a process that other processes of the machine can map: a file without a name.
 *
 * backends/cpu.c allocates large blocks here, comm/ takes messages out of the pools of others.  pool_open returns
 * false where the machine cannot do it; then memory comes from the C library.
 */
#define _DEFAULT_SOURCE                 /* MAP_NORESERVE */
#include "emulated_devices/device/pool.h"
#include "emulated_devices/device/backends/range.h"
#include "ref/machine/system.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* In sanitizer builds what is not taken may not be touched, as with malloc. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

static const size_t ADDRESSES = (size_t)1 << 36;        /* the same in all processes */

static struct {
    struct range range;                 /* base NULL: there is no pool */
    struct pool_place place;
} pool;

static uint64_t pool_mix(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* A path is the same file only in the same kernel and among the same numbers of processes.  @return 0: there is no
 * pool here, because a file that is left behind would keep its memory. */
static uint64_t find_machine(void)
{
    char boot[SYSTEM_NAME], space[SYSTEM_NAME];
    if (!system_memory_vanishes() || !system_boot(boot) || !system_space(space)) return 0;
    return pool_mix(pool_mix(UINT64_C(0xcbf29ce484222325), boot), space);
}

/* It is found once: each pool of another process asks for it. */
static uint64_t this_machine(void)
{
    static uint64_t machine;
    static bool found;
    if (!found) machine = find_machine(), found = true;
    return machine;
}

/* Make the pool of this process once.  The file stays open, for processes that map it later. */
bool pool_open(void)
{
    if (pool.range.base != NULL) return true;
    const uint64_t machine = this_machine();
    char path[SYSTEM_PATH] = "";
    const int file = machine != 0 ? system_memory_make(path) : -1;
    if (file < 0 || ftruncate(file, (off_t)ADDRESSES) != 0 || !range_open_file(&pool.range, file, ADDRESSES)) {
        if (file >= 0) close(file);
        return false;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct pool_place *p = &pool.place;
    /* Others open the file by its path, and know it by machine and token. */
    snprintf(p->path, sizeof p->path, "%s", path);
    p->machine = machine;
    p->token = ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) << 20 ^ (uint64_t)getpid();
    /* The first block is the token, so no other block has offset 0. */
    memcpy(range_take(&pool.range, sizeof p->token), &p->token, sizeof p->token);
    return true;
}

/* All of a block's pages are poisoned, but its bytes while it is taken. */
static void poison(char *at, size_t bytes, size_t taken)
{
    ASAN_POISON_MEMORY_REGION(at, (bytes + pool.range.page - 1) / pool.range.page * pool.range.page);
    ASAN_UNPOISON_MEMORY_REGION(at, taken);
}

void *pool_take(size_t bytes)
{
    void *at = pool.range.base != NULL ? range_take(&pool.range, bytes > 0 ? bytes : 1) : NULL;
    if (at != NULL) poison(at, bytes, bytes);
    return at;
}

bool pool_give(void *at, size_t bytes)
{
    if (pool.range.base == NULL || !range_holds(&pool.range, at)) return false;
    range_give(&pool.range, at, bytes > 0 ? bytes : 1);
    poison(at, bytes, 0);
    return true;
}

enum { POOL_LEAST = 1 << 16, ALIGNMENT = 64 };          /* bytes */

/* Small blocks are not worth a page; large ones come from the pool if there is one. */
void *host_block_take(size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    void *at = bytes >= POOL_LEAST ? pool_take(bytes) : NULL;
    return at != NULL ? at : aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

void host_block_give(void *at, size_t bytes)
{
    if (!pool_give(at, bytes)) free(at);
}

/* The place of a block in this process's pool, by which others find it; 0: the block is in no pool. */
uint64_t pool_offset(const void *at, size_t bytes)
{
    if (pool.range.base == NULL || !range_holds(&pool.range, at)) return 0;
    const size_t offset = (size_t)((const char *)at - pool.range.base);
    return bytes <= pool.range.used - offset ? offset : 0;
}

struct pool_place pool_place(void)
{
    struct pool_place p = pool.place;
    p.machine = this_machine();
    return p;
}

/* ---- the pools of others ----------------------------------------------------------------------------------------- */

/* Map another process's pool.  NULL: the pool is of another machine or has gone, or the system refuses. */
char *pool_map(const struct pool_place *place)
{
    if (place->path[0] == '\0' || place->machine != this_machine()) return NULL;
    const int file = system_memory_join(place->path);
    if (file < 0) return NULL;
    /* A file of another size is no pool. */
    const bool right_size = lseek(file, 0, SEEK_END) == (off_t)ADDRESSES;
    char *at = right_size ? mmap(NULL, ADDRESSES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0)
                          : MAP_FAILED;
    uint64_t token = 0;
    close(file);
    if (at == MAP_FAILED) return NULL;
    /* The first bytes of a pool are its token, so a reused path does not deceive. */
    memcpy(&token, at, sizeof token);
    if (token == place->token) return at;
    pool_unmap(at);
    return NULL;
}

void pool_unmap(char *at)
{
    if (at != NULL) munmap(at, ADDRESSES);
}
