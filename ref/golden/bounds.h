/* bounds.h -- how far rounding may take each tensor of a golden file, measured, and kept beside it.
 *
 * The bound of a tensor in a number format is the furthest that any disturbed twin of our model, which computes in that
 * format, gets from the truth, norm of the difference over norm, and 2u, one unit in the last place (perturb.h says
 * what a twin is, and why no two correct programs are further apart).
 *
 * In fp32 and fp64 the truth is the undisturbed run, whose own error is nothing beside ten times sqrt(n) u.  In bf16
 * and fp16 it is a run in fp64, since the rounding of the format itself is what there is to allow for.  There a twin is
 * disturbed wherever 16 bits are stored: each activation, each gradient of one, each gradient of a weight and each
 * weight, which is a rounded fp32 master, by up to 4 u16, and by what rounds its sums in fp32.  Between two tensors
 * that have a name programs store some results more: the probabilities of attention, the normalised numbers before a
 * norm's weight, the gate of a swiglu, rotated halves; or the two parts, and the sum, of what two devices add up.  Each
 * is off by u16 at most, and seldom all by that.
 *
 * Where rounding sends a token to another expert, all that follows is another computation, which no bound could be for.
 * In the pass over the first batch the twins' tokens go where they go in truth; the bounds are those of programs in
 * which they do too, and who compares must see to it (struct record: route).  In the optimizers' steps nobody sees it:
 * if a token of a twin goes elsewhere there, what follows has no bound: null in the file, infinite here.
 *
 * golden/NAME.bounds.json:
 *
 *     { "golden": "NAME.safetensors", "lambda": 10, "parts": 2,
 *       "fp32": { "twins": 16, "bounds": { "act/embedding": 1.3e-6, ... } }, "fp64": ..., "bf16": ..., "fp16": ... }
 */
#ifndef ORRERY_BOUNDS_H
#define ORRERY_BOUNDS_H

#include "ref/golden/replay.h"

enum { BOUND_FORMATS = 4 };
extern const enum dtype bound_formats[BOUND_FORMATS];

enum { BOUND_PARTS = 2 };              /* parts of each result that a twin stores in 16 bits, each off by up to 2 u16 */

/** How many twins measure bounds in a format.  In 16 bits, where they are only four times as disturbed as a clean run,
 *  and not PERTURB_LAMBDA times, it takes more of them for none of thousands of tensors to be near
 *  the truth in all by chance. */
int bound_twins(enum dtype);

/** Whether a tensor within this bound says something: nothing but zeros is off by 1. */
static inline bool bound_decides(double bound) { return bound < 1; }

/** The disturbance of a twin; a seed is to be added. */
struct perturbation bound_twin(enum dtype);

/** That of a clean run: no more than another order of sums does, and in 16 bits one rounding more of every result. */
struct perturbation bound_clean(enum dtype, uint64_t seed);

/** The format of the undisturbed run from which bounds are measured. */
static inline enum dtype bound_base(enum dtype t) { return dtype_wide(t) == t ? t : F64; }

/**
 * Measure the bounds of a format.
 * @param plain       the undisturbed run in bound_base() of it.
 * @param twin        how its twins are disturbed: bound_twin() of it, or more.
 * @param[out] bound  [plain->records], rounded up to three digits, or infinite.
 */
enum error_code bounds_measure(const struct replay *plain, enum dtype, struct perturbation twin, double bound[],
                               struct error *);

/** Read those stored beside a golden file.  @param plain  any run of it.  @return OK; ERR_FILE; ERR_FORMAT, naming the
 * tensor that has none. */
enum error_code bounds_read(const struct replay *plain, enum dtype, double bound[], struct error *);

/** Measure in every format and write the file beside a golden one.  @return OK; ERR_FILE; ERR_MEMORY. */
enum error_code bounds_write(const struct golden *, struct error *);

#endif
