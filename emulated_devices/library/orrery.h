/* orrery.h -- the library liborrery: commands of orrery from a program, their results, and tensor files.
 *
 *     #include <orrery.h>                         cc mine.c $(pkg-config --cflags --libs orrery)
 *
 *     char *words[] = { "plan", "--model", "tiny", "--dp", "4", NULL }, *json;
 *     int status = orrery_json(words, &json);     the document of docs/using/json.md
 *     orrery_free(json);
 *
 * Commands run in processes of their own, so nothing of them stays in yours.  Functions may be called from any thread;
 * one struct orrery_tensors by one thread at a time.  Names that do not begin with orrery_ are not exported.
 * Errors come back as statuses and messages; the library never ends the calling process.  Programs outside this tree
 * call these functions; tutorials/python loads the library.
 */
#ifndef ORRERY_H
#define ORRERY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this library: "0.1".  It does not change and is never freed. */
const char *orrery_version(void);

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* A word of a command.  C++ has no strings that may change, and C converts no list of strings to one of constants. */
#ifdef __cplusplus
typedef const char *const orrery_word;
#else
typedef char *const orrery_word;
#endif

/**
 * Run a command and wait for it; it prints what it prints to this program's streams.  It ends if this program ends.
 * @param words  of the command, NULL at the end: { "train", "--dp", "2", NULL }.
 * @return its exit status: 0 done, 1 failed, 2 wrong usage, 3 a check failed; 127 if orrery cannot be started; 128 and
 *         the signal's number if a signal ended it; 128 alone if this program also ignores SIGCHLD.  The program is
 *         $ORRERY, else bin/orrery beside this library's folder, else orrery in PATH.
 */
int orrery_run(orrery_word *words);

/**
 * The same with `--json -` added; what it writes is returned instead of printed.
 * @param[out] json  the document, for orrery_free; NULL if the command has written none.
 * @return as orrery_run.
 */
int orrery_json(orrery_word *words, char **json);

/**
 * The same, and what the command writes to standard error is returned instead of printed.
 * @param[out] json     as of orrery_json.
 * @param[out] message  lines, the last of which says why a command has failed, for orrery_free; NULL: there are none.
 * @return as orrery_run.
 */
int orrery_call(orrery_word *words, char **json, char **message);

/**
 * Hear a line that a command has written to standard error: what it reports while it runs, or an error.
 * The function is called in the thread that has called orrery_watch.
 * @param line  without its end; it lives until the function returns.
 * @return 0: the command goes on; another number: it is stopped, as by SIGTERM, and its last lines still come.
 */
typedef int orrery_hear(void *context, const char *line);

/**
 * As orrery_call, and each line of the command is heard as soon as it is complete.
 * @param hear     called for each line; may be NULL.
 * @param context  given to `hear`.
 * @param[out] json     may be NULL: then no document is asked for, and the command's report is the caller's output.
 * @param[out] message  all lines, for orrery_free; may be NULL.
 * @return as orrery_run; 143 if `hear` has stopped the command.
 */
int orrery_watch(orrery_word *words, orrery_hear *hear, void *context, char **json, char **message);

/** Free what orrery_json, orrery_call and orrery_watch have returned. @param text  may be NULL. */
void orrery_free(char *text);

/* ---- tensor files ------------------------------------------------------------------------------------------------ */

enum { ORRERY_DIMS = 8, ORRERY_MESSAGE = 400 };

struct orrery_tensors;                  /* an open safetensors file: a checkpoint's, a golden file, a dump */

/** This is one tensor of a file; strings live until the file is closed. */
struct orrery_tensor {
    const char *name;                   /* unique in the file */
    const char *dtype;                  /* as spelled in the file: "F32", "BF16", ... */
    int ndim;                           /* dimensions in use; 0: a scalar */
    int64_t dim[ORRERY_DIMS];           /* slowest first */
    int64_t count;                      /* elements */
};

/**
 * Open a safetensors file and check its whole header.
 * @param[out] message  why it cannot be opened, one line; may be NULL.
 * @return NULL if it cannot be opened.
 */
struct orrery_tensors *orrery_tensors_open(const char *path, char message[ORRERY_MESSAGE]);

/** Close a file. @param file  may be NULL. */
void orrery_tensors_close(struct orrery_tensors *file);

/** Count the tensors in a file. */
int orrery_tensors_count(const struct orrery_tensors *file);

/** Describe a tensor. @param i  from 0 to orrery_tensors_count() - 1.  @param[out] tensor  its description.
 *  @return 0, or 1 if there is no such tensor. */
int orrery_tensors_get(const struct orrery_tensors *file, int i, struct orrery_tensor *tensor);

/** The number of the tensor with a name, or -1. */
int orrery_tensors_find(const struct orrery_tensors *file, const char *name);

/** Find a value of the file's metadata, or NULL; it lives until the file is closed. */
const char *orrery_tensors_metadata(const struct orrery_tensors *file, const char *key);

/**
 * Read a tensor as doubles: exactly what the file has.
 * @param[out] out      [count] in row-major order.
 * @param[out] message  why it cannot be read; may be NULL.
 * @return 0, or 1: the file or its numbers cannot be read.
 */
int orrery_tensors_read(const struct orrery_tensors *file, int i, double *out, char message[ORRERY_MESSAGE]);

#ifdef __cplusplus
}
#endif

#endif
