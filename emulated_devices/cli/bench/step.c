/* step.c -- `orrery bench step`: speed, beside a limit measured in the same run.  Tests never check speed. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/measure.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/io/json.h"
#include "ref/model/transformer.h"
#include "ref/optim/optimizer.h"
#include "ref/ops/threads.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RUNS = 1000, MAX_ROUNDS = 100, GEMM_SIZE = 2048 };

/* The machine's limit: median rate of C = A B^T, 2048 cubed, in fp32. */
struct gemm { float *A, *B, *C; };

static bool gemm_open(struct gemm *g)
{
    const size_t n = (size_t)GEMM_SIZE * GEMM_SIZE;
    g->A = malloc(n * sizeof *g->A), g->B = malloc(n * sizeof *g->B), g->C = malloc(n * sizeof *g->C);
    for (size_t i = 0; g->A && g->B && g->C && i < n; i++)
        g->A[i] = (float)(i % 7) - 3, g->B[i] = (float)(i % 5) - 2, g->C[i] = 0;
    return g->A && g->B && g->C;
}

static double gemm_seconds(struct gemm *g)
{
    const double t0 = measure_now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE, 1, g->A, GEMM_SIZE, g->B,
                GEMM_SIZE, 0, g->C, GEMM_SIZE);
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
    const char *model;
    int runs, rounds;
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

/* `orrery train` as a user would run it, its median step read from the JSON it writes. */
static double train_seconds(const char *program, const struct bench_step *b, const struct meshed *m, struct error *err)
{
    char words[5][16];
    const char *path = handover_file(err);
    if (path == NULL) return -1;
    const int number[] = { m->dp, m->tp, m->pp, b->runs, (int)b->batch };
    for (int i = 0; i < 5; i++) snprintf(words[i], sizeof words[i], "%d", number[i]);
    const pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL) _exit(1);
        execlp(program, program, "train", "--model", b->model, "--dp", words[0], "--tp", words[1], "--pp", words[2],
               "--steps", words[3], "--batch", words[4], "--tensor", m->tensor, "--data-parallel",
               m->data ? m->data : "ddp", "--json", path, (char *)NULL);
        _exit(127);
    }
    int how = 0;
    double seconds = -1;
    cJSON *root = NULL;
    if (child > 0) waitpid(child, &how, 0);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail(err, ERR_COMM, "orrery train --dp %d --tp %d --pp %d --tensor %s failed", m->dp, m->tp, m->pp, m->tensor);
    else if (json_read(path, &root, err) == OK && json_double(root, path, "median_step_seconds", &seconds, err) != OK)
        seconds = -1;
    cJSON_Delete(root);
    return seconds;
}

static void print_row(const char *what, double seconds, double flops, double tokens, double gemm_rate)
{
    printf("  %-34s %9.1f ms  %9.0f tokens/s  %7.1f GFLOP/s  %5.1f %% of gemm", what, 1e3 * seconds, tokens / seconds,
           flops / seconds / 1e9, 100 * flops / seconds / gemm_rate);
}

/* Seconds in each round: of the machine's matrix product, of a step on one device and on each mesh; and the ratios to
 * one device and to the mesh before. */
struct pace {
    double gemm[MAX_ROUNDS], step[MAX_ROUNDS], meshed[MESHES][MAX_ROUNDS], ratio[MESHES][MAX_ROUNDS],
        beside[MESHES][MAX_ROUNDS];
};

static void measure_serial(struct bench_step *b, struct gemm *g, struct pace *p, int round)
{
    double gemm[MAX_RUNS], step[MAX_RUNS];
    for (int i = 0; i < b->runs; i++) {
        gemm[i] = gemm_seconds(g);
        step[i] = serial_step(&b->serial, b->state, b->ids, b->ids + 1, b->batch, ++b->steps);
    }
    p->gemm[round] = measure_median(gemm, b->runs);
    p->step[round] = measure_median(step, b->runs);
}

static bool takes(const struct model_config *c, int64_t batch, const struct meshed *m)
{
    const struct tensor_scheme *s;
    return m->pp <= c->L && batch >= m->dp && tensor_scheme_find(&s, m->tensor, NULL) == OK &&
           tensor_check(s, c, m->tp, NULL) == OK;
}

