/* tensor.h -- one layer of a model under tensor schemes: each scheme's predicted needs, and the counts
 * of devices that compute it.  Files of bench/schemes/, cli/bench/schemes/ and claims/ call these functions. */
#ifndef ORRERY_BENCH_TENSOR_H
#define ORRERY_BENCH_TENSOR_H

#include "emulated_devices/launch/launch.h"
#include "emulated_devices/model/link/layer_memory.h"
#include "emulated_devices/plan/plan.h"

enum { BENCH_TENSOR_LIST = 32, BENCH_TENSOR_RUNS = 101, BENCH_TENSOR_DEVICES = 128, BENCH_TENSOR_RUN_DEVICES = 27 };

/* One layer, F = 4 D, and a microbatch. */
struct tensor_shape { const char *name; int64_t D, H, S, B; };
static inline int64_t shape_tokens(const struct tensor_shape *shape) { return shape->B * shape->S; }

struct bench_tensor {
    struct tensor_shape shape;                  /* sizes of the layer */
    int devices[BENCH_TENSOR_LIST], sizes;      /* of the tp groups */
    int run;                                    /* largest group that is run */
    int runs;                                   /* repetitions of each pass */
    enum dtype dtype;                           /* format of matrices and activations */
    struct cluster cluster;                     /* for virtual time */
    const char *json;                           /* file for the results; NULL: the standard output */
};

/** A model with such a layer: V = D. */
struct model_config shape_model(const struct tensor_shape *);

/* ---- tensor_predict.c: by the cost and memory functions ---------------------------------------------------------- */

/* One layer and microbatch, forward and backward. */
struct tensor_figures {
    uint64_t messages, bytes;           /* sent by the device that sends most */
    double mean;                        /* bytes that a device sends on average */
    uint64_t weights, kept;             /* bytes, of the device that has most */
    picoseconds transfers;              /* of the collectives one after the other, without their additions */
};

/** Predict what a scheme sends and holds on P devices.
 *  @return OK; ERR_PLAN if it does not accept P or the shape; ERR_MEMORY. */
enum error_code tensor_predict(struct tensor_figures *, const struct bench_tensor *, const struct tensor_shape *,
                               const struct tensor_scheme *, int P, struct error *);

/* One device of a tp group without messages: sufficient for cost and memory functions. */
struct stand {
    struct device device;               /* gives formats and a clock; nothing is computed */
    struct comm comm;                   /**< Communication of the device; nothing is sent. */
    struct group group;                 /**< The tp group. */
    int P;                              /* devices of the tp group */
    struct plan plan;                   /**< Plan with the shape and the format. */
    struct tensor_parallel tp;          /**< State of the tensor scheme. */
    int64_t N;                          /* tokens of a microbatch */
};
enum error_code stand_open(struct stand *, const struct tensor_shape *, enum dtype, const struct tensor_scheme *, int P,
                           struct error *);
enum error_code stand_at(struct stand *, int rank, int64_t N, struct error *);
void stand_close(struct stand *);

/* ---- tensor_compare.c: one scheme beside another one ------------------------------------------------------------ */

/* The compared quantity: bytes that a device sends on average, or picoseconds of transfers. */
enum tensor_quantity { TENSOR_SENT, TENSOR_TIME };
enum { TENSOR_MOST_RATIO = 64 };        /* N/D up to which a crossing is searched for */

/** The scheme with this name, which exists. */
const struct tensor_scheme *tensor_named(const char *name);

/** Return what a scheme needs; NAN if it does not accept P. */
double tensor_needs(const struct bench_tensor *, const struct tensor_shape *, const struct tensor_scheme *, int P,
                    enum tensor_quantity);

/** The N/D from which on a scheme needs less than 1d; NAN: none up to TENSOR_MOST_RATIO. */
double tensor_crossing(const struct bench_tensor *, const struct tensor_scheme *, int P, enum tensor_quantity);

/** Do the same by the formulas in the schemes' head comments, for matrices only. */
double tensor_crossing_by_formula(const char *name, const int mesh[TENSOR_AXES], int P);

/** The smallest number of devices with which a scheme needs less than 1d; 0: none up to BENCH_TENSOR_DEVICES. */
int tensor_fewest(const struct bench_tensor *, const struct tensor_shape *, const struct tensor_scheme *,
                  enum tensor_quantity);

/** Picoseconds of a layer: matrices and attention at the device's arithmetic rate, plus the transfers. */
double tensor_layer_time(const struct bench_tensor *, const struct tensor_shape *, const struct tensor_scheme *,
                         int P);

/** The speedup of a product of [N,I] with [I,D], summed over the devices of the stand, if sums are sent during the
 *  products of chunks. */
double tensor_overlap_gain(const struct bench_tensor *, struct stand *, int64_t I);

/* ---- tensor_device.c: measured ----------------------------------------------------------------------------------- */

/* The counts of one job for one scheme; each is the largest over the devices. */
enum {
    COUNT_MESSAGES,
    COUNT_BYTES,
    COUNT_KEPT,
    COUNT_BUFFERS,
    COUNT_VIRTUAL,
    COUNT_COMPUTING,
    COUNT_OTHER,
    TENSOR_COUNTS
};
/* names in the JSON; OTHER: devices whose counts differ from their formulas */
extern const char *const tensor_count_name[TENSOR_COUNTS];

/**
 * One device of a job that computes the layer under every scheme that accepts it, and writes the counts to ->json, or
 * to stdout.  asked: a struct bench_tensor.  @return OK, or the same error on every device.
 */
device_fn bench_tensor_device;

/* ---- tensor_job.c: jobs that compute the layer ------------------------------------------------------------------ */

/* The counts of one scheme on one number of devices; seconds are of all jobs. */
struct tensor_row {
    int P;                              /* devices */
    const char *scheme;                 /* its name */
    double count[TENSOR_COUNTS], seconds[BENCH_TENSOR_RUNS], median;
    int runs;                           /* entries of `seconds` */
};
struct tensor_counted { struct tensor_row *row; int used; };

/** Run a job of each number of devices that is to be run, in turn, as often as is asked for.
 *  @param cluster  as typed.  @param[out] all  .row is for free(), also after a failure.
 *  @param[out] status  of devices that have printed their own errors. */
enum error_code tensor_jobs_run(struct tensor_counted *all, const struct bench_tensor *, const char *cluster,
                                char *program, int *status, struct error *);

/** The row of a scheme on P devices; NULL: it was not run. */
struct tensor_row *tensor_row_of(const struct tensor_counted *, int P, const char *scheme);

#endif
