/* tensor_predict.c -- what the cost and memory functions say of one layer under a tensor scheme, with nothing run. */
#include "emulated_devices/cli/bench/tensor.h"
#include "emulated_devices/model/link_cost.h"
#include <string.h>

static int world_ranks[MESH_MOST_DEVICES];

struct model_config shape_model(const struct tensor_shape *s)
{
    return (struct model_config){ .name = "layer", .S = s->S, .D = s->D, .H = s->H, .K = s->H, .A = s->D / s->H, .F = 4 * s->D, .L = 1, .V = s->D,
                                  .biases = BIASES_GPT2, .eps = 1e-5, .init_std = 0.02 };
}

enum error_code stand_open(struct stand *p, const struct tensor_shape *s, enum dtype dtype, const struct tensor_scheme *scheme, int P,
                           struct error *err)
{
    memset(p, 0, sizeof *p);
    p->plan = (struct plan){ .model = shape_model(s), .S = s->S };
    for (int i = 0; i < P; i++) world_ranks[i] = i;
    p->comm = (struct comm){ .device = &p->device };
    p->group = (struct group){ .comm = &p->comm, .size = P, .member = world_ranks };
    p->tp = (struct tensor_parallel){ .scheme = scheme, .config = &p->plan.model, .device = &p->device, .group = &p->group, .S = s->S };
    enum error_code e = tensor_check(scheme, &p->plan.model, P, err);
    return e ? e : device_open(&p->device, dtype, 0, err);
}

/* The devices that differ from this one in these axes only, as tensor_open finds them. */
static void stand_along(struct stand *p, unsigned axes, int *member)
{
    const struct tensor_parallel *tp = &p->tp;
    int n = 0;
    for (int rank = 0; rank < p->group.size; rank++) {
        bool along = true;
        for (int a = TENSOR_AXES - 1, rest = rank; a >= 0; rest /= tp->mesh[a--])
            along = along && ((axes & MESH_AXIS(a)) || rest % tp->mesh[a] == tp->at[a]);
        if (along) member[n++] = rank;
    }
    p->tp.along[axes] = (struct group){ .comm = &p->comm, .member = member, .size = n, .rank = axes_index(tp, axes) };
}

void stand_at(struct stand *p, int rank, int64_t N)
{
    static int members[TENSOR_AXIS_SETS][BENCH_TENSOR_DEVICES];
    p->group.rank = rank;
    tensor_share(&p->tp, p->group.size, rank);
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++) stand_along(p, axes, members[axes]);
    p->N = N;
}

void stand_close(struct stand *p) { device_close(&p->device); }

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
        stand_at(&p, r, N);
        const struct account calls = linked_cost(&block, &p.tp, N);
        const struct traffic c = account_total(&calls);
        f->messages = larger(f->messages, c.messages_sent);
        f->bytes = larger(f->bytes, c.bytes_sent);
        f->mean += (double)c.bytes_sent / P;
        f->weights = larger(f->weights, weight_bytes(&p));
        f->kept = larger(f->kept, linked_keeps(&block, &alone, N));
        if (r == 0 || r == P - 1) f->transfers = (picoseconds)larger((uint64_t)f->transfers, (uint64_t)linked_time(&block, &p.tp, N));
    }
    stand_close(&p);
    return OK;
}
