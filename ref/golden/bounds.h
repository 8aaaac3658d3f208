/* bounds.h -- how far rounding may take each tensor of a golden file, measured, and kept beside it.
 *
 * The bound of a tensor in a number format is the furthest that any of BOUND_TWINS disturbed twins of our model gets from
 * the undisturbed run, norm of the difference over norm, and 2u, one unit in the last place (perturb.h says what a twin is, and
 * why no two correct programs are further apart).  golden/NAME.bounds.json:
 *
 *     { "golden": "NAME.safetensors", "lambda": 10, "twins": 16, "fp32": { "act/embedding": 1.3e-6, ... }, "fp64": { ... } }
 */
#ifndef ORRERY_BOUNDS_H
#define ORRERY_BOUNDS_H

#include "ref/golden/replay.h"

enum { BOUND_TWINS = 16, BOUND_FORMATS = 2 };
extern const enum dtype bound_formats[BOUND_FORMATS];

/** Measure.  @param plain  the undisturbed run.  @param[out] bound  [plain->records], rounded up to three digits. */
enum error_code bounds_measure(const struct replay *plain, double bound[], struct error *);

/** Read those stored beside a golden file.  @return OK; ERR_FILE; ERR_FORMAT, naming the tensor that has none. */
enum error_code bounds_read(const struct replay *plain, double bound[], struct error *);

/** Measure in every format and write the file beside a golden one.  @return OK; ERR_FILE; ERR_MEMORY. */
enum error_code bounds_write(const struct golden *, struct error *);

#endif
