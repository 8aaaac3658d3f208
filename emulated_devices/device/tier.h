/* tier.h -- the slow tier of a device: the host's memory or a file, connected by the device's own link.
 *
 * A tensor on the tier is a home.  It does not count in the device's arena.  The device computes with copies, which do
 * count; tier_read and tier_write make them.  Each copy is counted and occupies the device's copy engine.  Data in a
 * file also passes the host's drive, before or after the copy engine.
 *
 * Homes can be accessed directly for comparison, checkpoints and initial values, which are not emulated, and by the
 * host, which computes in its own memory.
 *
 * The host may keep blocks of a file in its memory (cache.h): reading these does not use the drive.  Only time and
 * counts differ: what a home contains is always what was written last.
 *
 * A device without numbers has addresses for homes, and neither memory nor a file: what a plan offloads need not fit
 * into this machine.
 *
 * A file is removed as soon as it is open, so nothing of it remains after any end of the program.
 *
 * schemes/data/ offload states and weights here, model/ activations.  Errors are ERR_MEMORY and ERR_FILE.
 */
#ifndef ORRERY_TIER_H
#define ORRERY_TIER_H

#include "emulated_devices/device/cache.h"
#include "emulated_devices/device/device.h"
#include "ref/error.h"
#include "ref/numeric/tensor.h"

struct tier_traffic { uint64_t reads, bytes_read, writes, bytes_written; };     /* operations, and their payload */

static inline void tier_traffic_add(struct tier_traffic *sum, struct tier_traffic one, uint64_t times)
{
    sum->reads += times * one.reads, sum->bytes_read += times * one.bytes_read;
    sum->writes += times * one.writes, sum->bytes_written += times * one.bytes_written;
}

struct tier {
    struct device *device;              /* whose tensors the tier keeps */
    char *memory;                       /* the host's, or the file's mapped; NULL: there is no tier */
    uint64_t size, placed;              /* bytes; taken by homes */
    bool drives;                        /* it is a file: what leaves the host's memory passes the drive */
    int file;                           /* -1: the host's memory, or a device without numbers, which writes none */
    struct tier_traffic traffic;        /* so far, between device and host */
    struct tier_traffic drive;          /* so far, between host and drive */
    struct cache cache;                 /* blocks of the drive that the host's memory keeps */
    uint64_t *first;                    /* [blocks] of the cache: where each begins, ascending */
};

/** The size of a home, with the padding that aligns the next one. */
static inline uint64_t tier_room(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/**
 * Open a tier, all zeros.
 * Local.  The whole file is written, so that a full disk is detected now.
 * @param folder  for a file in it; NULL: the host's memory.
 * @param bytes   the sum of all homes' tier_room.
 * @return OK, ERR_FILE naming the folder, or ERR_MEMORY; after failure there is no tier.
 */
enum error_code tier_open(struct tier *, struct device *, const char *folder, uint64_t bytes, struct error *);
void tier_close(struct tier *);

/** The next home, of n elements.  They must have been counted in tier_open. */
struct tensor tier_place(struct tier *, enum dtype, int64_t n);

/** From now on the host keeps up to `room` bytes of the file's blocks.  For a file; before tier_cut. */
void tier_cache(struct tier *, uint64_t room);

/** Make a part of the last home a block of the cache.  Parts must be given in ascending order.  What is in no block is
 *  not kept, nor is a part for whose entry there is no memory.  Does nothing without a cache. */
void tier_cut(struct tier *, struct tensor part);

/** Copy a home, or a part of one, from the drive into the host's memory, not before `from`.
 *  @return the time at which it is there: `from`, if the tier is the host's memory, or the host keeps it. */
picoseconds tier_announce(struct tier *, struct tensor home, picoseconds from);

/**
 * Copy a home, or a part of one, to the device, or back.
 * Local; does nothing for an empty tensor.  tier_read starts from the host's memory: for a file, call tier_announce
 * first.
 * @param[in,out] when  the earliest start; then the end.
 * @return OK or ERR_FILE, also if a file was cut short.
 */
enum error_code tier_read(struct tier *, struct tensor to, struct tensor home, picoseconds *when, struct error *);
enum error_code tier_write(struct tier *, struct tensor home, struct tensor from, picoseconds *when, struct error *);

#endif
