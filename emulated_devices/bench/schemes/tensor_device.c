/* tensor_device.c -- one device of `orrery bench tensor`: computes one layer, forward and backward, under every scheme,
 * and counts.  Errors: ERR_PLAN for a scheme that does not fit, ERR_MEMORY, ERR_COMM; ERR_FILE of the results. */
#include "emulated_devices/bench/schemes/tensor.h"
#include "ref/machine/measure.h"
#include "emulated_devices/verify/cases/layer.h"
#include "ref/io/json.h"
#include <stdlib.h>

const char *const tensor_count_name[TENSOR_COUNTS] = { "messages", "bytes", "kept_bytes", "buffer_bytes",
                                                       "virtual_picoseconds", "computing_picoseconds",
                                                       "devices_unlike_formulas" };

/* One scheme. */
struct lane {
    struct trainer trainer;
    double count[TENSOR_COUNTS];
    double seconds[BENCH_TENSOR_RUNS];  /* of a pass, on the slowest device */
};

struct layer_bench {
    const struct bench_tensor *asked;
    struct comm *world;
    struct lane *lane;
    int lanes;
};

/* All devices wait for messages of the others, so an error of one ends the job. */
static void tensor_device_pass(struct layer_bench *bench, struct lane *lane)
{
    struct error err;
    if (layer_pass(&lane->trainer, &err) != OK) comm_give_up(bench->world, &err);
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static struct collective_cost tensor_device_sent(const struct comm *comm)
{
    struct collective_cost sum = { 0 };
    for (int op = 0; op < CONTROL; op++) {
        const struct traffic *t = &comm->counted.of[TRAFFIC_TENSOR].of[op];
        sum.messages += t->messages_sent, sum.bytes += t->bytes_sent, sum.additions += t->additions;
    }
    return sum;
}

static struct cluster free_links(const struct cluster *cluster)
{
    struct cluster free = *cluster;
    for (int i = 0; i < free.levels; i++)
        free.link[i].latency = free.link[i].gap = free.link[i].rate = 0, free.link[i].eager = ALWAYS_EAGER;
    return free;
}

/* The virtual time of a pass. */
static double timed(struct layer_bench *bench, struct lane *lane, const struct cluster *cluster)
{
    clock_restart(&bench->world->device->clock, cluster, bench->asked->dtype);
    tensor_device_pass(bench, lane);
    return (double)bench->world->device->clock.now;
}

/* Whether this device sent, added and kept what its formulas say. */
static bool as_formulas(const struct lane *lane, struct collective_cost did, uint64_t peak)
{
    const struct traffic want = layer_cost(&lane->trainer);
    return did.messages == want.messages_sent && did.bytes == want.bytes_sent && did.additions == want.additions &&
           peak == layer_peak(&lane->trainer);
}

static enum error_code tensor_device_look_at(struct layer_bench *bench, struct lane *lane, struct error *err)
{
    struct arena *arena = &bench->world->device->arena;
    const struct cluster computing = free_links(&bench->asked->cluster);
    const uint64_t buffers = arena->now.tag[BUFFERS];
    const struct collective_cost before = tensor_device_sent(bench->world);
    arena_reset_peak(arena);
    comm_barrier(bench->world);
    lane->count[COUNT_VIRTUAL] = timed(bench, lane, &bench->asked->cluster);
    struct collective_cost did = tensor_device_sent(bench->world);
    did.messages -= before.messages, did.bytes -= before.bytes, did.additions -= before.additions;
    lane->count[COUNT_MESSAGES] = (double)did.messages, lane->count[COUNT_BYTES] = (double)did.bytes;
    lane->count[COUNT_KEPT] = (double)arena->peak.tag[ACTIVATIONS];
    lane->count[COUNT_BUFFERS] = (double)(arena->peak.tag[BUFFERS] - buffers);
    lane->count[COUNT_OTHER] = !as_formulas(lane, did, arena->peak.tag[ACTIVATIONS]);
    comm_barrier(bench->world);
    lane->count[COUNT_COMPUTING] = timed(bench, lane, &computing);
    return allreduce(bench->world->everyone, lane->count, TENSOR_COUNTS, F64, MAX, NULL, err);
}

static enum error_code tensor_device_measure(struct layer_bench *bench, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < bench->lanes && !e; i++) e = tensor_device_look_at(bench, &bench->lane[i], err);
    for (int run = 0; run < bench->asked->runs && !e; run++)
        for (int i = 0; i < bench->lanes && !e; i++) {
            double *seconds = &bench->lane[i].seconds[run];
            comm_barrier(bench->world);
            const double start = measure_now();
            tensor_device_pass(bench, &bench->lane[i]);
            *seconds = measure_now() - start;
            e = allreduce(bench->world->everyone, seconds, 1, F64, MAX, NULL, err);
        }
    return e;
}

/* ---- all schemes ------------------------------------------------------------------------------------------------- */

static enum error_code open_lanes(struct layer_bench *bench, struct error *err)
{
    const struct bench_tensor *a = bench->asked;
    const struct model_config model = shape_model(&a->shape);
    enum error_code e = OK;
    for (int i = 0; tensor_scheme_at(i) && !e; i++) {
        struct plan p;
        struct error why;
        if (layer_plan(&p, &model, a->shape.B, a->dtype, tensor_scheme_at(i)->head.name,
                       bench->world->size, &a->cluster, &why) != OK)
            continue;
        e = layer_open(&bench->lane[bench->lanes].trainer, &p, bench->world, err);
        bench->lanes += !e;
    }
    return e;
}

static cJSON *tensor_device_row_of(const struct layer_bench *bench, const struct lane *lane)
{
    cJSON *row = json_add(cJSON_CreateObject(), "devices %d scheme %s", bench->world->size, lane->trainer.plan.tensor);
    for (int i = 0; i < TENSOR_COUNTS; i++) cJSON_AddNumberToObject(row, tensor_count_name[i], lane->count[i]);
    cJSON_AddItemToObject(row, "seconds", cJSON_CreateDoubleArray(lane->seconds, bench->asked->runs));
    return row;
}

static enum error_code write_rows(const struct layer_bench *bench, struct error *err)
{
    cJSON *root = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(root, "rows");
    for (int i = 0; i < bench->lanes; i++) cJSON_AddItemToArray(rows, tensor_device_row_of(bench, &bench->lane[i]));
    return json_finish(bench->asked->json ? bench->asked->json : "-", root, err);
}

enum error_code bench_tensor_device(struct comm *world, const void *asked, struct error *err)
{
    struct layer_bench b = { .asked = asked, .world = world };
    int schemes = 0;
    while (tensor_scheme_at(schemes)) schemes++;
    b.lane = calloc((size_t)schemes, sizeof *b.lane);
    enum error_code e =
        comm_agree(world, b.lane ? OK : fail(err, ERR_MEMORY, "no memory to measure %d schemes", schemes), err);
    if (!e) e = open_lanes(&b, err);
    if (!e) e = tensor_device_measure(&b, err);
    if (!e && world->rank == 0) e = write_rows(&b, err);
    e = comm_agree(world, e, err);
    for (int i = 0; i < b.lanes; i++) trainer_close(&b.lane[i].trainer);
    free(b.lane);
    return e;
}
