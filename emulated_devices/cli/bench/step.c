/* step.c -- `orrery bench step`: speed, beside a limit measured in the same run.  Tests never check speed. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/steal.h"
#include "ref/machine/measure.h"
#include "emulated_devices/cli/time_left.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include "ref/model/transformer.h"
#include "ref/optim/optimizer.h"
#include "ref/machine/cores.h"
#include "ref/machine/threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 1000, MAX_ROUNDS = 100, GEMM_SIZE = 2048 };

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
        *all[i] = device_tensor_2d(&gemm->d, BUFFERS, GEMM_SIZE, GEMM_SIZE);
        if (!tensor_present(*all[i]))
            return fail(err, ERR_MEMORY, "no memory for three matrices of %d x %d", GEMM_SIZE, GEMM_SIZE);
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

struct bench_step {
    const char *model, *backend, *beside, *dtype, *json;        /* beside: another backend, or NULL */
    int runs, rounds, devices;          /* devices: the most of a mesh */
    int threads, steal;                 /* of the one device; cores that others keep busy meanwhile */
    double seconds, limit;              /* what all rounds may take, and one run */
    int64_t batch, steps;               /* steps: done so far on the one device */
    struct transformer serial;
    struct tensor *state;
    int32_t *ids;
};

static enum error_code open_serial(struct bench_step *step, const struct model_config *config, struct error *err)
{
    enum error_code e = transformer_open(&step->serial, config, F32, 1, err);
    if (e) return e;
    const int64_t N = step->batch * config->S;
    step->ids = malloc(sizeof *step->ids * (size_t)(N + 1));
    step->state = calloc((size_t)step->serial.params * OPTIMIZER_MAX_STATES, sizeof *step->state);
    bool ok = step->ids && step->state;
    for (int i = 0; ok && i < step->serial.params * OPTIMIZER_MAX_STATES; i++) {
        step->state[i] = step->serial.w[i / OPTIMIZER_MAX_STATES];
        step->state[i].data = calloc(1, tensor_bytes(step->state[i]));
        ok = step->state[i].data != NULL;
    }
    for (int64_t n = 0; ok && n <= N; n++) step->ids[n] = (int32_t)((n * 7919 + n / 13) % config->V);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to bench model %s", config->name);
}

static void close_serial(struct bench_step *step)
{
    for (int i = 0; step->state && i < step->serial.params * OPTIMIZER_MAX_STATES; i++) free(step->state[i].data);
    free(step->state), free(step->ids);
    if (step->serial.params) transformer_close(&step->serial);
}

/* data: NULL is ddp; another scheme is also compared with the row before it, which has the same mesh. */
struct meshed { int dp, tp, pp; const char *tensor, *data; };
static const struct meshed mesh[] = {
    { 1, 1, 1, "1d", NULL }, { 2, 1, 1, "1d", NULL }, { 1, 2, 1, "1d", NULL }, { 1, 1, 2, "1d", NULL },
    { 2, 2, 2, "1d", NULL }, { 2, 4, 1, "1d", NULL },
    { 1, 8, 1, "1d", NULL }, { 1, 4, 1, "2d", NULL }, { 2, 4, 1, "2d", NULL }, { 1, 8, 1, "3d", NULL },
    { 8, 1, 1, "1d", NULL }, { 8, 1, 1, "1d", "zero3" },
};
enum { MESHES = sizeof mesh / sizeof *mesh, MOST_COPIES = 8 };

static const char *const call_name[] = { "launches", "products", "copies", "allocations", "waits", "lookups" };
enum { CALLS = sizeof call_name / sizeof *call_name };

/* What the backend asked its library for in a step, by call_name. */
struct calls { bool counted; double of[CALLS]; };

static struct calls read_calls(const cJSON *root)
{
    const cJSON *there = cJSON_GetObjectItemCaseSensitive(root, "calls");
    struct calls c = { .counted = cJSON_IsObject(there) };
    for (int i = 0; i < CALLS && c.counted; i++) {
        const cJSON *one = cJSON_GetObjectItemCaseSensitive(there, call_name[i]);
        c.of[i] = cJSON_IsNumber(one) ? one->valuedouble : 0;
    }
    return c;
}

