/* tier.c -- homes of offloaded tensors in the host's memory or a file, and the copies to and from them.
 *
 * schemes/data/ and model/away.c call this file.  Errors are ERR_MEMORY and ERR_FILE.  Each copy takes virtual time on
 * the engines FETCH and FLUSH, and on DRIVE for what the host's cache does not keep.
 */
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

/* Read or write all bytes; a call may move fewer than asked for, or be interrupted. */
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
static enum error_code tier_fill(int file, uint64_t bytes, struct error *err)
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
static enum error_code tier_map(struct tier *tier, struct error *err)
{
    if (tier->size == 0) return OK;
    void *mapped = mmap(NULL, (size_t)tier->size, PROT_READ | PROT_WRITE, MAP_SHARED, tier->file, 0);
    if (mapped == MAP_FAILED)
        return fail(err, ERR_FILE, "a file of %llu bytes cannot be mapped: %s", (unsigned long long)tier->size,
                    strerror(errno));
    tier->memory = mapped;
    return OK;
}

/* The file has no name any more once it is open, so it vanishes with the process. */
static enum error_code tier_open_file(struct tier *tier, const char *folder, struct error *err)
{
    char path[4096], about[200];
    const int length = snprintf(path, sizeof path, "%s/orrery-tier-XXXXXX", folder);
    snprintf(about, sizeof about, "%s:", printable_path(folder).text);
    if (length < 0 || (size_t)length >= sizeof path) return fail(err, ERR_FILE, "%s this name is too long", about);
    tier->file = mkstemp(path);
    if (tier->file < 0) return fail(err, ERR_FILE, "%s no file can be made in it: %s", about, strerror(errno));
    unlink(path);
    enum error_code e = tier_fill(tier->file, tier->size, err);
    if (!e) e = tier_map(tier, err);
    return fail_about(err, e, about);
}

/* ---- the tier ---------------------------------------------------------------------------------------------------- */

/* Homes of a device without numbers are addresses of its own. */
static bool has_numbers(const struct tier *tier) { return tier->device->backend->has_numbers; }

static char *host_memory(const struct tier *tier)
{
    const size_t bytes = (size_t)tier->size + 1;
    return has_numbers(tier) ? calloc(1, bytes) : tier->device->backend->allocate(tier->device, bytes);
}

static void free_host_memory(const struct tier *tier)
{
    if (has_numbers(tier)) free(tier->memory);
    else if (tier->memory) tier->device->backend->release(tier->device, tier->memory, (size_t)tier->size + 1);
}

/* A device without numbers never writes a file, but its copies take the time of a drive. */
enum error_code tier_open(struct tier *tier, struct device *device, const char *folder, uint64_t bytes,
                          struct error *err)
{
    *tier = (struct tier){ .device = device, .size = bytes, .file = -1, .drives = folder != NULL };
    const bool writes = folder != NULL && has_numbers(tier);
    if (!writes) tier->memory = host_memory(tier);
    enum error_code e = writes ? tier_open_file(tier, folder, err) : OK;
    if (!writes && tier->memory == NULL)
        e = fail(err, ERR_MEMORY, "no memory for a slow tier of %llu bytes", (unsigned long long)bytes);
    if (e) tier_close(tier);
    return e;
}

void tier_close(struct tier *tier)
{
    if (tier->device == NULL) return;                       /* never opened */
    /* After an error copies may still be in flight, to memory that is freed here. */
    for (enum stream s = FETCH; s < STREAMS; s++) clock_join(&tier->device->clock, s);
    if (tier->file >= 0) {
        if (tier->memory) munmap(tier->memory, (size_t)tier->size);
        close(tier->file);
    } else free_host_memory(tier);
    free(tier->cache.block), free(tier->first);
    *tier = (struct tier){ .file = -1 };
}

struct tensor tier_place(struct tier *tier, enum dtype format, int64_t n)
{
    const struct tensor home = tensor_1d(tier->memory ? tier->memory + tier->placed : NULL, format, n);
    tier->placed += tier_room(tensor_bytes(home));
    return home;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* The drive does one job at a time; its traffic is counted apart from that of the tier. */
static picoseconds drive(struct tier *tier, const char *what, uint64_t bytes, picoseconds from)
{
    const bool reads = what[0] == 'r';
    tier_traffic_add(&tier->drive, (struct tier_traffic){ reads, reads ? bytes : 0, !reads, reads ? 0 : bytes }, 1);
    return clock_job(&tier->device->clock, DRIVE, what, from,
                     time_at_rate(bytes, tier->device->clock.cluster.host.drive_rate), bytes);
}

/* ---- the host's cache -------------------------------------------------------------------------------------------- */

enum { DECAY_EVERY = 1024 };                             /* requests */
#define DECAY 0.5

void tier_cache(struct tier *tier, uint64_t room)
{
    tier->cache = (struct cache){ .room = tier->drives ? room : 0, .decay = DECAY, .every = DECAY_EVERY };
}

static uint64_t tier_place_of(const struct tier *tier, struct tensor home)
{
    return (uint64_t)((char *)home.data - tier->memory);
}

/* Without memory for the list, the part is not cached, which only costs time. */
void tier_cut(struct tier *tier, struct tensor part)
{
    struct cache *c = &tier->cache;
    const size_t n = (size_t)c->blocks + 1;
    if (c->room == 0 || tensor_bytes(part) == 0) return;
    void *block = realloc(c->block, n * sizeof *c->block);
    if (block) c->block = block;
    void *first = block ? realloc(tier->first, n * sizeof *tier->first) : NULL;
    if (first == NULL) return;
    tier->first = first;
    tier->first[c->blocks] = tier_place_of(tier, part);
    c->block[c->blocks++] = (struct cache_block){ .bytes = tensor_bytes(part) };
}

/* The part of a home that is in a block, or in none: from byte `at` to the next border. */
struct stretch_of_home { int block; uint64_t bytes; };

/* A binary search over the blocks, which tier_cut has added in order of places. */
static struct stretch_of_home stretch_at(const struct tier *tier, uint64_t at, uint64_t end)
{
    /* The search ends with low - 1 as the last block that begins at or before `at`. */
    int low = 0, high = tier->cache.blocks;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (tier->first[middle] <= at) low = middle + 1;
        else high = middle;
    }
    const uint64_t last = low > 0 ? tier->first[low - 1] + tier->cache.block[low - 1].bytes : 0;
    const bool inside = at < last;
    const uint64_t border = inside ? last : low < tier->cache.blocks ? tier->first[low] : end;
    return (struct stretch_of_home){ inside ? low - 1 : -1, (border < end ? border : end) - at };
}

