/* timed.c -- one device of a job that times this machine: work on a layer's tensors, and volleys: messages that every
 * device sends to its next one at the same moment.
 *
 * Operands move through buffers of some megabytes, so that they come from where those of a training step come from.
 * cli/calibrate/calibrate.c calls calibration_measure().  Errors: ERR_MEMORY without room for the buffers, and
 * ERR_COMM of a volley.
 */
#include "emulated_devices/bench/calibrate/calibrate.h"
#include "ref/machine/measure.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/events.h"
#include "emulated_devices/schemes/data/stages/stage.h"
#include "ref/io/figures.h"
#include "ref/io/options.h"
#include "ref/optim/optimizer.h"
#include "ref/machine/cores.h"
#include "ref/machine/threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS_OF_A_DEVICE = 6, ROOM = 1 << 20, ROOM_OF_VECTORS = 1 << 13 };        /* numbers */
/* A time is of about a millisecond, if so many repeats make it: shorter than what a core is taken away for. */
enum { WORTH_MS = 1, REPEATS_MOST = 2000, TRIES = 4 };

/* Tensors of a layer: rows, widths of input and output, and how the rows are sequences of heads. */
struct shape { int64_t N, I, O, S, H, A; };

struct timer {
    struct comm *world;
    struct device *d;
    struct calibration *m;
    struct tensor buffer[BUFFERS_OF_A_DEVICE], mean, rstd, hit, weight, bias, labels;
    int64_t at;                         /* where in the buffers the next operands are */
};

/* The next operand of a buffer. */
static struct tensor operand(struct timer *timer, int of, int64_t rows, int64_t cols)
{
    struct tensor x = tensor_2d(timer->buffer[of].data, timer->d->dtype, rows, cols);
    const int64_t places = ROOM / (rows * cols);
    x.data = (char *)x.data + (size_t)(timer->at % (places > 0 ? places : 1) * rows * cols)
        * dtype_size(timer->d->dtype);
    return x;
}

/* The first numbers of a vector. */
static struct tensor timed_part_of(struct tensor vector, int64_t n) { return tensor_1d(vector.data, vector.dtype, n); }

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef void call_fn(struct timer *, const struct shape *);

static void product_forward(struct timer *timer, const struct shape *shape)
{
    dev_linear_forward(timer->d, operand(timer, 0, shape->N, shape->O), operand(timer, 1, shape->N, shape->I),
                       operand(timer, 2, shape->O, shape->I), (struct tensor){ 0 });
}

static void product_input(struct timer *timer, const struct shape *shape)
{
    dev_linear_backward_input(timer->d, operand(timer, 0, shape->N, shape->I), operand(timer, 1, shape->N, shape->O),
                              operand(timer, 2, shape->O, shape->I));
}

static void product_weight(struct timer *timer, const struct shape *shape)
{
    dev_linear_backward_weight(timer->d, operand(timer, 3, shape->O, shape->I), (struct tensor){ 0 },
                               operand(timer, 1, shape->N, shape->O), operand(timer, 2, shape->N, shape->I));
}

static struct attention attention_of(const struct shape *shape)
{
    return (struct attention){ .S = shape->S, .H = shape->H, .K = shape->H, .A = shape->A, .scale = .1 };
}

static void timed_attention_forward(struct timer *timer, const struct shape *shape)
{
    const int64_t D = shape->H * shape->A;
    dev_attention_forward(timer->d, operand(timer, 0, shape->N, D),
                          tensor_2d(timer->rstd.data, timer->rstd.dtype, shape->N, shape->H),
                          operand(timer, 1, shape->N, 3 * D), attention_of(shape));
}

/* With the sums that the call before has left. */
static void attention_backward(struct timer *timer, const struct shape *shape)
{
    const int64_t D = shape->H * shape->A;
    dev_attention_backward_input(timer->d, operand(timer, 2, shape->N, 3 * D), operand(timer, 3, shape->N, D),
                                 operand(timer, 0, shape->N, D),
                                 tensor_2d(timer->rstd.data, timer->rstd.dtype, shape->N, shape->H),
                                 operand(timer, 1, shape->N, 3 * D), attention_of(shape));
}