/* Measure everything in turn, round by round, so that other load of the machine slows all of it; ratios are of one
 * round. */
static enum error_code bench_rounds(struct bench_step *b, const char *program, const struct model_config *c,
                                    struct gemm *g, struct error *err)
{
    static struct pace pace;
    const double flops = model_step_flops(c, b->batch, c->S), tokens = (double)(b->batch * c->S),
                 gemm_flops = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;
    for (int round = 0; round < b->rounds; round++) {
        measure_serial(b, g, &pace, round);
        for (int i = 0; i < MESHES; i++) {
            if (!takes(c, b->batch, &mesh[i])) continue;
            const double s = train_seconds(program, b, &mesh[i], err);
            if (s < 0) return err->code;
            pace.meshed[i][round] = s, pace.ratio[i][round] = s / pace.step[round];
            if (mesh[i].data) pace.beside[i][round] = s / pace.meshed[i - 1][round];
        }
    }
    const double rate = gemm_flops / measure_median(pace.gemm, b->rounds);
    printf("  %-34s %9.1f ms  %28.1f GFLOP/s\n", "OpenBLAS sgemm 2048 cubed", 1e3 * gemm_flops / rate, rate / 1e9);
    print_row("one device, ref/", measure_median(pace.step, b->rounds), flops, tokens, rate);
    printf("\n");
    for (int i = 0; i < MESHES; i++) {
        char what[64];
        if (!takes(c, b->batch, &mesh[i])) continue;
        snprintf(what, sizeof what, "orrery train dp=%d tp=%d pp=%d %s", mesh[i].dp, mesh[i].tp, mesh[i].pp,
                 mesh[i].data ? mesh[i].data : mesh[i].tp > 1 ? mesh[i].tensor : "");
        print_row(what, measure_median(pace.meshed[i], b->rounds), flops, tokens, rate);
        printf("  %5.2f x one device", measure_median(pace.ratio[i], b->rounds));
        if (mesh[i].data) printf(", %.2f x ddp", measure_median(pace.beside[i], b->rounds));
        printf("\n");
    }
    return OK;
}

static enum error_code bench_step(struct bench_step *b, const char *program, struct error *err)
{
    struct model_config c;
    int64_t usual;
    struct gemm g = { 0 };
    const int threads = use_cores(1);
    enum error_code e = model_config_preset(&c, &usual, b->model, err);
    if (e) return e;
    if (b->batch == 0) b->batch = usual > MOST_COPIES ? usual : MOST_COPIES;
    e = open_serial(b, &c, err);
    if (!e && !gemm_open(&g))
        e = fail(err, ERR_MEMORY, "no memory for three matrices of %d x %d", GEMM_SIZE, GEMM_SIZE);
    if (!e) {
        printf("model %s, batch %lld x %lld tokens, fp32, %d threads; medians of %d steps and of %d rounds over all "
               "rows\n",
               c.name, (long long)b->batch, (long long)c.S, threads, b->runs, b->rounds);
        fflush(stdout);
        serial_step(&b->serial, b->state, b->ids, b->ids + 1, b->batch, ++b->steps);       /* warm up */
        gemm_seconds(&g);
        e = bench_rounds(b, program, &c, &g, err);
    }
    free(g.A), free(g.B), free(g.C);
    close_serial(b);
    return e;
}

enum error_code bench_step_topic(int argc, char **argv, int *status, struct error *err)
{
    struct bench_step b = { .model = "11m", .runs = 5, .rounds = 3 };
    int batch = 0;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &b.model, .help = "a preset" },
        { "--batch", "N", OPTION_INT, &batch, .min = 1, .max = 1e6,
          .help = "sequences; default: the preset's, but at least 8, so that every mesh fits" },
        { "--runs", "N", OPTION_INT, &b.runs, .min = 1, .max = MAX_RUNS,
          .help = "steps per measurement; the median counts" },
        { "--rounds", "N", OPTION_INT, &b.rounds, .min = 1, .max = MAX_ROUNDS,
          .help = "rounds over all rows; the median is shown" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench step", "[options]",
        "Measure the speed of a training step, and this machine's limit in the same run.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    b.batch = batch;
    return bench_step(&b, argv[0], err);
}
