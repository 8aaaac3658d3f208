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

static bool begin(struct range *r, void *base, size_t size, int advice)
{
    *r = (struct range){ .base = base == MAP_FAILED ? NULL : base, .size = size,
                         .page = (size_t)sysconf(_SC_PAGESIZE), .advice = advice };
    return r->base != NULL;
}

bool range_open(struct range *r, size_t size)
{
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return begin(r, base, size, MADV_DONTNEED);
}

bool range_open_file(struct range *r, int file, size_t size)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
#if defined(MADV_REMOVE)
    const bool made = begin(r, base, size, MADV_REMOVE);        /* of a file, other advice would keep the pages */
#else
    const bool made = begin(r, base, size, MADV_DONTNEED);
#endif
    r->keeps = KEPT_MOST;
    return made;
}

/* Processes have addresses below 2^47 or, asked for specially, 2^56. */
void range_open_unreserved(struct range *r)
{
    begin(r, (void *)((uintptr_t)1 << 60), (size_t)1 << 60, MADV_DONTNEED);
    r->unreserved = true;
}

void range_forget(struct range *r)
{
    while (r->holes != NULL) {
        struct hole *h = r->holes;
        r->holes = h->next;
        free(h);
    }
    r->used = r->kept = 0;
}

void range_close(struct range *r)
{
    range_forget(r);
    if (!r->unreserved) munmap(r->base, r->size);
}

static size_t whole_pages(const struct range *r, size_t bytes) { return (bytes + r->page - 1) / r->page * r->page; }

void *range_take(struct range *r, size_t bytes)
{
    const size_t need = whole_pages(r, bytes);
    if (need < bytes) return NULL;
    for (struct hole **at = &r->holes; *at != NULL; at = &(*at)->next)
        /* Only a hole of exactly this size is used again: sizes repeat from step to step. */
        if ((*at)->bytes == need) {
            struct hole *h = *at;
            char *const found = h->at;
            *at = h->next;
            r->kept -= h->kept ? need : 0;
            free(h);
            return found;
        }
    if (need > r->size - r->used) return NULL;
    r->used += need;
    return r->base + r->used - need;
}

/* Without memory for the list entry the addresses are lost; there are many others. */
void range_give(struct range *r, void *at, size_t bytes)
{
    struct hole *h = malloc(sizeof *h);
    const size_t pages = whole_pages(r, bytes);
    const bool keep = h != NULL && r->kept + pages <= r->keeps;
    if (!keep && !r->unreserved) madvise(at, pages, r->advice);
    if (h == NULL) return;
    *h = (struct hole){ .next = r->holes, .at = at, .bytes = pages, .kept = keep };
    r->kept += keep ? pages : 0;
    r->holes = h;
}

void range_protect(struct range *r, bool opened)
{
    if (r->used == 0 || mprotect(r->base, r->used, opened ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return;
    perror("orrery: the memory of a device cannot be protected");
    abort();
}
