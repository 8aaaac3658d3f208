/* range.h -- addresses that may not be accessed, for a backend's memory.
 *
 * One range of virtual addresses, allocated in whole pages.  An access faults until its pages are opened.
 *
 * The backends count and discrete take a device's memory from a range, and pool.c the pool's.  A function returns
 * false or NULL where the system has no addresses.
 */
#ifndef ORRERY_RANGE_H
#define ORRERY_RANGE_H

#include <stdbool.h>
#include <stddef.h>

enum { RANGE_LISTS = 256 };

struct range {
    char *base;                         /* first byte of the reserved addresses */
    size_t size, used, page;            /* bytes; `used`: allocated so far, including freed ones */
    struct hole *holes[RANGE_LISTS];    /* freed, for the next allocation of the same number of pages: by this number
                                         * modulo the lists */
    int advice;                         /* what tells the system that freed pages are of no use any more */
    bool unreserved;                    /* no page can ever be opened */
    size_t kept, keeps;                 /* bytes of freed pages that are still there, for the next; at most so many */
};

/** Reserve `size` bytes of addresses.  @return whether this was possible. */
bool range_open(struct range *, size_t size);

/** Addresses that no process can map, so that nothing needs to be reserved and there are 2^60 of them: for a backend
 *  that reads and writes nothing.  An access always faults. */
void range_open_unreserved(struct range *);

/** Open a range whose memory is the first `size` bytes of a file, which others may map, too.  It may be read and
 *  written. */
bool range_open_file(struct range *, int file, size_t size);
void range_close(struct range *);

/** Free all addresses, and keep the range: for one that is a copy of another. */
void range_forget(struct range *);

/** Addresses for `bytes`, at the start of a page.  @return NULL if none are left. */
void *range_take(struct range *, size_t bytes);

/** Free addresses and their memory; of a file some is kept for the next. */
void range_give(struct range *, void *, size_t bytes);

static inline bool range_holds(const struct range *range, const void *at)
{
    return (const char *)at >= range->base && (const char *)at < range->base + range->size;
}

/** Allow, or forbid, reading and writing all allocated addresses. */
void range_protect(struct range *, bool opened);

#endif
