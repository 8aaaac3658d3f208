/* tensor.c -- `orrery bench tensor`: compares the schemes for one layer: predicted costs, the counts of devices that
 * compute it, and the papers' figures.  cli/bench/bench.c calls bench_tensor_topic().  Errors: ERR_USAGE for flags
 * that do not fit, ERR_CHECK if counts differ from predictions, and those of a job. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/schemes/tensor_tables.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words as typed. */
struct asked {
    const char *devices, *cluster, *dtype, *json;
    int D, H, S, B, run, runs;
    bool quiet;
};

static enum error_code tensor_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "--width", "D", OPTION_INT, &asked->D, .min = 1, .max = 65536, .help = "width of the stream" },
        { "--heads", "H", OPTION_INT, &asked->H, .min = 1, .max = 1024, .help = "attention heads, a divisor of D" },
        { "--seq", "S", OPTION_INT, &asked->S, .min = 1, .max = 1e6, .help = "tokens in a sequence" },
        { "--batch", "B", OPTION_INT, &asked->B, .min = 1, .max = 65536, .help = "sequences in a microbatch" },
        { "--devices", "N,N", OPTION_STRING, &asked->devices, .help = "sizes of the tp group" },
        { "--run", "N", OPTION_INT, &asked->run, .min = 0, .max = BENCH_TENSOR_RUN_DEVICES,
          .help = "groups of up to N devices also compute the layer; 0: none" },
        { "--runs", "N", OPTION_INT, &asked->runs, .min = 1, .max = BENCH_TENSOR_RUNS,
          .help = "runs of every scheme, in turn; the median is shown" },
        { "--dtype", "NAME", OPTION_CHOICE, &asked->dtype, .choices = number_formats, .help = "number format" },
        CLUSTER_OPTION(asked->cluster, "whose virtual times are shown"),
        THREADS_OPTION,
        { "--quiet", NULL, OPTION_SWITCH, &asked->quiet, .help = "no tables" },
        { "--json", "FILE", OPTION_STRING, &asked->json,
         .help = "every row as JSON; - for stdout, without the tables" },
        { 0 }
    };
    return parse_command(
        "bench tensor", "[options]",
        "Compare the tensor schemes for one layer and microbatch, forward and backward: costs predicted by\n"
        "formulas, costs counted in a real run, the sizes from which one scheme beats another beside the\n"
        "claims of papers, and the memory that a layer keeps beside the published figures.",
        argc - 3, argv + 3, table, help, err);
}

