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

static void gemm_close(struct gemm *g)
{
    struct tensor *const all[] = { &g->A, &g->B, &g->C };
    if (!g->open) return;
    for (int i = 0; i < 3; i++)
        if (tensor_present(*all[i])) device_free(&g->d, *all[i]);
    device_close(&g->d);
}

static enum error_code gemm_open(struct gemm *g, const struct backend *backend, enum dtype t, struct error *err)
{
    struct tensor *const all[] = { &g->A, &g->B, &g->C };
    const enum error_code e = device_open(&g->d, backend, t, 0, err);
    if (e) return e;
    g->open = true;
    for (int i = 0; i < 3; i++) {
        *all[i] = device_tensor_2d(&g->d, BUFFERS, GEMM_SIZE, GEMM_SIZE);
        if (!tensor_present(*all[i]))
            return fail(err, ERR_MEMORY, "no memory for three matrices of %d x %d", GEMM_SIZE, GEMM_SIZE);
        struct views v = views_of(&g->d);
        const struct tensor seen = view_write(&v, *all[i]);
        for (int64_t k = 0; k < tensor_count(seen); k++) tensor_set(seen, k, (double)(k % (7 - 2 * i)) - 3 + i);
        views_end(&v);
    }
    return OK;
}

/* A view of one number waits until it is there. */
static double gemm_seconds(struct gemm *g)
{
    const double t0 = measure_now();
    dev_linear_forward(&g->d, g->C, g->A, g->B, (struct tensor){ 0 });
    struct views v = views_of(&g->d);
    (void)view_read(&v, tensor_1d(g->C.data, g->C.dtype, 1));
    views_end(&v);
    return measure_now() - t0;
}

