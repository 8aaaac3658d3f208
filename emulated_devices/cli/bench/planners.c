/* planners.c -- `orrery bench planners`: what the papers of planners claim, beside what is computed here, and whether
 * the direction is theirs.  bench.c calls bench_planners_topic().  ERR_CHECK: a direction is not the paper's; other
 * errors are those of plans. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/plan.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include "emulated_devices/search/layers/holmes.h"
#include "emulated_devices/search/layers/pipette.h"
#include "emulated_devices/search/layers/released.h"
#include "emulated_devices/search/planner.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The claims of a run, as rows of a table. */
struct planner_claims { struct table table; int against; };

static void add_claim(struct planner_claims *claims, const char *of, const char *claim, const char *published,
                      const char *ours, bool holds)
{
    table_row(&claims->table, "%s\t%s\t%s\t%s\t%s", of, claim, published, ours, holds ? "the same" : "ANOTHER");
    claims->against += !holds;
}

#define WORDS(...) (const char *const []){ __VA_ARGS__ }, sizeof (const char *const []){ __VA_ARGS__ } / sizeof (char *)

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* A model's table, and plans of it. */
struct bench_table { struct train_options options; struct layer_table table; };

static enum error_code bench_table_open(struct bench_table *bench, int devices, int micros, const char *const word[],
                                        size_t words, struct error *err)
{
    enum error_code e = train_parse(&bench->options, &run_plan, (int)words, (char **)(uintptr_t)word, err);
    const struct plan_space space = { .base = &bench->options.plan, .devices = devices };
    if (!e) e = layer_table_make(&bench->table, &space, micros, NULL, err);
    if (e) train_options_free(&bench->options);
    return e;
}

static void bench_table_close(struct bench_table *bench)
{
    layer_table_free(&bench->table);
    train_options_free(&bench->options);
}

static enum error_code bench_solve(const struct bench_table *bench, const char *name, uint64_t memory,
                                   struct layer_search *search, struct error *err)
{
    const struct planner *planner;
    *search = (struct layer_search){ .table = &bench->table, .memory = memory, .seed = 1 };
    enum error_code e = planner_find(&planner, name, err);
    if (!e) e = planner->solve(search, err);
    if (!e && !search->found) e = fail(err, ERR_CHECK, "%s finds no plan that fits", name);
    return e;
}

/* The planned step of what a planner has found. */
static enum error_code bench_step(const struct bench_table *bench, const struct layer_search *search,
                                  picoseconds *time, struct error *err)
{
    struct candidate candidate = { .time = 0 };
    struct sections sections;
    struct plan plan;
    enum error_code e = layer_plan_sections(&bench->table, &search->best, &bench->options.plan, &plan, &sections, err);
    if (e) return e;
    e = search_plan(&plan, &candidate, err);
    sections_free(&sections);
    *time = candidate.time;
    return e;
}

/* ---- strategies by layer ----------------------------------------------------------------------------------------- */

/* The best plan whose layers are all alike, by the table. */
static void note_alike(const struct layer_table *table, uint64_t memory, picoseconds *best)
{
    for (int s = 0; s < table->strategies; s++) {
        struct layer_verdict v;
        struct layer_plan plan;
        if (!layer_plan_evenly(table, table->strategy[s].devices, &plan)) continue;
        for (int l = 0; l < table->layers; l++) plan.strategy[l] = s;
        if (layer_plan_judge(table, &plan, &v) && v.memory <= memory && (*best == 0 || v.time < *best)) *best = v.time;
    }
}

/* Galvatron's own search of its repository, with strategies by layer and with one for all: 2.6485 and 2.5246 samples a
 * second.  Its machine's profile is not here; the model, the memory and the batch are. */
static enum error_code claim_by_layer(struct planner_claims *claims, struct error *err)
{
    static const uint64_t memory = (uint64_t)36 << 30;
    struct bench_table bench;
    struct layer_search found;
    picoseconds alike = 0;
    char ours[60];
    enum error_code e = bench_table_open(&bench, 8, 8, WORDS("--model", "llama3-8b:L=28", "--dtype", "bf16", "--seq",
                                         "8192", "--batch", "64", "--cluster", "a100-node"), err);
    if (e) return e;
    note_alike(&bench.table, memory, &alike);
    e = bench_solve(&bench, "alpa", memory, &found, err);
    if (!e) {
        const double gain = 100 * ((double)alike / (double)found.verdict.time - 1);
        snprintf(ours, sizeof ours, "%.1f %%", gain);
        add_claim(claims, "Galvatron", "strategies by layer, not one for all layers, gain in samples a second", "4.9 %",
                  ours, alike > 0 && gain > 0);
    }
    layer_search_free(&found);
    bench_table_close(&bench);
    return e;
}