/* Of a run's median step: on the clock, and of a processor in the process of device 0. */
struct timed { double seconds, processor; struct calls calls; };

static enum error_code read_timed(struct timed *timed, const char *path, struct error *err)
{
    cJSON *root = NULL;
    enum error_code e = json_read(path, &root, err);
    if (!e) e = json_double(root, path, "median_step_seconds", &timed->seconds, err);
    if (!e) e = json_double(root, path, "median_step_processor_seconds", &timed->processor, err);
    timed->calls = read_calls(root);
    cJSON_Delete(root);
    return e;
}

/* `orrery train` as a user would run it, its median step read from the JSON it writes. */
static enum error_code time_training(struct timed *timed, const char *program, const struct bench_step *step,
                                     const char *backend, const struct meshed *meshed, struct error *err)
{
    char words[5][16];
    const char *path = handover_file(err);
    if (path == NULL) return err->code;
    /* the first does not count */
    const int number[] = { meshed->dp, meshed->tp, meshed->pp, step->runs + 1, (int)step->batch };
    for (int i = 0; i < 5; i++) snprintf(words[i], sizeof words[i], "%d", number[i]);
    const char *const call[] = {
        program, "train", "--model", step->model, "--dp", words[0], "--tp", words[1], "--pp", words[2], "--steps",
        words[3], "--batch", words[4], "--tensor", meshed->tensor, "--data-parallel", meshed->data ? meshed->data
            : "ddp", "--backend",
        backend, "--dtype", step->dtype, "--json", path, NULL
    };
    const enum error_code e = run_aside(call, step->limit, err);
    return e ? e : read_timed(timed, path, err);
}

/* Seconds in each round: of the backend's matrix product, of a step on one device, also on one thread of it, and on
 * each mesh; and the ratios to one device and to the mesh before.  Processor time of a step on each mesh, by another
 * backend, too, and their ratio.  rounds: that were measured, of a mesh and of the one device. */
struct pace {
    int rounds[MESHES], rounds_alone;
    double gemm[MAX_ROUNDS], step[MAX_ROUNDS], single[MAX_ROUNDS], slower[MAX_ROUNDS];
    double meshed[MESHES][MAX_ROUNDS], ratio[MESHES][MAX_ROUNDS], beside[MESHES][MAX_ROUNDS],
        processor[MESHES][MAX_ROUNDS], other[MESHES][MAX_ROUNDS], times[MESHES][MAX_ROUNDS];
    struct calls calls[MESHES];         /* of device 0 in the last step */
};

static void measure_serial(struct bench_step *bench_step, struct gemm *g, struct pace *pace, int round)
{
    double gemm[MAX_RUNS], step[MAX_RUNS], single[MAX_RUNS];
    for (int i = 0; i < bench_step->runs; i++) {
        gemm[i] = gemm_seconds(g);
        step[i] = serial_step(&bench_step->serial, bench_step->state, bench_step->ids, bench_step->ids + 1,
                              bench_step->batch, ++bench_step->steps);
        threads_set(1);
        single[i] = serial_step(&bench_step->serial, bench_step->state, bench_step->ids, bench_step->ids + 1,
                                bench_step->batch, ++bench_step->steps);
        threads_set(bench_step->threads);
    }
    pace->gemm[round] = measure_median(gemm, bench_step->runs);
    pace->step[round] = measure_median(step, bench_step->runs);
    pace->single[round] = measure_median(single, bench_step->runs);
    pace->slower[round] = pace->single[round] / pace->step[round];
}

static bool step_takes(const struct bench_step *step, const struct model_config *config, int i)
{
    const struct meshed *m = &mesh[i];
    const struct tensor_scheme *s;
    return m->dp * m->tp * m->pp <= step->devices && m->pp <= config->L && step->batch >= m->dp &&
           tensor_scheme_find(&s, m->tensor, NULL) == OK && tensor_check(s, config, m->tp, NULL) == OK;
}

