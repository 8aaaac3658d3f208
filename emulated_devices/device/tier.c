#include "emulated_devices/device/tier.h"
#include "emulated_devices/device/backend.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------------------------------------------- */

static enum error_code transfer(int file, bool writes, void *memory, uint64_t bytes, uint64_t at, struct error *err)
{
    for (char *next = memory; bytes > 0;) {
        const ssize_t n =
            writes ? pwrite(file, next, (size_t)bytes, (off_t)at) : pread(file, next, (size_t)bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return fail(err, ERR_FILE, "the slow tier's file cannot be %s at byte %llu: %s",
                        writes ? "written" : "read", (unsigned long long)at,
                        n < 0 ? strerror(errno) : "it has been cut short");
        next += n, at += (uint64_t)n, bytes -= (uint64_t)n;
    }
    return OK;
}

/* Fill with zeros instead of leaving a hole: otherwise a full disk would be detected only during training. */
static enum error_code fill(int file, uint64_t bytes, struct error *err)
{
    enum { PIECE = 1 << 20 };
    char *zeros = calloc(1, PIECE);
    enum error_code e = zeros ? OK : fail(err, ERR_MEMORY, "no memory to make the slow tier's file");
    for (uint64_t at = 0; at < bytes && !e; at += PIECE)
        e = transfer(file, true, zeros, bytes - at < PIECE ? bytes - at : PIECE, at, err);
    free(zeros);
    return e;
}

/* Map the file, so that looking at homes needs no reads that could fail. */
static enum error_code map(struct tier *t, struct error *err)
{
    if (t->size == 0) return OK;
    void *mapped = mmap(NULL, (size_t)t->size, PROT_READ | PROT_WRITE, MAP_SHARED, t->file, 0);
    if (mapped == MAP_FAILED)
        return fail(err, ERR_FILE, "a file of %llu bytes cannot be mapped: %s", (unsigned long long)t->size,
                    strerror(errno));
    t->memory = mapped;
    return OK;
}

static enum error_code open_file(struct tier *t, const char *folder, struct error *err)
{
    char path[4096], about[200];
    const int length = snprintf(path, sizeof path, "%s/orrery-tier-XXXXXX", folder);
    snprintf(about, sizeof about, "%s:", printable_path(folder).text);
    if (length < 0 || (size_t)length >= sizeof path) return fail(err, ERR_FILE, "%s this name is too long", about);
    t->file = mkstemp(path);
    if (t->file < 0) return fail(err, ERR_FILE, "%s no file can be made in it: %s", about, strerror(errno));
    unlink(path);
    enum error_code e = fill(t->file, t->size, err);
    if (!e) e = map(t, err);
    return fail_about(err, e, about);
}

/* ---- the tier ---------------------------------------------------------------------------------------------------- */

/* Homes of a device without numbers are addresses of its own. */
static bool has_numbers(const struct tier *t) { return t->device->backend->has_numbers; }

static char *host_memory(const struct tier *t)
{
    const size_t bytes = (size_t)t->size + 1;
    return has_numbers(t) ? calloc(1, bytes) : t->device->backend->allocate(t->device, bytes);
}

static void free_host_memory(const struct tier *t)
{
    if (has_numbers(t)) free(t->memory);
    else if (t->memory) t->device->backend->release(t->device, t->memory, (size_t)t->size + 1);
}

enum error_code tier_open(struct tier *t, struct device *d, const char *folder, uint64_t bytes, struct error *err)
{
    *t = (struct tier){ .device = d, .size = bytes, .file = -1, .drives = folder != NULL };
    const bool writes = folder != NULL && has_numbers(t);
    if (!writes) t->memory = host_memory(t);
    enum error_code e = writes ? open_file(t, folder, err) : OK;
    if (!writes && t->memory == NULL)
        e = fail(err, ERR_MEMORY, "no memory for a slow tier of %llu bytes", (unsigned long long)bytes);
    if (e) tier_close(t);
    return e;
}

void tier_close(struct tier *t)
{
    if (t->device == NULL) return;                       /* never opened */
    /* after an error copies may still be in flight, to memory that is freed here */
    for (enum stream s = FETCH; s < STREAMS; s++) clock_join(&t->device->clock, s);
    if (t->file >= 0) {
        if (t->memory) munmap(t->memory, (size_t)t->size);
        close(t->file);
    } else free_host_memory(t);
    free(t->cache.block), free(t->first);
    *t = (struct tier){ .file = -1 };
}

struct tensor tier_place(struct tier *t, enum dtype format, int64_t n)
{
    const struct tensor home = tensor_1d(t->memory ? t->memory + t->placed : NULL, format, n);
    t->placed += tier_room(tensor_bytes(home));
    return home;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

static picoseconds drive(struct tier *t, const char *what, uint64_t bytes, picoseconds from)
{
    const bool reads = what[0] == 'r';
    tier_traffic_add(&t->drive, (struct tier_traffic){ reads, reads ? bytes : 0, !reads, reads ? 0 : bytes }, 1);
    return clock_job(&t->device->clock, DRIVE, what, from,
                     time_at_rate(bytes, t->device->clock.cluster.host.drive_rate), bytes);
}

/* ---- the host's cache -------------------------------------------------------------------------------------------- */

enum { DECAY_EVERY = 1024 };                             /* requests */
#define DECAY 0.5

void tier_cache(struct tier *t, uint64_t room)
{
    t->cache = (struct cache){ .room = t->drives ? room : 0, .decay = DECAY, .every = DECAY_EVERY };
}

static uint64_t place_of(const struct tier *t, struct tensor home) { return (uint64_t)((char *)home.data - t->memory); }

void tier_cut(struct tier *t, struct tensor part)
{
    struct cache *c = &t->cache;
    const size_t n = (size_t)c->blocks + 1;
    if (c->room == 0 || tensor_bytes(part) == 0) return;
    void *block = realloc(c->block, n * sizeof *c->block);
    if (block) c->block = block;
    void *first = block ? realloc(t->first, n * sizeof *t->first) : NULL;
    if (first == NULL) return;
    t->first = first;
    t->first[c->blocks] = place_of(t, part);
    c->block[c->blocks++] = (struct cache_block){ .bytes = tensor_bytes(part) };
}

/* The part of a home that is in a block, or in none: from byte `at` to the next border. */
struct stretch_of_home { int block; uint64_t bytes; };

static struct stretch_of_home stretch_at(const struct tier *t, uint64_t at, uint64_t end)
{
    int low = 0, high = t->cache.blocks;                 /* the last block that begins at or before `at` is low - 1 */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t->first[middle] <= at) low = middle + 1;
        else high = middle;
    }
    const uint64_t last = low > 0 ? t->first[low - 1] + t->cache.block[low - 1].bytes : 0;
    const bool inside = at < last;
    const uint64_t border = inside ? last : low < t->cache.blocks ? t->first[low] : end;
    return (struct stretch_of_home){ inside ? low - 1 : -1, (border < end ? border : end) - at };
}

