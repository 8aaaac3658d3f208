/* released.h -- how the released code of planners prices a step, a message, a product.
 *
 * The planners of this folder take their costs from one table, of the virtual clock.  Their releases have formulas of
 * their own.  bench planners prints both, and tests/devices/test_planners.c holds these formulas to the releases'
 * numbers.  Nothing here can fail.
 */
#ifndef ORRERY_SEARCH_RELEASED_H
#define ORRERY_SEARCH_RELEASED_H

#include "emulated_devices/search/layers/table.h"
#include <math.h>

/** Galvatron's time of a 1F1B pipeline, in the unit of its arguments.  A slow stage in the middle is missed.
 *  Source: csrc and core/search_engine of the release, pipeline_costmodel.
 *  @param micro  [stages] a microbatch, forward and back.  @param last  [stages] the last one, with its gradients'
 *  messages; `micro` if these take nothing. */
double galvatron_pipeline(int stages, int micros, const double micro[], const double last[]);

/** Galvatron's milliseconds of a message beside a backward pass: each slows the other `slowdown` times while both run.
 *  Source: core/cost_model, layer_cost.  @param message  MB.  @param rate  milliseconds of a MB, alone. */
double galvatron_overlap(double message, double rate, double backward, double slowdown);

/** Alpa's cost of a collective on one axis of a mesh; a fraction behind the point orders collectives of equal bytes.
 *  Source: playground/auto_sharding_solver, cluster_env.  @param bytes  of the whole tensor. */
enum alpa_collective { ALPA_ALL_GATHER, ALPA_ALL_REDUCE, ALPA_REDUCE_SCATTER, ALPA_ALL_TO_ALL };
double alpa_collective_cost(enum alpa_collective, int devices, double alpha, double beta, double bytes);

/** MindSpore's cost of a product of a stream and a parameter, in bytes: what is read, and `beta` times what is sent.
 *  Source: auto_parallel/operator_costmodel, MatMulCost, and graph_costmodel.
 *  @param product  elements.  @param parts  of rows, of the inner dimension, of columns. */
double mindspore_product_cost(const struct layer_product *product, const int parts[3], int devices, double beta,
                              int element);

/** MindSpore's bytes of a change from rows to columns of a square matrix, by an all-to-all or by an all-gather and a
 *  cut.  Source: auto_parallel/tensor_layout, redistribution_operator_infer.
 *  @param whole  bytes of the matrix. */
double mindspore_all_to_all_cost(double whole, int devices);
double mindspore_gather_cost(double whole, int devices);

/** FlexFlow's walk takes a plan that is slower by this part of the first plan's time if a draw of 0 .. 1 is below
 *  exp(-FLEXFLOW_ALPHA difference), and each faster one.
 *  The release's alpha is 1 for milliseconds: steps of microseconds accept everything, steps of seconds nothing. */
#define FLEXFLOW_ALPHA 100.
static inline bool flexflow_accepts(double difference, double draw)
{
    return difference < 0 || draw < exp(-FLEXFLOW_ALPHA * difference);
}

/* Products behind each other, each `hidden` wide, on a mesh of two axes. */
struct alpa_products { int layers; int64_t batch, hidden; int axis[2]; double alpha, beta[2]; };

/** Make the table of Alpa's program for products: forward, back, and the sums of weights' gradients, in thousandths.
 *  Each axis of the mesh splits the batch, the columns or the rows of a weight.  Computing is free, as there.
 *  Source: playground/auto_sharding_solver, solver and test_solver_mlp.
 *  @return OK or ERR_MEMORY; layer_table_free() ends the table. */
enum error_code alpa_products_table(struct layer_table *, const struct alpa_products *, struct error *);

#endif
