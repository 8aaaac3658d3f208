/* tensor_predict.c -- predicts cost and memory of one layer under a tensor scheme, without running it. */
#include "emulated_devices/cli/bench/schemes/tensor.h"
#include "emulated_devices/model/link/link_cost.h"
#include <string.h>

struct model_config shape_model(const struct tensor_shape *s)
{
    return (struct model_config){ .name = "layer", .S = s->S, .D = s->D, .H = s->H, .K = s->H, .A = s->D / s->H,
                                  .F = 4 * s->D, .L = 1, .V = s->D, .biases = BIASES_GPT2, .eps = 1e-5,
                                  .init_std = 0.02 };
}

enum error_code stand_open(struct stand *p, const struct tensor_shape *s, enum dtype dtype,
                           const struct tensor_scheme *scheme, int P, struct error *err)
{
    memset(p, 0, sizeof *p);
    p->plan = (struct plan){ .model = shape_model(s), .S = s->S };
    p->P = P;
    p->tp = (struct tensor_parallel){ .scheme = scheme, .config = &p->plan.model, .device = &p->device, .S = s->S };
    enum error_code e = tensor_check(scheme, &p->plan.model, P, err);
    return e ? e : device_open(&p->device, NULL, dtype, 0, err);
}

/* Release the current device, so that another one can be set. */
static void leave(struct stand *p)
{
    if (p->comm.contexts == NULL) return;
    tensor_close(&p->tp);
    group_close(&p->group);
    comm_outline_close(&p->comm);
}

enum error_code stand_at(struct stand *p, int rank, int64_t N, struct error *err)
{
    leave(p);
    p->N = N;
    enum error_code e = comm_outline(&p->comm, &p->device, rank, p->P, err);
    if (!e) e = group_world(&p->group, &p->comm, err);
    return e ? e : tensor_open(&p->tp, &p->group, err);
}

void stand_close(struct stand *p)
{
    leave(p);
    device_close(&p->device);
}

static uint64_t weight_bytes(const struct stand *p)
{
    int64_t weights = 0;
    for (int i = 0; i < BLOCK_PARAMS; i++) {
        const int index = param_of_block(&p->plan.model, 0, (enum block_param)i);
        if (index < 0) continue;
        const struct param_spec spec = model_param(&p->plan.model, index);
        const struct layout l = tensor_layout(&p->tp, &spec);
        weights += layout_count(&l);
    }
    return (uint64_t)weights * dtype_size(p->device.dtype);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

enum error_code tensor_predict(struct tensor_figures *f, const struct bench_tensor *b, const struct tensor_shape *s,
                               const struct tensor_scheme *scheme, int P, struct error *err)
{
    static struct stand p;
    const int64_t N = shape_tokens(s);
    static struct linked block;
    enum error_code e = stand_open(&p, s, b->dtype, scheme, P, err);
    const struct seams alone = seams_alone(&p.tp);
    if (!e) e = link_layer(&block, &p.plan.model, &alone, 0, NULL, false, err);
    if (e) return e;
    *f = (struct tensor_figures){ 0 };
    clock_open(&p.device.clock, &b->cluster, b->dtype);
    p.device.clock.cluster.memory_rate = 0;
    for (int r = 0; r < P; r++) {
        e = stand_at(&p, r, N, err);
        if (e) break;
        const struct account calls = linked_cost(&block, &alone, N);
        const struct traffic c = account_total(&calls);
        f->messages = larger(f->messages, c.messages_sent);
        f->bytes = larger(f->bytes, c.bytes_sent);
        f->mean += (double)c.bytes_sent / P;
        f->weights = larger(f->weights, weight_bytes(&p));
        f->kept = larger(f->kept, linked_keeps(&block, &alone, N));
        if (r == 0 || r == P - 1)
            f->transfers = (picoseconds)larger((uint64_t)f->transfers, (uint64_t)linked_time(&block, &alone, N));
    }
    stand_close(&p);
    return e;
}
