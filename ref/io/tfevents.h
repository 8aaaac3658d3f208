/* tfevents.h -- a file of events, as TensorBoard reads it: scalars by tag and step.
 *
 * A file is a list of records: length (8 bytes), masked CRC-32C of the length, the bytes of a protocol buffer, masked
 * CRC-32C of these; all little-endian.  A record is written by one call, so a file that is cut anywhere is whole up to
 * its last record but one.  The messages (tensorflow/core/util/event.proto, framework/summary.proto) have few fields
 * that matter here; they are written by hand.
 *
 *     Event        1 wall_time double, 2 step int64, 3 file_version string, 5 summary, 7 session_log
 *     Summary      1 value, repeated
 *     Value        1 tag string, 2 simple_value float
 *     SessionLog   1 status: 1 is START
 *
 * run/log.c writes the steps of a run with these functions (--tensorboard).
 */
#ifndef ORRERY_TFEVENTS_H
#define ORRERY_TFEVENTS_H

#include "ref/error.h"
#include <stddef.h>
#include <stdint.h>

struct tfevents {
    int fd;                             /* -1: not open */
    char path[4096];                    /* of the file, for messages */
};

/* A point of one curve of TensorBoard. */
struct tfscalar { const char *tag; double value; };

/**
 * Start a file in a folder, which is made if it is not there; the file's name begins with "events.out.tfevents." and
 * has the time, the host and the process.
 * @param first  steps from this one on, of earlier files of the folder, are void; 0: there are none.
 * @return OK, or ERR_FILE.
 */
enum error_code tfevents_open(struct tfevents *, const char *dir, int64_t first, struct error *);

/** Write the values of a step, at most TFEVENTS_MOST.  @return OK, or ERR_FILE. */
enum error_code tfevents_write(struct tfevents *, int64_t step, const struct tfscalar *, int count, struct error *);
enum { TFEVENTS_MOST = 16 };

void tfevents_close(struct tfevents *);

/** CRC-32C (Castagnoli), as in RFC 3720, appendix B.4. */
uint32_t crc32c(const void *bytes, size_t count);

#endif
