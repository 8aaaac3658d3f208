/* dispatch.c -- `orrery bench dispatch`: what the expert schemes send for one layer with an even load, forward and
 * backward, on nodes; and what papers say of it, beside what is counted.  cli/bench/bench.c calls
 * bench_dispatch_topic().  Errors: ERR_USAGE for flags that do not fit, ERR_CHECK if a formula does not hold, and
 * those of a job. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/bench/schemes/dispatch.h"
#include "emulated_devices/cli/bench/schemes/dispatch_load_table.h"
#include "emulated_devices/cli/bench/schemes/dispatch_planned.h"
#include "emulated_devices/comm/comm.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct asked {
    struct dispatch_shape measures;
    const char *cluster, *json;
    bool quiet;
};

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static int add_claim(struct table *to, const char *what, const char *source, double said, double counted)
{
    const bool equal = fabs(said - counted) <= 1e-9 * fabs(said);
    table_row(to, "%s\t%.4g\t%.4g\t%s\t%s", what, said, counted, equal ? "==" : "DIFFERS", source);
    return !equal;
}

/* Local activation rates without and with prediction, of the paper's two models. */
static int add_activations(struct table *to, const struct dispatch_counted *counted)
{
    const struct dispatch_activation *a = counted->activation;
    int differ = 0;
    for (int i = 1; i < DISPATCH_ACTIVATIONS && a->sent > 0; i++) {
        char what[64];
        snprintf(what, sizeof what, "rows saved if %d %% of the choices are local, not %d %%", a[i].local, a->local);
        differ += add_claim(to, what, i == 1 ? "Sem-MoE, arXiv:2503.04398: 49 %" : "the same: 57 %",
                              1 - (100 - a[i].local) / (100.0 - a->local), 1 - a[i].sent / a->sent);
    }
    return differ;
}