/* TensorOpt: cost estimates are accurate; Alpa: plans are as good as hand-made ones. */
static enum error_code claim_estimates(struct planner_claims *claims, struct error *err)
{
    static const char *const planners[] = { "alpa", "tensoropt", "galvatron", "holmes" };
    enum { COUNT = sizeof planners / sizeof *planners };
    struct bench_table bench;
    struct layer_search found;
    struct plan_numbers hand;
    picoseconds step, alpa = 0;
    double worst = 0;
    char ours[60];
    enum error_code e = bench_table_open(&bench, 8, 8, WORDS("--model", "small", "--batch", "64"), err);
    if (e) return e;
    for (int i = 0; i < COUNT && !e; i++) {
        e = bench_solve(&bench, planners[i], (uint64_t)8 << 20, &found, err);
        if (!e) e = bench_step(&bench, &found, &step, err);
        if (!e) worst = fmax(worst, fabs((double)found.verdict.time / (double)step - 1));
        if (!e && i == 0) alpa = step;
        layer_search_free(&found);
    }
    snprintf(ours, sizeof ours, "within %.1f %%", 100 * worst);
    if (!e) add_claim(claims, "TensorOpt", "the time of a plan is estimated well", "accurate", ours, worst < 0.1);
    /* By hand, as Megatron-LM's users do: parts of layers in a node, copies between nodes. */
    if (!e) e = train_plan_words(&hand, 14, (const char *const []){ "--model", "small", "--batch", "64", "--micro", "8",
                                 "--tp", "4", "--dp", "2", "--tensor", "1d-sp", "--zero", "1" }, err);
    const double times = e ? 0 : hand.speed.seconds / (1e-12 * (double)alpa);
    snprintf(ours, sizeof ours, "%.2f times as fast", times);
    if (!e) add_claim(claims, "Alpa", "plans match or outperform plans by hand (tp 4 in a node, dp 2)", ">= 1", ours,
                      times >= 1);
    bench_table_close(&bench);
    return e;
}

/* ---- Pipette ----------------------------------------------------------------------------------------------------- */

/* Both latencies beside 1F1B on the clock of schedules; errors as a simulation of the paper's point has them. */
static enum error_code claim_latency(struct planner_claims *claims, struct error *err)
{
    static const struct { int p, m, hop; const char *published; } cases[] = {
        { 4, 32, 100, "-0.4 %, -4.2 %" }, { 8, 64, 100, "-0.5 %, -4.9 %" }, { 4, 32, 500, "-1.5 %, -17.6 %" },
        { 8, 64, 500, "-2.2 %, -20.0 %" },
    };
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !e; i++) {
        const struct schedule_request request = { .devices = cases[i].p, .micros = cases[i].m, .chunks = 1 };
        const double hops = 2. * (cases[i].p - 1) * cases[i].hop;
        struct schedule schedule;
        struct timing timing;
        char claim[120], ours[60];
        e = schedule_make(&schedule, "1f1b", &request, err);
        if (e) break;
        e = schedule_time_evenly(&timing, &schedule, (struct even_times){ 1000, 1000, 1000, cases[i].hop, 0 }, err);
        if (!e) {
            const double exact = (double)timing.makespan,
                         ours_off = pipette_latency(cases[i].p, cases[i].m, 3000, hops, 0) / exact - 1,
                         amp_off = amp_latency(cases[i].p, cases[i].m, 3000, hops, 0) / exact - 1;
            snprintf(claim, sizeof claim, "latency off 1F1B, Pipette's and AMP's: p %d, m %d, hop %g of a forward pass",
                     cases[i].p, cases[i].m, 1e-3 * cases[i].hop);
            snprintf(ours, sizeof ours, "%.1f %%, %.1f %%", 100 * ours_off, 100 * amp_off);
            add_claim(claims, "Pipette", claim, cases[i].published, ours, fabs(ours_off) < fabs(amp_off));
            timing_free(&timing);
        }
        schedule_free(&schedule);
    }
    return e;
}

/* Placing the units of a pipeline on drawn rates, beside their order. */
static enum error_code claim_placing(struct planner_claims *claims, struct error *err)
{
    enum { UNITS = 8, MATRICES = 20 };
    double rate[UNITS * UNITS], gain = 0;
    char ours[60];
    (void)err;
    for (int n = 0; n < MATRICES; n++) {
        const struct layer_table table = { .devices = UNITS, .bandwidth = rate };
        const struct placing placing = { &table, 4, 2, 1, 1000, 5000, 4 };
        int place[UNITS];
        for (int i = 0; i < UNITS * UNITS; i++) rate[i] = 1 + 9 * random_uniform((uint64_t)n, 101, (uint64_t)i);
        for (int i = 0; i < UNITS; i++) place[i] = i;
        const double order = placing_time(&placing, place);
        gain += order / placing_anneal(&placing, (uint64_t)n, place) / MATRICES;
    }
    snprintf(ours, sizeof ours, "%.2f times as fast", gain);
    add_claim(claims, "Pipette", "messages of 8 units on unequal links, placed by annealing and in order", "faster",
              ours, gain > 1);
    return OK;
}

