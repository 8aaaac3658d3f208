/* step.c -- `orrery bench step`: speed, beside a limit measured in the same run.  Tests never check speed.  bench.c
 * calls bench_step_topic().  ERR_USAGE is for a backend that only counts; other errors are those of a run. */
#include "emulated_devices/bench/steal.h"
#include "emulated_devices/bench/step.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/time_left.h"
#include "emulated_devices/device/backend.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include "ref/machine/measure.h"
#include <stdio.h>
#include <string.h>

static double step_least(const double *x, int n)
{
    double low = x[0];
    for (int i = 1; i < n; i++) low = x[i] < low ? x[i] : low;
    return low;
}

/* The rows before the meshes: one device, with all threads and with one. */
enum { ALONE = -2, ON_ONE_THREAD = -1 };

/* This holds what the rows have in common. */
struct shown { const struct bench_step *b; const struct step_pace *p; double flops, tokens, rate; };

static const char *step_name_of(const struct step_mesh *step_mesh, char *text, size_t room)
{
    const char *scheme = step_mesh->data ? step_mesh->data : step_mesh->tp > 1 ? step_mesh->tensor : "";
    snprintf(text, room, "dp=%d tp=%d pp=%d%s%s", step_mesh->dp, step_mesh->tp, step_mesh->pp,
             *scheme ? " " : "", scheme);
    return text;
}

static const char *title_of(int i, char *text, size_t room)
{
    if (i >= 0) return step_name_of(&step_meshes[i], text, room);
    return i == ALONE ? "one device, ref/" : "  on one thread";
}

/* i: a mesh, or one of the rows before. */
static void show_row(struct columns *columns, const struct shown *shown, int i)
{
    char what[64];
    const struct step_pace *p = shown->p;
    const int n = i < 0 ? p->rounds_alone : p->rounds[i];
    const double *seconds = i == ALONE ? p->step : i < 0 ? p->single : p->meshed[i],
                 *ratio = i < 0 ? p->slower : p->ratio[i], median = measure_median_of(seconds, n);
    columns_add(columns, LEFT_ALIGNED, "%s", title_of(i, what, sizeof what));
    columns_add(columns, RIGHT_ALIGNED, "%.1f", 1e3 * median);
    columns_add(columns, RIGHT_ALIGNED, "%.1f", 1e3 * step_least(seconds, n));
    columns_add(columns, RIGHT_ALIGNED, "%.0f", shown->tokens / median);
    columns_add(columns, RIGHT_ALIGNED, "%.1f", shown->flops / median / 1e9);
    /* Integers in fp64 are not held against a product in fp32, but devices' work against that of one. */
    if (!shown->b->exact) columns_add(columns, RIGHT_ALIGNED, "%.1f", 100 * shown->flops / median / shown->rate);
    else if (i >= 0) columns_add(columns, RIGHT_ALIGNED, "%.2f", measure_median_of(p->work[i], n));
    else columns_add(columns, RIGHT_ALIGNED, "%s", "");
    if (i != ALONE) columns_add(columns, RIGHT_ALIGNED, "%.2f", measure_median_of(ratio, n));
    if (i != ALONE) columns_add(columns, RIGHT_ALIGNED, "%.2f", step_least(ratio, n));
    if (i >= 0 && step_meshes[i].data) columns_add(columns, RIGHT_ALIGNED, "%.2f", measure_median_of(p->beside[i], n));
    columns_end_row(columns);
}

static void show_table(const struct shown *shown)
{
    const char *const heads[] = { "of a step", "ms", "least", "tokens/s", "GFLOP/s",
                                  shown->b->exact ? "x work" : "% gemm", "x one", "least", "x ddp" };
    struct columns t = columns_start(stdout);
    do {
        for (size_t k = 0; k < sizeof heads / sizeof *heads; k++)
            columns_add(&t, k ? RIGHT_ALIGNED : LEFT_ALIGNED, "%s", heads[k]);
        columns_end_row(&t);
        for (int i = ALONE; i < STEP_MESHES; i++)
            if (i == ALONE || (i < 0 ? shown->b->threads > 1 : shown->p->rounds[i] > 0)) show_row(&t, shown, i);
    } while (columns_again(&t));
}

static void show_calls(const struct step_pace *step_pace)
{
    char what[64];
    for (int i = 0; i < STEP_MESHES; i++) {
        const double *n = step_pace->calls[i].of;
        if (step_pace->rounds[i] == 0 || !step_pace->calls[i].counted) continue;
        say(stdout, 2, "%s: device 0 makes %.0f launches, %.0f products, %.0f copies, %.0f allocations, %.0f waits and "
            "%.0f lookups in a step", step_name_of(&step_meshes[i], what, sizeof what), n[0], n[1], n[2],
            n[3], n[4], n[5]);
    }
}

