/* attention.c -- `orrery bench attention`: the attention schemes for one layer side by side, the claims of papers, and
 * the wall time of eight devices beside that of one.  cli/bench/bench.c calls bench_attention_topic().  Errors:
 * ERR_USAGE for flags that do not fit, ERR_PLAN for a scheme that does not, and those of a job. */
#include "emulated_devices/bench/schemes/attention.h"
#include "emulated_devices/cli/bench/claims_table.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/time_left.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 16, WALL_DEVICES = 8 };

/* The words as typed. */
struct asked {
    struct attention_job job;           /* of each number of devices */
    const char *devices, *dtype;
    int B, S, H, K, A, wall, size[LIST], sizes;
    bool quiet, claims;
};

static enum error_code attention_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    struct attention_job *j = &asked->job;
    const struct option table[] = {
        { "--seq", "S", OPTION_INT, &asked->S, .min = 1, .max = 1 << 20, .help = "tokens in a sequence" },
        { "--batch", "B", OPTION_INT, &asked->B, .min = 1, .max = 4096, .help = "sequences" },
        { "--heads", "H", OPTION_INT, &asked->H, .min = 1, .max = 1024, .help = "query heads" },
        { "--kv-heads", "K", OPTION_INT, &asked->K, .min = 0, .max = 1024,
         .help = "key/value heads; 0: as query heads" },
        { "--head-width", "A", OPTION_INT, &asked->A, .min = 2, .max = 1024, .help = "of each head" },
        { "--devices", "N,N", OPTION_STRING, &asked->devices, .help = "that share each sequence" },
        { "--node", "N", OPTION_INT, &j->node, .min = 0, .max = 4096,
          .help = "devices of a node; 0: as the cluster says" },
        { "--dtype", "NAME", OPTION_CHOICE, &asked->dtype, .choices = number_formats, .help = "number format" },
        CLUSTER_OPTION(j->cluster, "whose virtual times are shown"),
        { "--scheme", "NAME", OPTION_STRING, &j->scheme, .help = "only this one; default: all" },
        CONTEXT_SPLIT_OPTIONS(j->split),
        { "--claims", NULL, OPTION_BOOL, &asked->claims,
         .help = "also run what papers compare, on two levels of links" },
        { "--wall", "S", OPTION_INT, &asked->wall, .min = 0, .max = 1 << 20,
          .help = "also compute sequences of S tokens on 8 devices and on one, by the wall clock; 0: not" },
        { "--runs", "N", OPTION_INT, &j->runs, .min = 0, .max = BENCH_ATTENTION_RUNS,
          .help = "repeats by the wall clock; the median is shown" },
        THREADS_OPTION,
        { "--quiet", NULL, OPTION_SWITCH, &asked->quiet, .help = "no tables" },
        { "--json", "FILE", OPTION_STRING, &j->json, .help = "every row as JSON; - for stdout, without the tables" },
        { 0 }
    };
    return parse_command(
        "bench attention", "[options]",
        "Compare the attention schemes for one layer, forward and backward, on nodes with fast links inside:\n"
        "virtual time, what is sent, and memory; what papers claim, and where it does not help; and the\n"
        "wall time of 8 devices on this machine beside that of one.", argc - 3, argv + 3, table, help, err);
}

static enum error_code attention_take(struct asked *asked, struct error *err)
{
    struct attention_job *j = &asked->job;
    const struct attention_scheme *s;
    if (asked->K == 0) asked->K = asked->H;
    if (asked->H % asked->K != 0)
        return fail(err, ERR_USAGE, "--kv-heads %d: does not divide --heads %d", asked->K, asked->H);
    j->B = asked->B, j->S = asked->S, j->H = asked->H, j->K = asked->K, j->A = asked->A;
    j->dtype = dtype_by_name(asked->dtype);
    /* The report on the standard output takes the place of the tables; with --quiet there are no claims. */
    asked->claims = asked->claims && !asked->quiet;
    asked->quiet = asked->quiet || (j->json && strcmp(j->json, "-") == 0);
    enum error_code e = j->scheme ? attention_scheme_find(&s, j->scheme, err) : OK;
    if (!e) e = bench_devices(asked->devices, BENCH_ATTENTION_DEVICES, LIST, asked->size, &asked->sizes, err);
    return e;
}

