/* tensor_predict.c -- predicts cost and memory of one layer under a tensor scheme, without running it.
 * tensor_device.c and cli/bench/schemes/tensor_tables.c call shape_model.  claims/tensor.c and
 * cli/bench/schemes/tensor_tables.c call stand_open, stand_at and stand_close.  tensor_compare.c and
 * cli/bench/schemes/tensor.c call tensor_predict.  ERR_PLAN says why a scheme does not fit the layer; ERR_MEMORY. */
#include "emulated_devices/bench/schemes/tensor.h"
#include "emulated_devices/model/link/link_cost.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <string.h>

struct model_config shape_model(const struct tensor_shape *shape)
{
    return (struct model_config){ .name = "layer", .S = shape->S, .D = shape->D, .H = shape->H, .K = shape->H,
                                 .A = shape->D / shape->H,
                                  .F = 4 * shape->D, .L = 1, .V = shape->D, .family = &family_gpt2,
                                  .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.02 };
}

enum error_code stand_open(struct stand *stand, const struct tensor_shape *shape, enum dtype dtype,
                           const struct tensor_scheme *scheme, int P, struct error *err)
{
    memset(stand, 0, sizeof *stand);
    stand->plan = (struct plan){ .model = shape_model(shape), .S = shape->S };
    stand->P = P;
    stand->tp = (struct tensor_parallel){ .scheme = scheme, .config = &stand->plan.model, .device = &stand->device,
                                         .S = shape->S };
    enum error_code e = tensor_check(scheme, &stand->plan.model, P, err);
    return e ? e : device_open(&stand->device, NULL, dtype, 0, err);
}

/* Release the current device, so that another one can be set. */
static void tensor_predict_leave(struct stand *stand)
{
    if (stand->comm.contexts == NULL) return;
    tensor_close(&stand->tp);
    group_close(&stand->group);
    comm_outline_close(&stand->comm);
}

enum error_code stand_at(struct stand *stand, int rank, int64_t N, struct error *err)
{
    tensor_predict_leave(stand);
    stand->N = N;
    enum error_code e = comm_outline(&stand->comm, &stand->device, rank, stand->P, err);
    if (!e) e = group_world(&stand->group, &stand->comm, err);
    return e ? e : tensor_open(&stand->tp, &stand->group, err);
}

void stand_close(struct stand *stand)
{
    tensor_predict_leave(stand);
    device_close(&stand->device);
}

static uint64_t weight_bytes(const struct stand *stand)
{
    int64_t weights = 0;
    for (int i = 0; i < BLOCK_PARAMS; i++) {
        const int index = param_of_block(&stand->plan.model, 0, (enum block_param)i);
        if (index < 0) continue;
        const struct param_spec spec = model_param(&stand->plan.model, index);
        const struct layout l = tensor_layout(&stand->tp, &spec);
        weights += layout_count(&l);
    }
    return (uint64_t)weights * dtype_size(stand->device.dtype);
}

static uint64_t tensor_predict_larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

enum error_code tensor_predict(struct tensor_figures *figures, const struct bench_tensor *tensor,
                               const struct tensor_shape *shape,
                               const struct tensor_scheme *scheme, int P, struct error *err)
{
    static struct stand p;
    const int64_t N = shape_tokens(shape);
    static struct linked block;
    enum error_code e = stand_open(&p, shape, tensor->dtype, scheme, P, err);
    const struct seams alone = seams_alone(&p.tp);
    if (!e) e = link_layer(&block, &p.plan.model, &alone, 0, NULL, false, err);
    if (e) return e;
    *figures = (struct tensor_figures){ 0 };
    clock_open(&p.device.clock, &tensor->cluster, tensor->dtype);
    p.device.clock.cluster.memory_rate = 0;
    for (int r = 0; r < P; r++) {
        e = stand_at(&p, r, N, err);
        if (e) break;
        const struct account calls = linked_cost(&block, &alone, N);
        const struct traffic c = account_total(&calls);
        figures->messages = tensor_predict_larger(figures->messages, c.messages_sent);
        figures->bytes = tensor_predict_larger(figures->bytes, c.bytes_sent);
        figures->mean += (double)c.bytes_sent / P;
        figures->weights = tensor_predict_larger(figures->weights, weight_bytes(&p));
        figures->kept = tensor_predict_larger(figures->kept, linked_keeps(&block, &alone, N));
        if (r == 0 || r == P - 1)
            figures->transfers = (picoseconds)tensor_predict_larger((uint64_t)figures->transfers,
                                                                    (uint64_t)linked_time(&block, &alone, N));
    }
    stand_close(&p);
    return e;
}
