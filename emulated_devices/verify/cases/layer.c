/* layer.c -- opens a trainer of one layer in the middle of a pipeline and runs a forward and a backward pass.
 * Callers are bench/schemes/tensor_device.c, attention.c and test_tensor_time.c.  Errors are plan_check's and
 * ERR_MEMORY. */
#include "emulated_devices/model/link/link_cost.h"
#include "emulated_devices/verify/cases/layer.h"
#include <stdlib.h>

enum error_code layer_plan(struct plan *plan, const struct model_config *config, int64_t B, enum dtype dtype,
                           const char *tensor, int P, const struct cluster *cluster, struct error *err)
{
    const int size[AXIS_COUNT] = { [DP] = 1, [TP] = P, [PP] = 1, [CP] = 1, [EP] = 1 };
    *plan = (struct plan){
        .model = *config, .B = B, .S = config->S, .micros = 1, .chunks = 1, .degree = -1, .dtype = dtype, .seed = 1,
        .tensor = tensor, .cluster = cluster,
        .attention = attention_scheme_at(0)->head.name, .dispatch = expert_scheme_at(0)->head.name,
        .data = { .scheme = data_scheme_at(0)->head.name, .bucket = 1 << 20,
                  .narrow_gradients = dtype_size(dtype) == 2 },
        .schedule = schedule_generator_at(0)->head.name, .hyper = { .lr = 0.1 },
    };
    plan->model.L = 1;
    enum error_code e = optimizer_find(&plan->optimizer, "sgd", err);
    if (!e) e = mesh_make(&plan->mesh, size, err);
    return e ? e : plan_check(plan, err);
}

/* Remove embedding and loss from the stage: everything before and after the layer belongs to stages that no device
 * has.  The order of uses of weights is made anew, for the layer alone. */
static enum error_code take_middle(struct trainer *trainer, struct error *err)
{
    struct stage *s = &trainer->stage[0];
    struct use *use = calloc(2 * ((size_t)trainer->plan.model.L + 2), sizeof *use);
    if (use == NULL) return fail(err, ERR_MEMORY, "no memory for a list of passes");
    s->first = s->last = false;
    int n = stage_uses_forward(s, use);
    n += stage_uses_backward(s, true, true, use + n);
    free(trainer->data.use);
    data_set_uses(&trainer->data, use, n);
    return OK;
}

enum error_code layer_open(struct trainer *trainer, const struct plan *plan, struct comm *comm, struct error *err)
{
    enum error_code e = trainer_open(trainer, plan, comm, (struct batch_source){ 0 }, err);
    if (e) return e;
    e = comm_agree(comm, take_middle(trainer, err), err);
    if (e) trainer_close(trainer);
    return e;
}

/* Fill a tensor with numbers from -1 to 1 that repeat after 64 elements. */
static void layer_fill(struct device *device, struct tensor t)
{
    struct views v = views_of(device);
    const struct tensor seen = view_write(&v, t);
    for (int64_t i = 0; i < tensor_count(t); i++) tensor_set(seen, i, (double)(i * 7919 % 64 - 32) / 32);
    views_end(&v);
}

static enum error_code layer_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for one layer's activations");
}

enum error_code layer_pass(struct trainer *trainer, struct error *err)
{
    struct stage *s = &trainer->stage[0];
    struct tensor in = stage_input(s, 0);
    if (in.data == NULL) return layer_no_memory(err);
    layer_fill(s->device, in);
    enum error_code e = stage_forward(s, 0, err);
    struct tensor out = stage_take_output(s, 0);
    if (tensor_present(out)) device_free(s->device, out);
    if (e) return e;
    /* The buffer for the gradient of the output exists only from here on, as in a pipeline that receives it. */
    struct tensor gradient = stage_output_gradient(s, 0);
    if (gradient.data == NULL) return layer_no_memory(err);
    layer_fill(s->device, gradient);
    e = stage_backward(s, 0, true, true, err);
    gradient = stage_take_input_gradient(s, 0);
    if (tensor_present(gradient)) device_free(s->device, gradient);
    return e ? e : data_finish_gradients(&trainer->data, err);
}

uint64_t layer_peak(const struct trainer *trainer)
{
    struct held held = { 0 };
    held.now = held.peak = stage_message_bytes(&trainer->stage[0], 0);
    stage_forward_held(&trainer->stage[0], 0, &held);
    stage_backward_held(&trainer->stage[0], 0, true, true, &held);
    return held.peak;
}

struct traffic layer_cost(const struct trainer *trainer)
{
    return block_cost(&trainer->tensor, trainer->stage[0].micro[0].N);
}
