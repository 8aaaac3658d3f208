/* cluster_file.c -- writes a fitted cluster as a JSON file, with a name and how it was measured.
 * cli/calibrate/calibrate.c calls these functions.  Errors: ERR_FILE if the file cannot be written; ERR_MEMORY. */
#include "emulated_devices/bench/calibrate/calibrate.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <string.h>

void cluster_describe(struct cluster *cluster, const struct calibration *calibration, const char *when)
{
    const char *share = calibration->devices > calibration->cores
                            ? "; cores are shared: rates are those of a core, divided by devices / cores" : "";
    snprintf(cluster->name, sizeof cluster->name, "this-machine-%d", calibration->devices);
    snprintf(cluster->description, sizeof cluster->description,
             "%d device%s on %d core%s, measured by orrery calibrate, %s",
             calibration->devices, plural(calibration->devices), calibration->cores, plural(calibration->cores), when);
    snprintf(cluster->source, sizeof cluster->source,
             "orrery calibrate, %s: least of %d rounds, %s, %d thread%s a device, all %d at once%s", when,
             calibration->rounds,
             dtype_name(calibration->dtype), calibration->threads, plural(calibration->threads),
             calibration->devices, share);
    snprintf(cluster->kernels.source, sizeof cluster->kernels.source,
             "fitted to %d measurements of products, attention, and operations on a layer's tensors, %s",
             calibration->works,
             when);
    snprintf(cluster->link[0].level, sizeof cluster->link[0].level, "node");
    if (calibration->volleys > 0)
        snprintf(cluster->link[0].source, sizeof cluster->link[0].source,
                 "fitted to %d measurements: every device sends 1 or more messages to its next one, %s",
                 calibration->volleys,
                 when);
    else snprintf(cluster->link[0].source, sizeof cluster->link[0].source, "not measured: one device sends no message");
}

static void cluster_file_add(cJSON *to, const char *key, int64_t value)
{
    cJSON_AddNumberToObject(to, key, (double)value);
}

static void add_device(cJSON *root, const struct cluster *cluster)
{
    cJSON *device = cJSON_AddObjectToObject(root, "device");
    cJSON *rates = cJSON_AddObjectToObject(device, "GFLOP_per_second");
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (cluster->flop_rate[t] > 0) cluster_file_add(rates, dtype_name(t), cluster->flop_rate[t] / 1000);
    cluster_file_add(device, "memory_MB_per_second", cluster->memory_rate);
    json_add(device, "source %s", cluster->source);
}

static void add_kernels(cJSON *root, const struct kernels *kernels)
{
    cJSON *o = cJSON_AddObjectToObject(root, "kernels");
    cluster_file_add(o, "units", kernels->units), cluster_file_add(o, "tile_rows", kernels->tile_rows),
        cluster_file_add(o, "tile_columns", kernels->tile_columns);
    cluster_file_add(o, "half_depth", kernels->half_depth);
    cluster_file_add(o, "matrix_permille", kernels->matrix_permille),
        cluster_file_add(o, "memory_permille", kernels->memory_permille);
    cluster_file_add(o, "other_permille", kernels->other_permille),
        cluster_file_add(o, "other_half_depth", kernels->other_half_depth);
    cluster_file_add(o, "launch_ns", kernels->launch / 1000);
    cJSON *named = kernels->named > 0 ? cJSON_AddObjectToObject(o, "operations") : NULL;
    for (int i = 0; i < kernels->named; i++)
        cluster_file_add(named, kernels->share[i].name, kernels->share[i].permille);
    json_add(o, "source %s", kernels->source);
}

static void add_link(cJSON *root, const struct link *link)
{
    cJSON *list = cJSON_AddArrayToObject(root, "links"), *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    json_add(o, "level %s", link->level);
    cluster_file_add(o, "devices", link->devices), cluster_file_add(o, "latency_ns", link->latency / 1000),
        cluster_file_add(o, "gap_ns", link->gap / 1000);
    cluster_file_add(o, "MB_per_second", link->rate);
    json_add(o, "source %s", link->source);
}

cJSON *cluster_document(const struct cluster *cluster)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) return NULL;
    json_add(root, "name %s description %s", cluster->name, cluster->description);
    add_device(root, cluster);
    add_kernels(root, &cluster->kernels);
    add_link(root, &cluster->link[0]);
    return root;
}

enum error_code cluster_write(const char *path, const struct cluster *cluster, struct error *err)
{
    cJSON *root = cluster_document(cluster);
    if (root == NULL) return fail(err, ERR_MEMORY, "no memory for a cluster file");
    return json_finish(path, root, err);
}
