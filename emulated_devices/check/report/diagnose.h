/* diagnose.h -- describes a failure: the devices, the mesh axis and the factor.
 * emulated_devices/cli/check.c, run/report/report_check.c and verify/reference/ call it.  Nothing can fail:
 * without an explanation a text is empty. */
#ifndef ORRERY_DIAGNOSE_H
#define ORRERY_DIAGNOSE_H

#include "emulated_devices/check/dump/devices.h"

/* Actual numbers as a multiple of the expected ones: the least-squares factor, and its residual, norm over norm. */
struct scale { double factor, residual; };

/** The scale from sums over elements of actual^2, actual * truth and truth^2.  Factor NaN if the truth is zero. */
struct scale scale_of(double actual, double product, double truth);

/* One tensor, on every device that has it. */
enum { DIAGNOSE_MOST = 256 };           /* devices whose numbers are kept; for others only sets and the common scale */
struct evidence {
    struct devices holding, failing;
    struct scale scale;                 /* of the failing devices; residual NaN if their factors differ */
    double factor[DIAGNOSE_MOST];       /* of each device that has the tensor */
    double truth[DIAGNOSE_MOST];        /* squared norm of its part of the truth */
    bool number;                        /* a single number: it is a multiple of any other */
    double rounding;                    /* the residual that rounding may cause, norm over norm: the tensor's bound */
    bool sides;                         /* computed from two losses: the factor may also come from 2 sides */
};

/** Add one device's scale.  @param truth  squared norm of its part. */
void evidence_add(struct evidence *, int rank, bool fails, struct scale, double truth);

/** The failing devices by axis: "tp=1, any dp", "any tp but 0", or a list of ranks if the axes cannot describe them.
 *  @return out. */
const char *diagnose_place(char *out, size_t size, const struct mesh *, const struct evidence *);

/**
 * How wrong numbers follow from right ones: "expected times 2.0000 = dp", "expected times 0.5000 = 1/dp or 1/tp", or "a
 * part of a sum: over tp they add up to what is expected".
 *
 * The factor is the least-squares one.  It is constant if its residual, norm over norm, is below 1e-3 on every failing
 * device, or within the tensor's bound if that is larger, as with 16-bit numbers.
 * A missing sum is found from the factors: over the devices that should have been summed they add up to 1.
 * @param micros  microbatches M.
 * @return out; empty if neither applies.
 */
const char *diagnose_scale(char *out, size_t size, const struct mesh *, int micros, const struct evidence *);

/** Name a factor: "dp", "1/dp or 1/tp", or a loss scale, "1024, a loss scale that is not divided out"; empty if
 * neither explains it.  @param same  its tolerance. */
const char *diagnose_factor(char *out, size_t size, const struct mesh *, int micros, double factor, double same);

#endif
