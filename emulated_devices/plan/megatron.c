/* megatron.c -- the time of a step of Megatron-LM on a described cluster, from kernels, messages and a schedule.
 * The command `orrery bench published` compares the result with published times; test_kernel.c tests the kernels.
 * Errors: ERR_PLAN for sizes that do not divide, ERR_MEMORY. */
#include "emulated_devices/plan/megatron.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <stdlib.h>

/* Weights and activations have 16 bits, as in the published runs. */
#define FORMAT F16

/* ---- kernels of a layer ------------------------------------------------------------------------------------------ */

/* These steps only read and write memory: so many tensors forward and backward, by so many kernels.  A mask of one
 * byte for each number of two is half a tensor. */
enum size { ROWS,                       /* tokens x width; a part of the tokens with sequence parallelism */
            INNER,                      /* tokens x width / tp */
            SCORES };                   /* heads/tp x tokens x tokens */
static const struct moved { const char *what; enum size of; double forward, backward; int kernels, backward_kernels; }
moved[] = {
    { "two norms, the gradient added to the one that passes by", ROWS, 4, 8, 2, 4 },
    { "two times bias, dropout and addition", ROWS, 7, 8, 2, 4 },
    { "Q, K and V in the order of heads, and back", INNER, 6, 8, 2, 4 },
    { "bias and gelu of 4 width", INNER, 8, 12, 1, 2 },
    { "heads in the order of tokens", INNER, 2, 2, 1, 2 },
};
static const struct moved of_scores[] = {
    { "scale, mask and softmax", SCORES, 2, 3, 1, 1 },
    { "dropout of weights", SCORES, 2.5, 2.5, 1, 1 },
};
/* The fused softmax takes 4 heads at a time; for other numbers there are kernels for its steps. */
static const struct moved not_fused = { "the same, step by step", SCORES, 6, 6, 5, 5 };
enum { HEADS_AT_ONCE = 4 };

/* Time on the device, and kernels that the host issues. */
struct pass { picoseconds time; int kernels; };
struct layer { struct pass forward, backward, attention; };        /* attention: what `selective` computes again */

/* Y [rows, columns] = X [rows, depth] W is one product forward; backward has two, for the input and for the weight. */
static void add_product(struct layer *layer, const struct cluster *cluster, struct product product)
{
    /* dX [rows, depth] = dY W^T and dW [depth, columns] = X^T dY: the same three sizes in another order. */
    const struct product input = { product.rows, product.depth, product.columns, product.count };
    const struct product weight = { product.depth, product.columns, product.rows, product.count };
    layer->forward.time += kernel_product(cluster, FORMAT, product), layer->forward.kernels++;
    layer->backward.time += kernel_product(cluster, FORMAT, input) + kernel_product(cluster, FORMAT, weight),
        layer->backward.kernels += 2;
}

/* The result is the number of elements of such a tensor on a device. */
static double megatron_elements(const struct megatron *megatron, enum size of)
{
    const double rows = (double)megatron->micro * megatron->tokens, width = megatron->width, t = megatron->tp;
    return of == ROWS ? rows * width / (megatron->sequence_parallel ? t : 1)
         : of == INNER ? rows * width / t : rows * megatron->tokens * megatron->heads / t;
}

/* A list's bytes are spread evenly over its kernels: only their sum counts. */
static void add_moved(struct layer *layer, const struct megatron *megatron, const struct cluster *cluster,
                      const struct moved *moved)
{
    const double bytes = (double)dtype_size(FORMAT) * megatron_elements(megatron, moved->of);
    layer->forward.time += kernel_bytes(cluster, moved->forward * bytes) + (moved->kernels - 1)
        * cluster->kernels.launch;
    layer->backward.time += kernel_bytes(cluster, moved->backward * bytes) + (moved->backward_kernels - 1)
        * cluster->kernels.launch;
    layer->forward.kernels += moved->kernels, layer->backward.kernels += moved->backward_kernels;
}

