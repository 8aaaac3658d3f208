/* cluster_file.c -- a fitted cluster as a file. */
#include "emulated_devices/cli/calibrate/calibrate.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <string.h>

void cluster_describe(struct cluster *c, const struct calibration *m, const char *when)
{
    const char *share = m->devices > m->cores
                            ? "; cores are shared: rates are those of a core, divided by devices / cores" : "";
    snprintf(c->name, sizeof c->name, "this-machine-%d", m->devices);
    snprintf(c->description, sizeof c->description, "%d device%s on %d core%s, measured by orrery calibrate, %s",
             m->devices, plural(m->devices), m->cores, plural(m->cores), when);
    snprintf(c->source, sizeof c->source,
             "orrery calibrate, %s: least of %d rounds, %s, %d thread%s a device, all %d at once%s", when, m->rounds,
             dtype_name(m->dtype), m->threads, plural(m->threads), m->devices, share);
    snprintf(c->kernels.source, sizeof c->kernels.source,
             "fitted to %d measurements of products, attention, and operations on a layer's tensors, %s", m->works,
             when);
    snprintf(c->link[0].level, sizeof c->link[0].level, "node");
    if (m->volleys > 0)
        snprintf(c->link[0].source, sizeof c->link[0].source,
                 "fitted to %d measurements: every device sends 1 or more messages to its next one, %s", m->volleys,
                 when);
    else snprintf(c->link[0].source, sizeof c->link[0].source, "not measured: one device sends no message");
}

static void add(cJSON *to, const char *key, int64_t value) { cJSON_AddNumberToObject(to, key, (double)value); }

static void add_device(cJSON *root, const struct cluster *c)
{
    cJSON *device = cJSON_AddObjectToObject(root, "device");
    cJSON *rates = cJSON_AddObjectToObject(device, "GFLOP_per_second");
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (c->flop_rate[t] > 0) add(rates, dtype_name(t), c->flop_rate[t] / 1000);
    add(device, "memory_MB_per_second", c->memory_rate);
    cJSON_AddStringToObject(device, "source", c->source);
}

static void add_kernels(cJSON *root, const struct kernels *k)
{
    cJSON *o = cJSON_AddObjectToObject(root, "kernels");
    add(o, "units", k->units), add(o, "tile_rows", k->tile_rows), add(o, "tile_columns", k->tile_columns);
    add(o, "half_depth", k->half_depth);
    add(o, "matrix_permille", k->matrix_permille), add(o, "memory_permille", k->memory_permille);
    add(o, "other_permille", k->other_permille), add(o, "other_half_depth", k->other_half_depth);
    add(o, "launch_ns", k->launch / 1000);
    cJSON *named = k->named > 0 ? cJSON_AddObjectToObject(o, "operations") : NULL;
    for (int i = 0; i < k->named; i++) add(named, k->share[i].name, k->share[i].permille);
    cJSON_AddStringToObject(o, "source", k->source);
}

static void add_link(cJSON *root, const struct link *l)
{
    cJSON *list = cJSON_AddArrayToObject(root, "links"), *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddStringToObject(o, "level", l->level);
    add(o, "devices", l->devices), add(o, "latency_ns", l->latency / 1000), add(o, "gap_ns", l->gap / 1000);
    add(o, "MB_per_second", l->rate);
    cJSON_AddStringToObject(o, "source", l->source);
}

cJSON *cluster_document(const struct cluster *c)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) return NULL;
    cJSON_AddStringToObject(root, "name", c->name);
    cJSON_AddStringToObject(root, "description", c->description);
    add_device(root, c);
    add_kernels(root, &c->kernels);
    add_link(root, &c->link[0]);
    return root;
}

enum error_code cluster_write(const char *path, const struct cluster *c, struct error *err)
{
    cJSON *root = cluster_document(c);
    if (root == NULL) return fail(err, ERR_MEMORY, "no memory for a cluster file");
    const enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}
