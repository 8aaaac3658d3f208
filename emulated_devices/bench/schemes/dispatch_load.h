/* dispatch_load.h -- how even devices' work is on a load that follows Zipf's law, with and
 * without copies of experts.  dispatch_count.c calls these functions.  A load is the experts that tokens go to; fssdp
 * copies experts by the loads of earlier steps. */
#ifndef ORRERY_BENCH_DISPATCH_LOAD_H
#define ORRERY_BENCH_DISPATCH_LOAD_H

#include "ref/error.h"

struct comm;
struct expert_shape;

enum { LOAD_ROWS = 4 };                 /* 0 copies: alltoall; then fssdp */

struct load_row {
    int copies;                         /* that each device has room for */
    double busiest;                     /* rows of the device with most, over the mean */
    double sent, kept;                  /* bytes of weights of copies: of all devices in a forward pass; of the device
                                         * with most */
};

/** Route rows as in a step whose loads the steps before had too.  Collective over all devices.
 *  @param shape  zipf and copying are set by the function.  @param[out] row  on device 0.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code dispatch_load_count(struct load_row row[LOAD_ROWS], struct comm *, const struct expert_shape *shape,
                                    struct error *);

#endif
