/* dispatch.c -- `orrery bench dispatch`: what the expert schemes send for one layer with an even load, forward and
 * backward, on nodes; and what papers say of it, beside what is counted. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/schemes/dispatch_load_table.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/verify/cases/experts.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 32, MOST_ROWS = 64 };

/* Of each device; of a row the largest over the devices. */
enum { TIME, MESSAGES, BYTES, BETWEEN, ROWS, WRONG, COUNTS };
static const char *const count_name[COUNTS] = { "virtual_picoseconds", "messages", "bytes", "bytes_between_nodes",
                                                "rows_computed", "devices_unlike_formulas" };

struct asked {
    int devices, node, experts, choices, tokens, width, inner;
    const char *cluster, *json;
    bool quiet;
};

/* between: bytes between nodes of all devices. */
struct row { const struct expert_scheme *scheme; int ep, etp; double count[COUNTS], between; };

/* Rows that a device sends to others if so many of 100 choices are local. */
struct activation { int local; double sent; };
enum { ACTIVATIONS_SAID = 3 };

struct counted {
    const struct asked *asked;
    struct row row[MOST_ROWS];
    int rows;
    struct activation activation[ACTIVATIONS_SAID];
    struct load_row load[LOAD_ROWS];
};

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* All devices wait for messages of the others, so an error of one ends the job. */
static void schemes_dispatch_run(struct comm *world, struct expert_layer *layer, const struct cluster *cluster,
                                 double count[COUNTS])
{
    struct error err;
    struct account *counted = &world->counted.of[TRAFFIC_EXPERTS];
    enum error_code e = expert_layer_learn(layer, &err);
    *counted = (struct account){ 0 };
    comm_barrier(world);
    clock_restart(&world->device->clock, cluster, F64);
    if (!e) e = expert_layer_announce(layer, &err);
    if (!e) e = expert_layer_run(layer, &err);
    if (e) comm_give_up(world, &err);
    const struct traffic did = account_total(counted), cost = expert_layer_cost(layer);
    count[TIME] = (double)world->device->clock.now;
    count[MESSAGES] = (double)did.messages_sent, count[BYTES] = (double)did.bytes_sent;
    for (int level = 1; level < CLUSTER_LEVELS; level++) count[BETWEEN] += (double)did.level[level].bytes;
    count[ROWS] = (double)layer->routing.received;
    count[WRONG] = !traffic_equal(&did, &cost, -1) || !expert_layer_right(layer);
}

static enum error_code dispatch_add_row(struct counted *counted, struct comm *world,
                                        const struct expert_scheme *scheme, int etp, struct error *err)
{
    static struct expert_layer layer;
    const struct asked *a = counted->asked;
    const struct expert_shape shape = { a->experts, a->choices, a->tokens, a->width, a->inner,
                                        a->devices / etp, etp, 0, false, { 0 } };
    const struct cluster cluster = world->device->clock.cluster;
    double own[COUNTS] = { 0 }, all[MOST_DEVICES * COUNTS];
    struct error refused;
    enum error_code e = expert_layer_open(&layer, world, scheme, shape, &refused);
    const bool takes = e != ERR_PLAN;
    if (e && takes) *err = refused;
    e = comm_agree(world, takes ? e : OK, err);
    if (!e && takes) schemes_dispatch_run(world, &layer, &cluster, own);
    if (!e && takes) e = comm_bring(world, own, sizeof own, all, err);
    struct row *r = &counted->row[counted->rows];
    if (!e && takes && counted->rows < MOST_ROWS) *r = (struct row){ scheme, shape.ep, etp, { 0 }, 0 }, counted->rows++;
    for (int i = 0; i < COUNTS * world->size && !e && takes && world->rank == 0; i++) {
        r->count[i % COUNTS] = fmax(r->count[i % COUNTS], all[i]);
        if (i % COUNTS == BETWEEN) r->between += all[i];
    }
    expert_layer_close(&layer);
    return e;
}

