/* series.h -- checkpoints of one run, taken from time to time: DIR/step-00000050, DIR/step-00000100, ..
 *
 * Each is a checkpoint of its own (model/checkpoint/checkpoint.h), whole or not there: a folder without
 * checkpoint.sha256 is none.  Files of run/, cli/, draw/report/ and run/words/ call these functions.
 */
#ifndef ORRERY_CHECKPOINT_SERIES_H
#define ORRERY_CHECKPOINT_SERIES_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The folder of a step. */
void series_path(char *path, size_t size, const char *dir, int64_t step);

/** Make the folder that holds the series.  @return OK or ERR_FILE. */
enum error_code series_make(const char *dir, struct error *);

/**
 * The newest checkpoint of a folder: the folder itself if it is one, else that of the last step.
 * @param[out] path  where it is.  @return whether there is one.
 */
bool series_newest(char *path, size_t size, const char *dir);

/** The last step of a folder's checkpoints.  @return -1 if there is none. */
int64_t series_last(const char *dir);

/** Remove all checkpoints but the newest `keep`; files that are not a checkpoint's stay.  @return OK or ERR_FILE. */
enum error_code series_prune(const char *dir, int keep, struct error *);

#endif
