/* table.h -- prototypes of GaLore's functions, one per number format.
 *
 * GaLore's files in this folder, and their tests, include this file.  galore.c calls these functions.  No function
 * returns an error code.
 */
#ifndef ORRERY_OPTIM_TABLE_H
#define ORRERY_OPTIM_TABLE_H

#include "ref/numeric/dynamic_code.h"
#include "ref/optim/galore.h"

/* For galore.h.  natural_gradient stores R of step t as a row of the history H [s, count], then sets
 * R = (damping I + H^T H)^-1 R.  With moments as codes (galore_codes.c) galore_coded_moments makes N of R, and
 * galore_coded_step steps a parameter that is not projected; galore_coded_read gives the numbers of moment k. */
#define LOW_RANK(format)                                                                                    \
    void galore_project_##format(struct low_rank p, struct tensor G, struct tensor P, void *scratch);       \
    void galore_step_##format(struct low_rank p, struct tensor w, struct tensor g, const struct tensor state[], \
                              struct step s, bool natural); \
    void natural_gradient_##format(struct tensor R, struct tensor history, int64_t t, double damping);         \
    void galore_coded_moments_##format(struct tensor R, const struct tensor state[], struct step s);        \
    void galore_coded_step_##format(struct tensor w, struct tensor g, const struct tensor state[], struct step s); \
    void galore_coded_read_##format(struct tensor x, struct tensor state, int k);
LOW_RANK(f32)
LOW_RANK(f64)
#undef LOW_RANK

/* Tensors with fewer numbers keep them: bitsandbytes' min_8bit_size. */
enum { GALORE_CODED_FROM = 4096 };

/* The bytes of a moment of n numbers that may be codes. */
static inline int64_t galore_coded_bytes(int64_t n, enum dtype dtype)
{
    return n < GALORE_CODED_FROM ? dynamic_aligned(n * (int64_t)dtype_size(dtype)) : dynamic_bytes(n, dtype);
}

#endif
