/* profile.h -- measured times of products, attention and collectives, in the tables that APEX ships.
 *
 * A folder has comm/GPU/ with all_reduce.csv, all_gather.csv, reduce_scatter.csv, alltoall.csv and sendrecv.csv, and
 * comp/GPU/ with gemm_0.csv, mha_0.csv and decode_0.csv.  The first line of a file names its columns; those that are
 * not asked for are passed over.  decode_0.csv is this program's own: one query each beside so many keys.
 *
 * A time between rows lies on the line between its neighbours, in each column; below the first row it is that row's,
 * and beyond the last in proportion.  APEX rounds tokens up to 128, and takes a root of two weights instead.
 *
 * Source  the formats: microsoft/apex_plus at 8769096, profile/, apex_plus/simulator/comm_profile.py and
 *         comp_profile.py (arXiv:2411.17651).
 *
 * cost.c asks for times, measure.c adds own ones; cli/train/ reads and writes folders.
 */
#ifndef ORRERY_SERVING_PROFILE_H
#define ORRERY_SERVING_PROFILE_H

#include "ref/error.h"
#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

enum profile_list { PROFILE_ALL_REDUCE, PROFILE_ALL_GATHER, PROFILE_REDUCE_SCATTER, PROFILE_ALL_TO_ALL, PROFILE_SEND,
                    PROFILE_GEMM, PROFILE_ATTENTION, PROFILE_DECODE, PROFILE_LISTS };
enum { PROFILE_KEYS = 4 };

/* A measured time: the list's columns, in the order of profile_kinds. */
struct profile_row {
    double key[PROFILE_KEYS];           /* of the list's kind */
    double microseconds;                /* measured */
};

struct profile_kind {
    const char *folder, *file;          /* the file without .csv */
    int keys;                           /* columns that are asked for */
    struct { const char *name; bool exact; } key[PROFILE_KEYS]; /* exact: a row must have the value itself */
};
extern const struct profile_kind profile_kinds[PROFILE_LISTS];

struct time_profile {
    struct { struct profile_row *row; int64_t rows, room; bool sorted; } list[PROFILE_LISTS];   /* [rows]; owned */
};

/** Read the tables of a device that a folder has, for numbers of a format; a list that has no file stays as it is.
 *  @return OK; ERR_FILE if there is no such folder; ERR_FORMAT naming file, line and column; ERR_MEMORY. */
enum error_code profile_read(struct time_profile *, const char *folder, const char *gpu, enum dtype, struct error *);

/** Read one list's table in place of its rows.  @return OK; ERR_FILE; ERR_FORMAT, likewise; ERR_MEMORY.  After an error
 *  the list may have some of its rows. */
enum error_code profile_read_file(struct time_profile *, enum profile_list, const char *path, enum dtype,
                                  struct error *);

/** Write all lists that have rows, so that profile_read reads them.  @return OK, ERR_FILE, ERR_FORMAT (a format that
 *  the tables have no word for) or ERR_MEMORY. */
enum error_code profile_write(const struct time_profile *, const char *folder, const char *gpu, enum dtype,
                              struct error *);

/** Add a measured time.  @return false without memory. */
bool profile_add(struct time_profile *, enum profile_list, const double *key, double microseconds);

/** The seconds of something.  @param key  its columns.
 *  @return negative: the list has no row with its exact columns. */
double profile_seconds(struct time_profile *, enum profile_list, const double *key);

/** Forget the rows of a list. */
void profile_clear(struct time_profile *, enum profile_list);
void profile_free(struct time_profile *);

#endif
