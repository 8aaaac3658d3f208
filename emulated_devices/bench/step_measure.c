/* step_measure.c -- times steps of `ref/` in this process, and of `orrery train` as a user would run it.  Errors:
 * ERR_COMM if a run of `orrery train` fails, ERR_MEMORY, and those of the one-device model. */
#include "emulated_devices/bench/step.h"
#include "emulated_devices/bench/steal.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/io/json.h"
#include "ref/machine/cores.h"
#include "ref/machine/measure.h"
#include "ref/machine/threads.h"
#include "ref/model/transformer.h"
#include "ref/optim/optimizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 8 };

const struct step_mesh step_meshes[STEP_MESHES] = {
    { 1, 1, 1, "1d", NULL }, { 2, 1, 1, "1d", NULL }, { 1, 2, 1, "1d", NULL }, { 1, 1, 2, "1d", NULL },
    { 2, 2, 2, "1d", NULL }, { 2, 1, 4, "1d", NULL }, { 2, 4, 1, "1d", NULL },
    { 1, 8, 1, "1d", NULL }, { 1, 4, 1, "2d", NULL }, { 2, 4, 1, "2d", NULL }, { 1, 8, 1, "3d", NULL },
    { 8, 1, 1, "1d", NULL }, { 8, 1, 1, "1d", "zero3" },
};

const char *const step_call_names[STEP_CALLS] = { "launches", "products", "copies", "allocations", "waits", "lookups" };

/* The limit: median rate of C = A B^T, 2048 cubed, as the backend computes it in the format of the weights. */
struct gemm { struct device d; bool open; struct tensor A, B, C; };

static void gemm_close(struct gemm *gemm)
{
    struct tensor *const all[] = { &gemm->A, &gemm->B, &gemm->C };
    if (!gemm->open) return;
    for (int i = 0; i < 3; i++)
        if (tensor_present(*all[i])) device_free(&gemm->d, *all[i]);
    device_close(&gemm->d);
}

static enum error_code gemm_open(struct gemm *gemm, const struct backend *backend, enum dtype dtype, struct error *err)
{
    struct tensor *const all[] = { &gemm->A, &gemm->B, &gemm->C };
    const enum error_code e = device_open(&gemm->d, backend, dtype, 0, err);
    if (e) return e;
    gemm->open = true;
    for (int i = 0; i < 3; i++) {
        *all[i] = device_tensor_2d(&gemm->d, BUFFERS, STEP_GEMM_SIZE, STEP_GEMM_SIZE);
        if (!tensor_present(*all[i]))
            return fail(err, ERR_MEMORY, "no memory for three matrices of %d x %d", STEP_GEMM_SIZE, STEP_GEMM_SIZE);
        struct views v = views_of(&gemm->d);
        const struct tensor seen = view_write(&v, *all[i]);
        for (int64_t k = 0; k < tensor_count(seen); k++) tensor_set(seen, k, (double)(k % (7 - 2 * i)) - 3 + i);
        views_end(&v);
    }
    return OK;
}

/* A view of one number waits until it is there. */
static double gemm_seconds(struct gemm *gemm)
{
    const double t0 = measure_now();
    dev_linear_forward(&gemm->d, gemm->C, gemm->A, gemm->B, (struct tensor){ 0 });
    struct views v = views_of(&gemm->d);
    (void)view_read(&v, tensor_1d(gemm->C.data, gemm->C.dtype, 1));
    views_end(&v);
    return measure_now() - t0;
}

/* One training step of the one-device model: forward, backward, clipped AdamW. */
static double serial_step(struct transformer *model, struct tensor *state, const int32_t *ids, const int32_t *labels,
                          int64_t B, int64_t t)
{
    const struct optimizer *adamw = optimizers[0];
    double loss;
    const double t0 = measure_now();
    if (transformer_forward(model, ids, labels, B, model->config.S, &loss, NULL) != OK) return 0;
    transformer_backward(model);
    const double scale = clip_scale(&adamw->usual, transformer_gradient_norm(model));
    for (int i = 0; i < model->params; i++) {
        const struct step s = { .lr = adamw->usual.lr, .t = t, .gradient_scale = scale, .hyper = &adamw->usual,
                                .weight_decay = weight_decay_of(&adamw->usual, model->spec[i].decay) };
        optimizer_step(adamw, model->w[i], model->g[i], &state[i * OPTIMIZER_MAX_STATES], s);
    }
    transformer_zero_gradients(model);
    return measure_now() - t0;
}

