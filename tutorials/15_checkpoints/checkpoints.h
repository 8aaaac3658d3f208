/* checkpoints.h -- lesson 15: what checkpoints.c defines.  README.md explains
 * it.
 *
 * A mesh has dp x tp devices.  A tensor is cut over tp into pieces; a piece,
 * over dp, into shards.  A device has one shard of each tensor, in memory and
 * in its file.
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef CHECKPOINTS_H
#define CHECKPOINTS_H

#include "course.h"

/* ---- who has what ------------------------------------------------------- */

/* Device number:
 * {ORDER: dp's index times tp, plus tp's index|tp's index times dp, plus dp's index}. */
struct mesh { int dp, tp; };

/* How tp cuts a tensor.  CUT_NOTHING: its piece is the whole tensor, for
 * all. */
enum cut { CUT_ROWS, CUT_COLUMNS, CUT_NOTHING };

/* A tensor of rows x columns numbers, row after row. */
struct tensor { int64_t rows, columns, cut; };

/** How many numbers of a tensor this device's shard has.
 *
 *  Index t of tp has the piece of rows, or columns, block_of(number of them,
 *  tp, t).  Seen as a vector, row after row of the piece, it is cut over dp:
 *  index d has block_of(numbers of the piece, dp, d).  A shard may be
 *  empty. */
int64_t shard_count(const struct tensor *, const struct mesh *, int device);

/** Which number of the whole tensor, row times columns plus column, is number
 *  k of the device's shard. */
int64_t shard_number(const struct tensor *, const struct mesh *, int device,
                     int64_t k);

/** How many numbers of a tensor are in this device's file: those of its shard.
 *  But of a tensor with CUT_NOTHING, which all indices of tp have, only
 *  {WRITER: index 0|index tp-1} of tp writes; in the files of others there is
 *  nothing of it. */
int64_t file_count(const struct tensor *, const struct mesh *, int device);

/* ---- from files of one mesh into the memory of another ------------------ */

/* `count` numbers of device `file`'s file, from number `from` of it on, go to
 * memory, to number `to` and those after it. */
struct read { int64_t file, from, count, to; };

/**
 * What a device of mesh `now` has to read, if the files are those of mesh
 * `then`.
 *
 * In memory it has its shards of all tensors, one after another from the first
 * tensor to the last.  In a file, too, shards lie one after another,
 * {FILES: from the first tensor to the last|from the last tensor to the first}.
 * Each number of its memory is read once.  Reads are in the order of
 * `to`, and as few as possible: what lies one after another in a file and in
 * memory is one read, also across tensors.
 * @param reads has room for one read of each number.  @return how many there
 * are.
 */
int64_t plan_reads(const struct tensor *tensors, int count,
                   const struct mesh *then, const struct mesh *now, int device,
                   struct read *reads);

/* ---- saving ------------------------------------------------------------- */

/* A disk that all devices see.  A crash may come at any moment, and hits all
 * devices.  What was written is certain to be there after it only if the file
 * was synced since; a file that was not may be there, whole or in part, or
 * not.  A rename replaces the file of the new name at once: after a crash
 * there is the old one or the new one; the new one for certain if MANIFEST was
 * synced since.  What is removed may be gone at once. */
enum { MANIFEST = 0, MANIFEST_NEW = 1 };
enum disk_operation { DISK_WRITE = 1, DISK_SYNC, DISK_RENAME, DISK_REMOVE };
struct disk { int64_t *log; int64_t most, used; double slow; };

/* The file of a device's shards after a step. */
static inline int64_t shards_of(int64_t step, int device)
{
    return 100 * step + 10 + device;
}

static inline void disk_do(struct disk *d, enum disk_operation what,
                           int64_t file, int64_t step, double time)
{
    int64_t *at = d->log + 5 * (d->used % d->most);
    at[0] = what, at[1] = file, at[2] = step, at[3] = time_now();
    work(1e6 * time * d->slow, 0);
    at[4] = time_now();
    d->used++;
}

/** Write a file: a manifest names the step whose files are valid.  Begins a
 *  new file, also if there is one of this name. */
static inline void disk_write(struct disk *d, int64_t file, int64_t step)
{
    disk_do(d, DISK_WRITE, file, step, 100);
}

static inline void disk_sync(struct disk *d, int64_t file)
{
    disk_do(d, DISK_SYNC, file, 0, 100);
}

/** MANIFEST_NEW becomes MANIFEST. */
static inline void disk_rename(struct disk *d)
{
    disk_do(d, DISK_RENAME, MANIFEST, 0, 1);
}

static inline void disk_remove(struct disk *d, int64_t file)
{
    disk_do(d, DISK_REMOVE, file, 0, 1);
}

/**
 * A checkpoint after `step`, in the place of that after `before`, which is
 * there, with its manifest.
 *
 * Each device writes and removes only its own files, shards_of(.., rank), all
 * devices at the same time; device 0 does what is to be done with the
 * manifest.  At every moment a crash must leave a MANIFEST that was written
 * and synced, and all files of the step that it names.  When save_checkpoint
 * has returned everywhere, MANIFEST and the new files are there for certain,
 * and nothing else is.  Devices are not equally fast; an all_reduce of one
 * number lets each wait for all.  Two all_reduce are enough.
 */
void save_checkpoint(const struct group *, struct disk *, int64_t before,
                     int64_t step);

#endif
