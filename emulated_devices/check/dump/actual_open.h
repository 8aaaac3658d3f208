/* actual_open.h -- shared by the files that open ACTUAL.  Inside dump/ only.
 * actual.c calls actual_dump.c, which calls actual_entry.c; actual_layout.c answers for maps. */
#ifndef ORRERY_ACTUAL_OPEN_H
#define ORRERY_ACTUAL_OPEN_H

#include "emulated_devices/check/dump/actual.h"

/** Whether a file says of itself that it belongs to a dump. */
bool actual_is_dump(const struct safetensors *);

/**
 * Read what the files of a dump say of themselves, put them in order of rank, and list their tensors.
 * @param actual  its files are open; those who fill it close them.
 * @return OK; ERR_FORMAT, naming file, key and what would be right; ERR_MEMORY.
 */
enum error_code actual_open_dump(struct actual *actual, struct error *);

/** Read what a file without a layout says of its computation: "arithmetic", and beside it "dtype" and "loss_scale".
 *  @param file  one of actual->file, in order.  @return OK, also if it says nothing; ERR_FORMAT. */
enum error_code actual_read_computation(struct actual *, const struct actual_file *file, struct error *);

/** Read the patterns of tensors that a file declares as not recorded.
 *  @return OK, also without any; ERR_FORMAT, ERR_MEMORY. */
enum error_code actual_read_declared(struct actual_file *, struct error *);

/** Check an entry of a dump's layout as far as this is possible without its tensor.
 *  @return OK; ERR_FORMAT, naming file, tensor and field. */
enum error_code actual_check_entry(const struct actual *, const struct actual_entry *, struct error *);

/** How many ranks add up the sum that an entry is a part of; 1: it is no part of a sum. */
int actual_parts_of_entry(const struct actual *, const struct actual_entry *);

/** Read what a single file says of itself, without those of other ranks.  @return as actual_open_dump. */
enum error_code actual_open_alone(struct actual *actual, struct error *);

/** The entries of a dump with one of our names: the first, and in *count how many follow each other. */
const struct actual_entry *actual_entries(const struct actual *, const char *ours, int *count);

/** A piece as an entry of a dump describes it, or as a map describes a rank's tensor.
 *  @param dim  rows and columns of the whole.  @return as actual_find; nothing to free on failure. */
enum error_code actual_piece_of_entry(const struct actual *, const struct actual_entry *, const int64_t dim[2],
                                      struct actual_piece *, struct error *);
enum error_code actual_piece_of_map(const struct actual *, const char *ours, const char *theirs, int rank,
                                    const int64_t dim[2], struct actual_piece *, struct error *);

/** The shape of a stored tensor as rows and columns: leading dimensions are joined; a vector is a column. */
void actual_shape(const struct safetensors_entry *, bool transposed, int64_t shape[2]);

/** Read axes and their sizes, `{"dp": 2, "tp": 2}`; the last varies fastest.
 *  @param[out] order  [AXIS_COUNT] the axes as they stand there.  @param[out] axes  how many.
 *  @return OK; ERR_FORMAT, `where` naming the document; ERR_PLAN if it is too large. */
enum error_code actual_read_mesh(const cJSON *, const char *where, struct mesh *, enum axis order[], int *axes,
                                 struct error *);

/** The rank of the mesh which is the n-th when the last of these axes varies fastest. */
int actual_rank_of(const struct mesh *, const enum axis order[], int axes, int n);

/** An axis by its name.  @return false if there is none. */
bool actual_axis(const char *name, enum axis *);

#endif
