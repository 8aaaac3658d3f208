/* tensor.h -- the pieces of `orrery bench tensor`: one layer of a model, what each scheme is said to need for it, and
 * what devices that really compute it count. */
#ifndef ORRERY_BENCH_TENSOR_H
#define ORRERY_BENCH_TENSOR_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/layer_memory.h"
#include "emulated_devices/plan/plan.h"

enum { BENCH_TENSOR_LIST = 32, BENCH_TENSOR_RUNS = 101, BENCH_TENSOR_DEVICES = 128, BENCH_TENSOR_RUN_DEVICES = 27 };

/* One layer, F = 4 D, and a microbatch. */
struct tensor_shape { const char *name; int64_t D, H, S, B; };
static inline int64_t shape_tokens(const struct tensor_shape *s) { return s->B * s->S; }

struct bench_tensor {
    struct tensor_shape shape;
    int devices[BENCH_TENSOR_LIST], sizes;      /* of the tp groups */
    int run;                                    /* groups of up to so many devices are really run */
    int runs;
    enum dtype dtype;
    struct cluster cluster;
    bool quiet;
    const char *json;
};

/** The model of which this is a layer: V = D. */
struct model_config shape_model(const struct tensor_shape *);

/* ---- bench_tensor_predict.c: by the cost and memory functions ---------------------------------------------------- */

/* One layer and microbatch, forward and backward. */
struct tensor_figures {
    uint64_t messages, bytes;           /* sent by the device that sends most */
    double mean;                        /* bytes that a device sends on average */
    uint64_t weights, kept;             /* bytes, of the device that has most */
    picoseconds transfers;              /* of the collectives one after the other, without what they add */
};

/** What a scheme needs on P devices.  @return OK; ERR_PLAN if it does not take P or the shape; ERR_MEMORY. */
enum error_code tensor_predict(struct tensor_figures *, const struct bench_tensor *, const struct tensor_shape *,
                               const struct tensor_scheme *, int P, struct error *);

/* One device of a tp group without messages: enough for cost and memory functions. */
struct stand {
    struct device device;
    struct comm comm;
    struct group group;
    int P;
    struct plan plan;
    struct tensor_parallel tp;
    int64_t N;                          /* tokens of a microbatch */
};
enum error_code stand_open(struct stand *, const struct tensor_shape *, enum dtype, const struct tensor_scheme *, int P,
                           struct error *);
enum error_code stand_at(struct stand *, int rank, int64_t N, struct error *);
void stand_close(struct stand *);

/* ---- bench_tensor_claims.c: published figures beside ours -------------------------------------------------------- */

/** From where on one scheme needs less than another, and what papers claim.  To stdout. */
enum error_code print_claims(const struct bench_tensor *, struct error *);

/** What a layer keeps in 16 bits beside the published account.  To stdout. */
enum error_code print_layer_memory(const struct tensor_shape *, struct error *);

/* ---- bench_tensor_device.c: really run --------------------------------------------------------------------------- */

/* What one job finds of one scheme; each the largest over the devices. */
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
/* in the JSON; OTHER: devices whose counts are not their formulas' */
extern const char *const tensor_count_name[TENSOR_COUNTS];

/**
 * One device of a job that computes the layer under every scheme that takes it, and writes what it counted to ->json,
 * or to stdout.  asked: a struct bench_tensor.  @return OK, or the same error on every device.
 */
device_fn bench_tensor_device;

#endif