static enum error_code measure_mesh(const struct bench_step *step, const char *program, struct pace *pace,
                                    int i, int round, struct error *err)
{
    struct timed own = { 0 }, other = { 0 };
    enum error_code e = time_training(&own, program, step, step->backend, &mesh[i], err);
    if (!e && step->beside) e = time_training(&other, program, step, step->beside, &mesh[i], err);
    if (e) return e;
    pace->meshed[i][round] = own.seconds, pace->ratio[i][round] = own.seconds / pace->step[round];
    if (mesh[i].data) pace->beside[i][round] = own.seconds / pace->meshed[i - 1][round];
    pace->processor[i][round] = own.processor, pace->other[i][round] = other.processor;
    pace->times[i][round] = own.processor / other.processor;
    pace->calls[i] = own.calls;
    pace->rounds[i] = round + 1;
    return OK;
}

/* Measure everything in turn, round by round, so that other load of the machine slows all of it; ratios are of one
 * round.  No mesh is begun when the time is over, and no round that would end after it. */
static enum error_code bench_rounds(struct bench_step *step, const char *program, const struct model_config *config,
                                    struct gemm *gemm, struct pace *pace, struct error *err)
{
    const double start = measure_now();
    double longest = 0;
    struct time_left line;
    time_left_begin(&line);
    for (int round = 0; round < step->rounds; round++) {
        const double began = measure_now();
        if (round > 0 && began + longest > start + step->seconds) break;
        measure_serial(step, gemm, pace, round);
        pace->rounds_alone = round + 1;
        for (int i = 0; i < MESHES; i++) {
            if (measure_now() > start + step->seconds) break;
            if (!step_takes(step, config, i)) continue;
            time_left_show(&line, (round + (double)(i + 1) / (MESHES + 1)) / step->rounds, "measuring", "");
            const enum error_code e = measure_mesh(step, program, pace, i, round, err);
            if (e) return time_left_end(&line), e;
        }
        if (measure_now() - began > longest) longest = measure_now() - began;
    }
    time_left_end(&line);
    return OK;
}

static double step_least(const double *x, int n)
{
    double low = x[0];
    for (int i = 1; i < n; i++) low = x[i] < low ? x[i] : low;
    return low;
}

/* The rows before the meshes: one device, with all threads and with one. */
enum { ALONE = -2, ON_ONE_THREAD = -1 };

/* What the rows have in common. */
struct shown { const struct bench_step *b; const struct pace *p; double flops, tokens, rate; };

static const char *step_name_of(const struct meshed *meshed, char *text, size_t room)
{
    const char *scheme = meshed->data ? meshed->data : meshed->tp > 1 ? meshed->tensor : "";
    snprintf(text, room, "dp=%d tp=%d pp=%d%s%s", meshed->dp, meshed->tp, meshed->pp, *scheme ? " " : "", scheme);
    return text;
}

static const char *title_of(int i, char *text, size_t room)
{
    return i == ALONE ? "one device, ref/" : i == ON_ONE_THREAD ? "  on one thread"
           : step_name_of(&mesh[i], text, room);
}

/* i: a mesh, or one of the rows before. */
static void show_row(struct columns *columns, const struct shown *shown, int i)
{
    char what[64];
    const struct pace *p = shown->p;
    const int n = i < 0 ? p->rounds_alone : p->rounds[i];
    const double *seconds = i == ALONE ? p->step : i < 0 ? p->single : p->meshed[i],
                 *ratio = i < 0 ? p->slower : p->ratio[i], median = measure_median_of(seconds, n);
    columns_add(columns, LEFT_ALIGNED, "%s", title_of(i, what, sizeof what));
    columns_add(columns, RIGHT_ALIGNED, "%.1f", 1e3 * median);
    columns_add(columns, RIGHT_ALIGNED, "%.1f", 1e3 * step_least(seconds, n));
    columns_add(columns, RIGHT_ALIGNED, "%.0f", shown->tokens / median);
    columns_add(columns, RIGHT_ALIGNED, "%.1f", shown->flops / median / 1e9);
    columns_add(columns, RIGHT_ALIGNED, "%.1f", 100 * shown->flops / median / shown->rate);
    if (i != ALONE) columns_add(columns, RIGHT_ALIGNED, "%.2f", measure_median_of(ratio, n));
    if (i != ALONE) columns_add(columns, RIGHT_ALIGNED, "%.2f", step_least(ratio, n));
    if (i >= 0 && mesh[i].data) columns_add(columns, RIGHT_ALIGNED, "%.2f", measure_median_of(p->beside[i], n));
    columns_end_row(columns);
}

