/* tensor_tables.h -- published figures of tensor schemes beside ours, as tables.  tensor.c calls these functions.
 * All errors come from the predictions. */
#ifndef ORRERY_BENCH_TENSOR_TABLES_H
#define ORRERY_BENCH_TENSOR_TABLES_H

#include "emulated_devices/bench/schemes/tensor.h"

/** Print from which size one scheme needs less than another, and what papers claim. */
enum error_code print_claims(const struct bench_tensor *, struct error *);

/** Print what a layer keeps in 16 bits, beside the published formula. */
enum error_code print_layer_memory(const struct tensor_shape *, struct error *);

#endif
