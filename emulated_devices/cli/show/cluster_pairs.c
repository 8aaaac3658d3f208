/* cluster_pairs.c -- prints what limits pairs of devices on a described machine, and the time of an all-reduce.
 * cluster.c calls show_pairs and show_allreduce.  Errors: ERR_MEMORY, and those of attempt_times. */
#include "emulated_devices/cli/show/cluster_pairs.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/shared_words.h"
#include "emulated_devices/collectives/attempt.h"
#include "emulated_devices/device/network.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <string.h>

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

enum { PAIRS_MOST = 32, PAIRS_MOST_DEVICES = 1 << 16 };

/* A message from device 0 to another, alone: its level, latency, and the narrowest link on its way. */
struct pair { int to, level, limit; picoseconds latency; double rate; };

static void pair_find(const struct network *network, int to, struct pair *pair)
{
    struct message_way way;
    network_way(network, 0, to, &way);
    *pair = (struct pair){ .to = to, .level = way.level, .limit = -1, .latency = way.latency,
                           .rate = network_rate(network, way.link[0]) };
    for (int i = 0; i < way.count; i++)
        if (network_rate(network, way.link[i]) < pair->rate) {
            pair->rate = network_rate(network, way.link[i]);
            pair->limit = network_shared(network, way.link[i]);
        }
}

/* Rows that say the same but for the device are one row. */
static bool pair_is_new(const struct pair *pair, const struct pair *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i].level == pair->level && list[i].limit == pair->limit && list[i].latency == pair->latency
            && !(list[i].rate < pair->rate) && !(list[i].rate > pair->rate)) return false;
    return true;
}

/* The devices at which something changes: the next one, and the first beyond each unit and its neighbour. */
static int pair_candidates(const struct cluster *cluster, int to[PAIRS_MOST])
{
    const int last = cluster->link[cluster->levels - 1].devices;
    int64_t most = last > 0 ? last : PAIRS_MOST_DEVICES, sizes[PAIRS_MOST] = { 0 };
    int count = 0, n = 0;
    for (int l = 0; l < cluster->levels; l++) sizes[count++] = cluster->link[l].devices;
    for (int i = 0; i < cluster->shares; i++) {
        const struct shared_link *s = &cluster->shared[i];
        int64_t places = s->devices;
        sizes[count++] = places;
        for (int d = 0; d < s->dimensions; d++) places *= s->size[d];
        /* A torus ends with its places; half of the first dimension is the longest way in it. */
        if (s->kind == SHARED_TORUS && s->of_level == 0 && places < most) most = places;
        if (s->kind == SHARED_TORUS) sizes[count++] = s->size[0] / 2;
    }
    for (int next = 0, least; n + 1 < PAIRS_MOST; next = least) {
        /* In ascending order, each once: 1, a size, a size + 1. */
        least = INT32_MAX;
        for (int i = -1; i < count; i++)
            for (int more = 0; more < 2; more++) {
                const int64_t x = (i < 0 ? 1 : sizes[i]) + more;
                if (x > next && x < least && x < most && (i >= 0 || more == 0)) least = (int)x;
            }
        if (least == INT32_MAX) break;
        to[n++] = least;
    }
    return n;
}

static void pair_print(struct columns *columns, const struct cluster *cluster, const struct pair *pair)
{
    columns_add(columns, LEFT_ALIGNED, "0 and %d", pair->to);
    columns_add(columns, LEFT_ALIGNED, "%s", cluster->link[pair->level].level);
    columns_add(columns, RIGHT_ALIGNED, "%s", picoseconds_format((double)pair->latency).text);
    columns_add(columns, RIGHT_ALIGNED, "%s", byte_rate_format(round(1e12 * pair->rate)).text);
    columns_add(columns, LEFT_ALIGNED, "%s", pair->limit < 0 ? "their ports" : cluster->shared[pair->limit].name);
    columns_end_row(columns);
}

static void pairs_print(const struct cluster *cluster, const struct pair *list, int count)
{
    struct columns t = columns_start(stdout);
    do {
        columns_add(&t, LEFT_ALIGNED, "pair");
        columns_add(&t, LEFT_ALIGNED, "level");
        columns_add(&t, RIGHT_ALIGNED, "latency");
        columns_add(&t, RIGHT_ALIGNED, "rate");
        columns_add(&t, LEFT_ALIGNED, "limited by");
        columns_end_row(&t);
        for (int i = 0; i < count; i++) pair_print(&t, cluster, &list[i]);
    } while (columns_again(&t));
    if (!document_table("pairs")) return;
    for (int i = 0; i < count; i++)
        json_add(document_row(), "from %d to %d level %s latency_picoseconds %g bytes_per_second %g", 0, list[i].to,
                 cluster->link[list[i].level].level, (double)list[i].latency, 1e12 * list[i].rate);
}

static void shared_print(const struct cluster *cluster)
{
    char words[400], text[500];
    for (int i = 0; i < cluster->shares; i++) {
        snprintf(text, sizeof text, "%s: %s", cluster->shared[i].name,
                 shared_words(cluster, &cluster->shared[i], words, sizeof words));
        printf("  ");
        print_wrapped(stdout, 4, text);
    }
}