/* With the asked number of devices in a node. */
static enum error_code find_cluster(struct cluster *cluster, const struct attention_job *job, int P, struct error *err)
{
    const enum error_code e = cluster_find(cluster, job->cluster, err);
    if (e) return e;
    if (job->node > 0 && cluster->levels != 2)
        return fail(err, ERR_USAGE, "--node %d: --cluster %s must have two levels of links", job->node, cluster->name);
    if (job->node > 0) cluster->link[0].devices = job->node;
    return cluster_check(cluster, P, job->dtype, err);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void attention_print_head(const struct asked *asked, const struct cluster *cluster)
{
    char nodes[32] = "";
    if (cluster->levels > 1) snprintf(nodes, sizeof nodes, ", nodes of %d", cluster->link[0].devices);
    say(stdout, 0, "Attention of one layer, forward and backward: %d sequence%s of %d tokens, %d query heads,\n"
        "%d key/value heads, width %d, %s, on %s%s.\n"
        "Virtual time, and how many times faster than one device; of the device with most: what it sends,\n"
        "MB of this to other nodes, and memory at the peak.\n",
        asked->B, plural(asked->B), asked->S, asked->H, asked->K, asked->A, asked->dtype, cluster->name, nodes);
}

static void say_rows(struct table *table, const struct attention_rows *rows, int P, double *one)
{
    for (int i = 0; i < rows->used; i++) {
        const struct attention_row *r = &rows->row[i];
        const double *c = r->count;
        if (P == 1 && i > 0) break;     /* all are the same */
        if (P == 1) *one = c[COUNT_TIME];
        char times[16] = "";
        if (*one > 0) snprintf(times, sizeof times, "%.2f", *one / c[COUNT_TIME]);
        table_row(table, "%d\t%s\t%.1f\t%.1f\t%s\t%.0f\t%.3f\t%.3f\t%.3f", P,
                  P == 1 ? "one device" : r->scheme->head.name,
                  c[COUNT_TIME] * 1e-6, c[COUNT_FORWARD] * 1e-6, times, c[COUNT_MESSAGES], c[COUNT_BYTES] * 1e-6,
                  c[COUNT_BETWEEN] * 1e-6, c[COUNT_MEMORY] * 1e-6);
    }
}

static void attention_add_rows(cJSON *list, const struct attention_rows *rows, int P)
{
    for (int i = 0; i < rows->used; i++) {
        cJSON *row = json_add(json_row(list), "devices %d scheme %s", P, rows->row[i].scheme->head.name);
        for (int k = 0; k < ATTENTION_COUNTS; k++)
            cJSON_AddNumberToObject(row, attention_count_name[k], rows->row[i].count[k]);
    }
}

/* Nothing is computed: virtual time needs no numbers. */
static enum error_code attention_compare(const struct asked *asked, char *program, cJSON *list, int *status,
                                         struct error *err)
{
    struct cluster m;
    double one = 0;
    struct table t = table_start(NULL, 2, "P\tscheme\tus\tforward\tx\tmessages\tMB\tbetween\tpeak MB");
    enum error_code e = find_cluster(&m, &asked->job, 1, err);
    if (!e) e = set_backend("count", err);
    if (!e && !asked->quiet) attention_print_head(asked, &m);
    struct time_left line;
    time_left_begin(&line);
    for (int i = 0; i < asked->sizes && !e && *status == 0; i++) {
        static struct attention_rows rows;
        struct attention_job j = asked->job;
        j.P = asked->size[i], j.runs = 0;
        e = attention_job_run(&rows, &j, program, status, err);
        if (e || *status != 0) break;
        say_rows(&t, &rows, j.P, &one);
        attention_add_rows(list, &rows, j.P);
        time_left_show(&line, (i + 1.0) / asked->sizes, "counting", "");
    }
    time_left_end(&line);
    if (asked->quiet) table_drop(&t);
    else table_end(&t);
    fflush(stdout);
    return e;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

/* Compute the claims of a file, print them unless nothing is printed, and add them to the report's sections. */
static enum error_code add_claims(const char *name, const struct claims_setting *setting, bool prints, cJSON *sections,
                                  struct error *err)
{
    struct claims claims;
    enum error_code e = claims_find(&claims, name, NULL, err);
    if (e) return e;
    e = claims_compute(&claims, setting, err);
    if (!e && (setting->status == NULL || *setting->status == 0)) {
        if (prints) claims_print(&claims, true);
        claims_add(&claims, sections);
    }
    claims_free(&claims);
    return e;
}

/* Run what papers compare, in bf16, on this cluster if a row names none, and plan steps of whole models that they
 * compare.  Both are given beside the papers' claims. */
static enum error_code compare_with_claims(const struct asked *asked, char *program, cJSON *root, int *status,
                                           struct error *err)
{
    const struct claims_setting setting = { .word = { "--cluster", asked->job.cluster }, .words = 2,
                                            .program = program, .status = status };
    const struct claims_setting planned = { .plan = train_plan_words };
    cJSON *const sections = cJSON_AddArrayToObject(root, "claims");
    if (!asked->quiet) printf("\n");
    const enum error_code e = add_claims("attention", &setting, !asked->quiet, sections, err);
    return e || *status != 0 ? e : add_claims("sequence-parallelism", &planned, !asked->quiet, sections, err);
}

/* ---- the wall clock ---------------------------------------------------------------------------------------------- */

static enum error_code time_it(const struct asked *asked, const char *scheme, int P, char *program, double *seconds,
                               int *status, struct error *err)
{
    static struct attention_rows rows;
    struct attention_job j = { .B = 1, .S = asked->wall, .H = 2, .K = 2, .A = 32, .P = P, .scheme = scheme,
                               .runs = asked->job.runs, .dtype = F32, .cluster = BENCH_CLUSTER };
    enum error_code e = attention_job_run(&rows, &j, program, status, err);
    if (!e && *status == 0 && rows.used == 0)
        e = fail(err, ERR_PLAN, "--wall %d: %s does not accept it on %d devices", asked->wall, scheme, P);
    if (!e && *status == 0) *seconds = rows.row[0].median;
    return e;
}

static enum error_code compare_by_wall_clock(const struct asked *asked, char *program, cJSON *root, int *status,
                                             struct error *err)
{
    double one = 0, all = 0;
    enum error_code e = set_backend("cpu", err);
    if (!e) e = time_it(asked, "whole", 1, program, &one, status, err);
    if (!e && *status == 0) e = time_it(asked, "ring-zigzag", WALL_DEVICES, program, &all, status, err);
    if (e || *status != 0) return e;
    json_add(root, "wall_seconds_one_device %g wall_seconds_ring_zigzag %g", one, all);
    if (!asked->quiet)
        say(stdout, 0,
            "\nBy the wall clock, on %d cores, median of %d: %d tokens, 2 heads of width 32, fp32.  ring-zigzag\n"
               "on %d devices takes %.3f s, one device takes %.3f s: %.2f times as long (goal: at most 1.5).",
               cores_usable(), asked->job.runs, asked->wall, WALL_DEVICES, all, one, all / one);
    return OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code bench(const struct asked *asked, char *program, int *status, struct error *err)
{
    cJSON *root = document_start("orrery bench attention"), *rows = cJSON_AddArrayToObject(root, "rows");
    enum error_code e = attention_compare(asked, program, rows, status, err);
    if (!e && *status == 0 && asked->claims) e = compare_with_claims(asked, program, root, status, err);
    if (!e && *status == 0 && asked->wall > 0 && asked->job.runs > 0)
        e = compare_by_wall_clock(asked, program, root, status, err);
    if (!e && *status == 0 && asked->job.json) e = json_write(asked->job.json, root, err);
    cJSON_Delete(root);
    return e;
}

enum error_code bench_attention_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .B = 1, .S = 65536, .H = 16, .A = 8, .devices = "1,4,8,16", .dtype = "bf16", .wall = 4096,
                       .claims = true, .job = { .cluster = BENCH_CLUSTER, .node = 4, .runs = 3 } };
    struct cluster m;
    bool help;
    enum error_code e = attention_parse(&a, argc, argv, &help, err);
    if (!e && !help) e = attention_take(&a, err);
    for (int i = 0; i < a.sizes && !e && !help; i++) e = find_cluster(&m, &a.job, a.size[i], err);
    if (e || help) return e;
    a.claims = a.claims && m.levels == 2;
    if (!under_launcher()) return bench(&a, argv[0], status, err);
    a.job.P = a.size[0];
    return be_a_device(a.job.dtype, &m, bench_attention_device, &a.job, err);
}