static void timed_norm_forward(struct timer *timer, const struct shape *shape)
{
    dev_layernorm_forward(timer->d, operand(timer, 0, shape->N, shape->I), timed_part_of(timer->mean, shape->N),
                          timed_part_of(timer->rstd, shape->N),
                          operand(timer, 1, shape->N, shape->I), timed_part_of(timer->weight, shape->I), 0,
                          timed_part_of(timer->bias, shape->I), 1e-5);
}

static void norm_input(struct timer *timer, const struct shape *shape)
{
    dev_layernorm_backward_input(timer->d, operand(timer, 2, shape->N, shape->I), operand(timer, 3, shape->N, shape->I),
                                 operand(timer, 1, shape->N, shape->I),
                                 timed_part_of(timer->weight, shape->I), 0, timed_part_of(timer->mean, shape->N),
                                 timed_part_of(timer->rstd, shape->N));
}

static void norm_weight(struct timer *timer, const struct shape *shape)
{
    dev_layernorm_backward_weight(timer->d, timed_part_of(timer->buffer[4], shape->I),
                                  timed_part_of(timer->buffer[5], shape->I),
                                  operand(timer, 3, shape->N, shape->I), operand(timer, 1, shape->N, shape->I),
                                  timed_part_of(timer->mean, shape->N), timed_part_of(timer->rstd, shape->N));
}

static void gelu_forward(struct timer *timer, const struct shape *shape)
{
    dev_gelu_forward(timer->d, operand(timer, 0, shape->N, shape->O), operand(timer, 1, shape->N, shape->O));
}

static void gelu_input(struct timer *timer, const struct shape *shape)
{
    dev_gelu_backward_input(timer->d, operand(timer, 2, shape->N, shape->O), operand(timer, 3, shape->N, shape->O),
                            operand(timer, 1, shape->N, shape->O));
}

static void addition(struct timer *timer, const struct shape *shape)
{
    dev_add(timer->d, operand(timer, 0, shape->N, shape->I), operand(timer, 1, shape->N, shape->I),
            operand(timer, 2, shape->N, shape->I));
}

static void timed_drop(struct timer *timer, const struct shape *shape)
{
    const struct dropout d = { .p = .1, .seed = 1, .stream = (uint64_t)timer->at, .cols = shape->I };
    dev_dropout(timer->d, operand(timer, 0, shape->N, shape->I), operand(timer, 1, shape->N, shape->I), d);
}

static void timed_embedding_forward(struct timer *timer, const struct shape *shape)
{
    dev_embedding_forward(timer->d, operand(timer, 0, shape->N, shape->I), timed_part_of(timer->labels, shape->N),
                          operand(timer, 1, shape->O, shape->I), 0, false);
}

static void embedding_weight(struct timer *timer, const struct shape *shape)
{
    dev_embedding_backward_weight(timer->d, operand(timer, 4, shape->O, shape->I),
                                  operand(timer, 1, shape->N, shape->I), timed_part_of(timer->labels, shape->N), 0);
}

static void bias_sums(struct timer *timer, const struct shape *shape)
{
    dev_column_sums(timer->d, timed_part_of(timer->bias, shape->I), operand(timer, 1, shape->N, shape->I));
}

/* The sums of collectives. */
static void sums_of_messages(struct timer *timer, const struct shape *shape)
{
    struct exchange x = exchange_begin(timer->world->everyone, ALLREDUCE);
    reduce_local(&x, SUM, timer->d->dtype, operand(timer, 5, shape->N, shape->I).data,
                 operand(timer, 1, shape->N, shape->I).data, shape->N * shape->I);
}

/* A learning rate of 0 leaves the weights as they are. */
static void optimizer_call(struct timer *timer, const struct shape *shape)
{
    const struct optimizer *o = optimizers[0];
    const int64_t n = shape->N * shape->I;
    const struct tensor state[OPTIMIZER_MAX_STATES] = { operand(timer, 2, shape->N, shape->I),
                                                       operand(timer, 3, shape->N, shape->I) };
    device_optimizer_step(timer->d, o, operand(timer, 0, shape->N, shape->I),
                          operand(timer, 1, shape->N, shape->I), state,
                          (struct step){ .gradient_scale = 1, .t = 1, .hyper = &o->usual });
    device_charge(timer->d, "optimizer step", optimizer_cost(o, timer->d->dtype, dtype_size(timer->d->dtype), n));
}