static enum error_code print_claims(const struct dispatch_counted *counted, struct error *err)
{
    const struct dispatch_shape *a = counted->shape;
    const double P = a->devices, m = a->node;
    const struct dispatch_row *direct = dispatch_row_of(counted, "alltoall", 1);
    const struct dispatch_row *hierarchical = dispatch_row_of(counted, "alltoall-2dh", 1);
    const struct dispatch_row *sliced = dispatch_row_of(counted, "alltoall", 2),
        *two = dispatch_row_of(counted, "two-step", 1);
    int differ = 0;
    if (a->tokens * a->choices % a->experts != 0 || a->experts % a->devices != 0) {
        say(stdout, 0, "\nNo claims: they are of an even load, and here experts do not get equally many rows.");
        return OK;
    }
    printf("\nWhat is said of an even load\n\n");
    struct table to = table_start(NULL, 1, "\tsaid\tcounted\t\tsource");
    if (direct) {
        differ += add_claim(&to, "messages of an all-to-all: P-1", "Tutel, arXiv:2206.03382", P - 1,
                            dispatch_messages(direct));
        differ += add_claim(&to, "its bytes, of all rows: (P-1)/P", "the same", (P - 1) / P,
                            dispatch_part(counted, direct));
    }
    if (hierarchical && a->node > 1 && a->devices % a->node == 0) {
        differ += add_claim(&to, "messages by nodes of m: m + P/m - 2", "the same: 2DH", m + P / m - 2,
                              dispatch_messages(hierarchical));
        differ += add_claim(&to, "its bytes: (m-1)/m + 1 - m/P", "the same", (m - 1) / m + 1 - m / P,
                              dispatch_part(counted, hierarchical));
    }
    /* along etp also the experts of rows, of 32 bits, and its counts */
    if (direct && sliced) {
        const double rows = (double)a->tokens * a->choices, more = (rows + 1) / (8 * rows * a->width);
        differ += add_claim(&to, "ep P/2 x etp 2 sends, of all rows: (P-2)/P + 1",
                              "MoE parallel folding, arXiv:2504.14960", (P - 2) / P + 1,
                            dispatch_part(counted, sliced) - more);
    }
    if (direct && two && a->node < a->devices) {
        const double tokens = (double)a->devices * a->tokens;
        differ += add_claim(&to, "copies of a row that cross to other nodes", "a row a choice",
                            dispatch_rows_crossing(a, false) / tokens,
                            dispatch_rows_counted(a, direct, false) / tokens);
        differ += add_claim(&to, "the same, once to each node with experts of it", "DeepSeek-V3, arXiv:2412.19437",
                              dispatch_rows_crossing(a, true) / tokens, dispatch_rows_counted(a, two, true) / tokens);
    }
    differ += add_activations(&to, counted);
    table_end(&to);
    return differ ? fail(err, ERR_CHECK, "bench dispatch: %d of these formulas do not hold", differ) : OK;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_counted(const struct dispatch_counted *counted, const char *cluster)
{
    const struct dispatch_shape *a = counted->shape;
    say(stdout, 0,
        "Rows of one layer to their experts and back, forward and backward: %d experts, %d tokens of width %d on\n"
        "each device, %d choices of each, fp64, on %s, nodes of %d.  Of the device with most: virtual\n"
        "time, what it sends, KB of this to other nodes, and the rows that it computes.\n", a->experts, a->tokens,
        a->width, a->choices, cluster, a->node);
    struct table to = table_start(NULL, 3, "scheme\tep\tetp\tus\tmessages\tKB\tbetween\trows");
    for (int i = 0; i < counted->rows; i++) {
        const struct dispatch_row *r = &counted->row[i];
        table_row(&to, "%s\t%d\t%d\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f", r->scheme, r->ep, r->etp,
               r->count[DISPATCH_TIME] * 1e-6, r->count[DISPATCH_MESSAGES], r->count[DISPATCH_BYTES] / 1000,
               r->count[DISPATCH_BETWEEN] / 1000, r->count[DISPATCH_ROWS]);
    }
    table_end(&to);
}

static enum error_code dispatch_write_json(const struct dispatch_counted *counted,
                                           const struct dispatch_planned *planned, const char *path,
                                           struct error *err)
{
    cJSON *root = document_start("orrery bench dispatch"), *rows = cJSON_AddArrayToObject(root, "rows");
    for (int i = 0; i < counted->rows; i++) {
        cJSON *row = json_add(json_row(rows), "scheme %s ep %d etp %d", counted->row[i].scheme, counted->row[i].ep,
                              counted->row[i].etp);
        for (int c = 0; c < DISPATCH_COUNTS; c++)
            cJSON_AddNumberToObject(row, dispatch_count_names[c], counted->row[i].count[c]);
    }
    dispatch_load_json(counted->load, root);
    dispatch_planned_json(planned, root);
    return json_finish(path, root, err);
}

static enum error_code dispatch_report(const struct dispatch_counted *counted, const struct asked *asked,
                                       struct error *err)
{
    enum error_code e = OK;
    struct dispatch_planned planned;
    for (int i = 0; i < counted->rows && !e; i++)
        if (counted->row[i].count[DISPATCH_WRONG] > 0)
            e = fail(err, ERR_CHECK, "%s, ep %d x etp %d: a device did not send what the formulas say, or has a wrong "
                     "result", counted->row[i].scheme, counted->row[i].ep, counted->row[i].etp);
    if (!e && !asked->quiet) print_counted(counted, asked->cluster), e = print_claims(counted, err);
    if (!e && !asked->quiet) e = dispatch_load_print(counted->load, err);
    if (!e && (asked->json || !asked->quiet)) e = dispatch_planned_measure(&planned, err);
    if (!e && !asked->quiet) dispatch_planned_print(&planned);
    return !e && asked->json ? dispatch_write_json(counted, &planned, asked->json, err) : e;
}

static enum error_code bench_on(struct comm *world, const void *asked, struct error *err)
{
    static struct dispatch_counted t;
    enum error_code e = dispatch_measure(world, &((const struct asked *)asked)->measures, &t, err);
    if (!e && world->rank == 0) e = dispatch_report(&t, asked, err);
    return comm_agree(world, e, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code schemes_dispatch_take(struct asked *asked, struct cluster *cluster, struct error *err)
{
    const enum error_code e = cluster_find(cluster, asked->cluster, err);
    if (e) return e;
    if (cluster->levels != 2) return fail(err, ERR_USAGE, "--cluster %s: must have two levels of links", cluster->name);
    if (asked->measures.choices > asked->measures.experts)
        return fail(err, ERR_USAGE, "--choices %d: there are only %d experts", asked->measures.choices,
                    asked->measures.experts);
    cluster->link[0].devices = asked->measures.node;
    asked->quiet = asked->quiet || (asked->json && strcmp(asked->json, "-") == 0);
    return cluster_check(cluster, asked->measures.devices, F64, err);
}

enum error_code bench_dispatch_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .measures = { .devices = 16, .node = 4, .experts = 32, .choices = 8, .tokens = 16, .width = 32,
                                     .inner = 64 },
                       .cluster = BENCH_CLUSTER };
    struct cluster m;
    bool help;
    const struct option table[] = {
        { "--devices", "N", OPTION_INT, &a.measures.devices, .min = 1, .max = DISPATCH_MOST_DEVICES,
          .help = "that share the experts" },
        { "--node", "N", OPTION_INT, &a.measures.node, .min = 1, .max = DISPATCH_MOST_DEVICES,
          .help = "devices of a node" },
        { "--experts", "E", OPTION_INT, &a.measures.experts, .min = 1, .max = 1024, .help = "of the layer" },
        { "--choices", "K", OPTION_INT, &a.measures.choices, .min = 1, .max = 64, .help = "experts of each token" },
        { "--tokens", "N", OPTION_INT, &a.measures.tokens, .min = 1, .max = 4096, .help = "of each device" },
        { "--width", "D", OPTION_INT, &a.measures.width, .min = 1, .max = 4096, .help = "numbers of a row" },
        { "--inner", "F", OPTION_INT, &a.measures.inner, .min = 1, .max = 4096,
          .help = "width inside each expert, for schemes that may move weights" },
        CLUSTER_OPTION(a.cluster, "whose virtual times are shown"),
        THREADS_OPTION,
        { "--quiet", NULL, OPTION_SWITCH, &a.quiet, .help = "no tables" },
        { "--json", "FILE", OPTION_STRING, &a.json, .help = "every row as JSON; - for stdout, without the tables" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench dispatch", "[options]",
        "Send rows of one layer to experts and back, forward and backward, under every expert scheme, and\n"
        "count: virtual time, messages, bytes, bytes between nodes; what papers say of it; how copies of\n"
        "experts even out an uneven load; and whole steps, planned, under schemes that adapt to it.", argc - 3,
        argv + 3, table, &help, err);
    if (!e && !help) e = schemes_dispatch_take(&a, &m, err);
    if (e || help) return e;
    if (under_launcher()) return be_a_device(F64, &m, bench_on, &a, err);
    return launch_devices(a.measures.devices, argc, argv, status, err);
}
