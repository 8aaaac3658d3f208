/* kernel_file.h -- a file of CUDA kernels, without a GPU: which operations it has, and whether they are right.
 * cli/kernel.c calls these functions. */
#ifndef ORRERY_COURSE_KERNEL_FILE_H
#define ORRERY_COURSE_KERNEL_FILE_H

#include "ref/error.h"
#include <stdbool.h>

struct backend;

/* This holds what the shared object of a file has. */
struct kernel_file {
    void *object;                       /**< Handle of the shared object. */
    const struct backend *backend;      /**< Backend that the file provides. */
    int (*reports)(void);               /* of the judge, so far */
    const char *(*report)(int);         /**< Text of a report of the judge. */
    void (*print)(bool);                /* whether the judge prints them itself */
    void (*look_for_leaks)(void);       /**< Searches for memory that was not freed. */
};

/* This says what is checked, and who is told.  Rows are those of verify/conformance/conformance.h. */
struct kernel_request {
    const char *only;                   /* a word of the names of operations; NULL: all */
    bool count;                         /* the judge prints what it counted */
    int limit;                          /* seconds of processor time for an operation */
    void (*line)(const char *text);     /* a line about the row that is told next */
    void (*row)(const char *row, int cases, double worst, const char *word); /**< Called with the result of a row. */
};

/** Compile and load a file.  @return OK; ERR_USAGE, ERR_FILE, ERR_FORMAT, ERR_MEMORY without the file's name. */
enum error_code kernel_file_open(struct kernel_file *, const char *path, struct error *);

/** Whether it defines the operation of a row that is asked for. */
bool kernel_file_has(const struct kernel_file *, const struct kernel_request *, int row);

/** Run its operations in a child, which tells.  @return OK; ERR_CHECK if one is wrong, or the judge has seen something;
 *  ERR_DEVICE, ERR_MEMORY. */
enum error_code kernel_file_check(const struct kernel_file *, const struct kernel_request *, struct error *);

#endif
