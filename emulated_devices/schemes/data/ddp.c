/* data parallelism, ddp: every device has all weights; gradients are all-reduced in buckets; everybody steps.
 *
 * Source   S. Li et al., "PyTorch distributed: experiences on accelerating data parallel training", arXiv:2006.15704
 * Group    P devices with the same pieces of the model and different sequences
 * Layout   weights, gradients and optimizer state whole on every device
 * Talks    per step one all-reduce for each bucket of gradients; buckets are consecutive stretches of the gradient
 *          block, last layer first.  n elements in all: 2 n (P-1)/P sent by each device with a ring
 * Memory   weights, gradients, optimizer state: 1 each
 * Equals   reassociates: the gradient is the sum of P parts in the order of the all-reduce.  All devices get the same
 *          bits, so their weights stay equal without being sent.
 */
#include "emulated_devices/schemes/data/data.h"
#include <string.h>

static enum error_code open(struct data_parallel *dp, struct error *err)
{
    for (int i = 0; i < dp->parameters->count; i++) {
        struct parameter *p = &dp->parameters->all[i];
        for (int s = 0; s < dp->optimizer->states; s++) {
            p->state[s] = p->w;
            p->state[s].data = arena_alloc(&dp->device->arena, OPTIMIZER, tensor_bytes(p->w));
            if (p->state[s].data == NULL) return fail(err, ERR_MEMORY, "no memory for the optimizer state of %s", p->spec.name);
            memset(p->state[s].data, 0, tensor_bytes(p->w));
        }
    }
    return OK;
}

static void close(struct data_parallel *dp)
{
    for (int i = 0; i < dp->parameters->count; i++)
        for (int s = 0; s < dp->optimizer->states; s++) device_free(dp->device, dp->parameters->all[i].state[s]);
}

static int64_t bucket_elements(const struct data_parallel *dp)
{
    const int64_t n = dp->bucket / (int64_t)dtype_size(dp->device->dtype);
    return n > 0 ? n : 1;
}

static enum error_code reduce(struct data_parallel *dp, struct error *err)
{
    const struct tensor g = dp->parameters->gradients;
    const int64_t n = tensor_count(g), step = bucket_elements(dp);
    enum error_code e = OK;
    for (int64_t at = 0; at < n && !e; at += step) {
        char *bucket = (char *)g.data + (size_t)at * dtype_size(g.dtype);
        e = allreduce(dp->group, bucket, n - at < step ? n - at : step, g.dtype, SUM, dp->allreduce, err);
    }
    return e;
}

/* Replicas along dp have the same gradients: the first counts them. */
static double norm_part(struct data_parallel *dp)
{
    double sum = 0;
    for (int i = 0; i < dp->parameters->count && dp->group->rank == 0; i++)
        if (dp->parameters->all[i].counted) sum += dp->device->ops->sum_of_squares(dp->parameters->all[i].g);
    return sum;
}

static enum error_code step(struct data_parallel *dp, int64_t t, double gradient_scale, struct error *err)
{
    (void)err;
    for (int i = 0; i < dp->parameters->count; i++) {
        struct parameter *p = &dp->parameters->all[i];
        const struct step s = { .lr = learning_rate(dp->hyper, t), .t = t, .gradient_scale = gradient_scale, .hyper = dp->hyper,
                                .weight_decay = p->spec.decay ? dp->hyper->weight_decay : 0 };
        optimizer_step(dp->optimizer, p->w, p->g, p->state, s);
    }
    memset(dp->parameters->gradients.data, 0, tensor_bytes(dp->parameters->gradients));
    return OK;
}

static struct collective_cost cost(const struct data_parallel *dp)
{
    const int64_t n = tensor_count(dp->parameters->gradients), step_size = bucket_elements(dp);
    struct collective_cost sum = { 0 };
    for (int64_t at = 0; at < n; at += step_size) {
        const struct collective call = { .count = n - at < step_size ? n - at : step_size, .dtype = dp->device->dtype };
        const struct collective_cost one = group_cost(dp->group, ALLREDUCE, dp->allreduce, &call);
        sum.messages += one.messages;
        sum.bytes += one.bytes;
        sum.additions += one.additions;
    }
    return sum;
}

const struct data_scheme data_scheme_ddp = {
    .name = "ddp", .description = "whole copies of the model; gradients all-reduced in buckets",
    .source = "PyTorch DDP, arXiv:2006.15704", .memory = "w, g, optimizer whole", .volume = "2 n (P-1)/P elements a step",
    .open = open, .close = close, .reduce = reduce, .norm_part = norm_part, .step = step, .cost = cost,
};
