/* bundle.h -- several files of a folder that are replaced together or not at all, each with its checksum.
 *
 *   1. Each file is written beside its name, as NAME.new, and flushed to the disk.
 *   2. A list of all of them with their checksums takes the place of the old list, in one step.  From here on the new
 *      files count.
 *   3. NAME.new becomes NAME, one after the other.
 *
 * A reader takes NAME if it has the checksum that the list says, else NAME.new.  So whenever a writer is killed, or the
 * machine stops, the files are all old (before 2) or all new.  The next writer completes what was not renamed, and
 * removes whatever else was left behind.  Two writers at once take turns: the folder is locked, where its file system
 * knows locks.
 *
 * The list is a text that `sha256sum -c` reads; its last line is its own checksum.
 */
#ifndef ORRERY_BUNDLE_H
#define ORRERY_BUNDLE_H

#include "ref/io/sha256.h"
#include <stdbool.h>

/* files; bytes of a path, of that of a folder */
enum { BUNDLE_MOST = 8, BUNDLE_PATH = 4096, BUNDLE_FOLDER = BUNDLE_PATH - 400 };

/* What is in such a folder. */
struct bundle_kind {
    const char *title, *list;           /* what it is, and the name of the list */
    const char *name[BUNDLE_MOST];      /* of the files; NULL after the last */
};

/* The list of a folder, as read. */
struct bundle {
    const struct bundle_kind *kind;
    const char *dir;                    /* the caller's */
    struct sha256_text sum[BUNDLE_MOST];
};

/**
 * Read the list of a folder, and check it by its own checksum.
 * @param[out] there  whether there is a list; if not, the folder is no such bundle, and OK is returned.
 * @return OK; ERR_FORMAT if the list is damaged; ERR_FILE; ERR_MEMORY.
 */
enum error_code bundle_open(struct bundle *, const struct bundle_kind *, const char *dir, bool *there, struct error *);

/**
 * Where a file of it is: at its name, or still beside it.  Only in the second case it is read.
 * @param[out] path  BUNDLE_PATH bytes.
 */
void bundle_find(const struct bundle *, const char *name, char *path);

/** Whether a file has the checksum that the list says.  @return OK, ERR_FORMAT naming the file, or ERR_FILE. */
enum error_code bundle_check(const struct bundle *, const char *name, struct error *);

/** A small file's bytes, checked.  @param[out] bytes  for free(), with a NUL after the last.
 * @return as bundle_check. */
enum error_code bundle_read(const struct bundle *, const char *name, int64_t limit, char **bytes, size_t *count,
                            struct error *);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct bundle_writer {
    const struct bundle_kind *kind;
    char dir[BUNDLE_FOLDER];
    int lock;                           /* descriptor of the locked folder; -1: none */
    bool made, begun, committed;        /* the folder was not there; it is this writer's turn; the new files count */
};

/**
 * Begin: make the folder if it is not there, wait for another writer (for BUNDLE_PATIENCE seconds), tidy up after one
 * that was killed.
 * @return OK, or ERR_FILE, with nothing to abort.
 */
enum error_code bundle_begin(struct bundle_writer *, const struct bundle_kind *, const char *dir, struct error *);
enum { BUNDLE_PATIENCE = 60 };

/** Where to write a file: whoever does must flush it to the disk.  @param[out] path  BUNDLE_PATH bytes.
 * @return path. */
char *bundle_new_path(const struct bundle_writer *, const char *name, char *path);

/** All files are written: make them count.  @return OK, or ERR_FILE: the old files then count, or, if only giving names
 * has failed, the new ones. */
enum error_code bundle_commit(struct bundle_writer *, struct error *);

/** Remove what does not count, and unlock.  Always last; also after bundle_commit. */
void bundle_end(struct bundle_writer *);

/** Lock a folder against writers while its files are read.  @return a descriptor to close;
 * -1 if it cannot be locked. */
int bundle_lock_to_read(const char *dir);

#endif