/* The one device, and what it learns from. */
struct serial {
    struct transformer model;
    struct tensor *state;               /* of the optimizer */
    int32_t *ids;
    int64_t batch, steps;               /* sequences; steps done so far */
    int threads;
    struct serial *plain;               /* of a model with exact sums: the same in ordinary arithmetic; else NULL */
};

static enum error_code open_serial(struct serial *serial, const struct model_config *config, struct error *err)
{
    enum error_code e = transformer_open(&serial->model, config, F32, 1, err);
    if (e) return e;
    const int64_t N = serial->batch * config->S;
    serial->ids = malloc(sizeof *serial->ids * (size_t)(N + 1));
    serial->state = calloc((size_t)serial->model.params * OPTIMIZER_MAX_STATES, sizeof *serial->state);
    bool ok = serial->ids && serial->state;
    for (int i = 0; ok && i < serial->model.params * OPTIMIZER_MAX_STATES; i++) {
        serial->state[i] = serial->model.w[i / OPTIMIZER_MAX_STATES];
        serial->state[i].data = calloc(1, tensor_bytes(serial->state[i]));
        ok = serial->state[i].data != NULL;
    }
    for (int64_t n = 0; ok && n <= N; n++) serial->ids[n] = (int32_t)((n * 7919 + n / 13) % config->V);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to bench model %s", config->name);
}

static void close_serial(struct serial *serial)
{
    for (int i = 0; serial->state && i < serial->model.params * OPTIMIZER_MAX_STATES; i++) free(serial->state[i].data);
    free(serial->state), free(serial->ids);
    if (serial->model.params) transformer_close(&serial->model);
}

static struct step_calls read_calls(const cJSON *root)
{
    const cJSON *there = cJSON_GetObjectItemCaseSensitive(root, "calls");
    struct step_calls c = { .counted = cJSON_IsObject(there) };
    for (int i = 0; i < STEP_CALLS && c.counted; i++) {
        const cJSON *one = cJSON_GetObjectItemCaseSensitive(there, step_call_names[i]);
        c.of[i] = cJSON_IsNumber(one) ? one->valuedouble : 0;
    }
    return c;
}

/* These are times of a run's median step: on the clock, and of a processor in the process of device 0, and in those of
 * all devices together. */
struct timed { double seconds, processor, all; struct step_calls calls; };

static enum error_code read_devices(struct timed *timed, const cJSON *root, const char *path, struct error *err)
{
    const cJSON *device;
    enum error_code e = OK;
    cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(root, "devices")) {
        double seconds = 0;
        if (!e) e = json_double(device, path, "median_step_processor_seconds", &seconds, err);
        timed->all += seconds;
    }
    return e;
}

static enum error_code read_timed(struct timed *timed, const char *path, struct error *err)
{
    cJSON *root = NULL;
    enum error_code e = json_read(path, &root, err);
    if (!e) e = json_double(root, path, "median_step_seconds", &timed->seconds, err);
    if (!e) e = json_double(root, path, "median_step_processor_seconds", &timed->processor, err);
    if (!e) e = read_devices(timed, root, path, err);
    timed->calls = read_calls(root);
    cJSON_Delete(root);
    return e;
}

