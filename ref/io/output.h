/* output.h -- atomic writing of files, and reading of a whole file.
 *
 * Output goes to a temporary file (path.tmp.PID), is flushed to the disk, and is then renamed to the final name.  A
 * crash, a full disk or an abort leaves the previous file unchanged.  Pipes, devices such as /dev/null and the standard
 * output, "-", cannot be replaced: they are streams, written directly from start to end.
 *
 * Every room that reads or writes files calls this file.  Errors are ERR_FILE, ERR_FORMAT and ERR_MEMORY, which name
 * the file.  Files of cli/, ref/io/, course/, run/ and other rooms call these functions.
 */
#ifndef ORRERY_OUTPUT_H
#define ORRERY_OUTPUT_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output {
    int fd;                             /* -1: not open */
    bool owner;                         /* created the temporary file, and will rename it */
    bool stream;                        /* not a regular file: has no temporary file */
    int64_t written;                    /* bytes written to a stream */
    char *path, *temp;                  /* final name; name of the temporary file, NULL for a stream */
};

/** Start a file, or a stream.  @return OK, ERR_FILE or ERR_MEMORY; on failure there is nothing to abort. */
enum error_code output_create(struct output *, const char *path, struct error *);

/** Write into a temporary file that another process created; its commit flushes but does not rename. */
enum error_code output_join(struct output *, const char *path, const char *temp, struct error *);

/** Set the length of the file; bytes never written read as zeros.  A stream is unchanged.  @return as output_write. */
enum error_code output_resize(struct output *, int64_t bytes, struct error *);

/**
 * Write bytes at an offset; of a stream it must be the next one.  A standard output whose reader has left takes the
 * rest without an error.
 * @return OK; ERR_FILE: the output is aborted.
 */
enum error_code output_write(struct output *, const void *data, size_t bytes, int64_t at, struct error *);

/** @return whether the reader of a pipe or socket has closed it, as head does: nobody can read what is written. */
bool output_reader_has_left(int fd);

/** Check that a file can be created: creates and removes its temporary file.  A stream is not touched.
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code output_probe(const char *path, struct error *);

/** Flush to the disk.  After it only the renaming can still fail.  @return as output_write. */
enum error_code output_flush(struct output *, struct error *);

/** Flush, close and, for the owner, rename.  @return OK, or ERR_FILE; the output is then aborted. */
enum error_code output_commit(struct output *, struct error *);

/** Close and remove the temporary file.  Does nothing after a commit or an abort. */
void output_abort(struct output *);

/** Write a whole file, or stream, from memory.  @return as output_create and output_write. */
enum error_code file_write_all(const char *path, const void *bytes, size_t count, struct error *err);

/**
 * Read a whole file or pipe into new memory, with a NUL after its last byte.  Of a pipe this waits for the end.
 * @param limit       bytes at most.
 * @param[out] bytes  for free(); NULL on failure.
 * @return OK; ERR_FILE if it is missing, a folder, a device or unreadable; ERR_FORMAT above the limit; ERR_MEMORY.
 */
enum error_code file_read_all(const char *path, int64_t limit, char **bytes, size_t *count, struct error *);

/**
 * Whether file_read_all has read a pipe since the last call: a process that is started now cannot read it again.
 * @param[out] path  the last of them, for messages; may be NULL.
 */
bool file_pipe_taken(char *path, size_t size);

/** Open a regular file for reading.  @param[out] size  its bytes.  @return OK or ERR_FILE, *fd being -1. */
enum error_code file_open(const char *path, int *fd, int64_t *size, struct error *);

/** Read exactly `bytes` bytes at an offset.  @return OK, or ERR_FILE (also if the file ends before). */
enum error_code file_read_at(int fd, const char *path, void *out, size_t bytes, int64_t at, struct error *);

/** The folder for files that live no longer than the program: $TMPDIR, or /tmp. */
const char *temporary_folder(void);

/* A path that is safe to print: control characters replaced, a long one shortened. */
struct printable { char text[164]; };

/** A name from a file or a command line, for a message: its first 80 bytes, made plain (ref/io/plain.h). */
struct printable printable(const char *name);

/** A path, for a message: its last 160 bytes, which distinguish files best, made plain. */
struct printable printable_path(const char *path);

#endif