static void show_table(const struct shown *shown)
{
    static const char *const heads[] = { "of a step", "ms", "least", "tokens/s", "GFLOP/s", "% gemm", "x one",
                                         "least", "x ddp" };
    struct columns t = columns_start(stdout);
    do {
        for (size_t k = 0; k < sizeof heads / sizeof *heads; k++)
            columns_add(&t, k ? RIGHT_ALIGNED : LEFT_ALIGNED, "%s", heads[k]);
        columns_end_row(&t);
        for (int i = ALONE; i < MESHES; i++)
            if (i == ALONE || (i < 0 ? shown->b->threads > 1 : shown->p->rounds[i] > 0)) show_row(&t, shown, i);
    } while (columns_again(&t));
}

static void show_calls(const struct pace *pace)
{
    char what[64];
    for (int i = 0; i < MESHES; i++) {
        const double *n = pace->calls[i].of;
        if (pace->rounds[i] == 0 || !pace->calls[i].counted) continue;
        say(stdout, 2, "%s: device 0 makes %.0f launches, %.0f products, %.0f copies, %.0f allocations, %.0f waits and "
            "%.0f lookups in a step", step_name_of(&mesh[i], what, sizeof what), n[0], n[1], n[2], n[3], n[4], n[5]);
    }
}

static void show_beside(const struct bench_step *step, const struct pace *pace)
{
    char what[64];
    if (step->beside) say(stdout, 0, "processor time of a step, in the process of device 0:");
    for (int i = 0; i < MESHES && step->beside; i++) {
        const int n = pace->rounds[i];
        if (n > 0)
            say(stdout, 2, "  %s: %.1f ms, by %s %.1f: %.3g times, at least %.3g",
                step_name_of(&mesh[i], what, sizeof what), 1e3 * measure_median_of(pace->processor[i], n), step->beside,
                1e3 * measure_median_of(pace->other[i], n), measure_median_of(pace->times[i], n),
                    step_least(pace->times[i], n));
    }
}

/* Rounds that the time was too short for. */
static void show_what_is_missing(const struct shown *shown, const struct model_config *config)
{
    const struct bench_step *b = shown->b;
    int whole = b->rounds, none = 0;
    for (int i = 0; i < MESHES; i++) {
        if (!step_takes(b, config, i)) continue;
        if (shown->p->rounds[i] < whole) whole = shown->p->rounds[i];
        none += shown->p->rounds[i] == 0;
    }
    if (none > 0) say(stdout, 0, "--seconds %g: too short for one round; %d meshes are left out", b->seconds, none);
    else if (whole < b->rounds) say(stdout, 0, "--seconds %g: %d of %d rounds", b->seconds, whole, b->rounds);
}

static cJSON *json_row(cJSON *rows, const char *what, const double *seconds, int rounds, const struct calls *calls)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "what", what);
    cJSON_AddNumberToObject(row, "median_seconds", measure_median_of(seconds, rounds));
    cJSON_AddNumberToObject(row, "least_seconds", step_least(seconds, rounds));
    cJSON_AddNumberToObject(row, "rounds", rounds);
    cJSON *counts = calls && calls->counted ? cJSON_AddObjectToObject(row, "calls") : NULL;
    for (int i = 0; i < CALLS && counts; i++) cJSON_AddNumberToObject(counts, call_name[i], calls->of[i]);
    cJSON_AddItemToArray(rows, row);
    return row;
}

