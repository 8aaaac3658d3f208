/* pool.h -- large blocks of this process's memory, in one file that other processes of the machine can map.
 *
 * A message can then be copied straight from the sender's tensor into the receiver's (comm/near.h).  The file is not
 * in any folder: it ends with the last process that has it, however that ends.  Its size is only addresses: pages
 * come with the first access; when their block is given back they go, but for some that the next block gets.
 *
 * One pool a process; not for several threads at once.
 *
 * backends/cpu.c takes blocks here; comm/ finds a block's place and maps the pools of others.  Where there is no
 * pool, memory comes from the C library.  False or NULL means that there is no pool, or no room in the pool.
 */
#ifndef ORRERY_POOL_H
#define ORRERY_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The file as another process opens it. */
struct pool_place {
    char path[64];                      /* empty: there is no pool */
    uint64_t machine;                   /* differs where the path would mean another file; 0: not known */
    uint64_t token;                     /* the first number in the file, drawn by its process */
};

/** Have a pool from now on, until the process ends.  Local; calling it again does nothing.
 *  @return whether there is one: the system may have no such files, or not enough addresses. */
bool pool_open(void);

/** Memory at the start of a page; its content is undefined.  @return NULL if there is no pool, or no room in it. */
void *pool_take(size_t bytes);

/** Give a block back, with the size it was taken with.  @return false: it is not the pool's; nothing was done. */
bool pool_give(void *, size_t bytes);

/** Memory aligned to 64 bytes: from the pool if there is one and whole pages are no waste for so much, else from
 *  malloc.  @return NULL: there is none. */
void *host_block_take(size_t bytes);
void host_block_give(void *, size_t bytes);

/** Where in the pool's file `bytes` bytes are.  @return 0 if not all of them are in it. */
uint64_t pool_offset(const void *, size_t bytes);

/** Where others find this pool; without one only the machine is said. */
struct pool_place pool_place(void);

/** Map the pool of another process.  @return NULL: it is on another machine or cannot be opened here. */
char *pool_map(const struct pool_place *);
void pool_unmap(char *);

#endif
