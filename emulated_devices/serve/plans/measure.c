/* measure.c -- times kernels and collectives of a described cluster.  search.c calls.  The only error is ERR_MEMORY. */
#include "emulated_devices/serve/plans/measure.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/device.h"
#include "ref/model/config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_SIZES = 14 };            /* 1 KiB, 4 KiB, .. */

/* Times go into the tables of these costs. */
struct measuring { const struct plan_costs *costs; struct clock *clock; bool lost; };

static void measuring_put(struct measuring *m, enum profile_list which, const double *key, double seconds)
{
    m->lost |= !profile_add(m->costs->profile, which, key, seconds * 1e6);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* The time of a kernel alone, without what its host needs to start it. */
static double kernel_seconds(struct measuring *m, const char *what, struct op_cost cost)
{
    const picoseconds before = m->clock->worked;
    clock_compute(m->clock, what, cost);
    return (double)(m->clock->worked - before) * 1e-12;
}

/* Numbers of rows double, so that between two of them a line is near. */
static int64_t next_size(int64_t n, int64_t most) { return n < most && 2 * n > most ? most : 2 * n; }

static void measure_product(struct measuring *m, int64_t out, int64_t in, int64_t most)
{
    for (int64_t n = 1; n <= most; n = next_size(n, most))
        measuring_put(m, PROFILE_GEMM, (double[]){ (double)n, (double)out, (double)in },
            kernel_seconds(m, "linear forward", linear_cost(n, in, out, m->costs->dtype)));
}

static int64_t divided(int64_t n, int by) { return (n + by - 1) / by; }

/* A product of equal sizes may be measured twice; its rows are equal, too. */
static void measure_products(struct measuring *m, int devices, int64_t most)
{
    const struct model_config *const c = m->costs->model;
    for (int i = 0; i < m->costs->matrices; i++) {
        int64_t out, in;
        layer_matrix_part(&m->costs->matrix[i], devices, &out, &in);
        measure_product(m, out, in, most);
    }
    measure_product(m, divided(c->V, devices), c->D, most);
}

/* Attention of `batch` sequences alike, as pages.c charges it. */
static double attention_seconds(struct measuring *m, int devices, int64_t batch, int64_t queries, int64_t keys)
{
    const struct model_config *const c = m->costs->model;
    const double pairs = (double)queries * ((double)keys - ((double)queries - 1) / 2);
    const struct attention shape = { .S = keys, .H = divided(c->H, devices), .K = divided(c->K, devices), .A = c->A };
    struct op_cost cost = attention_part_forward_cost(pairs, queries, keys, shape, m->costs->dtype);
    cost.flops *= (double)batch, cost.bytes *= (double)batch;
    cost.columns = keys, cost.seen = pairs / ((double)queries * (double)keys);
    return kernel_seconds(m, "attention forward", cost);
}

static void measure_attention(struct measuring *m, int devices, int64_t most, int64_t longest)
{
    const double A = (double)m->costs->model->A, heads = (double)divided(m->costs->model->H, devices);
    for (int64_t keys = 1; keys <= longest; keys = next_size(keys, longest))
        for (int64_t batch = 1; batch <= most && batch <= 1024; batch = next_size(batch, most)) {
            measuring_put(m, PROFILE_ATTENTION, (double[]){ A, (double)keys, (double)batch, heads },
                attention_seconds(m, devices, batch, keys, keys));
            measuring_put(m, PROFILE_DECODE, (double[]){ A, heads, (double)batch, (double)keys },
                attention_seconds(m, devices, batch, 1, keys));
        }
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A collective that all devices of a group begin together. */
struct timed_call { const struct plan_costs *costs; enum operation operation; int devices; int64_t count;
                    picoseconds *end; };

static enum error_code call_once(struct comm *comm, const struct timed_call *call, struct error *err)
{
    struct group all;
    const bool gathers = call->operation == ALLGATHER, scatters = call->operation == REDUCE_SCATTER;
    const int64_t part = (call->count + call->devices - 1) / call->devices, whole = part * call->devices;
    enum error_code e = group_world(&all, comm, err);
    if (e) return e;
    struct arena *const arena = &comm->device->arena;
    const uint64_t each = dtype_size(call->costs->dtype);
    void *const in = arena_alloc(arena, BUFFERS, (uint64_t)(gathers ? part : whole) * each + 1);
    void *const out = arena_alloc(arena, BUFFERS, (uint64_t)(scatters ? part : whole) * each + 1);
    if (in == NULL || out == NULL) e = fail(err, ERR_MEMORY, "no memory to time a collective");
    if (!e && call->operation == POINT_TO_POINT) {
        struct exchange x = exchange_begin(&all, POINT_TO_POINT);
        const uint64_t bytes = (uint64_t)call->count * each;
        const int last = call->devices - 1;
        if (comm->rank == 0) e = exchange_both(&x, last, in, bytes, -1, NULL, 0, err);
        else if (comm->rank == last) e = exchange_both(&x, -1, NULL, 0, 0, out, bytes, err);
    } else if (!e)
        e = collective_run(&all, call->operation, NULL,
                           &(struct collective){ .in = in, .out = out, .dtype = call->costs->dtype,
                                                 .count = gathers || scatters ? whole
                                                          : call->operation == ALLTOALL ? part : whole }, err);
    if (out) arena_free(arena, out);
    if (in) arena_free(arena, in);
    group_close(&all);
    return e;
}

static enum error_code be_timed(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct timed_call *const call = asked;
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, backend_find("count"), call->costs->dtype, 0, err);
    if (e) return e;
    clock_restart(&device.clock, call->costs->cluster, call->costs->dtype);
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        e = call_once(&comm, call, err);
        call->end[rank] = device.clock.now;
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

/* Tables have the bytes of the larger buffer. */
static enum error_code measure_messages(struct measuring *m, enum profile_list which, enum operation operation,
                                        int devices, struct error *err)
{
    picoseconds *const end = calloc((size_t)devices, sizeof *end);
    enum error_code e = end ? OK : fail(err, ERR_MEMORY, "no memory to time a collective");
    double key[3];
    group_columns(m->costs->cluster, devices, key);
    if (operation == POINT_TO_POINT) key[0] = key[0] > 1 ? 2 : 1, key[1] = key[0] > 1 ? 1 : 2;
    for (int i = 0; i < MESSAGE_SIZES && !e; i++) {
        const int64_t bytes = INT64_C(1024) << 2 * i;
        const struct timed_call call = { m->costs, operation, devices, bytes / (int64_t)dtype_size(m->costs->dtype),
                                         end };
        picoseconds last = 0;
        e = crew_run(devices, be_timed, &call, err);
        for (int r = 0; r < devices; r++) last = end[r] > last ? end[r] : last;
        key[2] = (double)(bytes / 1024);
        if (!e) measuring_put(m, which, key, (double)last * 1e-12);
    }
    free(end);
    return e;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

enum error_code profile_measure(const struct plan_costs *costs, const int *devices, int count, int64_t most,
                                int64_t longest, struct error *err)
{
    static const struct { enum profile_list list; enum operation operation; } messages[] = {
        { PROFILE_ALL_REDUCE, ALLREDUCE }, { PROFILE_ALL_GATHER, ALLGATHER },
        { PROFILE_REDUCE_SCATTER, REDUCE_SCATTER }, { PROFILE_ALL_TO_ALL, ALLTOALL }, { PROFILE_SEND, POINT_TO_POINT },
    };
    struct device device;
    enum error_code e = device_open(&device, backend_find("count"), costs->dtype, 0, err);
    if (e) return e;
    clock_restart(&device.clock, costs->cluster, costs->dtype);
    struct measuring m = { .costs = costs, .clock = &device.clock };
    const bool products = costs->profile->list[PROFILE_GEMM].rows == 0;
    const bool attention = costs->profile->list[PROFILE_ATTENTION].rows == 0;
    for (int i = 0; i < count; i++) {
        if (products) measure_products(&m, devices[i], most);
        if (attention) measure_attention(&m, devices[i], most, longest);
    }
    for (size_t k = 0; k < sizeof messages / sizeof *messages && !e; k++) {
        if (costs->profile->list[messages[k].list].rows > 0) continue;
        for (int i = 0; i < count && !e; i++)
            if (devices[i] > 1) e = measure_messages(&m, messages[k].list, messages[k].operation, devices[i], err);
    }
    device_close(&device);
    return !e && m.lost ? fail(err, ERR_MEMORY, "no memory for tables of measured times") : e;
}