/* Add the kernels of attention on one device: scores, softmax, dropout, and the weighted values, for its heads. */
static void attention_kernels(struct layer *layer, const struct megatron *megatron, const struct cluster *cluster)
{
    const int64_t s = megatron->tokens, heads = (int64_t)megatron->micro * megatron->heads / megatron->tp,
        each = megatron->width / megatron->heads;
    /* A head's scores are [s, s]; their weights times its values are [s, width of a head]. */
    add_product(layer, cluster, (struct product){ s, s, each, heads });
    add_product(layer, cluster, (struct product){ s, each, s, heads });
    for (size_t i = 0; i < sizeof of_scores / sizeof *of_scores; i++)
        add_moved(layer, megatron, cluster, &of_scores[i]);
    if (heads % HEADS_AT_ONCE != 0) add_moved(layer, megatron, cluster, &not_fused);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The cluster as a group sees it of which each node's network card carries `flows` at once.  A link says what each of a
 * node's devices has of the card if all of them send. */
static struct cluster with_flows(const struct cluster *cluster, int flows)
{
    struct cluster own = *cluster;
    if (cluster->levels < 2) return own;
    const struct link *inside = &cluster->link[cluster->levels - 2];
    struct link *card = &own.link[cluster->levels - 1];
    /* A card that fewer devices share gives each of them more, but no more than a link inside the node. */
    const int64_t whole = card->rate * inside->devices / (flows < inside->devices ? flows : inside->devices);
    card->rate = whole < inside->rate ? whole : inside->rate;
    return own;
}

/* A ring over `members` ranks, `apart` from each other. */
static enum error_code ring_time(picoseconds *out, const struct megatron *megatron,
                                 const struct cluster *cluster, int members,
                                 int apart, int64_t bytes, struct error *err)
{
    int *rank = malloc((size_t)megatron->devices * sizeof *rank);
    if (rank == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", members);
    const struct cluster own = with_flows(cluster, apart);
    /* Elements have two bytes, so bytes / 2 of them are summed. */
    struct collective call = { .count = bytes / 2, .dtype = FORMAT, .nodes.member = rank };
    for (int i = 0; i < members; i++) rank[i] = i * apart;
    *out = collective_time(algorithm_find(ALLREDUCE, "ring"), members, &call, &own);
    free(rank);
    return OK;
}

/* A stage sends a microbatch's rows to the next stage: all rows, or with `scattered` a part from each tp rank. */
static picoseconds hop_time(const struct megatron *megatron, const struct cluster *cluster)
{
    const uint64_t bytes = dtype_size(FORMAT) * (uint64_t)megatron->micro * (uint64_t)megatron->tokens
        * (uint64_t)megatron->width /
                           (uint64_t)(megatron->scattered ? megatron->tp : 1);
    const struct cluster own = with_flows(cluster, megatron->tp * megatron->dp);
    const struct link *l = &own.link[link_between(own.link, own.levels, 0, megatron->tp * megatron->dp)];
    return megatron->pp > 1 ? l->latency + time_at_rate(bytes, l->rate) : 0;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

enum { COLLECTIVE_KERNELS = 3 };        /* of one call: the host prepares streams and buffers */

static void add_sums(struct pass *pass, const struct megatron *megatron, picoseconds ring)
{
    if (megatron->tp == 1) return;
    /* A pass of a layer has two all-reduces along tp: of attention and of the feed-forward. */
    pass->time += 2 * ring, pass->kernels += 2 * COLLECTIVE_KERNELS;
}

/* Sum the kernels and messages of a layer, forward and backward; recomputation adds forward work to backward. */
static enum error_code layer_kernels(struct layer *layer, const struct megatron *megatron,
                                     const struct cluster *cluster, struct error *err)
{
    const int64_t rows = (int64_t)megatron->micro * megatron->tokens, h = megatron->width, t = megatron->tp;
    picoseconds ring = 0;
    *layer = (struct layer){ .forward.time = 0 };
    attention_kernels(layer, megatron, cluster);
    layer->attention = layer->forward;
    /* The matrices are QKV [3h/t, h], projection [h, h/t], up [4h/t, h] and down [h, 4h/t]. */
    add_product(layer, cluster, (struct product){ rows, 3 * h / t, h, 1 });
    add_product(layer, cluster, (struct product){ rows, h, h / t, 1 });
    add_product(layer, cluster, (struct product){ rows, 4 * h / t, h, 1 });
    add_product(layer, cluster, (struct product){ rows, h, 4 * h / t, 1 });
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) add_moved(layer, megatron, cluster, &moved[i]);
    const enum error_code e = megatron->tp > 1
        ? ring_time(&ring, megatron, cluster, megatron->tp, 1, 2 * rows * h, err) : OK;
    if (e) return e;
    add_sums(&layer->forward, megatron, ring);
    add_sums(&layer->backward, megatron, ring);
    const struct pass again = megatron->recompute == MEGATRON_FULL ? layer->forward
                            : megatron->recompute == MEGATRON_SELECTIVE ? layer->attention : (struct pass){ 0, 0 };
    layer->backward.time += again.time, layer->backward.kernels += again.kernels;
    return OK;
}

/* The host issues kernels while the device computes: the slower of the two decides. */
static picoseconds taken(struct pass pass, const struct cluster *cluster)
{
    const picoseconds issue = pass.kernels * cluster->kernels.issue;
    return pass.time > issue ? pass.time : issue;
}

/* Add the output matrix, and a loss that reads and writes logits in 32 bits. */
static struct layer output(const struct megatron *megatron, const struct cluster *cluster)
{
    struct layer l = { .forward.time = 0 };
    const int64_t rows = (int64_t)megatron->micro * megatron->tokens, columns = megatron->vocabulary / megatron->tp;
    add_product(&l, cluster, (struct product){ rows, columns, megatron->width, 1 });
    l.forward.time += kernel_bytes(cluster, 8.0 * (double)rows * (double)columns);
    l.backward.time += kernel_bytes(cluster, 8.0 * (double)rows * (double)columns);
    return l;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

double megatron_flops(const struct megatron *megatron)
{
    const double h = megatron->width, s = megatron->tokens, L = megatron->layers, V = megatron->vocabulary;
    return 96 * megatron->batch * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h));
}

double megatron_parameters(const struct megatron *megatron)
{
    const double h = megatron->width, s = megatron->tokens, L = megatron->layers, V = megatron->vocabulary;
    return 12 * L * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * L * h));
}