/* A part of what the host keeps is fetched with its whole block. */
picoseconds tier_announce(struct tier *t, struct tensor home, picoseconds from)
{
    const uint64_t first = place_of(t, home), end = first + tensor_bytes(home);
    uint64_t read = 0, written = 0;
    if (!t->drives) return from;
    for (uint64_t at = first; at < end; ) {
        const struct stretch_of_home s = stretch_at(t, at, end);
        const struct cache_moves m = s.block < 0 ? (struct cache_moves){ 0 } : cache_request(&t->cache, s.block);
        /* A block that the cache takes is read whole; one that it does not take only as far as asked for. */
        read += m.hit ? 0 : m.taken ? t->cache.block[s.block].bytes : s.bytes;
        written += m.written;
        at += s.bytes;
    }
    /* Blocks that made room and were changed are written to the drive first. */
    if (written > 0) from = drive(t, "write", written, from);
    return read > 0 ? drive(t, "read", read, from) : from;
}

/* @return what goes to the drive at once. */
static uint64_t not_kept(struct tier *t, struct tensor home)
{
    const uint64_t first = place_of(t, home), end = first + tensor_bytes(home);
    uint64_t bytes = 0;
    for (uint64_t at = first; at < end; ) {
        const struct stretch_of_home s = stretch_at(t, at, end);
        if (s.block < 0 || !cache_change(&t->cache, s.block)) bytes += s.bytes;
        at += s.bytes;
    }
    return bytes;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static enum error_code move(struct tier *t, bool writes, struct tensor home, void *device, struct error *err)
{
    const uint64_t bytes = tensor_bytes(home);
    if (t->file < 0) {
        device_copy(t->device, writes ? home.data : device, writes ? device : home.data, bytes);
        return OK;
    }
    struct views v = views_of(t->device);
    const struct tensor here = tensor_1d(device, U8, (int64_t)bytes);
    void *at = writes ? view_read(&v, here).data : view_write(&v, here).data;
    const enum error_code e = transfer(t->file, writes, at, bytes, (uint64_t)((char *)home.data - t->memory), err);
    views_end(&v);
    return e;
}

enum error_code tier_read(struct tier *t, struct tensor to, struct tensor home, picoseconds *when, struct error *err)
{
    const uint64_t bytes = tensor_bytes(home);
    if (bytes == 0) return OK;
    t->traffic.reads++, t->traffic.bytes_read += bytes;
    const picoseconds start = *when;
    flight_before_copy(t->device->clock.flight, start, to.data, home.data, bytes);
    *when = clock_copy(&t->device->clock, FETCH, *when, bytes);
    const enum error_code e = move(t, false, home, to.data, err);
    if (!e) flight_copied(t->device->clock.flight, FETCH, start, *when, to.data, home.data, bytes);
    return e;
}

enum error_code tier_write(struct tier *t, struct tensor home, struct tensor from, picoseconds *when, struct error *err)
{
    const uint64_t bytes = tensor_bytes(home);
    if (bytes == 0) return OK;
    t->traffic.writes++, t->traffic.bytes_written += bytes;
    const picoseconds start = *when;
    flight_before_copy(t->device->clock.flight, start, home.data, from.data, bytes);
    *when = clock_copy(&t->device->clock, FLUSH, *when, bytes);
    /* What the host keeps stays there, and only the rest goes on to the drive. */
    const uint64_t leaves = t->drives ? not_kept(t, home) : 0;
    if (leaves > 0) *when = drive(t, "write", leaves, *when);
    const enum error_code e = move(t, true, home, from.data, err);
    if (!e)
        flight_copied(t->device->clock.flight, leaves > 0 ? DRIVE : FLUSH, start, *when, home.data, from.data, bytes);
    return e;
}