static void json_processor(cJSON *row, const struct shown *shown, int i)
{
    const int n = shown->p->rounds[i];
    cJSON_AddNumberToObject(row, "processor_seconds", measure_median_of(shown->p->processor[i], n));
    if (!shown->b->beside) return;
    cJSON *beside = cJSON_AddObjectToObject(row, "beside");
    cJSON_AddStringToObject(beside, "backend", shown->b->beside);
    cJSON_AddNumberToObject(beside, "processor_seconds", measure_median_of(shown->p->other[i], n));
    cJSON_AddNumberToObject(beside, "ratio", measure_median_of(shown->p->times[i], n));
}

static enum error_code step_write_json(const struct shown *shown, const struct model_config *config, struct error *err)
{
    char what[64];
    cJSON *root = document_start("orrery bench step");
    cJSON_AddStringToObject(root, "model", config->name);
    cJSON_AddStringToObject(root, "backend", shown->b->backend);
    cJSON_AddStringToObject(root, "dtype", shown->b->dtype);
    cJSON_AddNumberToObject(root, "batch", (double)shown->b->batch);
    cJSON_AddNumberToObject(root, "threads", shown->b->threads);
    cJSON_AddNumberToObject(root, "stolen_cores", shown->b->steal);
    cJSON_AddNumberToObject(root, "tokens", shown->tokens);
    cJSON_AddNumberToObject(root, "flops", shown->flops);
    cJSON_AddNumberToObject(root, "gemm_flops_per_second", shown->rate);
    cJSON *rows = cJSON_AddArrayToObject(root, "rows");
    json_row(rows, "one device, ref/", shown->p->step, shown->p->rounds_alone, NULL);
    if (shown->b->threads > 1)
        json_row(rows, "one device, ref/, one thread", shown->p->single, shown->p->rounds_alone, NULL);
    for (int i = 0; i < MESHES; i++)
        if (shown->p->rounds[i] > 0)
            json_processor(json_row(rows, step_name_of(&mesh[i], what, sizeof what), shown->p->meshed[i],
                                    shown->p->rounds[i], &shown->p->calls[i]), shown, i);
    const enum error_code e = fail_about(err, json_write(shown->b->json, root, err), "--json");
    cJSON_Delete(root);
    return e;
}

static enum error_code bench_step_show(const struct bench_step *step, const struct model_config *config,
                                       const struct pace *pace, struct error *err)
{
    const double gemm_flops = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;
    const double gemm = measure_median_of(pace->gemm, pace->rounds_alone);
    const struct shown w = { step, pace, model_step_flops(config, step->batch, config->S),
                            (double)(step->batch * config->S), gemm_flops / gemm };
    const bool quiet = step->json && strcmp(step->json, "-") == 0;
    if (!quiet) {
        say(stdout, 0, "gemm %d cubed, %s, backend %s: %.2f ms, at least %.2f; %.1f GFLOP/s", GEMM_SIZE, step->dtype,
            step->backend, 1e3 * gemm, 1e3 * step_least(pace->gemm, pace->rounds_alone), w.rate / 1e9);
        show_table(&w);
        show_calls(pace);
        show_beside(step, pace);
        show_what_is_missing(&w, config);
    }
    return step->json ? step_write_json(&w, config, err) : OK;
}

static void show_head(const struct bench_step *step, const struct model_config *config)
{
    if (step->json != NULL && strcmp(step->json, "-") == 0) return;
    say(stdout, 0, "model %s, batch %lld x %lld tokens, %s, %d threads\nmedians of %d step%s after one that warms up, "
        "and of %d rounds over all rows,\nin at most about %g seconds", config->name, (long long)step->batch,
            (long long)config->S,
        step->dtype, step->threads, step->runs, step->runs == 1 ? "" : "s", step->rounds, step->seconds);
    if (step->steal > 0) say(stdout, 0, "beside %d busy process%s", step->steal,
                             step->steal > 1 ? "es, each on a core of its own" : ", on a core of its own");
    fflush(stdout);
}

