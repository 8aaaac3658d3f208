/* cluster.c -- reads descriptions of clusters, finds them by name or file, and checks them against a mesh.
 *
 * device.c and the subcommands in cli/ call this file; cluster.h states the errors.  Input is JSON, output a struct
 * cluster in picoseconds and 10^6 bytes a second.  A file has nanoseconds, MB/s and GFLOP/s.  A key that is wrong is
 * ERR_FORMAT, and a mesh that does not fit is ERR_PLAN.
 */
#include "emulated_devices/device/cluster_keys.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 64 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Formats are keys as any other: a rate of an unknown one would be ignored. */
static enum error_code read_flops(int64_t flop_rate[DTYPE_COUNT], const cJSON *device, const char *where,
                                  struct error *err)
{
    const cJSON *rates;
    const char *formats[DTYPE_COUNT + 1] = { NULL };
    char inside[256];
    /* Without the table all formats take no time (0); with one, formats that it leaves out are not known (-1). */
    for (int t = 0; t < DTYPE_COUNT; t++) {
        flop_rate[t] = json_has(device, "GFLOP_per_second") ? -1 : 0;
        formats[t] = dtype_name(t);
    }
    if (!json_has(device, "GFLOP_per_second")) return OK;
    enum error_code e = json_object(device, where, "GFLOP_per_second", &rates, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: GFLOP_per_second", where);
    e = refuse_unknown(rates, inside, formats, err);
    for (int t = 0; t < DTYPE_COUNT && !e; t++) {
        if (!json_has(rates, formats[t])) continue;
        e = json_int(rates, inside, formats[t], 1, MOST_RATE / 1000, &flop_rate[t], err);
        /* A file has GFLOP/s; rates here are 10^6 operations a second. */
        flop_rate[t] *= 1000;
    }
    return e;
}

/* Devices may differ in speed: rank i has percent[i mod speeds] of the rates. */
static enum error_code read_percent(struct cluster *cluster, const cJSON *device, const char *where, struct error *err)
{
    const cJSON *list;
    if (!json_has(device, "percent")) return OK;
    enum error_code e = json_array(device, where, "percent", &list, err);
    if (e) return e;
    cluster->speeds = cJSON_GetArraySize(list);
    if (cluster->speeds < 1 || cluster->speeds > CLUSTER_MOST_SPEEDS)
        return fail(err, ERR_FORMAT, "%s: \"percent\" has %d speeds; it must have 1 to %d", where, cluster->speeds,
                    CLUSTER_MOST_SPEEDS);
    for (int i = 0; i < cluster->speeds; i++) {
        const double x = cJSON_GetNumberValue(cJSON_GetArrayItem(list, i));
        if (!(x >= 1 && x <= 100) || x != (int)x)
            return fail(err, ERR_FORMAT, "%s: percent[%d] must be a whole number from 1 to 100", where, i);
        cluster->percent[i] = (int)x;
    }
    return OK;
}

/* The device's rates and memory.  Its source is required, because a number without one cannot be checked. */
static enum error_code read_device(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = {
        "GFLOP_per_second", "memory_MB_per_second", "copy_MB_per_second", "memory_bytes", "percent", "source", NULL
    };
    const cJSON *device;
    char inside[200];
    int64_t memory = 0;
    enum error_code e = json_object(root, where, "device", &device, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: device", where);
    e = refuse_unknown(device, inside, known, err);
    if (!e) e = read_flops(cluster->flop_rate, device, inside, err);
    if (!e) e = read_number(device, inside, "memory_MB_per_second", MOST_RATE, 0, &cluster->memory_rate, err);
    if (!e) e = read_number(device, inside, "copy_MB_per_second", MOST_RATE, 0, &cluster->copy_rate, err);
    if (!e) e = read_number(device, inside, "memory_bytes", INT64_C(1) << 52, 0, &memory, err);
    if (!e) e = read_percent(cluster, device, inside, err);
    if (!e) e = read_text(device, inside, "source", cluster->source, sizeof cluster->source, err);
    cluster->memory = (uint64_t)memory;
    return e;
}

/* The time in which the host starts kernels, by kinds of software; a kind that is missing takes no time. */
static enum error_code read_issue(struct issue *issue, const cJSON *host, const char *where, struct error *err)
{
    static const char *const known[] = { "eager_ns", "compiled_ns", "graph_ns", "step_ns", "source", NULL };
    const cJSON *object;
    char inside[240];
    if (!json_has(host, "issue")) return OK;
    enum error_code e = json_object(host, where, "issue", &object, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: issue", where);
    e = refuse_unknown(object, inside, known, err);
    for (int kind = 0; kind < ISSUE_KINDS && !e; kind++) {
        e = read_number(object, inside, known[kind], MOST_NS, 0, &issue->kernel[kind], err);
        issue->kernel[kind] *= 1000;
    }
    if (!e) e = read_number(object, inside, known[ISSUE_KINDS], MOST_NS, 0, &issue->step, err);
    issue->step *= 1000;
    return e ? e : read_text(object, inside, "source", issue->source, sizeof issue->source, err);
}

/* The rates of all formats in which the host computes (never 16 bits) are required. */
static enum error_code read_host(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "GFLOP_per_second", "memory_MB_per_second", "drive_MB_per_second", "issue",
                                         "source", NULL };
    const cJSON *host;
    char inside[200];
    if (!json_has(root, "host")) return OK;
    enum error_code e = json_object(root, where, "host", &host, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: host", where);
    e = refuse_unknown(host, inside, known, err);
    if (!e) e = read_flops(cluster->host.flop_rate, host, inside, err);
    /* Optimizers on the host step in fp32 or fp64, whatever format the device computes in. */
    if (!e && (cluster->host.flop_rate[F32] < 0 || cluster->host.flop_rate[F64] < 0))
        e = fail(err, ERR_FORMAT, "%s: \"GFLOP_per_second\" must have fp32 and fp64, which optimizers step in", inside);
    if (!e) e = read_number(host, inside, "memory_MB_per_second", MOST_RATE, 0, &cluster->host.memory_rate, err);
    if (!e) e = read_number(host, inside, "drive_MB_per_second", MOST_RATE, 0, &cluster->host.drive_rate, err);
    if (!e) e = read_issue(&cluster->host.issue, host, inside, err);
    return e ? e : read_text(host, inside, "source", cluster->host.source, sizeof cluster->host.source, err);
}

/* "operations": { "dropout": 60 } */
static enum error_code read_named(struct kernels *k, const cJSON *kernels, const char *where, struct error *err)
{
    const cJSON *named;
    char inside[256];
    if (!json_has(kernels, "operations")) return OK;
    enum error_code e = json_object(kernels, where, "operations", &named, err);
    snprintf(inside, sizeof inside, "%s: operations", where);
    /* Each operation has a share of the memory's rate, in thousandths. */
    for (const cJSON *c = e ? NULL : named->child; c != NULL && !e; c = c->next) {
        if (k->named == CLUSTER_MOST_NAMED)
            return fail(err, ERR_FORMAT, "%s: at most %d can be named", inside, CLUSTER_MOST_NAMED);
        /* The key of an operation is its name in traces, so no list of known keys is asked. */
        struct named_share *s = &k->share[k->named++];
        if (strlen(c->string) >= sizeof s->name)
            return fail(err, ERR_FORMAT, "%s: \"%s\" has more than %zu bytes", inside, printable(c->string).text,
                        sizeof s->name - 1);
        snprintf(s->name, sizeof s->name, "%s", c->string);
        e = json_int(named, inside, s->name, 1, 1000, &s->permille, err);
    }
    return e;
}

/* Tiles of products, and the shares of rates. */
static enum error_code read_shares(struct kernels *k, const cJSON *kernels, const char *where, struct error *err)
{
    enum error_code e = json_int(kernels, where, "units", 1, 1 << 20, &k->units, err);
    if (!e) e = json_int(kernels, where, "tile_rows", 1, 1 << 20, &k->tile_rows, err);
    if (!e) e = json_int(kernels, where, "tile_columns", 1, 1 << 20, &k->tile_columns, err);
    if (!e) e = read_number(kernels, where, "half_depth", 1 << 20, 0, &k->half_depth, err);
    if (!e) e = json_int(kernels, where, "matrix_permille", 1, 1000, &k->matrix_permille, err);
    if (!e) e = json_int(kernels, where, "memory_permille", 1, 1000, &k->memory_permille, err);
    /* Unless the file says otherwise, other operations reach the share of products. */
    k->other_permille = k->matrix_permille;
    if (!e && json_has(kernels, "other_permille"))
        e = json_int(kernels, where, "other_permille", 1, 1000, &k->other_permille, err);
    if (!e) e = read_number(kernels, where, "other_half_depth", 1 << 20, 0, &k->other_half_depth, err);
    if (!e) e = read_named(k, kernels, where, err);
    return e;
}

/* A table of measured kernels, and whose kernels are run unless --kernels-of says so. */
static enum error_code read_measured(struct kernels *k, const cJSON *kernels, const char *where, struct error *err)
{
    static const char *const known[] = { "table", "of", "products_permille", "memory_permille", "source", NULL };
    const char *table = NULL, *set = NULL;
    enum error_code e = refuse_unknown(kernels, where, known, err);
    /* A device of the table's kind, with another power or memory, reaches so much of the table's shares. */
    if (!e && json_has(kernels, "products_permille"))
        e = json_int(kernels, where, "products_permille", 1, 2000, &k->products_scale, err);
    if (!e && json_has(kernels, "memory_permille"))
        e = json_int(kernels, where, "memory_permille", 1, 2000, &k->memory_scale, err);
    if (!e && (json_has(kernels, "products_permille") != json_has(kernels, "memory_permille")))
        e = fail(err, ERR_FORMAT, "%s: \"products_permille\" and \"memory_permille\" stand together", where);
    if (!e && k->products_scale > 0)
        e = read_text(kernels, where, "source", k->source, sizeof k->source, err);
    if (!e) e = json_string(kernels, where, "table", &table, err);
    if (!e) e = json_string(kernels, where, "of", &set, err);
    if (!e) e = fail_about(err, kernel_table_find(&k->table, table, err), where);
    if (!e) e = fail_about(err, kernel_set_find(&k->set, "\"of\"", set, err), where);
    return e ? e : fail_about(err, kernel_set_check(k->set, k->table, "\"of\"", err), where);
}

/* Without anything but launch_ns, kernels reach the rates once they have started. */
static enum error_code read_kernels(struct kernels *k, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "launch_ns", "source", "units", "tile_rows", "tile_columns", "half_depth",
                                         "matrix_permille", "memory_permille", "other_permille", "other_half_depth",
                                         "operations", NULL };
    enum { OF_LAUNCH = 2 };
    const cJSON *kernels;
    char inside[200];
    bool shares = false;
    if (!json_has(root, "kernels")) return OK;
    enum error_code e = json_object(root, where, "kernels", &kernels, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: kernels", where);
    if (json_has(kernels, "table")) return read_measured(k, kernels, inside, err);
    e = refuse_unknown(kernels, inside, known, err);
    /* Any key besides launch_ns and source makes the others required, which read_shares says. */
    for (int i = OF_LAUNCH; known[i]; i++) shares = shares || json_has(kernels, known[i]);
    if (!e && shares) e = read_shares(k, kernels, inside, err);
    if (!e) e = shares ? read_number(kernels, inside, "launch_ns", MOST_NS, 0, &k->launch, err)
                       : json_int(kernels, inside, "launch_ns", 0, MOST_NS, &k->launch, err);
    k->launch *= 1000;
    return e ? e : read_text(kernels, inside, "source", k->source, sizeof k->source, err);
}

/* A level of links.  Rate and latency are required; without eager_bytes no message waits for its receiver. */
static enum error_code read_link(struct link *l, const cJSON *link, const char *where, struct error *err)
{
    static const char *const known[] = { "level",       "devices", "latency_ns", "gap_ns", "MB_per_second", "ports",
                                         "eager_bytes", "reduces", "source",     NULL };
    int64_t latency = 0, gap, devices, eager, ports = 1;
    if (!cJSON_IsObject(link)) return fail(err, ERR_FORMAT, "%s is not an object", where);
    enum error_code e = refuse_unknown(link, where, known, err);
    if (!e) e = read_name(link, where, "level", l->level, sizeof l->level, err);
    if (!e) e = read_number(link, where, "devices", 1 << 20, 0, &devices, err);
    if (!e) e = json_int(link, where, "latency_ns", 0, MOST_NS, &latency, err);
    if (!e) e = read_number(link, where, "gap_ns", MOST_NS, 0, &gap, err);
    if (!e) e = json_int(link, where, "MB_per_second", 1, MOST_RATE, &l->rate, err);
    if (!e && json_has(link, "ports")) e = json_int(link, where, "ports", 1, CLUSTER_MOST_PORTS, &ports, err);
    if (!e) e = read_number(link, where, "eager_bytes", INT64_C(1) << 52, -1, &eager, err);
    if (!e && json_has(link, "reduces")) e = json_bool(link, where, "reduces", &l->reduces, err);
    if (!e) e = read_text(link, where, "source", l->source, sizeof l->source, err);
    if (e) return e;
    /* Latencies of a file are nanoseconds; those of a link are picoseconds. */
    l->devices = (int)devices, l->ports = ports > 1 ? (int)ports : 0;
    l->latency = latency * 1000;
    l->gap = gap * 1000;
    l->eager = eager < 0 ? ALWAYS_EAGER : (uint64_t)eager;
    return OK;
}

/* Levels are nested: 2 devices, 8 devices, all. */
static enum error_code check_levels(const struct cluster *cluster, const char *where, struct error *err)
{
    for (int l = 0; l < cluster->levels - 1; l++) {
        const int inner = cluster->link[l].devices, outer = cluster->link[l + 1].devices;
        if (inner == 0)
            return fail(err, ERR_FORMAT,
                        "%s: links[%d]: \"devices\" is missing; only the last level may hold any number", where, l);
        if (outer > 0 && (outer <= inner || outer % inner != 0))
            return fail(err, ERR_FORMAT,
                        "%s: links[%d]: \"devices\" is %d; it must be a multiple of the %d of the level before", where,
                        l + 1, outer, inner);
    }
    return OK;
}

/* Each of a device's ports leads to some of the others of its unit, so there are no more ports than others. */
static enum error_code check_ports(const struct cluster *cluster, const char *where, struct error *err)
{
    for (int l = 0; l < cluster->levels; l++) {
        const struct link *const link = &cluster->link[l];
        if (link->ports > 1 && link->ports >= link->devices)
            return fail(err, ERR_FORMAT,
                        "%s: links[%d]: \"ports\" is %d; a unit of \"devices\" %d has at most %d of them", where, l,
                        link->ports, link->devices, link->devices > 1 ? link->devices - 1 : 1);
    }
    if (link_first_port(cluster->link, cluster->levels) > CLUSTER_MOST_PORTS)
        return fail(err, ERR_FORMAT, "%s: \"links\": a device has %d ports; all levels have at most %d", where,
                    link_first_port(cluster->link, cluster->levels), CLUSTER_MOST_PORTS);
    return OK;
}

/* The levels stand in the file from the nearest to the farthest. */
static enum error_code read_links(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *links;
    char inside[200];
    enum error_code e = json_array(root, where, "links", &links, err);
    if (e) return e;
    cluster->levels = cJSON_GetArraySize(links);
    if (cluster->levels < 1 || cluster->levels > CLUSTER_LEVELS)
        return fail(err, ERR_FORMAT, "%s: \"links\" has %d levels; it must have 1 to %d", where, cluster->levels,
                    CLUSTER_LEVELS);
    for (int l = 0; l < cluster->levels && !e; l++) {
        snprintf(inside, sizeof inside, "%s: links[%d]", where, l);
        e = read_link(&cluster->link[l], cJSON_GetArrayItem(links, l), inside, err);
    }
    if (!e) e = check_levels(cluster, where, err);
    return e ? e : check_ports(cluster, where, err);
}

/* How much slower work gets while messages move, in percent of its usual time: 100 means not at all. */
static enum error_code read_contention(struct contention *k, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "compute_percent", "source", NULL };
    const cJSON *contention;
    char inside[200];
    if (!json_has(root, "contention")) return OK;
    enum error_code e = json_object(root, where, "contention", &contention, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: contention", where);
    e = refuse_unknown(contention, inside, known, err);
    if (!e) e = json_int(contention, inside, "compute_percent", 100, 1000, &k->compute_percent, err);
    return e ? e : read_text(contention, inside, "source", k->source, sizeof k->source, err);
}

/* A collective's name is a key, and a percentage its value.  A replay has its own rule of what slows work. */
static enum error_code read_overlap(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "allreduce", "allgather", "reduce_scatter", "alltoall", "source", NULL };
    struct overlap *const overlap = &cluster->overlap;
    const cJSON *object;
    char inside[200];
    if (!json_has(root, "overlap")) return OK;
    if (cluster->contention.compute_percent > 0)
        return fail(err, ERR_FORMAT, "%s: \"contention\" and \"overlap\" both slow computing; one of them must go",
                    where);
    enum error_code e = json_object(root, where, "overlap", &object, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: overlap", where);
    e = refuse_unknown(object, inside, known, err);
    for (int i = 0; strcmp(known[i], "source") != 0 && !e; i++) {
        if (!json_has(object, known[i])) continue;
        const int n = overlap->collectives++;
        snprintf(overlap->collective[n].name, sizeof overlap->collective[n].name, "%s", known[i]);
        e = json_int(object, inside, known[i], 100, 1000, &overlap->collective[n].percent, err);
    }
    return e ? e : read_text(object, inside, "source", overlap->source, sizeof overlap->source, err);
}

int64_t cluster_overlap(const struct cluster *cluster, const char *collective)
{
    for (int i = 0; i < cluster->overlap.collectives; i++)
        if (strcmp(cluster->overlap.collective[i].name, collective) == 0) return cluster->overlap.collective[i].percent;
    return 100;
}

/* Both numbers of a budget may be left out, but not both together. */
static enum error_code read_costs(struct costs *costs, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "watts", "cents_per_hour", "source", NULL };
    enum { MOST_WATTS = 1000000, MOST_CENTS = 100000000 };
    const cJSON *object;
    char inside[200];
    if (!json_has(root, "costs")) return OK;
    enum error_code e = json_object(root, where, "costs", &object, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: costs", where);
    e = refuse_unknown(object, inside, known, err);
    if (!e) e = read_number(object, inside, "watts", MOST_WATTS, 0, &costs->watts, err);
    if (!e) e = read_number(object, inside, "cents_per_hour", MOST_CENTS, 0, &costs->cents, err);
    if (!e && costs->watts == 0 && costs->cents == 0)
        e = fail(err, ERR_FORMAT, "%s: it must have \"watts\" or \"cents_per_hour\"", inside);
    return e ? e : read_text(object, inside, "source", costs->source, sizeof costs->source, err);
}

/* Messages that never wait leave by themselves, so that nothing would change. */
static enum error_code read_progress(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    const char *word;
    bool waits = false;
    if (!json_has(root, "progress")) return OK;
    const enum error_code e = json_string(root, where, "progress", &word, err);
    if (e) return e;
    cluster->no_progress = strcmp(word, "none") == 0;
    if (!cluster->no_progress && strcmp(word, "always") != 0)
        return fail(err, ERR_FORMAT, "%s: \"progress\" is '%s'; it must be always or none", where,
                    printable(word).text);
    /* Without a rendezvous anywhere, no_progress would change nothing, so it is refused. */
    for (int l = 0; l < cluster->levels; l++) waits = waits || cluster->link[l].eager != ALWAYS_EAGER;
    if (cluster->no_progress && !waits)
        return fail(err, ERR_FORMAT, "%s: \"progress\" is none, but no link has \"eager_bytes\": no message waits",
                    where);
    return OK;
}

/* Read the parts in the order of struct cluster, and stop at the first error, which names file and key. */
static enum error_code read_cluster(struct cluster *cluster, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "name", "description", "device", "kernels", "host", "links", "shared",
                                         "sharing", "contention", "overlap", "costs", "progress", NULL };
    *cluster = (struct cluster){ .levels = 0 };
    if (!cJSON_IsObject(root)) return fail(err, ERR_FORMAT, "%s: is not an object", where);
    enum error_code e = refuse_unknown(root, where, known, err);
    if (!e) e = read_name(root, where, "name", cluster->name, sizeof cluster->name, err);
    if (!e) e = read_text(root, where, "description", cluster->description, sizeof cluster->description, err);
    if (!e) e = read_device(cluster, root, where, err);
    if (!e) e = read_kernels(&cluster->kernels, root, where, err);
    if (!e) e = read_host(cluster, root, where, err);
    if (!e) e = read_links(cluster, root, where, err);
    if (!e) e = shared_read(cluster, root, where, err);
    if (!e) e = read_contention(&cluster->contention, root, where, err);
    if (!e) e = read_overlap(cluster, root, where, err);
    if (!e) e = read_costs(&cluster->costs, root, where, err);
    return e ? e : read_progress(cluster, root, where, err);
}

/* The tree is freed also after an error; a failed json_parse has set it to NULL. */
enum error_code cluster_parse(struct cluster *cluster, const char *text, const char *where, struct error *err)
{
    cJSON *root;
    enum error_code e = json_parse(text, strlen(text), where, &root, err);
    if (!e) e = read_cluster(cluster, root, where, err);
    cJSON_Delete(root);
    return e;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* An error in a file names the file as it can be printed. */
static enum error_code read_file(struct cluster *cluster, const char *path, struct error *err)
{
    cJSON *root;
    enum error_code e = json_read(path, &root, err);
    if (!e) e = read_cluster(cluster, root, printable_path(path).text, err);
    cJSON_Delete(root);
    return e;
}

/* A word with a slash, or one that ends in .json, is a file; any other is a name. */
static bool is_file(const char *word)
{
    const size_t n = strlen(word);
    return strchr(word, '/') != NULL || (n > 5 && strcmp(word + n - 5, ".json") == 0);
}

/* A shipped description, read when it is first asked for: each device of a crew opens with the usual one. */
static enum error_code shipped(size_t n, const struct cluster **cluster, struct error *err)
{
    static struct cluster read[MOST_NAMES];
    enum error_code e = OK;
    if (read[n].levels == 0) e = cluster_parse(&read[n], cluster_texts[n], "a shipped cluster", err);
    if (e) read[n].levels = 0;
    *cluster = &read[n];
    /* A description that failed is read again next time, since `levels` says whether it was read. */
    return e;
}

/* A word is a file or the name of a shipped cluster.  Clusters are parsed as far as the search needs. */
enum error_code cluster_find(struct cluster *cluster, const char *word, struct error *err)
{
    const char *names[MOST_NAMES];
    size_t n = 0;
    /* A file is read each time, since it may change between two commands. */
    if (is_file(word)) return fail_about(err, read_file(cluster, word, err), "--cluster");
    /* Names are collected on the way, for the message about an unknown one. */
    for (; cluster_texts[n] != NULL && n < MOST_NAMES; n++) {
        const struct cluster *one;
        const enum error_code e = shipped(n, &one, err);
        if (e) return e;
        names[n] = one->name;
        if (strcmp(one->name, word) != 0) continue;
        *cluster = *one;
        return OK;
    }
    return fail_unknown_name(err, "--cluster", word, names, n);
}

/* Plans call this before devices open, so that a mesh that is too large is refused at once. */
enum error_code cluster_check(const struct cluster *cluster, int devices, enum dtype dtype, struct error *err)
{
    /* The last level holds the largest unit; 0 devices mean that any number fits. */
    const int most = cluster->link[cluster->levels - 1].devices;
    if (most > 0 && devices > most)
        return fail(err, ERR_PLAN, "--cluster %s: it has %d devices; the mesh has %d", cluster->name, most, devices);
    if (cluster->flop_rate[dtype] < 0)
        return fail(err, ERR_PLAN,
                    "--cluster %s: it does not say how fast it computes in %s (device: GFLOP_per_second)",
                    cluster->name,
                    dtype_name(dtype));
    return shared_check(cluster, devices, err);
}

/* ---- ports ------------------------------------------------------------------------------------------------------- */

int link_port(const struct link *link, int level, int from, int to)
{
    const struct link *const l = &link[level];
    const int first = link_first_port(link, level);
    if (l->ports <= 1) return first;
    const int up = ((to - from) % l->devices + l->devices) % l->devices;
    return up == 0 ? first : first + (up - 1) * l->ports / (l->devices - 1);
}

/* ---- what only a replay knows ------------------------------------------------------------------------------------ */

bool cluster_replays(const struct cluster *cluster)
{
    return cluster->shares > 0 || cluster->contention.compute_percent > 0 || cluster->no_progress;
}

struct cluster cluster_without_replay(const struct cluster *cluster)
{
    struct cluster alone = *cluster;
    alone.shares = 0, alone.contention = (struct contention){ 0 }, alone.no_progress = false;
    return alone;
}

/* ---- devices of different speed ---------------------------------------------------------------------------------- */

int cluster_percent(const struct cluster *cluster,
                    int rank)
{
    return cluster->speeds > 0 ? cluster->percent[cluster_slot(cluster, rank) % cluster->speeds] : 100;
}

/* A rate of 0 (takes no time) stays 0; any other result is at least 1. */
static int64_t cluster_part_of(int64_t rate, int percent)
{
    if (rate <= 0) return rate;
    const int64_t part = rate / 100 * percent + rate % 100 * percent / 100;
    return part > 0 ? part : 1;
}

/* Shares are taken of rates, never of latencies, which belong to links. */
struct cluster cluster_of_rank(const struct cluster *cluster, int rank)
{
    struct cluster own = *cluster;
    const int percent = cluster_percent(cluster, rank);
    for (int t = 0; t < DTYPE_COUNT; t++) own.flop_rate[t] = cluster_part_of(cluster->flop_rate[t], percent);
    /* Choices of algorithms use the stated rate, so that all ranks choose alike. */
    if (percent < 100) own.stated_memory_rate = cluster->memory_rate;
    own.memory_rate = cluster_part_of(cluster->memory_rate, percent);
    return own;
}