static enum error_code tensor_take(struct bench_tensor *tensor, struct asked *asked, struct error *err)
{
    asked->quiet = asked->quiet || (asked->json && strcmp(asked->json, "-") == 0);
    *tensor = (struct bench_tensor){ .shape = { "", asked->D, asked->H, asked->S, asked->B }, .run = asked->run,
                                    .runs = asked->runs,
                                .dtype = dtype_by_name(asked->dtype), .json = asked->json };
    if (asked->D % asked->H != 0)
        return fail(err, ERR_USAGE, "--heads %d: does not divide --width %d", asked->H, asked->D);
    enum error_code e = bench_devices(asked->devices, BENCH_TENSOR_DEVICES, BENCH_TENSOR_LIST, tensor->devices,
                                      &tensor->sizes, err);
    if (!e) e = cluster_find(&tensor->cluster, asked->cluster, err);
    for (int i = 0; i < tensor->sizes && !e; i++)
        e = cluster_check(&tensor->cluster, tensor->devices[i], tensor->dtype, err);
    return e;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void tensor_print_head(const struct bench_tensor *tensor)
{
    const struct tensor_shape *s = &tensor->shape;
    say(stdout, 0,
        "One layer and microbatch, forward and backward: N=%lld tokens in %lld sequences, D=%lld, H=%lld, F=4D,\n"
           "%s. By formula: sends of the device that sends most, MB of weights and of what is\n"
           "kept for backward, and the transfers' time one after another on %s.\n"
           "Counted, where the layer was computed: virtual time, the compute time in it, buffers, and\n"
           "wall time on %d cores, median of %d.\n",
           (long long)shape_tokens(s), (long long)s->B, (long long)s->D, (long long)s->H, dtype_name(tensor->dtype),
           tensor->cluster.name, cores_usable(), tensor->runs);
}

static double one_device(const struct tensor_counted *all)
{
    const struct tensor_row *r = tensor_row_of(all, 1, tensor_scheme_at(0)->head.name);
    return r ? r->median : NAN;
}

static void say_row(struct table *table, int P, const char *scheme, const struct tensor_figures *figures,
                    const struct tensor_row *row, double one)
{
    char counted[120] = "";
    int used = 0;
    if (row)
        used = snprintf(counted, sizeof counted, "\t%.1f\t%.1f\t%.2f\t%.1f", row->count[COUNT_VIRTUAL] * 1e-6,
                        row->count[COUNT_COMPUTING] * 1e-6, row->count[COUNT_BUFFERS] * 1e-6, 1e3 * row->median);
    if (row && one > 0)
        snprintf(counted + used, sizeof counted - (size_t)used, "\t%.*f",
                 row->median < 100 * one ? 2 : 0, row->median / one);
    table_row(table, "%d\t%s\t%llu\t%.3f\t%.3f\t%.3f\t%.1f%s", P, P > 1 ? scheme : "one device",
              (unsigned long long)figures->messages, (double)figures->bytes * 1e-6, (double)figures->weights * 1e-6,
              (double)figures->kept * 1e-6, (double)figures->transfers * 1e-6, counted);
}

static void tensor_add_row(cJSON *rows, int P, const char *scheme, const struct tensor_figures *figures,
                           const struct tensor_row *r, double one)
{
    cJSON *row = cJSON_CreateObject(), *said = cJSON_AddObjectToObject(row, "formulas");
    cJSON_AddItemToArray(rows, row);
    json_add(row, "devices %d scheme %s", P, scheme);
    json_add(said, "messages %g bytes %g mean_bytes %g weight_bytes %g kept_bytes %g transfer_picoseconds %g",
             (double)figures->messages, (double)figures->bytes, figures->mean, (double)figures->weights,
             (double)figures->kept, (double)figures->transfers);
    if (r == NULL) return;
    cJSON *counted = cJSON_AddObjectToObject(row, "counted");
    for (int i = 0; i < TENSOR_COUNTS; i++) cJSON_AddNumberToObject(counted, tensor_count_name[i], r->count[i]);
    json_add(counted, "median_seconds %g", r->median);
    if (one > 0) json_add(counted, "times_one_device %g", r->median / one);
}

/* Check that the counts equal the predictions on every device. */
static enum error_code check_row(const struct tensor_figures *figures, const struct tensor_row *row, struct error *err)
{
    if (row->count[COUNT_OTHER] == 0 && row->count[COUNT_MESSAGES] == (double)figures->messages &&
        row->count[COUNT_BYTES] == (double)figures->bytes)
        return OK;
    return fail(
        err, ERR_CHECK,
        "%s on %d devices: counted %.0f messages, %.0f bytes, %.0f bytes kept; the formulas say %llu, %llu, %llu",
        row->scheme, row->P, row->count[COUNT_MESSAGES], row->count[COUNT_BYTES], row->count[COUNT_KEPT],
        (unsigned long long)figures->messages, (unsigned long long)figures->bytes, (unsigned long long)figures->kept);
}

static enum error_code compare_schemes(const struct bench_tensor *tensor, const struct asked *asked,
                                       const struct tensor_counted *all, cJSON *rows, struct error *err)
{
    enum error_code e = OK, unlike = OK;
    struct table t = table_start(NULL, 2, "P\tscheme\tmessages\tsent MB\tweights MB\tkept MB\ttransfers us\tvirtual us"
                                          "\tcomputing us\tbuffers MB\twall ms\tx one");
    if (!asked->quiet) tensor_print_head(tensor);
    for (int n = 0; n < tensor->sizes && !e; n++)
        for (int i = 0; tensor_scheme_at(i) && !e; i++) {
            struct tensor_figures f;
            struct error why;
            const int P = tensor->devices[n];
            const char *name = tensor_scheme_at(i)->head.name;
            if (P == 1 && i > 0) break;
            e = tensor_predict(&f, tensor, &tensor->shape, tensor_scheme_at(i), P, &why);
            if (e == ERR_PLAN) {
                e = OK;
                continue;
            }
            if (e) return table_drop(&t), fail(err, e, "%s", why.text);
            const struct tensor_row *r = tensor_row_of(all, P, name);
            say_row(&t, P, name, &f, r, one_device(all));
            if (rows) tensor_add_row(rows, P, name, &f, r, one_device(all));
            if (r && !unlike) unlike = check_row(&f, r, err);
        }
    if (asked->quiet) table_drop(&t);
    else table_end(&t);
    return e ? e : unlike;
}

static cJSON *document(const struct bench_tensor *tensor)
{
    cJSON *root = json_add(document_start("orrery bench tensor"), "D %g H %g S %g B %g dtype %s cluster %s cores %d",
                           (double)tensor->shape.D, (double)tensor->shape.H, (double)tensor->shape.S,
                           (double)tensor->shape.B, dtype_name(tensor->dtype), tensor->cluster.name, cores_usable());
    cJSON_AddArrayToObject(root, "rows");
    return root;
}

static enum error_code tensor_compare(const struct bench_tensor *tensor, const struct asked *asked,
                                      char *program, int *status, struct error *err)
{
    struct tensor_counted all = { 0 };
    cJSON *root = tensor->json ? document(tensor) : NULL;
    enum error_code e = tensor_jobs_run(&all, tensor, asked->cluster, program, status, err);
    if (!e && *status == 0) {
        e = compare_schemes(tensor, asked, &all, cJSON_GetObjectItem(root, "rows"), err);
        if (!e && !asked->quiet) e = print_claims(tensor, err);
        if (!e && !asked->quiet) e = print_layer_memory(&tensor->shape, err);
        if (!e && tensor->json) e = json_write(tensor->json, root, err);
    }
    cJSON_Delete(root);
    free(all.row);
    return e;
}

enum error_code bench_tensor_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .D = 256, .H = 16, .S = 128, .B = 8, .devices = "1,2,4,8,9,16", .run = 9, .runs = 3,
                       .dtype = "fp32", .cluster = BENCH_CLUSTER };
    struct bench_tensor b;
    bool help;
    enum error_code e = tensor_parse(&a, argc, argv, &help, err);
    if (!e && !help) e = tensor_take(&b, &a, err);
    if (e || help) return e;
    return under_launcher() ? be_a_device(b.dtype, &b.cluster, bench_tensor_device, &b, err)
                            : tensor_compare(&b, &a, argv[0], status, err);
}
