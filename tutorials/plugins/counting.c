/* counting -- a backend of your own: it computes as cpu does, and says at the end what it was asked for.
 *
 * The REQUIRED part of the table is six functions for memory and one for operations (device/backend.h).  What is left
 * NULL the host computes, through views.  docs/authors/backends.md.
 *
 *     orrery train --plugin tutorials/plugins/counting.c --backend counting --steps 2 --check ref
 *
 * Opening reports ERR_MEMORY; nothing else fails.
 */
#include "emulated_devices/schemes/plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counts { uint64_t allocations, bytes, copies, views, operations; };

static struct counts *of(struct device *d) { return d->state; }

static enum error_code open_it(struct device *d, struct error *err)
{
    d->state = calloc(1, sizeof(struct counts));
    return d->state ? OK : fail(err, ERR_MEMORY, "no memory for counters");
}

static void close_it(struct device *d)
{
    const struct counts *c = of(d);
    fprintf(stderr, "counting: %llu operations; %llu allocations, %llu bytes; %llu copies, %llu views of the host\n",
            (unsigned long long)c->operations, (unsigned long long)c->allocations, (unsigned long long)c->bytes,
            (unsigned long long)c->copies, (unsigned long long)c->views);
    free(d->state);
}

static void begin(struct device *d) { of(d)->operations++; }

static void *allocate(struct device *d, size_t bytes)
{
    of(d)->allocations++, of(d)->bytes += bytes;
    return bytes > SIZE_MAX - 64 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(struct device *d, void *data, size_t bytes)
{
    (void)d, (void)bytes;
    free(data);
}

static void copy(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t rows)
{
    of(d)->copies++;
    for (size_t r = 0; r < rows; r++) memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
}

static const void *host_reads(struct device *d, const void *data, size_t bytes)
{
    (void)bytes, of(d)->views++;
    return data;
}

static void *host_writes(struct device *d, void *data, size_t bytes)
{
    (void)bytes, of(d)->views++;
    return data;
}

static void host_gives_back(struct device *d, const void *view) { (void)d, (void)view; }

static const struct backend counting = {
    .name = "counting", .description = "computes as cpu does, and says what it was asked for",
    .has_numbers = true,
    .open = open_it, .close = close_it, .begin = begin,
    .allocate = allocate, .release = release, .copy = copy,
    .host_read = host_reads, .host_write = host_writes, .host_done = host_gives_back,
    .ops = ops_for,
};

PLUGIN(PLUGIN_BACKEND(counting));