/* `orrery train` as a user would run it, its median step read from the JSON it writes. */
static enum error_code time_training(struct timed *timed, const char *program, const struct bench_step *step,
                                     const char *backend, const struct step_mesh *step_mesh, struct error *err)
{
    char words[5][16];
    const char *path = handover_file(err);
    if (path == NULL) return err->code;
    /* the first does not count */
    const int number[] = { step_mesh->dp, step_mesh->tp, step_mesh->pp, step->runs + 1, (int)step->batch };
    for (int i = 0; i < 5; i++) snprintf(words[i], sizeof words[i], "%d", number[i]);
    const char *const call[] = {
        program, "train", "--model", step->model, "--dp", words[0], "--tp", words[1], "--pp", words[2], "--steps",
        words[3], "--batch", words[4], "--tensor", step_mesh->tensor, "--data-parallel", step_mesh->data
            ? step_mesh->data : "ddp", "--backend",
        backend, "--dtype", step->dtype, "--arithmetic", exact_rule_names[step->exact], "--json", path, NULL
    };
    const enum error_code e = run_aside(call, step->limit, err);
    return e ? e : read_timed(timed, path, err);
}

static double next_step(struct serial *serial)
{
    return serial_step(&serial->model, serial->state, serial->ids, serial->ids + 1, serial->batch, ++serial->steps);
}

/* The one device, and with exact sums the same without them, in turn. */
static void measure_plain(struct serial *serial, int runs, struct step_pace *step_pace, int round)
{
    double plain[STEP_MOST_RUNS];
    for (int i = 0; i < runs && serial->plain; i++) plain[i] = next_step(serial->plain);
    if (serial->plain == NULL) return;
    step_pace->plain[round] = measure_median(plain, runs);
    step_pace->dearer[round] = step_pace->step[round] / step_pace->plain[round];
}

static void measure_serial(struct serial *serial, struct gemm *g, int runs, struct step_pace *step_pace, int round)
{
    double gemm[STEP_MOST_RUNS], processor[STEP_MOST_RUNS], step[STEP_MOST_RUNS], single[STEP_MOST_RUNS],
           work[STEP_MOST_RUNS];
    for (int i = 0; i < runs; i++) {
        double used = measure_processor();
        gemm[i] = gemm_seconds(g);
        processor[i] = measure_processor() - used;
        used = measure_processor();
        step[i] = next_step(serial);
        work[i] = measure_processor() - used;
        threads_set(1);
        single[i] = next_step(serial);
        threads_set(serial->threads);
    }
    step_pace->gemm[round] = measure_median(gemm, runs);
    step_pace->gemm_processor[round] = measure_median(processor, runs);
    step_pace->step[round] = measure_median(step, runs);
    step_pace->step_processor[round] = measure_median(work, runs);
    step_pace->single[round] = measure_median(single, runs);
    step_pace->slower[round] = step_pace->single[round] / step_pace->step[round];
    measure_plain(serial, runs, step_pace, round);
}

struct step_noise step_noise(const struct step_pace *step_pace, int threads)
{
    static const double MOST_SPREAD = 1.25, LEAST_SHARE = 0.85;         /* quiet machines: at most 1.1, at least 0.93 */
    const int n = step_pace->rounds_alone;
    double least = step_pace->gemm[0], most = step_pace->gemm[0];
    for (int i = 1; i < n; i++) {
        least = step_pace->gemm[i] < least ? step_pace->gemm[i] : least;
        most = step_pace->gemm[i] > most ? step_pace->gemm[i] : most;
    }
    struct step_noise noise = { .spread = most / least, .share = 1 };
    if (threads > 0)
        noise.share = measure_median_of(step_pace->gemm_processor, n) / measure_median_of(step_pace->gemm, n) / threads;
    noise.noisy = noise.spread > MOST_SPREAD || noise.share < LEAST_SHARE;
    return noise;
}

static bool step_takes(const struct bench_step *step, const struct model_config *config, int i)
{
    const struct step_mesh *m = &step_meshes[i];
    const struct tensor_scheme *s;
    return m->dp * m->tp * m->pp <= step->devices && m->pp <= config->L && step->batch >= m->dp &&
           tensor_scheme_find(&s, m->tensor, NULL) == OK && (s->exact || m->tp == 1 || !step->exact) &&
           tensor_check(s, config, m->tp, NULL) == OK;
}

