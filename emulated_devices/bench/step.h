/* step.h -- measures a training step: on one device and on some meshes, beside this machine's matrix product.
 * cli/bench/step.c calls these functions. */
#ifndef ORRERY_BENCH_STEP_H
#define ORRERY_BENCH_STEP_H

#include "ref/error.h"
#include "ref/exact/rule.h"
#include <stdbool.h>
#include <stdint.h>

enum { STEP_MOST_RUNS = 1000, STEP_MOST_ROUNDS = 100, STEP_GEMM_SIZE = 2048, STEP_MESHES = 13, STEP_CALLS = 6 };

/* This holds what is measured. */
struct bench_step {
    const char *model, *backend, *beside, *dtype, *json;        /* beside: another backend, or NULL */
    int runs, rounds, devices;          /* devices: the most of a mesh */
    int threads, steal;                 /* of the one device; cores that others keep busy meanwhile */
    enum exact_rule exact;              /* of exact sums (ref/exact/) a step in ordinary arithmetic is beside it */
    double seconds, limit;              /* what all rounds may take, and one run */
    int64_t batch;                      /* sequences; 0: the preset's, but at least 8 */
};

/* data: NULL is ddp; another scheme is also compared with the row before it, which has the same mesh. */
struct step_mesh { int dp, tp, pp; const char *tensor, *data; };
extern const struct step_mesh step_meshes[STEP_MESHES];

extern const char *const step_call_names[STEP_CALLS];

/* This holds what the backend asked its library for in a step, by step_call_names. */
struct step_calls { bool counted; double of[STEP_CALLS]; };

/* Seconds in each round: of the backend's matrix product, also of a processor, of a step on one device, also on one
 * thread of it, and on each mesh; and the ratios to one device and to the mesh before.  Processor time of a step on
 * each mesh, by another backend, too, and their ratio.  Work: processor time of a step on the one device, and in the
 * processes of all devices of a mesh together, as a multiple of that.  plain, dearer: with exact sums, a step on one
 * device without them, and how many times as long theirs takes.  rounds: that were measured, of a mesh and of the one
 * device. */
struct step_pace {
    char model[64];                     /* its name */
    double flops, tokens;               /* of a step */
    bool taken[STEP_MESHES];            /* meshes that fit the model, the batch and the devices */
    int rounds[STEP_MESHES], rounds_alone;
    double gemm[STEP_MOST_ROUNDS], gemm_processor[STEP_MOST_ROUNDS];
    double plain[STEP_MOST_ROUNDS], dearer[STEP_MOST_ROUNDS];
    double step[STEP_MOST_ROUNDS], single[STEP_MOST_ROUNDS], slower[STEP_MOST_ROUNDS];
    double meshed[STEP_MESHES][STEP_MOST_ROUNDS], ratio[STEP_MESHES][STEP_MOST_ROUNDS];
    double beside[STEP_MESHES][STEP_MOST_ROUNDS], processor[STEP_MESHES][STEP_MOST_ROUNDS];
    double other[STEP_MESHES][STEP_MOST_ROUNDS], times[STEP_MESHES][STEP_MOST_ROUNDS];
    double step_processor[STEP_MOST_ROUNDS], work[STEP_MESHES][STEP_MOST_ROUNDS];
    struct step_calls calls[STEP_MESHES];         /* of device 0 in the last step */
};

/* How much other programs have disturbed the measurement, as the matrix product shows: alone on its cores, the product
 * takes the same time in each round, and all of each core. */
struct step_noise {
    double spread;                      /* longest round over shortest */
    double share;                       /* processor time over time on the clock and threads: 1 is alone */
    bool noisy;                         /* speeds are those of a machine that others use, too */
};

/** Find out how noisy the measurement was.  @param threads  of the product; 0: its backend does not compute on cores,
 *  and the share says nothing. */
struct step_noise step_noise(const struct step_pace *, int threads);

/* Who is told while steps are measured. */
struct step_listener {
    void *context;                      /* first argument of both functions */
    void (*begins)(void *context, const struct bench_step *, const struct step_pace *); /**< Told at the beginning. */
    void (*part_done)(void *context, double part);      /* of all, 0 to 1 */
};

/**
 * Measure everything in turn, round by round, for about ->seconds.
 * @param[in,out] step  batch and threads are set.  @param program  argv[0].
 * @return OK, or the error of the model, of memory or of a run.
 */
enum error_code step_measure(struct bench_step *step, const char *program, const struct step_listener *,
                             struct step_pace *, struct error *);

#endif
