/* range.c -- hands out addresses of a large reserved range in whole pages.
 *
 * The backends count and discrete, and pool.c, call this file.  NULL or false: there are no addresses or no file.  A
 * range that cannot be protected ends the program.
 */
#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS, MAP_NORESERVE, madvise, MADV_REMOVE */
#include "emulated_devices/device/backends/range.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct hole {
    struct hole *next;
    char *at;
    size_t bytes;
    bool kept;                          /* its pages are still there */
};

/* A file's page that comes again is filled with zeros first, which takes as long as a copy. */
enum { KEPT_MOST = 64 << 20 };

static bool range_begin(struct range *range, void *base, size_t size, int advice)
{
    *range = (struct range){ .base = base == MAP_FAILED ? NULL : base, .size = size,
                         .page = (size_t)sysconf(_SC_PAGESIZE), .advice = advice };
    return range->base != NULL;
}

/* Addresses without access: range_protect opens them while an operation runs. */
bool range_open(struct range *range, size_t size)
{
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range_begin(range, base, size, MADV_DONTNEED);
}

bool range_open_file(struct range *range, int file, size_t size)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
#if defined(MADV_REMOVE)
    /* Other advice would keep the pages of a file. */
    const bool made = range_begin(range, base, size, MADV_REMOVE);
#else
    const bool made = range_begin(range, base, size, MADV_DONTNEED);
#endif
    range->keeps = KEPT_MOST;
    return made;
}

/* Processes have addresses below 2^47 or, asked for specially, 2^56. */
void range_open_unreserved(struct range *range)
{
    range_begin(range, (void *)((uintptr_t)1 << 60), (size_t)1 << 60, MADV_DONTNEED);
    range->unreserved = true;
}

void range_forget(struct range *range)
{
    for (int i = 0; i < RANGE_LISTS; i++)
        while (range->holes[i] != NULL) {
            struct hole *h = range->holes[i];
            range->holes[i] = h->next;
            free(h);
        }
    range->used = range->kept = 0;
}

void range_close(struct range *range)
{
    range_forget(range);
    if (!range->unreserved) munmap(range->base, range->size);
}

static size_t whole_pages(const struct range *range, size_t bytes)
{
    return (bytes + range->page - 1) / range->page * range->page;
}

/* Where holes of so many whole pages are listed. */
static struct hole **range_list(struct range *range, size_t bytes)
{
    return &range->holes[bytes / range->page % RANGE_LISTS];
}

/* Addresses for a block: a hole of its size, or the next ones that were never used. */
void *range_take(struct range *range, size_t bytes)
{
    const size_t need = whole_pages(range, bytes);
    if (need < bytes) return NULL;
    for (struct hole **at = range_list(range, need); *at != NULL; at = &(*at)->next)
        /* Only a hole of exactly this size is used again: sizes repeat from step to step. */
        if ((*at)->bytes == need) {
            struct hole *h = *at;
            char *const found = h->at;
            *at = h->next;
            range->kept -= h->kept ? need : 0;
            free(h);
            return found;
        }
    if (need > range->size - range->used) return NULL;
    range->used += need;
    return range->base + range->used - need;
}

/* Without memory for the list entry the addresses are lost; there are many others. */
void range_give(struct range *range, void *at, size_t bytes)
{
    struct hole *h = malloc(sizeof *h);
    const size_t pages = whole_pages(range, bytes);
    const bool keep = h != NULL && range->kept + pages <= range->keeps;
    if (!keep && !range->unreserved) madvise(at, pages, range->advice);
    if (h == NULL) return;
    struct hole **const list = range_list(range, pages);
    *h = (struct hole){ .next = *list, .at = at, .bytes = pages, .kept = keep };
    range->kept += keep ? pages : 0;
    *list = h;
}

/* All addresses used so far get or lose access at once. */
void range_protect(struct range *range, bool opened)
{
    if (range->used == 0 || mprotect(range->base, range->used, opened ? PROT_READ | PROT_WRITE : PROT_NONE) == 0)
        return;
    perror("orrery: the memory of a device cannot be protected");
    abort();
}