/* Rows sent by speculative dispatch, whose choices are local to this part: 50 tokens, 2 choices of each. */
static enum error_code count_activation(struct activation *activation, struct comm *world, struct error *err)
{
    static struct expert_layer layer;
    const struct expert_shape shape = { 2 * world->size, 2, 50, 1, 1, world->size, 1, activation->local, false, { 0 } };
    const struct expert_scheme *s;
    enum error_code e = expert_scheme_find(&s, "speculative", err);
    if (!e) e = expert_layer_open(&layer, world, s, shape, err);
    e = comm_agree(world, e, err);
    if (!e) e = expert_layer_announce(&layer, err);
    for (int m = 0; m < world->size && !e; m++)
        activation->sent += m == world->rank ? 0 : (double)layer.routing.hop[0].sent[m];
    expert_layer_close(&layer);
    return e;
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static const struct row *dispatch_row_of(const struct counted *counted, const char *scheme, int etp)
{
    for (int i = 0; i < counted->rows; i++)
        if (strcmp(counted->row[i].scheme->head.name, scheme) == 0 && counted->row[i].etp == etp)
            return &counted->row[i];
    return NULL;
}

/* Of one of the four exchanges of rows: its messages; and its bytes, as a part of all rows that a device has. */
static double messages_of(const struct row *row) { return (row->count[MESSAGES] - row->ep + 1) / 4; }
static double dispatch_part_of(const struct counted *counted, const struct row *row)
{
    const struct asked *a = counted->asked;
    return (row->count[BYTES] - 4.0 * a->experts * (row->ep - 1)) / 4 / (8.0 * a->tokens * a->choices * a->width);
}

/* Rows that cross to other nodes, of all devices: a row a choice, or once to each node with experts of it. */
static double rows_crossing(const struct asked *asked, bool once)
{
    const struct expert_shape s = { asked->experts, asked->choices, asked->tokens, asked->width, asked->inner,
                                   asked->devices, 1, 0, false,
                                    { 0 } };
    double sum = 0;
    for (int device = 0; device < asked->devices; device++)
        for (int64_t i = 0; i < s.tokens; i++) {
            uint64_t nodes = (uint64_t)1 << device / asked->node;
            for (int64_t c = 0; c < s.k; c++) {
                int to = 0;
                while (expert_layer_choice(&s, device, i, c) >= interval_end(block_at(s.E, asked->devices, to))) to++;
                to /= asked->node;
                sum += once ? !(nodes >> to & 1) : to != device / asked->node;
                nodes |= (uint64_t)1 << to;
            }
        }
    return sum;
}

/* The same, counted: bytes between nodes, but those that the last device of each node tells the next one. */
static double rows_counted(const struct asked *asked, const struct row *r, bool once)
{
    const double nodes = asked->devices / asked->node, told = once ? asked->devices + nodes : asked->experts,
                 row = 4 * 8.0 * asked->width + (once ? 20.0 * asked->choices : 0);
    return (r->between - nodes * (asked->devices - 1) * 4 * told) / row;
}

static int add_claim(struct table *to, const char *what, const char *source, double said, double counted)
{
    const bool equal = fabs(said - counted) <= 1e-9 * fabs(said);
    table_row(to, "%s\t%.4g\t%.4g\t%s\t%s", what, said, counted, equal ? "==" : "DIFFERS", source);
    return !equal;
}

/* Local activation rates without and with prediction, of the paper's two models. */
static int add_activations(struct table *to, const struct counted *counted)
{
    const struct activation *a = counted->activation;
    int differ = 0;
    for (int i = 1; i < ACTIVATIONS_SAID && a->sent > 0; i++) {
        char what[64];
        snprintf(what, sizeof what, "rows saved if %d %% of the choices are local, not %d %%", a[i].local, a->local);
        differ += add_claim(to, what, i == 1 ? "Sem-MoE, arXiv:2503.04398: 49 %" : "the same: 57 %",
                              1 - (100 - a[i].local) / (100.0 - a->local), 1 - a[i].sent / a->sent);
    }
    return differ;
}

static enum error_code print_claims(const struct counted *counted, struct error *err)
{
    const struct asked *a = counted->asked;
    const double P = a->devices, m = a->node;
    const struct row *direct = dispatch_row_of(counted, "alltoall", 1),
        *hierarchical = dispatch_row_of(counted, "alltoall-2dh", 1),
                     *sliced = dispatch_row_of(counted, "alltoall", 2), *two = dispatch_row_of(counted, "two-step", 1);
    int differ = 0;
    if (a->tokens * a->choices % a->experts != 0 || a->experts % a->devices != 0) {
        printf("\n"),
            say(stdout, 0, "No claims: they are of an even load, and here experts do not get equally many rows.");
        return OK;
    }
    printf("\nWhat is said of an even load\n\n");
    struct table to = table_start(NULL, 1, "\tsaid\tcounted\t\tsource");
    if (direct) {
        differ += add_claim(&to, "messages of an all-to-all: P-1", "Tutel, arXiv:2206.03382", P - 1,
                            messages_of(direct));
        differ += add_claim(&to, "its bytes, of all rows: (P-1)/P", "the same", (P - 1) / P,
                            dispatch_part_of(counted, direct));
    }
    if (hierarchical && a->node > 1 && a->devices % a->node == 0) {
        differ += add_claim(&to, "messages by nodes of m: m + P/m - 2", "the same: 2DH", m + P / m - 2,
                              messages_of(hierarchical));
        differ += add_claim(&to, "its bytes: (m-1)/m + 1 - m/P", "the same", (m - 1) / m + 1 - m / P,
                              dispatch_part_of(counted, hierarchical));
    }
    /* along etp also the experts of rows, of 32 bits, and its counts */
    if (direct && sliced) {
        const double rows = (double)a->tokens * a->choices, more = (rows + 1) / (8 * rows * a->width);
        differ += add_claim(&to, "ep P/2 x etp 2 sends, of all rows: (P-2)/P + 1",
                              "MoE parallel folding, arXiv:2504.14960", (P - 2) / P + 1,
                                  dispatch_part_of(counted, sliced) - more);
    }
    if (direct && two && a->node < a->devices) {
        const double tokens = (double)a->devices * a->tokens;
        differ += add_claim(&to, "copies of a row that cross to other nodes", "a row a choice",
                              rows_crossing(a, false) / tokens, rows_counted(a, direct, false) / tokens);
        differ += add_claim(&to, "the same, once to each node with experts of it", "DeepSeek-V3, arXiv:2412.19437",
                              rows_crossing(a, true) / tokens, rows_counted(a, two, true) / tokens);
    }
    differ += add_activations(&to, counted);
    table_end(&to);
    return differ ? fail(err, ERR_CHECK, "bench dispatch: %d of these formulas do not hold", differ) : OK;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_counted(const struct counted *counted)
{
    const struct asked *a = counted->asked;
    say(stdout, 0,
        "Rows of one layer to their experts and back, forward and backward: %d experts, %d tokens of width %d on\n"
        "each device, %d choices of each, fp64, on %s, nodes of %d.  Of the device with most: virtual\n"
        "time, what it sends, KB of this to other nodes, and the rows that it computes.", a->experts, a->tokens,
        a->width, a->choices, a->cluster, a->node);
    printf("\n");
    struct table to = table_start(NULL, 3, "scheme\tep\tetp\tus\tmessages\tKB\tbetween\trows");
    for (int i = 0; i < counted->rows; i++) {
        const struct row *r = &counted->row[i];
        table_row(&to, "%s\t%d\t%d\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f", r->scheme->head.name, r->ep, r->etp,
               r->count[TIME] * 1e-6, r->count[MESSAGES], r->count[BYTES] / 1000, r->count[BETWEEN] / 1000,
               r->count[ROWS]);
    }
    table_end(&to);
}

static enum error_code dispatch_write_json(const struct counted *counted, struct error *err)
{
    cJSON *root = document_start("orrery bench dispatch"), *rows = cJSON_AddArrayToObject(root, "rows");
    for (int i = 0; i < counted->rows; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddItemToArray(rows, row);
        cJSON_AddStringToObject(row, "scheme", counted->row[i].scheme->head.name);
        cJSON_AddNumberToObject(row, "ep", counted->row[i].ep);
        cJSON_AddNumberToObject(row, "etp", counted->row[i].etp);
        for (int c = 0; c < COUNTS; c++) cJSON_AddNumberToObject(row, count_name[c], counted->row[i].count[c]);
    }
    dispatch_load_json(counted->load, root);
    const enum error_code e = json_write(counted->asked->json, root, err);
    cJSON_Delete(root);
    return e;
}

static enum error_code dispatch_report(const struct counted *counted, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < counted->rows && !e; i++)
        if (counted->row[i].count[WRONG] > 0)
            e = fail(err, ERR_CHECK, "%s, ep %d x etp %d: a device did not send what the formulas say, or has a wrong "
                     "result", counted->row[i].scheme->head.name, counted->row[i].ep, counted->row[i].etp);
    if (!e && !counted->asked->quiet) print_counted(counted), e = print_claims(counted, err);
    if (!e && !counted->asked->quiet) e = dispatch_load_print(counted->load, err);
    return !e && counted->asked->json ? dispatch_write_json(counted, err) : e;
}

static enum error_code bench_on(struct comm *world, const void *asked, struct error *err)
{
    static struct counted t;
    t = (struct counted){ .asked = asked, .activation = { { .local = 25 }, { .local = 62 }, { .local = 68 } } };
    enum error_code e = world->size == t.asked->devices ? OK
        : fail(err, ERR_USAGE, "bench: the launcher started %d processes; --devices is %d", world->size,
               t.asked->devices);
    for (int i = 0; expert_scheme_at(i) && !e; i++)
        for (int etp = 1; etp <= 2 && etp <= world->size && !e; etp++)
            if (expert_scheme_at(i)->cuts_experts && world->size % etp == 0)
                e = dispatch_add_row(&t, world, expert_scheme_at(i), etp, err);
    for (int i = 0; i < ACTIVATIONS_SAID && !e; i++) e = count_activation(&t.activation[i], world, err);
    const struct asked *a = t.asked;
    if (!e)
        e = dispatch_load_count(t.load, world, &(struct expert_shape){ .E = a->experts, .k = a->choices, .D = a->width,
                                .tokens = a->tokens, .F = a->inner }, err);
    if (!e && world->rank == 0) e = dispatch_report(&t, err);
    return comm_agree(world, e, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code schemes_dispatch_take(struct asked *asked, struct cluster *cluster, struct error *err)
{
    const enum error_code e = cluster_find(cluster, asked->cluster, err);
    if (e) return e;
    if (cluster->levels != 2) return fail(err, ERR_USAGE, "--cluster %s: must have two levels of links", cluster->name);
    if (asked->choices > asked->experts)
        return fail(err, ERR_USAGE, "--choices %d: there are only %d experts", asked->choices, asked->experts);
    cluster->link[0].devices = asked->node;
    asked->quiet = asked->quiet || (asked->json && strcmp(asked->json, "-") == 0);
    return cluster_check(cluster, asked->devices, F64, err);
}

enum error_code bench_dispatch_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .devices = 16, .node = 4, .experts = 32, .choices = 8, .tokens = 16, .width = 32, .inner = 64,
                       .cluster = BENCH_CLUSTER };
    struct cluster m;
    bool help;
    const struct option table[] = {
        { "--devices", "N", OPTION_INT, &a.devices, .min = 1, .max = MOST_DEVICES, .help = "that share the experts" },
        { "--node", "N", OPTION_INT, &a.node, .min = 1, .max = MOST_DEVICES, .help = "devices of a node" },
        { "--experts", "E", OPTION_INT, &a.experts, .min = 1, .max = 1024, .help = "of the layer" },
        { "--choices", "K", OPTION_INT, &a.choices, .min = 1, .max = 64, .help = "experts of each token" },
        { "--tokens", "N", OPTION_INT, &a.tokens, .min = 1, .max = 4096, .help = "of each device" },
        { "--width", "D", OPTION_INT, &a.width, .min = 1, .max = 4096, .help = "numbers of a row" },
        { "--inner", "F", OPTION_INT, &a.inner, .min = 1, .max = 4096,
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
        "count: virtual time, messages, bytes, bytes between nodes; what papers say of it; and how copies\n"
        "of experts even out an uneven load.",
        argc - 3, argv + 3, table, &help, err);
    if (!e && !help) e = schemes_dispatch_take(&a, &m, err);
    if (e || help) return e;
    return under_launcher() ? be_a_device(F64, &m, bench_on, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
