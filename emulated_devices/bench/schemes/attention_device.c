/* attention_device.c -- one device of `orrery bench attention`: computes the attention of one layer, forward and
 * backward, under every scheme, and counts.  ERR_USAGE means that another number of devices was started; other errors
 * are those of a pass. */
#include "emulated_devices/bench/schemes/attention.h"
#include "emulated_devices/verify/cases/attention.h"
#include "ref/machine/measure.h"
#include "ref/io/json.h"

const char *const attention_count_name[ATTENTION_COUNTS] = { "virtual_picoseconds", "virtual_picoseconds_forward",
                                                             "messages", "bytes", "bytes_between_nodes", "peak_bytes",
                                                             "devices_unlike_formulas" };

struct lane {
    const struct attention_job *job;
    struct comm *world;
    const struct cluster *cluster;
    struct attention_layer layer;
    picoseconds forward;                /* the clock after the last forward */
    double count[ATTENTION_COUNTS], seconds[BENCH_ATTENTION_RUNS];
};

static void attention_device_fill(struct device *device, struct tensor t)
{
    struct views v = views_of(device);
    const struct tensor seen = view_write(&v, t);
    for (int64_t i = 0; i < tensor_count(t) && device->ops; i++) tensor_set(seen, i, (double)(i * 7919 % 64 - 32) / 32);
    views_end(&v);
}

/* All devices wait for messages of the others, so an error of one ends the job. */
static void attention_device_run(struct lane *lane)
{
    struct error err;
    comm_barrier(lane->world);
    enum error_code e = attention_layer_pass(&lane->layer, FORWARD_PASS, &err);
    lane->forward = lane->world->device->clock.now;
    if (!e) e = attention_layer_pass(&lane->layer, INPUT_PASS, &err);
    if (e) comm_give_up(lane->world, &err);
}

static struct traffic formulas(const struct attention_layer *layer)
{
    struct traffic sum = attention_layer_cost(layer, FORWARD_PASS);
    const struct traffic backward = attention_layer_cost(layer, INPUT_PASS);
    traffic_add(&sum, &backward);
    return sum;
}

/* A model frees queries, keys and values after forward, if backward does not read them; here they stay. */
static uint64_t freed_earlier(const struct attention_layer *layer)
{
    return layer->cp.scheme->reads_input ? 0 : tensor_bytes(layer->call.qkv);
}

static void attention_device_count(struct lane *lane, uint64_t before)
{
    struct comm *world = lane->world;
    struct device *d = world->device;
    struct account *counted = &world->counted.of[TRAFFIC_ATTENTION];
    attention_device_fill(d, lane->layer.call.qkv), attention_device_fill(d, lane->layer.call.d_out);
    arena_reset_peak(&d->arena);
    *counted = (struct account){ 0 };
    clock_restart(&d->clock, lane->cluster, lane->job->dtype);
    attention_device_run(lane);
    const struct traffic did = account_total(counted), want = formulas(&lane->layer);
    lane->count[COUNT_TIME] = (double)d->clock.now, lane->count[COUNT_FORWARD] = (double)lane->forward;
    lane->count[COUNT_MESSAGES] = (double)did.messages_sent, lane->count[COUNT_BYTES] = (double)did.bytes_sent;
    for (int level = 1; level < CLUSTER_LEVELS; level++) lane->count[COUNT_BETWEEN] += (double)did.level[level].bytes;
    lane->count[COUNT_MEMORY] = (double)(d->arena.peak.total - before - freed_earlier(&lane->layer));
    lane->count[COUNT_OTHER] = !traffic_equal(&did, &want, -1);
}

/* On rank 0 the largest of each number over the devices.  Not by an all-reduce, which a backend without numbers does
 * not compute. */
static enum error_code most_of(struct comm *world, double *x, int n, struct error *err)
{
    double all[BENCH_ATTENTION_DEVICES * BENCH_ATTENTION_RUNS];
    const enum error_code e = comm_bring(world, x, (uint64_t)n * sizeof *x, all, err);
    for (int i = 0; i < n * world->size && world->rank == 0 && !e; i++)
        if (all[i] > x[i % n]) x[i % n] = all[i];
    return e;
}

static enum error_code attention_device_measure(struct lane *lane, struct error *err)
{
    for (int i = 0; i < lane->job->runs; i++) {
        comm_barrier(lane->world);
        const double start = measure_now();
        attention_device_run(lane);
        lane->seconds[i] = measure_now() - start;
    }
    enum error_code e = most_of(lane->world, lane->count, ATTENTION_COUNTS, err);
    return e ? e : most_of(lane->world, lane->seconds, lane->job->runs, err);
}

static void attention_device_add_row(cJSON *rows, struct lane *lane)
{
    cJSON *row = json_add(json_row(rows), "scheme %s", lane->layer.cp.scheme->head.name);
    for (int i = 0; i < ATTENTION_COUNTS; i++) cJSON_AddNumberToObject(row, attention_count_name[i], lane->count[i]);
    json_add(row, "median_seconds %g", lane->job->runs > 0 ? measure_median(lane->seconds, lane->job->runs) : 0);
}

/* One scheme, if it accepts these devices. */
static enum error_code attention_device_take(struct lane *lane, const struct attention_scheme *scheme, cJSON *rows,
                                             struct error *err)
{
    const struct attention_job *j = lane->job;
    struct plan p;
    struct error why;
    struct context_split split = j->split;
    if (!scheme->splits) split = (struct context_split){ 0 };
    if (!scheme->windows) split.window = 0;
    const struct attention_shape shape = { j->B, j->S, j->H, j->K, j->A };
    if (attention_layer_plan(&p, shape, j->dtype, scheme->head.name, split, j->P, lane->cluster, &why) != OK) return OK;
    const uint64_t before = lane->world->device->arena.now.total;
    for (int i = 0; i < ATTENTION_COUNTS; i++) lane->count[i] = 0;
    enum error_code e = comm_agree(lane->world, attention_layer_open(&lane->layer, &p, lane->world,
                                                                     tensor_none, err), err);
    if (!e) attention_device_count(lane, before);
    if (!e) e = attention_device_measure(lane, err);
    if (!e) attention_device_add_row(rows, lane);
    attention_layer_close(&lane->layer);
    return e;
}

enum error_code bench_attention_device(struct comm *world, const void *asked, struct error *err)
{
    const struct attention_job *j = asked;
    static struct lane lane;
    const struct cluster cluster = world->device->clock.cluster;
    cJSON *root = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(root, "rows");
    lane.job = j, lane.world = world, lane.cluster = &cluster;
    enum error_code e = world->size == j->P ? OK : fail(err, ERR_USAGE, "bench: the launcher started %d processes; "
                                                        "--devices is %d", world->size, j->P);
    for (int i = 0; attention_scheme_at(i) && !e; i++) {
        const struct attention_scheme *s;
        if (!j->scheme && attention_scheme_at(i)->cuts_streams) continue;       /* it does not cut sequences */
        if (j->scheme) e = attention_scheme_find(&s, j->scheme, err);
        if (!e && (!j->scheme || s == attention_scheme_at(i)))
            e = attention_device_take(&lane, attention_scheme_at(i), rows, err);
    }
    if (!e && world->rank == 0) e = json_write(j->json ? j->json : "-", root, err);
    cJSON_Delete(root);
    return comm_agree(world, e, err);
}
