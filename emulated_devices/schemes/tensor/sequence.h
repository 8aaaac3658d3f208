/* sequence.h -- everything but the products of the schemes with sequence parallelism: see tensor_1d_sp.c.
 *
 * tensor_1d_sp.c has the functions; tensor_1d_sp_overlap.c shares mesh, cuts and costs through SEQUENCE_SCHEME.  No
 * function returns an error code.
 */
#ifndef ORRERY_SEQUENCE_H
#define ORRERY_SEQUENCE_H

#include "emulated_devices/schemes/tensor/tensor.h"

#define SEQUENCE MESH_AXIS(2)           /* all devices of the group */

const char *sequence_mesh(int P, int size[TENSOR_AXES]);
struct weight_cut sequence_weight(const struct tensor_scheme *, enum param_role);
void sequence_cost(struct forecast *, enum param_role, enum tensor_pass, int64_t N, bool has_bias);

#define SEQUENCE_SCHEME                                                                                                \
    .mesh = sequence_mesh, .stream = { .rows = SEQUENCE }, INNER_CUT({ .columns = SEQUENCE }), \
    .weight = sequence_weight, \
    .cuts_tokens = true, .keeps_gradients = true, .matrix_cost = sequence_cost

#endif
