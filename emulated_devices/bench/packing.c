/* packing.c -- measures the packer on this machine.  cli/bench/packing.c calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/bench/packing.h"
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of a measurement: more than a cache of the second level, so that memory is read; the best of some rounds
 * counts, for others may use the machine. */
enum { MEASURED = 1 << 22, ROUNDS = 5 };

/* The last byte that is touched, and one. */
static int64_t reach_of(const struct strided *s)
{
    int64_t end = s->offset + s->run;
    for (int d = 0; d < s->ndim; d++) end += (s->dim[d].count - 1) * s->dim[d].stride;
    return end;
}

enum error_code packing_time(const struct strided *s, double *nanoseconds, struct error *err)
{
    const int64_t reach = reach_of(s), bytes = strided_bytes(s);
    char *const from = malloc((size_t)reach + 1), *const to = malloc((size_t)bytes + 1);
    *nanoseconds = 0;
    if (from && to) {
        memset(from, 1, (size_t)reach), memset(to, 0, (size_t)bytes);
        for (int r = 0; r < ROUNDS; r++) {
            const double begin = measure_processor();
            strided_pack(to, from, s);
            const double took = 1e9 * (measure_processor() - begin);
            if (r == 0 || took < *nanoseconds) *nanoseconds = took;
        }
    }
    free(from), free(to);
    return from && to ? OK : fail(err, ERR_MEMORY, "no memory to pack %lld bytes", (long long)bytes);
}

enum error_code packing_measure(struct strided_rates *rates, const struct link *link, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < STRIDED_RUNS && !e; i++) {
        const int64_t run = INT64_C(8) << 3 * i;
        struct strided s = strided_run(run);
        double nanoseconds;
        strided_repeat(&s, run < MEASURED ? MEASURED / run : 1, 2 * run);
        e = packing_time(&s, &nanoseconds, err);
        rates->pack[i] = nanoseconds / (double)strided_bytes(&s);
    }
    /* A message more keeps the port busy for the gap, and the sender's software a latency's part. */
    rates->latency = (double)link->latency / 1e3;
    rates->message = (double)(link->gap > 0 ? link->gap : link->latency) / 1e3;
    rates->byte = link->rate > 0 ? 1e3 / (double)link->rate : 0;
    return e;
}