/* ---- Holmes ------------------------------------------------------------------------------------------------------ */

/* Bytes over links between nodes, of all devices. */
struct slow_bytes { uint64_t data, pipeline; };

static enum error_code note_slow(struct trainer *trainer, void *context, struct error *err)
{
    struct slow_bytes *const slow = context;
    const int level = trainer->plan.cluster->levels - 1;
    (void)err;
    slow->data += ledger_kind(&trainer->comm->counted, TRAFFIC_DATA).level[level].bytes;
    slow->pipeline += ledger_kind(&trainer->comm->counted, TRAFFIC_PIPELINE).level[level].bytes;
    return OK;
}

static enum error_code claim_slow_link(struct planner_claims *claims, struct error *err)
{
    struct train_options options;
    struct slow_bytes slow = { 0, 0 };
    struct dry_run d;
    char ours[60], published[60];
    enum error_code e = train_parse(&options, &run_plan, 10, (char **)(uintptr_t)(const char *const []){
                                    "--model", "llama-tiny:L=4", "--batch", "16", "--micro", "4", "--dp",
                                    "4", "--pp", "2" }, err);
    if (!e) e = dry_run(&options.plan, 1, true, NULL, NULL, note_slow, &slow, &d, err);
    if (!e) {
        const struct plan *const p = &options.plan;
        /* m x b x s x h elements forward, and as many back. */
        const uint64_t there_and_back = 2 * (uint64_t)(p->B * p->S * p->model.D) * dtype_size(p->dtype);
        snprintf(published, sizeof published, "0, %llu", (unsigned long long)there_and_back);
        snprintf(ours, sizeof ours, "%llu, %llu", (unsigned long long)slow.data, (unsigned long long)slow.pipeline);
        add_claim(claims, "Holmes", "bytes between nodes with a stage on each: copies', the pipeline's 2 m b s h",
                  published, ours, slow.data == 0 && slow.pipeline == there_and_back);
    }
    train_options_free(&options);
    return e;
}

static enum error_code claim_cuts(struct planner_claims *claims, struct error *err)
{
    static const int speed[] = { 197, 160 }, layers[] = { 30, 48 }, shipped[] = { 16, 26 };
    (void)err;
    for (int i = 0; i < 2; i++) {
        int first[3];
        char claim[100], published[40], ours[40];
        holmes_split(layers[i], 2, speed, 1, first);
        snprintf(claim, sizeof claim, "%d layers on stages that are as fast as 197 and 160", layers[i]);
        snprintf(published, sizeof published, "%d, %d", shipped[i], layers[i] - shipped[i]);
        snprintf(ours, sizeof ours, "%d, %d", first[1], layers[i] - first[1]);
        add_claim(claims, "Holmes", claim, published, ours, first[1] == shipped[i]);
    }
    return OK;
}

/* ---- Frontier ---------------------------------------------------------------------------------------------------- */

/* Speed of a device with layers of the 22B model in parts, without copies: 2 devices share a chip, 8 a node. */
static enum error_code claim_frontier(struct planner_claims *claims, struct error *err)
{
    static const char *const tp[] = { "2", "4", "8", "16" };
    double speed[4];
    char ours[60];
    enum error_code e = OK;
    for (int i = 0; i < 4 && !e; i++) {
        struct plan_numbers n;
        e = train_plan_words(&n, 16, (const char *const []){ "--model", "gpt2:L=4,H=48,D=6144,F=24576,V=51200", "--seq",
                             "2048", "--batch", "8", "--micro", "8", "--dtype", "bf16", "--cluster", "frontier",
                             "--tensor", "1d", "--tp", tp[i] }, err);
        speed[i] = e ? 0 : 1 / (n.speed.seconds * atoi(tp[i]));
    }
    if (e) return e;
    snprintf(ours, sizeof ours, "1, %.2f, %.2f, %.2f", speed[1] / speed[0], speed[2] / speed[0], speed[3] / speed[0]);
    const bool holds = speed[0] > speed[1] && speed[1] >= speed[2] && speed[2] > 1.5 * speed[3];
    add_claim(claims, "Frontier", "speed of a device with tp 2, 4, 8, 16 (the paper: 38.38 % of the peak with 22B)",
              "2 > 4 ~ 8 >> 16", ours, holds);
    return OK;
}