enum error_code show_pairs(const struct cluster *cluster, struct error *err)
{
    int to[PAIRS_MOST], count = 0;
    struct pair list[PAIRS_MOST], pair;
    const int n = pair_candidates(cluster, to);
    if (n == 0) return OK;
    struct network *network = network_open(cluster, to[n - 1] + 1);
    if (network == NULL) return fail(err, ERR_MEMORY, "no memory for a network of %d devices", to[n - 1] + 1);
    for (int i = 0; i < n; i++) {
        pair_find(network, to[i], &pair);
        if (pair_is_new(&pair, list, count)) list[count++] = pair;
    }
    network_close(network);
    if (cluster->shares > 0) printf("\nLinks that devices share\n");
    shared_print(cluster);
    printf("\nA message that is alone\n");
    pairs_print(cluster, list, count);
    return OK;
}

/* ---- an all-reduce ----------------------------------------------------------------------------------------------- */

enum { REDUCED_BYTES = 1 << 30, REDUCED_ROWS = 7 };
static const struct { int devices; const char *name; } reduced_on[REDUCED_ROWS] = {
    { 8, NULL }, { 8, "two_shot" }, { 8, "in_network" }, { 64, NULL }, { 64, "in_network" },
    { 72, NULL }, { 72, "in_network" },
};

struct reduced { int devices; const struct algorithm *algorithm; picoseconds formula, clock, replayed; };

/* On a full mesh a device sends to all others at once; a ring would use one of its links. */
static bool reduced_has_mesh(const struct cluster *cluster)
{
    for (int i = 0; i < cluster->shares; i++)
        if (cluster->shared[i].kind == SHARED_PAIRS) return true;
    return false;
}

/* Without a name: a ring where all links are alike, rings inside and between nodes otherwise.  Blocks are equal, so
 * that no step waits for a longer one: of 1 GiB the remainder is left out.  No algorithm: it would be of no use. */
static enum error_code reduced_find(const struct cluster *cluster, int devices, const char *name,
                                    struct reduced *reduced, struct error *err)
{
    struct collective call = { .dtype = F32, .nodes = nodes_on(cluster, NULL, devices),
                               .count = REDUCED_BYTES / 4 / devices * devices };
    const bool nodes = call.nodes.devices > 0 && nodes_even(call.nodes, devices) > 0;
    if (name == NULL) name = nodes ? "torus_2d" : "ring";
    *reduced = (struct reduced){ .devices = devices };
    if (strcmp(name, "two_shot") == 0 && !reduced_has_mesh(cluster)) return OK;
    if (algorithm_refuses(algorithm_find(ALLREDUCE, name), devices, &call) != NULL) return OK;
    reduced->algorithm = algorithm_find(ALLREDUCE, name);
    reduced->formula = collective_time(reduced->algorithm, devices, &call, cluster);
    return attempt_times(reduced->algorithm, devices, &call, cluster, &reduced->clock, &reduced->replayed, err);
}

static void reduced_print(const struct cluster *cluster, const struct reduced *list, int count)
{
    struct columns t = columns_start(stdout);
    do {
        columns_add(&t, RIGHT_ALIGNED, "devices");
        columns_add(&t, LEFT_ALIGNED, "algorithm");
        columns_add(&t, RIGHT_ALIGNED, "by formula");
        columns_add(&t, RIGHT_ALIGNED, "by the clock");
        if (cluster->shares > 0) columns_add(&t, RIGHT_ALIGNED, "with shared links");
        columns_end_row(&t);
        for (int i = 0; i < count; i++) {
            columns_add(&t, RIGHT_ALIGNED, "%d", list[i].devices);
            columns_add(&t, LEFT_ALIGNED, "%s", list[i].algorithm->name);
            columns_add(&t, RIGHT_ALIGNED, "%s", picoseconds_format((double)list[i].formula).text);
            columns_add(&t, RIGHT_ALIGNED, "%s", picoseconds_format((double)list[i].clock).text);
            if (cluster->shares > 0)
                columns_add(&t, RIGHT_ALIGNED, "%s", picoseconds_format((double)list[i].replayed).text);
            columns_end_row(&t);
        }
    } while (columns_again(&t));
    if (!document_table("allreduce")) return;
    for (int i = 0; i < count; i++)
        json_add(document_row(), "devices %d algorithm %s formula_picoseconds %g clock_picoseconds %g "
                 "shared_picoseconds %g", list[i].devices, list[i].algorithm->name, (double)list[i].formula,
                 (double)list[i].clock, (double)list[i].replayed);
}

enum error_code show_allreduce(const struct cluster *cluster, struct error *err)
{
    struct reduced list[REDUCED_ROWS];
    int count = 0;
    for (int i = 0; i < REDUCED_ROWS; i++) {
        if (cluster_check(cluster, reduced_on[i].devices, F32, NULL)) continue;
        const enum error_code e = reduced_find(cluster, reduced_on[i].devices, reduced_on[i].name, &list[count], err);
        if (e) return e;
        count += list[count].algorithm != NULL;
    }
    if (count == 0) return OK;
    printf("\nAn all-reduce of 1 GiB in fp32\n");
    reduced_print(cluster, list, count);
    return OK;
}
