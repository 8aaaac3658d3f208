/* stream.c -- runs and times STREAM's loops.  cli/calibrate/stream.c calls stream_measure.  Errors: ERR_MEMORY, and
 * ERR_CHECK for arrays that are wrong afterwards. */
#include "emulated_devices/bench/calibrate/stream.h"
#include "ref/machine/measure.h"
#include <math.h>
#include <stdlib.h>

const char *const stream_loop_name[STREAM_LOOPS] = { "copy", "scale", "add", "triad" };

/* STREAM's factor and first numbers; after R rounds an element is R times what one round makes of it. */
static const double FACTOR = 3, FIRST_A = 1, FIRST_B = 2, FIRST_C = 0;

/* Each number is moved once for each array that a loop names. */
double stream_bytes(enum stream_loop loop, int64_t elements)
{
    return (loop == STREAM_COPY || loop == STREAM_SCALE ? 2.0 : 3.0) * sizeof (double) * (double)elements;
}

/* ---- the loops --------------------------------------------------------------------------------------------------- */

static void stream_piece(enum stream_loop loop, double *restrict a, double *restrict b, double *restrict c,
                         int64_t from, int64_t to)
{
    switch (loop) {
    case STREAM_COPY:
        for (int64_t i = from; i < to; i++) c[i] = a[i];
        return;
    case STREAM_SCALE:
        for (int64_t i = from; i < to; i++) b[i] = FACTOR * c[i];
        return;
    case STREAM_ADD:
        for (int64_t i = from; i < to; i++) c[i] = a[i] + b[i];
        return;
    default:
        for (int64_t i = from; i < to; i++) a[i] = b[i] + FACTOR * c[i];
    }
}

/* Piece `part` of `parts` begins here; pieces differ by one element at most. */
static int64_t piece_at(int64_t elements, int part, int parts) { return elements * part / parts; }

static void stream_by_loops(enum stream_loop loop, double *a, double *b, double *c, int64_t elements, int parts)
{
#pragma omp parallel for schedule(static)
    for (int part = 0; part < parts; part++)
        stream_piece(loop, a, b, c, piece_at(elements, part, parts), piece_at(elements, part + 1, parts));
}

/* One thread makes the tasks, and all threads take them; the end of the region waits for every task. */
static void stream_by_tasks(enum stream_loop loop, double *a, double *b, double *c, int64_t elements, int tasks)
{
#pragma omp parallel
#pragma omp single
    for (int part = 0; part < tasks; part++)
#pragma omp task firstprivate(part)
        stream_piece(loop, a, b, c, piece_at(elements, part, tasks), piece_at(elements, part + 1, tasks));
}

/* Loops are cut in the same pieces as tasks, so that only who takes a piece differs. */
void stream_run(enum stream_way way, enum stream_loop loop, double *a, double *b, double *c, int64_t elements,
                int tasks)
{
    if (way == STREAM_BY_TASKS) stream_by_tasks(loop, a, b, c, elements, tasks);
    else stream_by_loops(loop, a, b, c, elements, tasks);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

struct arrays { double *a, *b, *c; };

static void fill_arrays(const struct arrays *arrays, int64_t elements)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < elements; i++) arrays->a[i] = FIRST_A, arrays->b[i] = FIRST_B, arrays->c[i] = FIRST_C;
}

/* All elements have had the same loops, so that one number of each array is made again and compared with all. */
static enum error_code check_arrays(const struct arrays *arrays, const struct stream_asked *asked, struct error *err)
{
    double a = FIRST_A, b = FIRST_B, c = FIRST_C;
    for (int round = 0; round < asked->rounds; round++)
        c = a, b = FACTOR * c, c = a + b, a = b + FACTOR * c;
    for (int64_t i = 0; i < asked->elements; i++)
        if (arrays->a[i] != a || arrays->b[i] != b || arrays->c[i] != c)
            return fail(err, ERR_CHECK, "stream: element %lld is %g, %g, %g; the loops make %g, %g, %g", (long long)i,
                        arrays->a[i], arrays->b[i], arrays->c[i], a, b, c);
    return OK;
}

static enum error_code measure_way(const struct arrays *arrays, const struct stream_asked *asked, enum stream_way way,
                                   double rate[STREAM_LOOPS], struct error *err)
{
    fill_arrays(arrays, asked->elements);
    for (int loop = 0; loop < STREAM_LOOPS; loop++) rate[loop] = 0;
    for (int round = 0; round < asked->rounds; round++)
        for (int loop = 0; loop < STREAM_LOOPS; loop++) {
            const double start = measure_now();
            stream_run(way, (enum stream_loop)loop, arrays->a, arrays->b, arrays->c, asked->elements, asked->tasks);
            const double took = measure_now() - start;
            rate[loop] = fmax(rate[loop], stream_bytes((enum stream_loop)loop, asked->elements) / fmax(took, 1e-9));
        }
    return check_arrays(arrays, asked, err);
}

enum error_code stream_measure(const struct stream_asked *asked, struct stream_rates *rates, struct error *err)
{
    const size_t bytes = (size_t)asked->elements * sizeof (double);
    const struct arrays arrays = { malloc(bytes), malloc(bytes), malloc(bytes) };
    enum error_code e = arrays.a && arrays.b && arrays.c
        ? OK : fail(err, ERR_MEMORY, "no memory for three arrays of %lld elements", (long long)asked->elements);
    for (int way = 0; way < STREAM_WAYS && !e; way++)
        e = measure_way(&arrays, asked, (enum stream_way)way, rates->rate[way], err);
    free(arrays.a), free(arrays.b), free(arrays.c);
    return e;
}
