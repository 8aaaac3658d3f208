/* assembly_put.h -- shared by assembly.c and assembly_adapted.c.  Inside dump/ only. */
#ifndef ORRERY_ASSEMBLY_PUT_H
#define ORRERY_ASSEMBLY_PUT_H

#include "emulated_devices/check/dump/assembly.h"

/** Put a tensor together from its own pieces alone, as assembly_make does where there are no adapters. */
enum error_code assembly_put(struct assembly *, const struct actual *, const char *ours, const int64_t dim[2],
                             double *whole, const struct assembly_watch *, struct error *);

/* A frozen weight that is put together. */
struct assembling_weight {
    const struct actual *actual;        /* the dump */
    const char *name, *param;           /* "adamw/1/weight/NAME", and NAME in it */
    const int64_t *dim;                 /* [2] of the whole */
    struct interval rows;               /* that are asked for */
    double *out;                        /* NULL: nobody wants the numbers */
};

/** Put a frozen weight together, with the adapters that it has.  @return as assembly_make. */
enum error_code assembly_adapt(struct assembly *, const struct assembling_weight *, const struct assembly_watch *,
                               struct error *);

#endif
