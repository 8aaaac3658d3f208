/* bundle.h -- several files of a folder, with checksums, that are replaced together or not at all.
 *
 *   1. Each file is written as NAME.new and flushed to the disk.
 *   2. A list of all files with their checksums replaces the old list atomically.  From now on the new files are valid.
 *   3. Each NAME.new is renamed to NAME.
 *
 * A reader takes NAME if its checksum is the one in the list, else NAME.new.  So if a writer is killed or the machine
 * stops at any point, the files are all old (before 2) or all new.  The next writer completes the renaming and removes
 * other leftovers.  A lock on the folder, where the file system supports locks, lets one writer work at a time.
 *
 * `sha256sum -c` can read the list; its last line is its own checksum.
 *
 * model/checkpoint/ reads and writes checkpoints as bundles.
 */
#ifndef ORRERY_BUNDLE_H
#define ORRERY_BUNDLE_H

#include "ref/io/sha256.h"
#include <stdbool.h>

/* Most files; bytes of a path; bytes of a folder's path. */
enum { BUNDLE_MOST = 8, BUNDLE_PATH = 4096, BUNDLE_FOLDER = BUNDLE_PATH - 400 };

/* The files of one kind of bundle. */
struct bundle_kind {
    const char *title, *list;           /* title for messages; file name of the list */
    const char *name[BUNDLE_MOST];      /* file names; NULL after the last */
};

/* The list of a folder, as read. */
struct bundle {
    const struct bundle_kind *kind;     /* which files the folder may have */
    const char *dir;                    /* owned by the caller */
    struct sha256_text sum[BUNDLE_MOST];        /* checksum of each file of the kind, by its index there */
};

/**
 * Read the list of a folder and check its own checksum.
 * @param[out] there  whether a list exists; if not, the folder is not a bundle, and OK is returned.
 * @return OK; ERR_FORMAT if the list is damaged; ERR_FILE; ERR_MEMORY.
 */
enum error_code bundle_open(struct bundle *, const struct bundle_kind *, const char *dir, bool *there, struct error *);

/**
 * The path of a valid file: NAME or NAME.new.  If NAME.new exists, its checksum is computed to decide.
 * @param[out] path  BUNDLE_PATH bytes.
 */
void bundle_find(const struct bundle *, const char *name, char *path);

/** Compare a file with its checksum in the list.  @return OK, ERR_FORMAT naming the file, or ERR_FILE. */
enum error_code bundle_check(const struct bundle *, const char *name, struct error *);

/** Read a small file and check it.  @param[out] bytes  for free(), with a NUL after the last.
 * @return as bundle_check. */
enum error_code bundle_read(const struct bundle *, const char *name, int64_t limit, char **bytes, size_t *count,
                            struct error *);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct bundle_writer {
    const struct bundle_kind *kind;     /* which files are written */
    char dir[BUNDLE_FOLDER];            /* path of the folder */
    int lock;                           /* descriptor of the locked folder; -1: none */
    bool made, begun, committed;        /* this writer made the folder; has its turn; has made the new files valid */
};

/**
 * Begin to write: create the folder if needed, wait up to BUNDLE_PATIENCE seconds for another writer, and clean up
 * after a writer that was killed.
 * @return OK, or ERR_FILE, with nothing to abort.
 */
enum error_code bundle_begin(struct bundle_writer *, const struct bundle_kind *, const char *dir, struct error *);
enum { BUNDLE_PATIENCE = 60 };

/** The path at which to write a new file; the caller must flush the file to the disk.
 *  @param[out] path  BUNDLE_PATH bytes.  @return path. */
char *bundle_new_path(const struct bundle_writer *, const char *name, char *path);

/** Make the new files valid, after all are written.
 *  @return OK, or ERR_FILE: then the old files are valid, or the new ones if only the renaming failed. */
enum error_code bundle_commit(struct bundle_writer *, struct error *);

/** Remove files that are not valid, and unlock.  Always the last call, also after bundle_commit. */
void bundle_end(struct bundle_writer *);

/** Lock a folder against writers while its files are read.
 *  @return a descriptor to close; -1 if it cannot be locked. */
int bundle_lock_to_read(const char *dir);

#endif
