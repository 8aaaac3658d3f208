/* range.h -- addresses that may not be accessed: where a backend's memory seems to be.
 *
 * One reserved stretch of virtual addresses, handed out in whole pages.  An access faults until its pages are opened.
 */
#ifndef ORRERY_RANGE_H
#define ORRERY_RANGE_H

#include <stdbool.h>
#include <stddef.h>

struct range {
    char *base;
    size_t size, used, page;            /* bytes; `used`: handed out so far, whether given back or not */
    struct hole *holes;                 /* given back, for the next one of so many pages */
};

/** Reserve so many bytes of addresses.  @return whether there were. */
bool range_open(struct range *, size_t size);
void range_close(struct range *);

/** Addresses for `bytes`, at the start of a page.  @return NULL if none are left. */
void *range_take(struct range *, size_t bytes);

/** Give them back, and the memory behind them. */
void range_give(struct range *, void *, size_t bytes);

static inline bool range_holds(const struct range *r, const void *at)
{
    return (const char *)at >= r->base && (const char *)at < r->base + r->size;
}

/** Let everything that was handed out be read and written, or let nothing. */
void range_protect(struct range *, bool opened);

#endif
