/* count -- computes nothing: the costs of a plan, without its numbers.
 *
 * Operations are charged and counted.  Memory is only addresses; host views show zeros.  Messages are sent and contain
 * zeros.  Virtual time, messages and memory peaks equal those of every other backend, unless they depend on numbers, as
 * a router's choices or a skipped step do.
 */
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/backends/range.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t ADDRESSES = (size_t)1 << 40;

struct printable { struct printable *next; max_align_t zeros[]; };

struct counting { struct range range; struct printable *views; };

static struct counting *of(struct device *d) { return d->state; }

static enum error_code open_it(struct device *d, struct error *err)
{
    struct counting *c = calloc(1, sizeof *c);
    if (c == NULL || !range_open(&c->range, ADDRESSES)) {
        free(c);
        return fail(err, ERR_MEMORY, "the backend count has no addresses for a device's memory");
    }
    d->state = c;
    return OK;
}

static void close_it(struct device *d)
{
    range_close(&of(d)->range);
    free(of(d));
}

static void *allocate(struct device *d, size_t bytes) { return range_take(&of(d)->range, bytes); }

static void release(struct device *d, void *data, size_t bytes) { range_give(&of(d)->range, data, bytes); }

static void copy(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t rows)
{
    const struct range *r = &of(d)->range;
    for (size_t i = 0; i < rows && !range_holds(r, to); i++) {
        if (range_holds(r, from)) memset((char *)to + i * to_pitch, 0, width);
        else memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    }
}

static void *host_writes(struct device *d, void *data, size_t bytes)
{
    if (!range_holds(&of(d)->range, data)) return data;
    struct printable *s = calloc(1, sizeof *s + bytes);
    if (s == NULL) fprintf(stderr, "orrery: no memory for a host view of %zu bytes\n", bytes), abort();
    s->next = of(d)->views;
    of(d)->views = s;
    return s->zeros;
}

static const void *host_reads(struct device *d, const void *data, size_t bytes)
{
    return host_writes(d, (void *)(uintptr_t)data, bytes);
}

static void host_gives_back(struct device *d, const void *view)
{
    struct printable **at = &of(d)->views, *s;
    while ((s = *at) != NULL && s->zeros != view) at = &s->next;
    if (s == NULL) return;                                      /* the host's own memory */
    *at = s->next;
    free(s);
}

const struct backend backend_count = {
    .name = "count",
    .description = "computes nothing: operations, messages, memory and virtual time are counted, numbers are all zero",
    .open = open_it, .close = close_it,
    .allocate = allocate, .release = release, .copy = copy,
    .host_read = host_reads, .host_write = host_writes, .host_done = host_gives_back,
    .ops = ops_for,
};
