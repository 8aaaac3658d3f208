/* tier.h -- the slow tier of a device: memory that is not its own, behind a link of its own; the host's, or a file.
 *
 * What is kept there has a home: a tensor that lies in the tier's memory.  It does not count in the device's arena.  A
 * device computes with copies of it that do, which tier_read and tier_write make; each of them is counted, and keeps
 * the device's copy engine busy.  What lies in a file also passes the host's drive, before the copy engine or after it.
 *
 * Homes can be looked at directly: for comparison, checkpoints and first values, which are no part of what is emulated,
 * and by the host, which computes with what is in its memory.
 *
 * A file is removed as soon as it is open, so that nothing of it is left behind, however the program ends.
 */
#ifndef ORRERY_TIER_H
#define ORRERY_TIER_H

#include "emulated_devices/device/device.h"
#include "ref/error.h"
#include "ref/numeric/tensor.h"

struct tier_traffic { uint64_t reads, bytes_read, writes, bytes_written; };     /* operations, and their payload */

struct tier {
    struct device *device;
    char *memory;                       /* the host's, or the file's mapped; NULL: there is no tier */
    uint64_t size, placed;              /* bytes; taken by homes */
    int file;                           /* -1: the host's memory */
    struct tier_traffic traffic;        /* so far */
};

/** Bytes that a home of so many takes, with what aligns the next one. */
static inline uint64_t tier_room(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/**
 * A tier, all zeros.
 * Local.  The whole file is written, so that a disk that is full says so now.
 * @param folder  for a file in it; NULL: the host's memory.
 * @param bytes   the sum of all homes' tier_room.
 * @return OK, ERR_FILE naming the folder, or ERR_MEMORY; after failure there is no tier.
 */
enum error_code tier_open(struct tier *, struct device *, const char *folder, uint64_t bytes, struct error *);
void tier_close(struct tier *);

/** The next home, of n elements.  They must have been counted in tier_open. */
struct tensor tier_place(struct tier *, enum dtype, int64_t n);

/** Have the drive bring so many bytes into the host's memory, not before `from`.
 *  @return when they are there; `from`, if that is where they always are. */
picoseconds tier_announce(struct tier *, uint64_t bytes, picoseconds from);

/**
 * Copy a home, or a part of one, to the device, or back.
 * Local; nothing happens to an empty tensor.  tier_read starts from the host's memory: of a file, tier_announce comes
 * first.
 * @param[in,out] when  when it can begin, at the earliest; when it is done.
 * @return OK or ERR_FILE, also if a file was cut short.
 */
enum error_code tier_read(struct tier *, struct tensor to, struct tensor home, picoseconds *when, struct error *);
enum error_code tier_write(struct tier *, struct tensor home, struct tensor from, picoseconds *when, struct error *);

#endif