/* The result says which sizes do not divide; NULL: all of them do. */
static const char *refusal(const struct megatron *megatron)
{
    if (megatron->devices < 1 || megatron->tp < 1 || megatron->dp < 1 || megatron->pp < 1 || megatron->micro < 1
        || megatron->chunks < 1 || megatron->heads < 1) return "sizes must be at least 1";
    if ((int64_t)megatron->tp * megatron->dp * megatron->pp != megatron->devices)
        return "tp, dp and pp do not make the number of devices";
    if (megatron->batch < 1 || megatron->batch % ((int64_t)megatron->dp * megatron->micro) != 0)
        return "the batch is not whole microbatches";
    if (megatron->layers < 1 || megatron->layers % ((int64_t)megatron->pp * megatron->chunks) != 0)
        return "layers do not divide into stages";
    return megatron->width % megatron->heads || megatron->heads % megatron->tp ? "heads do not divide" : NULL;
}

enum error_code megatron_schedule(struct schedule *schedule, const struct megatron *megatron, struct error *err)
{
    const char *why = refusal(megatron);
    if (why) return fail(err, ERR_PLAN, "tp %d, dp %d, pp %d of %d devices: %s", megatron->tp, megatron->dp,
                         megatron->pp, megatron->devices, why);
    return schedule_make(schedule, megatron->chunks > 1 ? "interleaved" : "1f1b",
                         &(struct schedule_request){ .devices = megatron->pp,
                                                    .micros = megatron->batch / megatron->dp / megatron->micro,
                                                     .chunks = megatron->chunks > 1 ? megatron->chunks : 0 }, err);
}

/* Schedules are timed in whole nanoseconds, so that their numbers stay small. */
static int64_t nanoseconds(picoseconds t) { return (t + 500) / 1000; }

/* Time the schedule with equal stages; the last stage also has the output matrix and the loss. */
static enum error_code pipeline_time(picoseconds *out, const struct megatron *megatron, const struct schedule *schedule,
                                     const struct layer *layer, const struct cluster *cluster, struct error *err)
{
    const struct layer last = output(megatron, cluster);
    const int64_t each = megatron->layers / schedule->stages;
    struct timing t;
    int64_t *room = malloc(3 * (size_t)schedule->stages * sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "no memory to time %d stages", schedule->stages);
    const struct schedule_times times = uniform_times(
        schedule->stages, nanoseconds(each * taken(layer->forward, cluster)),
        nanoseconds(each * taken(layer->backward, cluster)), 0,
        nanoseconds(hop_time(megatron, cluster)), room);
    room[schedule->stages - 1] += nanoseconds(last.forward.time);
    room[2 * schedule->stages - 1] += nanoseconds(last.backward.time);
    const enum error_code e = schedule_time(&t, schedule, &times, err);
    free(room);
    if (e) return e;
    *out = t.makespan * 1000;
    timing_free(&t);
    return OK;
}

/* Gradients are summed in 32 bits; mixed-precision Adam reads 16 bytes of a parameter's gradient and state, writes 14,
 * and norms and scales the gradient before that. */
enum { GRADIENT_BYTES = 4, OPTIMIZER_BYTES = 40 };

enum error_code megatron_time(picoseconds *out, const struct megatron *megatron, const struct schedule *schedule,
                              const struct cluster *cluster, struct error *err)
{
    const double h = megatron->width;
    /* A device has 12 h^2 parameters of each of its layers, and the embedding, divided by tp. */
    const double parameters = (12 * h * h * megatron->layers / megatron->pp + (double)megatron->vocabulary * h)
        / megatron->tp;
    struct layer l;
    picoseconds pipeline = 0, sum = 0;
    enum error_code e = layer_kernels(&l, megatron, cluster, err);
    if (!e) e = pipeline_time(&pipeline, megatron, schedule, &l, cluster, err);
    /* The gradients of a device's parameters are summed once, after the pipeline. */
    if (!e && megatron->dp > 1)
        e = ring_time(&sum, megatron, cluster, megatron->dp, megatron->tp, (int64_t)(GRADIENT_BYTES * parameters), err);
    *out = pipeline + sum + kernel_bytes(cluster, OPTIMIZER_BYTES * parameters) + cluster->kernels.step;
    return e;
}