static enum error_code step_measure(struct bench_step *step, const char *program, const struct model_config *config,
                                    struct gemm *gemm, struct pace *pace, struct error *err)
{
    struct thieves thieves;
    enum error_code e = steal_cores(&thieves, step->steal, err);
    if (e) return e;
    show_head(step, config);
    /* warm up */
    serial_step(&step->serial, step->state, step->ids, step->ids + 1, step->batch, ++step->steps);
    gemm_seconds(gemm);
    e = bench_rounds(step, program, config, gemm, pace, err);
    steal_end(&thieves);
    return e;
}

static enum error_code bench_step(struct bench_step *step, const char *program, struct error *err)
{
    struct model_config c;
    int64_t usual;
    static struct pace pace;
    static struct gemm g;               /* its device stays where it is */
    step->threads = threads_use(cores_usable());
    enum error_code e = model_config_preset(&c, &usual, step->model, err);
    if (e) return e;
    if (step->batch == 0) step->batch = usual > MOST_COPIES ? usual : MOST_COPIES;
    e = open_serial(step, &c, err);
    if (!e) e = gemm_open(&g, backend_find(step->backend), dtype_by_name(step->dtype), err);
    if (!e) e = step_measure(step, program, &c, &g, &pace, err);
    if (!e) e = bench_step_show(step, &c, &pace, err);
    gemm_close(&g);
    close_serial(step);
    return e;
}

static enum error_code check_backend(const char *flag, const char *name, struct error *err)
{
    const enum error_code e = backend_check(flag, name, err);
    if (e || backend_find(name)->has_numbers) return e;
    return fail(err, ERR_USAGE, "%s %s: only counts; its steps take no time to measure", flag, name);
}

enum error_code bench_step_topic(int argc, char **argv, int *status, struct error *err)
{
    struct bench_step b = { .model = "11m", .backend = "cpu", .dtype = "fp32", .runs = 2, .rounds = 9,
                            .devices = 8, .seconds = 50, .limit = 300 };
    int batch = 0;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &b.model, .help = "a preset" },
        { "--batch", "N", OPTION_INT, &batch, .min = 1, .max = 1e6,
          .help = "sequences; default: the preset's, but at least 8, so that every mesh fits" },
        { "--runs", "N", OPTION_INT, &b.runs, .min = 1, .max = MAX_RUNS,
          .help = "steps per measurement, after one that warms up; the median counts" },
        { "--rounds", "N", OPTION_INT, &b.rounds, .min = 1, .max = MAX_ROUNDS,
          .help = "rounds over all rows; the median is shown" },
        { "--seconds", "N", OPTION_DOUBLE, &b.seconds, .min = 0, .max = 1e6,
          .help = "time for all rounds: none begins that would end later; what was measured by then is shown" },
        { "--run-limit", "SECONDS", OPTION_DOUBLE, &b.limit, .min = 0.1, .max = 1e6,
          .help = "until a run of a mesh that does not end is stopped, and named with what it waits for" },
        { "--devices", "N", OPTION_INT, &b.devices, .min = 1, .max = 8, .help = "of a mesh at most" },
        { "--backend", "NAME", OPTION_STRING, &b.backend,
          .help = "what computes, in the rows of meshes and in the matrix product; `orrery list backends`" },
        { "--beside", "NAME", OPTION_STRING, &b.beside,
          .help = "another backend for the same meshes, in each round: processor time of both, and their ratio" },
        { "--dtype", "NAME", OPTION_CHOICE, &b.dtype, .choices = number_formats,
          .help = "format of their weights and activations; the one device of ref/ computes in fp32" },
        { "--steal", "N", OPTION_INT, &b.steal, .max = STEAL_MOST,
          .help = "busy processes beside all that is measured, each on a core of its own: a noisy neighbour" },
        THREADS_OPTION,
        { "--json", "FILE", OPTION_STRING, &b.json, .help = "every row as JSON; - for stdout, without the table" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench step", "[options]",
        "Measure the speed of a training step, and this machine's limit in the same run.",
        argc - 3, argv + 3, table, &help, err);
    if (!e && !help) e = check_backend("--backend", b.backend, err);
    if (!e && !help && b.beside) e = check_backend("--beside", b.beside, err);
    if (e || help) return e;
    b.batch = batch;
    return bench_step(&b, argv[0], err);
}