static void show_beside(const struct bench_step *step, const struct step_pace *step_pace)
{
    char what[64];
    if (step->beside) say(stdout, 0, "processor time of a step, in the process of device 0:");
    for (int i = 0; i < STEP_MESHES && step->beside; i++) {
        const int n = step_pace->rounds[i];
        if (n > 0)
            say(stdout, 2, "  %s: %.1f ms, by %s %.1f: %.3g times, at least %.3g",
                step_name_of(&step_meshes[i], what, sizeof what), 1e3 * measure_median_of(step_pace->processor[i], n),
                step->beside,
                1e3 * measure_median_of(step_pace->other[i], n), measure_median_of(step_pace->times[i], n),
                step_least(step_pace->times[i], n));
    }
}

/* Exact sums take longer: this line says how much, on one device. */
static void show_dearer(const struct bench_step *step, const struct step_pace *step_pace)
{
    const int n = step_pace->rounds_alone;
    if (step->exact)
        say(stdout, 0, "exact sums on one device, ref/: %.2f times the ordinary step, at least %.2f",
            measure_median_of(step_pace->dearer, n), step_least(step_pace->dearer, n));
}

/* Rounds that the time was too short for. */
static void show_what_is_missing(const struct shown *shown)
{
    const struct bench_step *b = shown->b;
    int whole = b->rounds, none = 0;
    for (int i = 0; i < STEP_MESHES; i++) {
        if (!shown->p->taken[i]) continue;
        if (shown->p->rounds[i] < whole) whole = shown->p->rounds[i];
        none += shown->p->rounds[i] == 0;
    }
    if (none > 0) say(stdout, 0, "--seconds %g: too short for one round; %d meshes are left out", b->seconds, none);
    else if (whole < b->rounds) say(stdout, 0, "--seconds %g: %d of %d rounds", b->seconds, whole, b->rounds);
}

/* Backends whose product computes on this process's threads, of which no more run at once than there are cores. */
static int threads_of_product(const struct bench_step *step)
{
    const int cores = cores_usable();
    return strncmp(step->backend, "cuda", 4) == 0 ? 0 : step->threads < cores ? step->threads : cores;
}

/* Other programs make every speed too low, that of the matrix product, too. */
static void show_noise(const struct shown *shown)
{
    const struct step_noise noise = step_noise(shown->p, threads_of_product(shown->b));
    if (!noise.noisy) return;
    say(stdout, 0, "NOISY: others use these cores.  The matrix product had %.0f %% of them, and its\nlongest round "
        "took %.2f "
        "times its shortest.  Speeds are too low; ratios hold.", 100 * noise.share, noise.spread);
}

static cJSON *step_json_row(cJSON *rows, const char *what, const double *seconds, int rounds,
                            const struct step_calls *calls)
{
    cJSON *row = json_add(cJSON_CreateObject(), "what %s median_seconds %g least_seconds %g rounds %d", what,
                          measure_median_of(seconds, rounds), step_least(seconds, rounds), rounds);
    cJSON *counts = calls && calls->counted ? cJSON_AddObjectToObject(row, "calls") : NULL;
    for (int i = 0; i < STEP_CALLS && counts; i++) cJSON_AddNumberToObject(counts, step_call_names[i], calls->of[i]);
    cJSON_AddItemToArray(rows, row);
    return row;
}

static void json_processor(cJSON *row, const struct shown *shown, int i)
{
    const int n = shown->p->rounds[i];
    json_add(row, "processor_seconds %g work %g", measure_median_of(shown->p->processor[i], n),
             measure_median_of(shown->p->work[i], n));
    if (!shown->b->beside) return;
    json_add(cJSON_AddObjectToObject(row, "beside"), "backend %s processor_seconds %g ratio %g", shown->b->beside,
             measure_median_of(shown->p->other[i], n), measure_median_of(shown->p->times[i], n));
}

static enum error_code step_write_json(const struct shown *shown, struct error *err)
{
    char what[64];
    cJSON *root = json_add(document_start("orrery bench step"), "model %s backend %s dtype %s batch %g threads %d"
                           " stolen_cores %d tokens %g flops %g gemm_flops_per_second %g", shown->p->model,
                           shown->b->backend, shown->b->dtype, (double)shown->b->batch, shown->b->threads,
                           shown->b->steal, shown->tokens, shown->flops, shown->rate);
    const struct step_noise noise = step_noise(shown->p, threads_of_product(shown->b));
    json_add(cJSON_AddObjectToObject(root, "noise"), "noisy %hhd spread %g share %g", noise.noisy, noise.spread,
             noise.share);
    if (shown->b->exact)
        json_add(root, "exact_over_ordinary %g", measure_median_of(shown->p->dearer, shown->p->rounds_alone));
    cJSON *rows = cJSON_AddArrayToObject(root, "rows");
    step_json_row(rows, "one device, ref/", shown->p->step, shown->p->rounds_alone, NULL);
    if (shown->b->threads > 1)
        step_json_row(rows, "one device, ref/, one thread", shown->p->single, shown->p->rounds_alone, NULL);
    for (int i = 0; i < STEP_MESHES; i++)
        if (shown->p->rounds[i] > 0)
            json_processor(step_json_row(rows, step_name_of(&step_meshes[i], what, sizeof what), shown->p->meshed[i],
                                    shown->p->rounds[i], &shown->p->calls[i]), shown, i);
    return fail_about(err, json_finish(shown->b->json, root, err), "--json");
}

