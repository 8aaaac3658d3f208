/* stream.h -- the rate of memory by the four loops of STREAM (J. McCalpin): as loops that threads share evenly, and as
 * tasks that threads take when they are free, as in HPX's form of it.
 *
 *     copy c = a      scale b = x c      add c = a + b      triad a = b + x c
 *
 * cli/calibrate/stream.c and tests call these functions.
 */
#ifndef ORRERY_BENCH_STREAM_H
#define ORRERY_BENCH_STREAM_H

#include "ref/error.h"
#include <stdint.h>

enum stream_loop { STREAM_COPY, STREAM_SCALE, STREAM_ADD, STREAM_TRIAD, STREAM_LOOPS };
enum stream_way { STREAM_BY_LOOPS, STREAM_BY_TASKS, STREAM_WAYS };
enum { STREAM_ROUNDS_MOST = 100 };
extern const char *const stream_loop_name[STREAM_LOOPS];

/** This holds what is measured. */
struct stream_asked {
    int64_t elements;                   /**< of each of the three arrays, in fp64 */
    int rounds;                         /**< of all loops; the best one counts */
    int tasks;                          /**< into which a loop is cut, with tasks */
};

/** This holds bytes a second, read and written, of the best round. */
struct stream_rates { double rate[STREAM_WAYS][STREAM_LOOPS]; };

/** Bytes that a loop reads and writes.  Pure. */
double stream_bytes(enum stream_loop, int64_t elements);

/** One loop over the whole arrays, for a test.  @param tasks  as struct stream_asked says.  Local. */
void stream_run(enum stream_way, enum stream_loop, double *a, double *b, double *c, int64_t elements, int tasks);

/** Measure with the threads of OpenMP, and check the arrays.  Local.
 *  @return OK; ERR_MEMORY; ERR_CHECK: an array does not have what the loops make. */
enum error_code stream_measure(const struct stream_asked *, struct stream_rates *, struct error *);

#endif