static void rms_forward(struct timer *timer, const struct shape *shape)
{
    dev_rmsnorm_forward(timer->d, operand(timer, 0, shape->N, shape->I), timed_part_of(timer->rstd, shape->N),
                        operand(timer, 1, shape->N, shape->I), timed_part_of(timer->weight, shape->I), 0, 1e-5);
}

static void rms_input(struct timer *timer, const struct shape *shape)
{
    dev_rmsnorm_backward_input(timer->d, operand(timer, 2, shape->N, shape->I), operand(timer, 3, shape->N, shape->I),
                               operand(timer, 1, shape->N, shape->I),
                               timed_part_of(timer->weight, shape->I), 0, timed_part_of(timer->rstd, shape->N));
}

static void rms_weight(struct timer *timer, const struct shape *shape)
{
    dev_rmsnorm_backward_weight(timer->d, timed_part_of(timer->buffer[4], shape->I),
                                operand(timer, 3, shape->N, shape->I),
                                operand(timer, 1, shape->N, shape->I), timed_part_of(timer->rstd, shape->N));
}

static void swiglu_forward(struct timer *timer, const struct shape *shape)
{
    dev_swiglu_forward(timer->d, operand(timer, 0, shape->N, shape->O), operand(timer, 1, shape->N, 2 * shape->O));
}

static void swiglu_input(struct timer *timer, const struct shape *shape)
{
    dev_swiglu_backward_input(timer->d, operand(timer, 2, shape->N, 2 * shape->O),
                              operand(timer, 3, shape->N, shape->O), operand(timer, 1, shape->N, 2 * shape->O));
}

/* These calls work on logits [N, O]. */
static void loss_max(struct timer *timer, const struct shape *shape)
{
    dev_cross_entropy_max(timer->d, timed_part_of(timer->rstd, shape->N), operand(timer, 1, shape->N, shape->O));
}

static void loss_sums(struct timer *timer, const struct shape *shape)
{
    dev_cross_entropy_sums(timer->d, timed_part_of(timer->mean, shape->N), timed_part_of(timer->hit, shape->N),
                           operand(timer, 1, shape->N, shape->O),
                           timed_part_of(timer->rstd, shape->N), timed_part_of(timer->labels, shape->N), 0);
}

static void loss_backward(struct timer *timer, const struct shape *shape)
{
    dev_cross_entropy_backward(timer->d, operand(timer, 0, shape->N, shape->O), operand(timer, 1, shape->N, shape->O),
                               timed_part_of(timer->mean, shape->N),
                               timed_part_of(timer->rstd, shape->N), timed_part_of(timer->labels, shape->N), 0, -1, 1);
}

/* ---- what is timed ----------------------------------------------------------------------------------------------- */

/* The operations of layers, losses and optimizers beside products and attention. */
static call_fn *const others[] = { addition, timed_drop, timed_norm_forward, norm_input, norm_weight,
                                  gelu_forward, gelu_input,
                                   rms_forward, rms_input, rms_weight, swiglu_forward, swiglu_input,
                                   loss_max, loss_sums, loss_backward, optimizer_call, timed_embedding_forward,
                                   embedding_weight, bias_sums, sums_of_messages };
static call_fn *const of_attention[] = { timed_attention_forward, attention_backward },
               *const of_products[] = { product_forward, product_input, product_weight };

static const struct shape products[] = {
    { 64, 32, 96, 0, 0, 0 },    { 256, 32, 128, 0, 0, 0 },  { 256, 64, 64, 0, 0, 0 },   { 256, 96, 384, 0, 0, 0 },
    { 512, 96, 288, 0, 0, 0 },  { 512, 384, 96, 0, 0, 0 }, { 256, 256, 768, 0, 0, 0 }, { 256, 384, 384, 0, 0, 0 },
};
static const struct shape attentions[] = {
    { 256, 0, 0, 32, 8, 4 }, { 256, 0, 0, 64, 8, 12 }, { 128, 0, 0, 64, 4, 32 }, { 128, 0, 0, 128, 2, 64 },
};
static const struct shape layers[] = { { 256, 32, 128, 0, 0, 0 }, { 256, 96, 384, 0, 0, 0 } };
static const struct volley volleys[] = {
    { .bytes = 8, .messages = 1 },        { .bytes = 8, .messages = 8 },       { .bytes = 1024, .messages = 1 },
    { .bytes = 1024, .messages = 8 },     { .bytes = 16384, .messages = 1 },   { .bytes = 16384, .messages = 4 },
    { .bytes = 131072, .messages = 1 },   { .bytes = 1 << 19, .messages = 1 }, { .bytes = 1 << 21, .messages = 1 },
};
enum { VOLLEYS = sizeof volleys / sizeof *volleys };