static enum error_code measure_mesh(const struct bench_step *step, const char *program,
                                    struct step_pace *step_pace, int i, int round, struct error *err)
{
    struct timed own = { 0 }, other = { 0 };
    enum error_code e = time_training(&own, program, step, step->backend, &step_meshes[i], err);
    if (!e && step->beside) e = time_training(&other, program, step, step->beside, &step_meshes[i], err);
    if (e) return e;
    step_pace->meshed[i][round] = own.seconds, step_pace->ratio[i][round] = own.seconds / step_pace->step[round];
    if (step_meshes[i].data) step_pace->beside[i][round] = own.seconds / step_pace->meshed[i - 1][round];
    step_pace->work[i][round] = own.all / step_pace->step_processor[round];
    step_pace->processor[i][round] = own.processor, step_pace->other[i][round] = other.processor;
    step_pace->times[i][round] = own.processor / other.processor;
    step_pace->calls[i] = own.calls;
    step_pace->rounds[i] = round + 1;
    return OK;
}

/* Measure everything in turn, round by round, so that other load of the machine slows all of it; ratios are of one
 * round.  No mesh is begun when the time is over, and no round that would end after it. */
static enum error_code measure_rounds(const struct bench_step *step, const char *program, struct serial *serial,
                                      struct gemm *gemm, const struct step_listener *listener,
                                      struct step_pace *step_pace, struct error *err)
{
    const double start = measure_now();
    double longest = 0;
    for (int round = 0; round < step->rounds; round++) {
        const double began = measure_now();
        if (round > 0 && began + longest > start + step->seconds) break;
        measure_serial(serial, gemm, step->runs, step_pace, round);
        step_pace->rounds_alone = round + 1;
        for (int i = 0; i < STEP_MESHES; i++) {
            if (measure_now() > start + step->seconds) break;
            if (!step_pace->taken[i]) continue;
            listener->part_done(listener->context, (round + (double)(i + 1) / (STEP_MESHES + 1)) / step->rounds);
            const enum error_code e = measure_mesh(step, program, step_pace, i, round, err);
            if (e) return e;
        }
        if (measure_now() - began > longest) longest = measure_now() - began;
    }
    return OK;
}

static enum error_code step_measure_measure(const struct bench_step *step, const char *program, struct serial *serial,
                                            struct gemm *gemm, const struct step_listener *listener,
                                            struct step_pace *step_pace, struct error *err)
{
    struct thieves thieves;
    enum error_code e = steal_cores(&thieves, step->steal, err);
    if (e) return e;
    listener->begins(listener->context, step, step_pace);
    next_step(serial);
    if (serial->plain) next_step(serial->plain);
    gemm_seconds(gemm);                    /* all warm up */
    e = measure_rounds(step, program, serial, gemm, listener, step_pace, err);
    steal_end(&thieves);
    return e;
}

enum error_code step_measure(struct bench_step *step, const char *program, const struct step_listener *listener,
                             struct step_pace *pace, struct error *err)
{
    struct model_config c;
    int64_t usual;
    static struct gemm g;               /* its device stays where it is */
    struct serial plain = { .state = NULL }, serial = { .state = NULL, .plain = step->exact ? &plain : NULL };
    step->threads = threads_use(cores_usable());
    enum error_code e = model_config_preset(&c, &usual, step->model, err);
    if (e) return e;
    if (step->batch == 0) step->batch = usual > MOST_COPIES ? usual : MOST_COPIES;
    snprintf(pace->model, sizeof pace->model, "%s", c.name);
    pace->flops = model_step_flops(&c, step->batch, c.S), pace->tokens = (double)(step->batch * c.S);
    for (int i = 0; i < STEP_MESHES; i++) pace->taken[i] = step_takes(step, &c, i);
    serial.batch = plain.batch = step->batch, serial.threads = step->threads;
    if (step->exact) e = open_serial(&plain, &c, err);
    c.exact = step->exact;
    if (!e) e = open_serial(&serial, &c, err);
    if (!e) e = gemm_open(&g, backend_find(step->backend), dtype_by_name(step->dtype), err);
    if (!e) e = step_measure_measure(step, program, &serial, &g, listener, pace, err);
    gemm_close(&g);
    close_serial(&serial), close_serial(&plain);
    return e;
}