/* One training step of the one-device model: forward, backward, clipped AdamW. */
static double serial_step(struct transformer *m, struct tensor *state, const int32_t *ids, const int32_t *labels,
                          int64_t B, int64_t t)
{
    const struct optimizer *adamw = optimizers[0];
    double loss;
    const double t0 = measure_now();
    if (transformer_forward(m, ids, labels, B, m->config.S, &loss, NULL) != OK) return 0;
    transformer_backward(m);
    const double scale = clip_scale(&adamw->usual, transformer_gradient_norm(m));
    for (int i = 0; i < m->params; i++) {
        const struct step s = { .lr = adamw->usual.lr, .t = t, .gradient_scale = scale, .hyper = &adamw->usual,
                                .weight_decay = weight_decay_of(&adamw->usual, m->spec[i].decay) };
        optimizer_step(adamw, m->w[i], m->g[i], &state[i * OPTIMIZER_MAX_STATES], s);
    }
    transformer_zero_gradients(m);
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

static enum error_code open_serial(struct bench_step *b, const struct model_config *c, struct error *err)
{
    enum error_code e = transformer_open(&b->serial, c, F32, 1, err);
    if (e) return e;
    const int64_t N = b->batch * c->S;
    b->ids = malloc(sizeof *b->ids * (size_t)(N + 1));
    b->state = calloc((size_t)b->serial.params * OPTIMIZER_MAX_STATES, sizeof *b->state);
    bool ok = b->ids && b->state;
    for (int i = 0; ok && i < b->serial.params * OPTIMIZER_MAX_STATES; i++) {
        b->state[i] = b->serial.w[i / OPTIMIZER_MAX_STATES];
        b->state[i].data = calloc(1, tensor_bytes(b->state[i]));
        ok = b->state[i].data != NULL;
    }
    for (int64_t n = 0; ok && n <= N; n++) b->ids[n] = (int32_t)((n * 7919 + n / 13) % c->V);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to bench model %s", c->name);
}

static void close_serial(struct bench_step *b)
{
    for (int i = 0; b->state && i < b->serial.params * OPTIMIZER_MAX_STATES; i++) free(b->state[i].data);
    free(b->state), free(b->ids);
    if (b->serial.params) transformer_close(&b->serial);
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

static enum error_code read_timed(struct timed *t, const char *path, struct error *err)
{
    cJSON *root = NULL;
    enum error_code e = json_read(path, &root, err);
    if (!e) e = json_double(root, path, "median_step_seconds", &t->seconds, err);
    if (!e) e = json_double(root, path, "median_step_processor_seconds", &t->processor, err);
    t->calls = read_calls(root);
    cJSON_Delete(root);
    return e;
}

/* `orrery train` as a user would run it, its median step read from the JSON it writes. */
static enum error_code time_training(struct timed *t, const char *program, const struct bench_step *b,
                                     const char *backend, const struct meshed *m, struct error *err)
{
    char words[5][16];
    const char *path = handover_file(err);
    if (path == NULL) return err->code;
    const int number[] = { m->dp, m->tp, m->pp, b->runs + 1, (int)b->batch };     /* the first does not count */
    for (int i = 0; i < 5; i++) snprintf(words[i], sizeof words[i], "%d", number[i]);
    const char *const call[] = {
        program, "train", "--model", b->model, "--dp", words[0], "--tp", words[1], "--pp", words[2], "--steps",
        words[3], "--batch", words[4], "--tensor", m->tensor, "--data-parallel", m->data ? m->data : "ddp", "--backend",
        backend, "--dtype", b->dtype, "--json", path, NULL
    };
    const enum error_code e = run_aside(call, b->limit, err);
    return e ? e : read_timed(t, path, err);
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

static void measure_serial(struct bench_step *b, struct gemm *g, struct pace *p, int round)
{
    double gemm[MAX_RUNS], step[MAX_RUNS], single[MAX_RUNS];
    for (int i = 0; i < b->runs; i++) {
        gemm[i] = gemm_seconds(g);
        step[i] = serial_step(&b->serial, b->state, b->ids, b->ids + 1, b->batch, ++b->steps);
        threads_set(1);
        single[i] = serial_step(&b->serial, b->state, b->ids, b->ids + 1, b->batch, ++b->steps);
        threads_set(b->threads);
    }
    p->gemm[round] = measure_median(gemm, b->runs);
    p->step[round] = measure_median(step, b->runs);
    p->single[round] = measure_median(single, b->runs);
    p->slower[round] = p->single[round] / p->step[round];
}

static bool takes(const struct bench_step *b, const struct model_config *c, int i)
{
    const struct meshed *m = &mesh[i];
    const struct tensor_scheme *s;
    return m->dp * m->tp * m->pp <= b->devices && m->pp <= c->L && b->batch >= m->dp &&
           tensor_scheme_find(&s, m->tensor, NULL) == OK && tensor_check(s, c, m->tp, NULL) == OK;
}

static enum error_code measure_mesh(const struct bench_step *b, const char *program, struct pace *p, int i, int round,
                                    struct error *err)
{
    struct timed own = { 0 }, other = { 0 };
    enum error_code e = time_training(&own, program, b, b->backend, &mesh[i], err);
    if (!e && b->beside) e = time_training(&other, program, b, b->beside, &mesh[i], err);
    if (e) return e;
    p->meshed[i][round] = own.seconds, p->ratio[i][round] = own.seconds / p->step[round];
    if (mesh[i].data) p->beside[i][round] = own.seconds / p->meshed[i - 1][round];
    p->processor[i][round] = own.processor, p->other[i][round] = other.processor;
    p->times[i][round] = own.processor / other.processor;
    p->calls[i] = own.calls;
    p->rounds[i] = round + 1;
    return OK;
}

/* Measure everything in turn, round by round, so that other load of the machine slows all of it; ratios are of one
 * round.  No mesh is begun when the time is over, and no round that would end after it. */
static enum error_code bench_rounds(struct bench_step *b, const char *program, const struct model_config *c,
                                    struct gemm *g, struct pace *p, struct error *err)
{
    const double start = measure_now();
    double longest = 0;
    struct time_left line;
    time_left_begin(&line);
    for (int round = 0; round < b->rounds; round++) {
        const double began = measure_now();
        if (round > 0 && began + longest > start + b->seconds) break;
        measure_serial(b, g, p, round);
        p->rounds_alone = round + 1;
        for (int i = 0; i < MESHES; i++) {
            if (measure_now() > start + b->seconds) break;
            if (!takes(b, c, i)) continue;
            time_left_show(&line, (round + (double)(i + 1) / (MESHES + 1)) / b->rounds, "measuring", "");
            const enum error_code e = measure_mesh(b, program, p, i, round, err);
            if (e) return time_left_end(&line), e;
        }
        if (measure_now() - began > longest) longest = measure_now() - began;
    }
    time_left_end(&line);
    return OK;
}

static double least(const double *x, int n)
{
    double low = x[0];
    for (int i = 1; i < n; i++) low = x[i] < low ? x[i] : low;
    return low;
}

/* The rows before the meshes: one device, with all threads and with one. */
enum { ALONE = -2, ON_ONE_THREAD = -1 };

/* What the rows have in common. */
struct shown { const struct bench_step *b; const struct pace *p; double flops, tokens, rate; };

static const char *name_of(const struct meshed *m, char *text, size_t room)
{
    const char *scheme = m->data ? m->data : m->tp > 1 ? m->tensor : "";
    snprintf(text, room, "dp=%d tp=%d pp=%d%s%s", m->dp, m->tp, m->pp, *scheme ? " " : "", scheme);
    return text;
}

static const char *title_of(int i, char *text, size_t room)
{
    return i == ALONE ? "one device, ref/" : i == ON_ONE_THREAD ? "  on one thread" : name_of(&mesh[i], text, room);
}

/* i: a mesh, or one of the rows before. */
static void show_row(struct columns *t, const struct shown *w, int i)
{
    char what[64];
    const struct pace *p = w->p;
    const int n = i < 0 ? p->rounds_alone : p->rounds[i];
    const double *seconds = i == ALONE ? p->step : i < 0 ? p->single : p->meshed[i],
                 *ratio = i < 0 ? p->slower : p->ratio[i], median = measure_median_of(seconds, n);
    columns_add(t, LEFT_ALIGNED, "%s", title_of(i, what, sizeof what));
    columns_add(t, RIGHT_ALIGNED, "%.1f", 1e3 * median);
    columns_add(t, RIGHT_ALIGNED, "%.1f", 1e3 * least(seconds, n));
    columns_add(t, RIGHT_ALIGNED, "%.0f", w->tokens / median);
    columns_add(t, RIGHT_ALIGNED, "%.1f", w->flops / median / 1e9);
    columns_add(t, RIGHT_ALIGNED, "%.1f", 100 * w->flops / median / w->rate);
    if (i != ALONE) columns_add(t, RIGHT_ALIGNED, "%.2f", measure_median_of(ratio, n));
    if (i != ALONE) columns_add(t, RIGHT_ALIGNED, "%.2f", least(ratio, n));
    if (i >= 0 && mesh[i].data) columns_add(t, RIGHT_ALIGNED, "%.2f", measure_median_of(p->beside[i], n));
    columns_end_row(t);
}

static void show_table(const struct shown *w)
{
    static const char *const heads[] = { "of a step", "ms", "least", "tokens/s", "GFLOP/s", "% gemm", "x one",
                                         "least", "x ddp" };
    struct columns t = columns_start(stdout);
    do {
        for (size_t k = 0; k < sizeof heads / sizeof *heads; k++)
            columns_add(&t, k ? RIGHT_ALIGNED : LEFT_ALIGNED, "%s", heads[k]);
        columns_end_row(&t);
        for (int i = ALONE; i < MESHES; i++)
            if (i == ALONE || (i < 0 ? w->b->threads > 1 : w->p->rounds[i] > 0)) show_row(&t, w, i);
    } while (columns_again(&t));
}

static void show_calls(const struct pace *p)
{
    char what[64];
    for (int i = 0; i < MESHES; i++) {
        const double *n = p->calls[i].of;
        if (p->rounds[i] == 0 || !p->calls[i].counted) continue;
        say(stdout, 2, "%s: device 0 makes %.0f launches, %.0f products, %.0f copies, %.0f allocations, %.0f waits and "
            "%.0f lookups in a step", name_of(&mesh[i], what, sizeof what), n[0], n[1], n[2], n[3], n[4], n[5]);
    }
}

static void show_beside(const struct bench_step *b, const struct pace *p)
{
    char what[64];
    if (b->beside) say(stdout, 0, "processor time of a step, in the process of device 0:");
    for (int i = 0; i < MESHES && b->beside; i++) {
        const int n = p->rounds[i];
        if (n > 0)
            say(stdout, 2, "  %s: %.1f ms, by %s %.1f: %.3g times, at least %.3g",
                name_of(&mesh[i], what, sizeof what), 1e3 * measure_median_of(p->processor[i], n), b->beside,
                1e3 * measure_median_of(p->other[i], n), measure_median_of(p->times[i], n), least(p->times[i], n));
    }
}

/* Rounds that the time was too short for. */
static void show_what_is_missing(const struct shown *w, const struct model_config *c)
{
    const struct bench_step *b = w->b;
    int whole = b->rounds, none = 0;
    for (int i = 0; i < MESHES; i++) {
        if (!takes(b, c, i)) continue;
        if (w->p->rounds[i] < whole) whole = w->p->rounds[i];
        none += w->p->rounds[i] == 0;
    }
    if (none > 0) say(stdout, 0, "--seconds %g: too short for one round; %d meshes are left out", b->seconds, none);
    else if (whole < b->rounds) say(stdout, 0, "--seconds %g: %d of %d rounds", b->seconds, whole, b->rounds);
}

static cJSON *json_row(cJSON *rows, const char *what, const double *seconds, int rounds, const struct calls *calls)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "what", what);
    cJSON_AddNumberToObject(row, "median_seconds", measure_median_of(seconds, rounds));
    cJSON_AddNumberToObject(row, "least_seconds", least(seconds, rounds));
    cJSON_AddNumberToObject(row, "rounds", rounds);
    cJSON *counts = calls && calls->counted ? cJSON_AddObjectToObject(row, "calls") : NULL;
    for (int i = 0; i < CALLS && counts; i++) cJSON_AddNumberToObject(counts, call_name[i], calls->of[i]);
    cJSON_AddItemToArray(rows, row);
    return row;
}

static void json_processor(cJSON *row, const struct shown *w, int i)
{
    const int n = w->p->rounds[i];
    cJSON_AddNumberToObject(row, "processor_seconds", measure_median_of(w->p->processor[i], n));
    if (!w->b->beside) return;
    cJSON *beside = cJSON_AddObjectToObject(row, "beside");
    cJSON_AddStringToObject(beside, "backend", w->b->beside);
    cJSON_AddNumberToObject(beside, "processor_seconds", measure_median_of(w->p->other[i], n));
    cJSON_AddNumberToObject(beside, "ratio", measure_median_of(w->p->times[i], n));
}

static enum error_code write_json(const struct shown *w, const struct model_config *c, struct error *err)
{
    char what[64];
    cJSON *root = document_start("orrery bench step");
    cJSON_AddStringToObject(root, "model", c->name);
    cJSON_AddStringToObject(root, "backend", w->b->backend);
    cJSON_AddStringToObject(root, "dtype", w->b->dtype);
    cJSON_AddNumberToObject(root, "batch", (double)w->b->batch);
    cJSON_AddNumberToObject(root, "threads", w->b->threads);
    cJSON_AddNumberToObject(root, "stolen_cores", w->b->steal);
    cJSON_AddNumberToObject(root, "tokens", w->tokens);
    cJSON_AddNumberToObject(root, "flops", w->flops);
    cJSON_AddNumberToObject(root, "gemm_flops_per_second", w->rate);
    cJSON *rows = cJSON_AddArrayToObject(root, "rows");
    json_row(rows, "one device, ref/", w->p->step, w->p->rounds_alone, NULL);
    if (w->b->threads > 1) json_row(rows, "one device, ref/, one thread", w->p->single, w->p->rounds_alone, NULL);
    for (int i = 0; i < MESHES; i++)
        if (w->p->rounds[i] > 0)
            json_processor(json_row(rows, name_of(&mesh[i], what, sizeof what), w->p->meshed[i], w->p->rounds[i],
                                    &w->p->calls[i]), w, i);
    const enum error_code e = fail_about(err, json_write(w->b->json, root, err), "--json");
    cJSON_Delete(root);
    return e;
}

static enum error_code show(const struct bench_step *b, const struct model_config *c, const struct pace *p,
                            struct error *err)
{
    const double gemm_flops = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;
    const double gemm = measure_median_of(p->gemm, p->rounds_alone);
    const struct shown w = { b, p, model_step_flops(c, b->batch, c->S), (double)(b->batch * c->S), gemm_flops / gemm };
    const bool quiet = b->json && strcmp(b->json, "-") == 0;
    if (!quiet) {
        say(stdout, 0, "gemm %d cubed, %s, backend %s: %.2f ms, at least %.2f; %.1f GFLOP/s", GEMM_SIZE, b->dtype,
            b->backend, 1e3 * gemm, 1e3 * least(p->gemm, p->rounds_alone), w.rate / 1e9);
        show_table(&w);
        show_calls(p);
        show_beside(b, p);
        show_what_is_missing(&w, c);
    }
    return b->json ? write_json(&w, c, err) : OK;
}

static void show_head(const struct bench_step *b, const struct model_config *c)
{
    if (b->json != NULL && strcmp(b->json, "-") == 0) return;
    say(stdout, 0, "model %s, batch %lld x %lld tokens, %s, %d threads\nmedians of %d step%s after one that warms up, "
        "and of %d rounds over all rows,\nin at most about %g seconds", c->name, (long long)b->batch, (long long)c->S,
        b->dtype, b->threads, b->runs, b->runs == 1 ? "" : "s", b->rounds, b->seconds);
    if (b->steal > 0) say(stdout, 0, "beside %d busy process%s", b->steal,
                          b->steal > 1 ? "es, each on a core of its own" : ", on a core of its own");
    fflush(stdout);
}

static enum error_code measure(struct bench_step *b, const char *program, const struct model_config *c, struct gemm *g,
                               struct pace *p, struct error *err)
{
    struct thieves thieves;
    enum error_code e = steal_cores(&thieves, b->steal, err);
    if (e) return e;
    show_head(b, c);
    serial_step(&b->serial, b->state, b->ids, b->ids + 1, b->batch, ++b->steps);           /* warm up */
    gemm_seconds(g);
    e = bench_rounds(b, program, c, g, p, err);
    steal_end(&thieves);
    return e;
}

static enum error_code bench_step(struct bench_step *b, const char *program, struct error *err)
{
    struct model_config c;
    int64_t usual;
    static struct pace pace;
    static struct gemm g;               /* its device stays where it is */
    b->threads = threads_use(cores_usable());
    enum error_code e = model_config_preset(&c, &usual, b->model, err);
    if (e) return e;
    if (b->batch == 0) b->batch = usual > MOST_COPIES ? usual : MOST_COPIES;
    e = open_serial(b, &c, err);
    if (!e) e = gemm_open(&g, backend_find(b->backend), dtype_by_name(b->dtype), err);
    if (!e) e = measure(b, program, &c, &g, &pace, err);
    if (!e) e = show(b, &c, &pace, err);
    gemm_close(&g);
    close_serial(b);
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