/* A work with how it is done. */
struct item { call_fn *const *call; int calls; struct shape shape; };

/* Ask what a call is charged with, and as what: by a clock on which a byte takes a picosecond. */
static void ask_charge(struct timer *timer, struct work *work, call_fn *call, const struct shape *shape)
{
    const struct cluster a_byte_a_picosecond = { .levels = 1, .memory_rate = 1000000 };
    struct clock *clock = &timer->d->clock;
    struct events seen = { .left = NULL };
    clock_restart(clock, &a_byte_a_picosecond, timer->d->dtype);
    clock->events = &seen;
    call(timer, shape);
    clock->events = NULL;
    work->call[work->calls].cost = (struct op_cost){ .flops = clock->flops, .bytes = (double)clock->now };
    if (seen.of[COMPUTE].count > 0)
        snprintf(work->call[work->calls].name, sizeof work->call[work->calls].name, "%s",
                 seen.of[COMPUTE].event[0].what);
    work->calls++;
    events_free(&seen);
}

static struct work *add_work(struct timer *timer, struct item *item, enum work_kind kind,
                             call_fn *const *call, int calls, const struct shape *shape)
{
    struct work *w = &timer->m->work[timer->m->works];
    *w = (struct work){ .kind = kind };
    item[timer->m->works++] = (struct item){ .call = call, .calls = calls, .shape = *shape };
    for (int i = 0; i < calls; i++) ask_charge(timer, w, call[i], shape);
    return w;
}

static void add_product(struct timer *timer, struct item *item, const struct shape *shape, enum product_pass pass)
{
    static const char *const name[] = { "product", "product, input", "product, weights" };
    struct work *w = add_work(timer, item, WORK_PRODUCT, &of_products[pass], 1, shape);
    w->call[0].cost = product_cost(pass, shape->N, shape->I, shape->O, timer->d->dtype);
    snprintf(w->name, sizeof w->name, "%s %lld x %lld x %lld", name[pass], (long long)shape->N, (long long)shape->I,
             (long long)shape->O);
}

static void add_attention(struct timer *timer, struct item *item, const struct shape *shape)
{
    struct work *w = add_work(timer, item, WORK_ATTENTION, of_attention, 2, shape);
    w->call[0].cost.depth = w->call[1].cost.depth = shape->A;
    snprintf(w->name, sizeof w->name, "attention %lld of %lld, %lld x %lld", (long long)(shape->N / shape->S),
             (long long)shape->S, (long long)shape->H, (long long)shape->A);
}

#define COUNT(list) ((int)(sizeof list / sizeof *list))

