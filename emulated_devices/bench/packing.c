/* packing.c -- measures the packer on this machine, and says what a device of a cluster takes.  cli/bench/packing.c
 * calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/bench/packing.h"
#include "emulated_devices/device/kernel.h"
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>

/* The best of some rounds counts, for others may use the machine. */
enum { ROUNDS = 5 };

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

picoseconds packing_kernel(const struct strided_road *road, const struct strided *s)
{
    const struct strided_pair pair = { *s, strided_run(strided_bytes(s)) };
    const struct strided_size size = strided_size_of(&pair, 1);
    return kernel_time(road->cluster, road->dtype, STRIDED_PACK, strided_cost(&size, 0, size.bytes));
}

picoseconds packing_by_copies(const struct strided_road *road, const struct strided *s)
{
    const struct strided run = strided_run(s->run);
    return strided_runs(s) * packing_kernel(road, &run);
}
