/* nano.h -- NanoFlow's overlap: an iteration's batch is cut into nano-batches for each operation, so that one computes
 * while another reads keys and a third one is on the network.
 *
 * A device has three engines (serve/overlap.h).  An operation has one of them as its bottleneck, and work: its seconds
 * for the whole batch alone on the device.  A layer's operations follow one another.  Operation k of nano-batch b needs
 * those nano-batches of operation k - 1 whose rows it has, and nothing else.  Each start costs `launch` seconds more.
 *
 * Source  K. Zhu et al., "NanoFlow: towards optimal large language model serving throughput", arXiv:2408.12757.  Its
 *         search is two integer programs; here all plans of a grid are tried.
 *
 * nano_claims.c and tests call these functions.  The code is pure.
 */
#ifndef ORRERY_NANO_H
#define ORRERY_NANO_H

#include "emulated_devices/serve/overlap.h"
#include "ref/error.h"

enum { NANO_OPERATIONS = 8 };           /* the most of a layer */

struct nano_operation { const char *name; enum overlap_engine engine; double work; };

/* A layer, several times. */
struct nano_program {
    int operations, layers;
    struct nano_operation operation[NANO_OPERATIONS]; /**< Operations of a layer, [operations]. */
    double launch;                      /* seconds of each start */
    bool interference;                  /* engines slow each other down */
};

struct nano_plan {
    int batches[NANO_OPERATIONS];       /* nano-batches of each operation: 1, 2 or 4 */
    double first;                       /* part of the batch in front of its middle cut, from 0 to 1; usually 0.5 */
    bool by_rows;                       /* the first rows go first; else the first operation */
    double share[OVERLAP_ENGINES];         /* of the device, if all engines work; together 1 */
};

/** Seconds of an engine's work, with the starts of a plan. */
double nano_engine_time(const struct nano_program *, const struct nano_plan *, enum overlap_engine);

/** Seconds of the program.  @return OK or ERR_MEMORY. */
enum error_code nano_time(const struct nano_program *, const struct nano_plan *, double *seconds, struct error *);

/** The best of all plans with 1, 2 or 4 nano-batches up to the first operation of the memory's engine, and behind it;
 *  first parts of 1/4, 3/8 or 1/2; both orders; shares in tenths.  @return OK or ERR_MEMORY. */
enum error_code nano_search(const struct nano_program *, struct nano_plan *best, double *seconds, struct error *);

/** A plan that cuts nothing. */
struct nano_plan nano_whole(void);

#endif