/* A part of what the host keeps is fetched with its whole block. */
picoseconds tier_announce(struct tier *tier, struct tensor home, picoseconds from)
{
    const uint64_t first = tier_place_of(tier, home), end = first + tensor_bytes(home);
    uint64_t read = 0, written = 0;
    if (!tier->drives) return from;
    for (uint64_t at = first; at < end; ) {
        const struct stretch_of_home s = stretch_at(tier, at, end);
        const struct cache_moves m = s.block < 0 ? (struct cache_moves){ 0 } : cache_request(&tier->cache, s.block);
        /* A block that the cache takes is read whole; one that it does not take only as far as asked for. */
        read += m.hit ? 0 : m.taken ? tier->cache.block[s.block].bytes : s.bytes;
        written += m.written;
        at += s.bytes;
    }
    /* Blocks that made room and were changed are written to the drive first. */
    if (written > 0) from = drive(tier, "write", written, from);
    return read > 0 ? drive(tier, "read", read, from) : from;
}

/* @return what goes to the drive at once. */
static uint64_t not_kept(struct tier *tier, struct tensor home)
{
    const uint64_t first = tier_place_of(tier, home), end = first + tensor_bytes(home);
    uint64_t bytes = 0;
    for (uint64_t at = first; at < end; ) {
        const struct stretch_of_home s = stretch_at(tier, at, end);
        if (s.block < 0 || !cache_change(&tier->cache, s.block)) bytes += s.bytes;
        at += s.bytes;
    }
    return bytes;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Move the numbers: by a copy, or between the file and a view of the device's memory. */
static enum error_code tier_move(struct tier *tier, bool writes, struct tensor home, void *device, struct error *err)
{
    const uint64_t bytes = tensor_bytes(home);
    if (tier->file < 0) {
        device_copy(tier->device, writes ? home.data : device, writes ? device : home.data, bytes);
        return OK;
    }
    struct views v = views_of(tier->device);
    const struct tensor here = tensor_1d(device, U8, (int64_t)bytes);
    void *at = writes ? view_read(&v, here).data : view_write(&v, here).data;
    const enum error_code e = transfer(tier->file, writes, at, bytes,
                                       (uint64_t)((char *)home.data - tier->memory), err);
    views_end(&v);
    return e;
}

/* *when is the earliest start; afterwards it is the time of arrival, for clock_wait. */
enum error_code tier_read(struct tier *tier, struct tensor to, struct tensor home, picoseconds *when, struct error *err)
{
    const uint64_t bytes = tensor_bytes(home);
    if (bytes == 0) return OK;
    tier->traffic.reads++, tier->traffic.bytes_read += bytes;
    /* The copy reads what its source is at the start, so what ends by then has to land first. */
    const picoseconds start = *when;
    flight_before_copy(tier->device->clock.flight, start, to.data, home.data, bytes);
    *when = clock_copy(&tier->device->clock, FETCH, *when, bytes);
    const enum error_code e = tier_move(tier, false, home, to.data, err);
    if (!e) flight_copied(tier->device->clock.flight, FETCH, start, *when, to.data, home.data, bytes);
    return e;
}

/* *when is the earliest start; afterwards it is the end of the last copy, on the drive if there is one. */
enum error_code tier_write(struct tier *tier, struct tensor home, struct tensor from, picoseconds *when,
                           struct error *err)
{
    const uint64_t bytes = tensor_bytes(home);
    if (bytes == 0) return OK;
    tier->traffic.writes++, tier->traffic.bytes_written += bytes;
    const picoseconds start = *when;
    flight_before_copy(tier->device->clock.flight, start, home.data, from.data, bytes);
    *when = clock_copy(&tier->device->clock, FLUSH, *when, bytes);
    /* All that the host keeps stays there, and only the rest goes on to the drive. */
    const uint64_t leaves = tier->drives ? not_kept(tier, home) : 0;
    if (leaves > 0) *when = drive(tier, "write", leaves, *when);
    const enum error_code e = tier_move(tier, true, home, from.data, err);
    if (!e)
        flight_copied(tier->device->clock.flight, leaves > 0 ? DRIVE : FLUSH, start, *when, home.data,
                      from.data, bytes);
    return e;
}