static void choose_work(struct timer *timer, struct item *item)
{
    for (int i = 0; i < COUNT(products); i++)
        for (enum product_pass pass = PRODUCT_FORWARD; pass <= PRODUCT_WEIGHT; pass++)
            add_product(timer, item, &products[i], pass);
    for (int i = 0; i < COUNT(attentions); i++) add_attention(timer, item, &attentions[i]);
    for (int k = 0; k < COUNT(others); k++)
        for (int i = 0; i < COUNT(layers); i++) {
            struct work *w = add_work(timer, item, WORK_MEMORY, &others[k], 1, &layers[i]);
            const struct figure size = size_format((uint64_t)w->call[0].cost.bytes);
            memcpy(w->name, w->call[0].name, sizeof w->call[0].name);
            snprintf(w->name + strlen(w->name), 14, ", %.11s", size.text);
        }
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

static double do_work(struct timer *timer, const struct item *item, int repeats)
{
    const double start = measure_now();
    for (int i = 0; i < repeats; i++) {
        for (int k = 0; k < item->calls; k++) item->call[k](timer, &item->shape);
        timer->at++;
    }
    struct views v = views_of(timer->d);                    /* a view of one number waits until it is there */
    (void)view_read(&v, tensor_1d(timer->buffer[0].data, timer->d->dtype, 1));
    views_end(&v);
    return (measure_now() - start) / repeats;
}

static enum error_code do_volley(struct timer *timer, const struct volley *volley, double *took, struct error *err)
{
    enum { MOST = 8 };
    struct comm *w = timer->world;
    const int next = (w->rank + 1) % w->size, last = (w->rank + w->size - 1) % w->size;
    struct exchange x = exchange_begin(w->everyone, POINT_TO_POINT);
    struct message in[MOST], out[MOST];
    char *from = timer->buffer[0].data, *to = timer->buffer[1].data;
    enum error_code e = OK;
    const double start = measure_now();
    for (int i = 0; i < volley->messages; i++)
        in[i] = message_receive(&x, last, to + (uint64_t)i * volley->bytes, volley->bytes);
    for (int i = 0; i < volley->messages; i++)
        out[i] = message_send(&x, next, from + (uint64_t)i * volley->bytes, volley->bytes);
    for (int i = 0; i < 2 * volley->messages; i++) {
        const enum error_code one = message_wait(w, i % 2 ? out[i / 2] : in[i / 2], err);
        if (one) e = one;
    }
    *took = measure_now() - start;
    return e;
}

/* Volleys in a row: devices that end one begin the next, as the steps of a collective do.  All of them must have their
 * cores for a row, so a row is short, and the least of several counts. */
static enum error_code do_volleys(struct timer *timer, const struct volley *volley, int repeats, double *took,
                                  struct error *err)
{
    enum { ROW = 16 };
    const int each = repeats < ROW ? repeats : ROW;
    double one, least = 1e9;
    enum error_code e = OK;
    for (int row = 0; row < repeats / each && !e; row++) {
        double sum = 0;
        for (int i = 0; i < each && !e; i++) e = do_volley(timer, volley, &one, err), sum += one;
        if (sum < least) least = sum;
    }
    *took = least / each;
    return e;
}

static enum error_code timed_once(struct timer *timer, const struct item *item,
                                  const struct volley *volley, int repeats, double *took, struct error *err)
{
    comm_barrier(timer->world);
    if (volley) return do_volleys(timer, volley, repeats, took, err);
    *took = do_work(timer, item, repeats);
    return OK;
}

/* How often it is repeated, on the slowest device: by the least of some tries, of which the first is to warm up. */
static enum error_code find_repeats(struct timer *timer, const struct item *item, const struct volley *volley,
                                    int *repeats, struct error *err)
{
    double took, least = 1;
    enum error_code e = OK;
    for (int i = 0; i < TRIES && !e; i++) {
        e = timed_once(timer, item, volley, 2, &took, err);
        if (took < least) least = took;
    }
    if (!e) e = allreduce(timer->world->everyone, &least, 1, F64, MAX, NULL, err);
    const double n = 1e-3 * WORTH_MS / (least > 0 ? least : 1e-9);
    *repeats = n < 1 ? 1 : n > REPEATS_MOST ? REPEATS_MOST : (int)n;
    return e;
}

/* Return the median of a device's rounds, or of the slowest's, where devices wait for each other; on the slowest
 * device. */
static enum error_code least_and_median(struct timer *timer, double *took, bool together, struct rounds *rounds,
                                        struct error *err)
{
    enum error_code e = together ? allreduce(timer->world->everyone, took, timer->m->rounds, F64, MAX, NULL, err) : OK;
    double both[2];
    both[1] = measure_median(took, timer->m->rounds), both[0] = took[0];    /* which has sorted them */
    if (!e) e = allreduce(timer->world->everyone, both, 2, F64, MAX, NULL, err);
    const double share = !together && timer->m->devices > timer->m->cores
        ? (double)timer->m->devices / timer->m->cores : 1;
    *rounds = (struct rounds){ share * both[0], share * both[1] };
    return e;
}

static enum error_code time_rounds(struct timer *timer, const struct item *item, double *took, struct error *err)
{
    struct calibration *m = timer->m;
    int repeats[WORK_MOST + VOLLEYS_MOST];
    const int all = m->works + m->volleys;
    enum error_code e = OK;
    for (int i = 0; i < all && !e; i++)
        e = find_repeats(timer, &item[i], i < m->works ? NULL : &m->volley[i - m->works], &repeats[i], err);
    for (int round = 0; round < m->rounds; round++)
        for (int i = 0; i < all && !e; i++)
            e = timed_once(timer, &item[i], i < m->works ? NULL : &m->volley[i - m->works], repeats[i],
                           &took[i * m->rounds + round], err);
    for (int i = 0; i < all && !e; i++)
        e = least_and_median(timer, &took[i * m->rounds], i >= m->works,
                             i < m->works ? &m->work[i].took : &m->volley[i - m->works].took, err);
    return e;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

enum { VECTORS = 6 };

static void list_vectors(struct timer *timer, struct tensor *vector[VECTORS])
{
    struct tensor *const all[VECTORS] = { &timer->mean, &timer->rstd, &timer->hit, &timer->weight, &timer->bias,
                                         &timer->labels };
    memcpy(vector, all, sizeof all);
}

/* Numbers between 0 and 1, and labels 0. */
static void timed_fill(struct device *device, struct tensor x)
{
    struct views v = views_of(device);
    const struct tensor seen = view_write(&v, x);
    if (x.dtype == I32) memset(seen.data, 0, tensor_bytes(seen));
    for (int64_t k = 0; x.dtype != I32 && k < tensor_count(seen); k++)
        tensor_set(seen, k, (double)(k * 7919 % 1009 + 1) / 1024);
    views_end(&v);
}

static bool open_buffers(struct timer *timer)
{
    struct tensor *vector[VECTORS];
    bool ok = true;
    list_vectors(timer, vector);
    for (int i = 0; i < BUFFERS_OF_A_DEVICE; i++) timer->buffer[i] = device_tensor_1d(timer->d, BUFFERS, ROOM);
    for (int i = 0; i < VECTORS; i++)
        *vector[i] = i < 3   ? device_statistics(timer->d, BUFFERS, ROOM_OF_VECTORS, 0)
                     : i < 5 ? device_tensor_1d(timer->d, BUFFERS, ROOM_OF_VECTORS)
                             : device_tensor_in(timer->d, BUFFERS, I32, ROOM_OF_VECTORS);
    for (int i = 0; i < BUFFERS_OF_A_DEVICE && ok; i++)
        if ((ok = tensor_present(timer->buffer[i]))) timed_fill(timer->d, timer->buffer[i]);
    for (int i = 0; i < VECTORS && ok; i++)
        if ((ok = tensor_present(*vector[i]))) timed_fill(timer->d, *vector[i]);
    return ok;
}

static void close_buffers(struct timer *timer)
{
    struct tensor *vector[VECTORS];
    list_vectors(timer, vector);
    for (int i = 0; i < BUFFERS_OF_A_DEVICE; i++)
        if (tensor_present(timer->buffer[i])) device_free(timer->d, timer->buffer[i]);
    for (int i = 0; i < VECTORS; i++)
        if (tensor_present(*vector[i])) device_free(timer->d, *vector[i]);
}

static enum error_code time_all(struct timer *timer, struct error *err)
{
    struct item item[WORK_MOST + VOLLEYS_MOST] = { { .calls = 0 } };
    struct calibration *m = timer->m;
    choose_work(timer, item);
    m->volleys = timer->world->size > 1 ? VOLLEYS : 0;
    memcpy(m->volley, volleys, sizeof *volleys * (size_t)m->volleys);
    double *took = calloc((size_t)(m->works + m->volleys) * (size_t)m->rounds, sizeof *took);
    enum error_code e = comm_agree(timer->world, took ? OK : fail(err, ERR_MEMORY, "no memory for measurements"), err);
    if (!e) e = time_rounds(timer, item, took, err);
    free(took);
    return e;
}

enum error_code calibration_measure(struct comm *world, struct calibration *calibration, struct error *err)
{
    struct timer t = { .world = world, .d = world->device, .m = calibration };
    calibration->devices = world->size, calibration->cores = cores_usable(),
        calibration->works = calibration->volleys = 0;
    calibration->dtype = world->device->dtype, calibration->threads = threads_use(world->cores);
    enum error_code e = open_buffers(&t) ? OK : fail(err, ERR_MEMORY, "no memory for the tensors of a layer");
    e = comm_agree(world, e, err);
    if (!e) e = time_all(&t, err);
    close_buffers(&t);
    return e;
}