static enum error_code bench_step_show(const struct bench_step *step, const struct step_pace *step_pace,
                                       struct error *err)
{
    const double gemm_flops = 2.0 * STEP_GEMM_SIZE * STEP_GEMM_SIZE * STEP_GEMM_SIZE;
    const double gemm = measure_median_of(step_pace->gemm, step_pace->rounds_alone);
    const struct shown w = { step, step_pace, step_pace->flops, step_pace->tokens, gemm_flops / gemm };
    const bool quiet = step->json && strcmp(step->json, "-") == 0;
    if (!quiet) {
        say(stdout, 0, "gemm %d cubed, %s, backend %s: %.2f ms, at least %.2f; %.1f GFLOP/s",
            STEP_GEMM_SIZE, step->dtype,
            step->backend, 1e3 * gemm, 1e3 * step_least(step_pace->gemm, step_pace->rounds_alone), w.rate / 1e9);
        show_noise(&w);
        show_table(&w);
        show_dearer(step, step_pace);
        show_calls(step_pace);
        show_beside(step, step_pace);
        show_what_is_missing(&w);
    }
    return step->json ? step_write_json(&w, err) : OK;
}

static void show_head(const struct bench_step *step, const struct step_pace *step_pace)
{
    if (step->json != NULL && strcmp(step->json, "-") == 0) return;
    say(stdout, 0, "model %s, batch %lld x %lld tokens, %s, %d threads\nmedians of %d step%s after one that warms up, "
        "and of %d rounds over all rows,\nin at most about %g seconds", step_pace->model, (long long)step->batch,
        (long long)step_pace->tokens / step->batch,
        step->dtype, step->threads, step->runs, step->runs == 1 ? "" : "s", step->rounds, step->seconds);
    if (step->steal > 0) say(stdout, 0, "beside %d busy process%s", step->steal,
                             step->steal > 1 ? "es, each on a core of its own" : ", on a core of its own");
    fflush(stdout);
}

static void step_begin(void *context, const struct bench_step *step, const struct step_pace *step_pace)
{
    struct time_left *line = context;
    show_head(step, step_pace);
    time_left_begin(line);
}

static void show_part(void *context, double part) { time_left_show(context, part, "measuring", ""); }

static enum error_code bench_step(struct bench_step *step, const char *program, struct error *err)
{
    static struct step_pace pace;
    struct time_left line = { 0 };
    const struct step_listener listener = { &line, step_begin, show_part };
    enum error_code e = step_measure(step, program, &listener, &pace, err);
    time_left_end(&line);
    return e ? e : bench_step_show(step, &pace, err);
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
    const char *arithmetic = exact_rule_names[SUMS_ROUND];
    int batch = 0;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &b.model, .help = "a preset" },
        { "--batch", "N", OPTION_INT, &batch, .min = 1, .max = 1e6,
          .help = "sequences; default: the preset's, but at least 8, so that every mesh fits" },
        { "--runs", "N", OPTION_INT, &b.runs, .min = 1, .max = STEP_MOST_RUNS,
          .help = "steps per measurement, after one that warms up; the median counts" },
        { "--rounds", "N", OPTION_INT, &b.rounds, .min = 1, .max = STEP_MOST_ROUNDS,
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
        { "--arithmetic", "NAME", OPTION_CHOICE, &arithmetic, .choices = exact_rule_names,
          .help = "exact, exact2: sums round once (docs/checking/exact.md), beside a step of one device without them" },
        { "--steal", "N", OPTION_INT, &b.steal, .max = STEAL_MOST,
          .help = "busy processes beside all that is measured, each on a core of its own: a noisy neighbour" },
        THREADS_OPTION,
        { "--json", "FILE", OPTION_STRING, &b.json, .help = "every row as JSON; - for stdout, without the table" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench step", "[options]", "Measure the speed of a training step, and this machine's limit in the same run.",
        argc - 3, argv + 3, table, &help, err);
    if (!e && !help) e = check_backend("--backend", b.backend, err);
    if (!e && !help && b.beside) e = check_backend("--beside", b.beside, err);
    if (e || help) return e;
    b.batch = batch, b.exact = exact_rule_named(arithmetic);
    return bench_step(&b, argv[0], err);
}
