/* linear.h -- one linear layer under a tensor-parallel scheme, without a model: each device's pieces of its matrices,
 * for drawings and for tests with numbers whose sums are exact.  There is no bias.  cli/show/tensor.c and draw/tensor/
 * call these functions. */
#ifndef ORRERY_VERIFY_LINEAR_H
#define ORRERY_VERIFY_LINEAR_H

#include "emulated_devices/model/probe.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

/* Y [N,O] = X [N,I] W [O,I]^T and their gradients. */
#define LINEAR_MATRICES(X) X(X) X(W) X(Y) X(dX) X(dY) X(dW)
enum linear_matrix {
#define X(name) LINEAR_##name,
    LINEAR_MATRICES(X)
#undef X
    LINEAR_MATRIX_COUNT
};
const char *linear_matrix_name(enum linear_matrix);

struct linear_layer {
    struct model_config config;                         /**< Configuration of the model. */
    struct tensor_parallel tp;                          /**< Tensor parallelism of this device. */
    enum param_role role;                               /* which matrix of a block it is */
    int64_t N, I, O;                                    /* rows, inputs and outputs of the whole product */
    struct tensor piece[LINEAR_MATRIX_COUNT];           /* with the scheme's room for more rows */
};

/** Find the matrix of a name: qkv, out, up, down, head.  @return OK, or ERR_USAGE naming the most similar. */
enum error_code linear_role(enum param_role *, const char *word, struct error *);

/**
 * Define one matrix of a model's block on P devices, for N rows.
 * @param config  with S = 1, so that rows can be cut anywhere.
 * @return OK; ERR_PLAN if the scheme does not accept P or this model.
 */
enum error_code linear_shape(struct linear_layer *, const struct tensor_scheme *, enum param_role, int P,
                             const struct model_config *config, int64_t N, struct error *);

/** Rows and columns of a whole matrix. */
int64_t linear_rows(const struct linear_layer *, enum linear_matrix);
int64_t linear_cols(const struct linear_layer *, enum linear_matrix);

/** The part of a matrix on the device of this rank. */
struct part linear_part(const struct linear_layer *, int rank, enum linear_matrix);

/** Create the groups and the pieces, all 0.  Local.  @return OK or ERR_MEMORY; call linear_close after both. */
enum error_code linear_open(struct linear_layer *, struct group *, struct error *);
void linear_close(struct linear_layer *);

/** Elements of this device's own rows of a matrix, in the order of linear_part. */
struct tensor linear_own(const struct linear_layer *, enum linear_matrix);

/** Compute Y, dX or dW.  Collective over the group; call with FORWARD_PASS, INPUT_PASS, WEIGHT_PASS in this order. */
enum error_code linear_pass(struct linear_layer *, enum tensor_pass, struct error *);

/** Traffic of this device in a pass, by the scheme's cost function. */
struct traffic linear_pass_cost(const struct linear_layer *, enum tensor_pass);

#endif
