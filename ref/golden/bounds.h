/* bounds.h -- the largest rounding error allowed for each tensor of a golden file: measured, stored beside the file.
 *
 * A disturbed twin is a run of our model with rounding-sized errors added (perturb.h; it also says why two correct
 * programs do not differ by more).  The bound of a tensor in a number format is the largest distance of any twin in
 * that format from the exact result, plus 2u, one unit in the last place.  Distance: norm of the difference / norm.
 *
 * In fp32 and fp64 the exact result is the undisturbed run: its own error is negligible beside ten times sqrt(n) u.  In
 * bf16 and fp16 it is a run in fp64, because the bound must include the rounding of the format itself.  There a twin is
 * disturbed wherever 16 bits are stored: each activation, its gradient, each gradient of a weight and each weight (a
 * rounded fp32 master), by up to 4 u16 plus the rounding of its sums in fp32.  The 4 u16 also cover results that other
 * programs store between two named tensors: the probabilities of attention, the normalised numbers before a norm's
 * weight, the gate of a swiglu, rotated halves; or the two parts, and the sum, of what two devices add up.  Each is off
 * by at most u16, and rarely all of them by that much.
 *
 * If rounding sends a token to another expert, everything after it is another computation and has no bound.  In the
 * pass over the first batch the twins' tokens go to the experts of the exact result.  The bounds hold for programs with
 * the same choices; the caller must check that (struct record: route).  The optimizers' steps do not record choices: if
 * a token of a twin goes elsewhere there, what follows has no bound: null in the file, infinite here.
 *
 * golden/NAME.bounds.json:
 *
 *     { "golden": "NAME.safetensors", "lambda": 10, "parts": 2,
 *       "fp32": { "twins": 16, "bounds": { "act/embedding": 1.3e-6, ... } }, "fp64": ..., "bf16": ..., "fp16": ... }
 *
 * make.c and cli/golden/ measure and store bounds; golden_list.c reads them.
 */
#ifndef ORRERY_BOUNDS_H
#define ORRERY_BOUNDS_H

#include "ref/golden/replay.h"

enum { BOUND_FORMATS = 4 };
extern const enum dtype bound_formats[BOUND_FORMATS];

enum { BOUND_PARTS = 2 };              /* parts of each result that a twin stores in 16 bits, each off by up to 2 u16 */

/** Number of twins that measure the bounds in a format.  16 bits need more: twins are disturbed only four times as much
 *  as a clean run, not PERTURB_LAMBDA times, so a tensor may by chance be near the exact result in many of them. */
int bound_twins(enum dtype);

/** Whether a comparison with this bound means anything: a result of all zeros has distance 1. */
static inline bool bound_decides(double bound) { return bound < 1; }

/** The disturbance of a twin; the caller sets the seed. */
struct perturbation bound_twin(enum dtype);

/** The disturbance of a clean run: no more than another order of sums causes; in 16 bits one more rounding of every
 *  result. */
struct perturbation bound_clean(enum dtype, uint64_t seed);

/** The format of the undisturbed run from which bounds are measured. */
static inline enum dtype bound_base(enum dtype dtype) { return dtype_is_narrow(dtype) ? F64 : dtype; }

/* Told of each twin that was measured: its number, from 1 to bound_twins() of the format. */
struct bounds_watch { void (*twin)(void *context, enum dtype, int number); void *context; };

/**
 * Measure the bounds of a format.
 * @param plain       the undisturbed run, in bound_base() of the format.
 * @param twin        the disturbance of each twin: bound_twin() of the format, or larger.
 * @param[out] bound  [plain->records], rounded up to three digits, or infinite.
 * @param watch       or NULL.
 */
enum error_code bounds_measure(const struct replay *plain, enum dtype, struct perturbation twin, double bound[],
                               const struct bounds_watch *watch, struct error *);

/** Read the bounds stored beside a golden file.  @param plain  any run of that file.
 *  @return OK; ERR_FILE; ERR_FORMAT, naming the tensor without a bound. */
enum error_code bounds_read(const struct replay *plain, enum dtype, double bound[], struct error *);

/** Measure the bounds in every format and write them beside the golden file.  @param watch  or NULL.
 *  @return OK; ERR_FILE; ERR_MEMORY. */
enum error_code bounds_write(const struct golden *, const struct bounds_watch *watch, struct error *);

struct cJSON;

/** Measure the bounds of a format and add them to the document of a file's bounds, which bounds_document starts.
 *  @param watch  or NULL.  @return OK; ERR_FORMAT; ERR_MEMORY. */
enum error_code bounds_add(struct cJSON *document, const struct golden *, enum dtype, const struct bounds_watch *watch,
                           struct error *);

/** An empty document of a golden file's bounds, for cJSON_Delete; NULL without memory. */
struct cJSON *bounds_document(const char *golden_path);

struct bounds_path { char text[4096]; };

/** Where the bounds of a golden file are: NAME.safetensors -> NAME.bounds.json. */
struct bounds_path bounds_beside(const char *golden_path);

#endif