/* ---- what released formulas miss --------------------------------------------------------------------------------- */

/* Galvatron's time of a pipeline whose second stage is slow, and 1F1B's on the clock of schedules. */
static enum error_code claim_slow_stage(struct planner_claims *claims, struct error *err)
{
    static const int64_t forward[] = { 1, 1, 1, 1 }, back[] = { 1, 2, 1, 1 }, weight[] = { 1, 2, 1, 1 };
    static const double pass[] = { 3, 5, 3, 3 };
    const struct schedule_request request = { .devices = 4, .micros = 8, .chunks = 1 };
    struct schedule schedule;
    struct timing timing;
    char ours[60];
    enum error_code e = schedule_make(&schedule, "1f1b", &request, err);
    if (e) return e;
    e = schedule_time(&timing, &schedule, &(struct schedule_times){ forward, back, weight, 0, 0 }, err);
    if (!e) {
        const double estimate = galvatron_pipeline(4, 8, pass, pass);
        snprintf(ours, sizeof ours, "%g; 1F1B %lld", estimate, (long long)timing.makespan);
        add_claim(claims, "Galvatron", "8 microbatches on stages of 3, 5, 3 and 3: it misses the slow stage", "35",
                  ours, estimate == 35 && timing.makespan > 35);
        timing_free(&timing);
    }
    schedule_free(&schedule);
    return e;
}

/* MindSpore's order of an all-to-all and an all-gather, and what a device sends, there and back. */
static enum error_code claim_redistribution(struct planner_claims *claims, struct error *err)
{
    const double whole = 4, n = 4, all_to_all = mindspore_all_to_all_cost(whole, 4),
                 gather = mindspore_gather_cost(whole, 4), sent = 2 * whole / n * (n - 1) / n,
                 gathered = 2 * whole / n * (n - 1);
    char ours[60];
    (void)err;
    snprintf(ours, sizeof ours, "%g > %g MiB; sent %g < %g", all_to_all, gather, sent, gathered);
    add_claim(claims, "MindSpore", "rows to columns by all-to-all, by all-gather: not in the order of bytes",
              "4 > 2.5 MiB", ours, all_to_all == 4 && gather == 2.5 && sent < gathered);
    return OK;
}

/* Alpa's program for twelve products: the least is a sum of all weights' gradients, and no stream. */
static enum error_code claim_products(struct planner_claims *claims, struct error *err)
{
    const struct alpa_products products = { 12, 1024, 128, { 4, 1 }, 1, { 1, 1 } };
    const double sum = alpa_collective_cost(ALPA_ALL_REDUCE, 4, 1, 1, 4 * 128 * 128);
    struct bench_table bench;
    memset(&bench, 0, sizeof bench);
    struct layer_search found;
    char ours[60];
    enum error_code e = alpa_products_table(&bench.table, &products, err);
    if (e) return e;
    e = bench_solve(&bench, "integer", 0, &found, err);
    if (!e) {
        const double sums = 1e-3 * (double)found.verdict.time / sum;
        snprintf(ours, sizeof ours, "%.3f", sums);
        add_claim(claims, "Alpa", "12 products on 4 devices, batch 1024, width 128: sums of gradients", "12", ours,
                  fabs(sums - 12) < 0.012);
    }
    layer_search_free(&found);
    layer_table_free(&bench.table);
    return e;
}

/* ---- the topic --------------------------------------------------------------------------------------------------- */

static enum error_code measure_claims(struct planner_claims *claims, struct error *err)
{
    static enum error_code (*const all[])(struct planner_claims *, struct error *) = {
        claim_by_layer, claim_estimates, claim_latency, claim_placing, claim_slow_link, claim_cuts, claim_frontier,
        claim_slow_stage, claim_redistribution, claim_products,
    };
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !e; i++) e = all[i](claims, err);
    return e;
}

enum error_code bench_planners_topic(int argc, char **argv, int *status, struct error *err)
{
    bool help;
    const struct option table[] = { { 0 } };
    (void)status;
    enum error_code e = parse_command("bench planners", "",
                                      "What the papers of planners claim, beside what is computed here: on this "
                                      "program's clock, and the\nmodels and machines that it has. Exit status 3 if a "
                                      "direction is not the paper's.", argc - 3, argv + 3, table, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    struct planner_claims claims = { table_start("claims", 2, "system\tclaim\tpublished\tours\tdirection"), 0 };
    e = measure_claims(&claims, err);
    if (e) return table_drop(&claims.table), e;
    table_end(&claims.table);
    if (claims.against > 0) return fail(err, ERR_CHECK, "%d of these directions are not the papers'", claims.against);
    say_verdict(stdout, GOOD_NEWS, "OK: every direction is the papers'");
    return OK;
}
