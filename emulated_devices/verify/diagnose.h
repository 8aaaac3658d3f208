/* diagnose.h -- what a failure looks like: which devices have it, along which axis, and by which factor. */
#ifndef ORRERY_DIAGNOSE_H
#define ORRERY_DIAGNOSE_H

#include "emulated_devices/comm/mesh.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of devices. */
struct devices { uint64_t word[MESH_MOST_DEVICES / 64]; };

static inline void devices_add(struct devices *s, int rank) { s->word[rank / 64] |= UINT64_C(1) << (rank % 64); }
static inline bool devices_have(const struct devices *s, int rank) { return s->word[rank / 64] >> (rank % 64) & 1; }
int devices_count(const struct devices *);

/* Actual numbers as a multiple of those expected: the least-squares scale, and what it leaves, norm over norm. */
struct scale { double factor, residual; };

/** From sums over elements of actual^2, actual * truth and truth^2.  Factor NaN if the truth is zero. */
struct scale scale_of(double actual, double product, double truth);

/* One tensor, on every device that has it. */
enum { DIAGNOSE_MOST = 256 };           /* devices whose numbers are kept; above that only sets and the common scale */
struct evidence {
    struct devices holding, failing;
    struct scale scale;                 /* of those that fail; residual NaN if their factors differ */
    double factor[DIAGNOSE_MOST];       /* of each that has it */
    double truth[DIAGNOSE_MOST];        /* squared norm of its part of the truth */
    bool number;                        /* a single number, of which every other is a multiple */
    double rounding;              /* what rounding may leave of a constant factor, norm over norm: the tensor's bound */
    bool sides;                         /* made of two losses: where 2 is another size to look for */
};

/** Add one device's.  @param truth  squared norm of its part. */
void evidence_add(struct evidence *, int rank, bool fails, struct scale, double truth);

/** Which devices fail, by axis: "tp=1, any dp", "any tp but 0", or a list of ranks where no such words fit.
 * @return out. */
const char *diagnose_place(char *out, size_t size, const struct mesh *, const struct evidence *);

/**
 * How wrong numbers are made of right ones: "expected times 2.0000 = dp", "expected times 0.5000 = 1/dp or 1/tp", or "a
 * part of a sum: over tp they add up to what is expected".
 *
 * The factor is the least-squares one; it is constant if what it leaves is below 1e-3, norm over norm, on every failing
 * device, or within the tensor's bound, if that is larger: in 16 bits it is.
 * A missing sum shows in the factors alone: over the devices that should have been added up they add up to 1.
 * @param micros  microbatches M.
 * @return out; empty if it is neither.
 */
const char *diagnose_scale(char *out, size_t size, const struct mesh *, int micros, const struct evidence *);

#endif
