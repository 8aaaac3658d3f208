/* decoding.h -- what a decoded token costs on this machine: few rows times a 16-bit matrix beside a copied one, and
 * `orrery serve` on meshes beside one device.  Times are of processors, which other work on the machine hardly changes.
 * cli/bench/decoding.c calls these functions. */
#ifndef ORRERY_BENCH_DECODING_H
#define ORRERY_BENCH_DECODING_H

#include "ref/error.h"
#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

enum { DECODING_ROUNDS = 99 };          /* at most */

/* Rows times matrices that no cache holds together. */
struct decoding_product {
    enum dtype format;                  /* of all numbers: bf16 or fp16 */
    int64_t rows;                       /* of a product */
    double in_place, copied;            /* seconds of a product: medians */
    double ratio;                       /* in place over copied to fp32 first, the median of rounds */
    bool same;                          /* both have the same bits */
};

/** Measure both products of few rows, in turn.
 *  @param[in,out] product  format and rows; the function sets the rest.  @return OK or ERR_MEMORY. */
enum error_code decoding_product(struct decoding_product *product, int rounds, struct error *err);

/* A mesh that answers requests.  Each replica computes prompts of a few tokens first, which do not count. */
struct decoding_mesh {
    int dp, tp, pp;                     /* the mesh */
    bool each;                          /* each replica has as many requests as one device has; else all together */
    double processor[DECODING_ROUNDS];  /* [rounds] seconds of an iteration, of all devices together */
    double clock[DECODING_ROUNDS];      /* [rounds] likewise, those that passed */
};

/* The program's runs. */
struct decoding_runs {
    const char *program, *model, *dtype;        /* words */
    int requests, rounds;               /* of one device; how often each mesh is measured, in turn */
    double limit;                       /* seconds of a run */
    struct decoding_mesh *mesh;         /* [meshes] */
    int meshes;                         /* how many */
};

/** Measure all meshes, round by round.  @return OK, ERR_FILE, ERR_MEMORY, or the errors of a run. */
enum error_code decoding_run(const struct decoding_runs *, struct error *);

#endif
