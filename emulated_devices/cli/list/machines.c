/* machines.c -- clusters, and kernels that were measured on their devices, for `orrery list`.  list.c has a row for
 * each part.  Nothing here fails: a text that cannot be read is left out, and the tests read each. */
#include "emulated_devices/cli/list/list.h"
#include "emulated_devices/cli/shared_words.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
#include "ref/io/options.h"
#include <stdio.h>
#include <string.h>

static void list_links(const struct cluster *cluster)
{
    for (int l = 0; l < cluster->levels; l++) {
        const struct link *k = &cluster->link[l];
        char gap[96] = "", eager[96] = "", devices[32] = "", ports[32] = "";
        if (k->gap > 0)
            snprintf(gap, sizeof gap, "each message occupies a port for %s more", picoseconds_exact(k->gap).text);
        if (k->eager != ALWAYS_EAGER)
            snprintf(eager, sizeof eager, "above %s a message waits for its receiver", size_format(k->eager).text);
        if (k->devices > 0) snprintf(devices, sizeof devices, "; %d devices", k->devices);
        if (k->ports > 1) snprintf(ports, sizeof ports, "; %d ports each way", k->ports);
        list_field("%-8s %s, %g GB/s%s%s%s", k->level, picoseconds_exact(k->latency).text, (double)k->rate * 1e-3,
                   devices, ports, k->reduces ? "; switches add" : "");
        if (gap[0] || eager[0]) list_detail("%s%s%s", gap, gap[0] && eager[0] ? "; " : "", eager);
        list_detail("from %s", k->source);
    }
}

static void list_device(const struct cluster *cluster)
{
    char text[400] = "";
    int used = 0;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (cluster->flop_rate[t] > 0)
            used += snprintf(text + used, sizeof text - (size_t)used, " %s %g TFLOP/s,", dtype_name(t),
                             (double)cluster->flop_rate[t] * 1e-6);
    if (cluster->memory_rate > 0)
        used += snprintf(text + used, sizeof text - (size_t)used, " memory %g GB/s",
                         (double)cluster->memory_rate * 1e-3);
    if (cluster->memory > 0)
        snprintf(text + used, sizeof text - (size_t)used, "%s of %s", cluster->memory_rate > 0 ? "" : " memory",
                 memory_format(cluster->memory).text);
    list_field("device  %s%s", cluster->flop_rate[F32] == 0 ? " computing takes no time" : "", text);
}

static void list_kernels(const struct kernels *kernels)
{
    if (kernels->table != NULL)
        list_field("kernels of %s, by the table %s; `orrery list kernels`", kernels->set->name, kernels->table->name);
    if (kernels->source[0] == '\0') return;
    if (kernels->table != NULL)
        list_detail("of the table's shares, computing reaches %g %%, memory %g %%",
                    (double)kernels->products_scale / 10,
              (double)kernels->memory_scale / 10);
    else if (kernels->units == 0) list_detail("kernels %s each", picoseconds_exact(kernels->launch).text);
    else
        list_detail("kernels %lld units of %lld x %lld; %g %% of operations, half at depth %lld; %g %% of memory; %s "
                    "each",
              (long long)kernels->units, (long long)kernels->tile_rows, (long long)kernels->tile_columns,
              (double)kernels->matrix_permille / 10, (long long)kernels->half_depth,
              (double)kernels->memory_permille / 10, picoseconds_exact(kernels->launch).text);
    list_detail("from %s", kernels->source);
}

/* List what `orrery plan` replays. */
static void list_replayed(const struct cluster *cluster)
{
    for (int i = 0; i < cluster->shares; i++) {
        char text[300];
        list_field("shared   %s: %s", cluster->shared[i].name,
              shared_words(cluster, &cluster->shared[i], text, sizeof text));
        list_detail("from %s", cluster->shared[i].source);
    }
    if (cluster->contention.compute_percent > 0) {
        list_detail("computing takes %lld %% of its time beside messages",
                    (long long)cluster->contention.compute_percent);
        list_detail("from %s", cluster->contention.source);
    }
    for (int i = 0; i < cluster->overlap.collectives; i++)
        list_detail("computing takes %lld %% of its time beside %s", (long long)cluster->overlap.collective[i].percent,
              cluster->overlap.collective[i].name);
    if (cluster->overlap.collectives > 0) list_detail("from %s", cluster->overlap.source);
    if (cluster->no_progress) list_field("messages that wait for their receivers move only while neither device "
                                         "computes");
}

static void list_host(const struct cluster *cluster)
{
    const struct host *h = &cluster->host;
    if (h->source[0] == '\0') return;
    if (h->issue.source[0])
        list_detail("host     starts a kernel in %s, a compiled one in %s; %s a step besides",
              picoseconds_exact(h->issue.kernel[ISSUE_EAGER]).text,
              picoseconds_exact(h->issue.kernel[ISSUE_COMPILED]).text, picoseconds_exact(h->issue.step).text),
            list_detail("from %s", h->issue.source);
    list_detail("host     copies %g GB/s for each device", (double)cluster->copy_rate * 1e-3);
    if (h->memory_rate > 0)
        list_detail("host     fp32 %g TFLOP/s, memory %g GB/s, drive %g GB/s; for each device",
                    (double)h->flop_rate[F32] * 1e-6, (double)h->memory_rate * 1e-3, (double)h->drive_rate * 1e-3);
    list_detail("from %s", h->source);
}

static void list_costs(const struct cluster *cluster)
{
    const struct costs *c = &cluster->costs;
    if (c->watts > 0) list_detail("draws    %lld W a device, at most", (long long)c->watts);
    if (c->cents > 0) list_detail("costs    %.2f US dollars for an hour of a device", (double)c->cents / 100);
    if (c->source[0]) list_detail("from %s", c->source);
}

void list_clusters(void)
{
    struct cluster c;
    for (int i = 0; cluster_texts[i]; i++) {
        char text[600];
        if (cluster_parse(&c, cluster_texts[i], "a shipped cluster", NULL) != OK) continue;
        snprintf(text, sizeof text, "%s%s", c.description, strcmp(c.name, CLUSTER_USUAL) == 0 ? " (default)" : "");
        list_entry(c.name, text);
        list_device(&c);
        list_detail("from %s", c.source);
        list_kernels(&c.kernels);
        list_host(&c);
        list_costs(&c);
        list_links(&c);
        list_replayed(&c);
    }
}

/* A class of a table: its error if each point is left out, and where its numbers come from. */
static void list_table_class(const char *name, int points, double error, const struct table_class *class)
{
    list_field("%s: %d points, %.1f %% mean error of each if it is left out", name, points, 100 * error);
    list_field("  %s", class->source);
    if (class->assumed[0]) list_field("  assumed: %s", class->assumed);
}

static void list_table(const struct kernel_table *table)
{
    int attention = 0;
    for (int i = 0; i < table->series; i++) attention += table->attention[i].line.count;
    list_entry(table->name, table->description);
    list_table_class("products", table->products, table_error_of_products(table), &table->of_products);
    list_table_class("attention", attention, table_error_of_attention(table), &table->of_attention);
    list_table_class("memory", table->memory.count, table_error_of_memory(table), &table->of_memory);
    list_field("starts: %s each, %s in a graph of kernels; %s", picoseconds_exact(table->launch).text,
          picoseconds_exact(table->graph_launch).text, table->source);
}

void list_kernel_sets(void)
{
    static struct kernel_table table;
    for (int i = 0; kernel_set_at(i) != NULL; i++) {
        const struct kernel_set *set = kernel_set_at(i);
        list_entry(set->name, set->description);
        list_field("attention: %s%s%s; kernels start %s", set->attention[0], set->attentions > 1 ? ", or else " : "",
              set->attention[1], set->graphs ? "in graphs" : "one by one");
        list_field("%s", set->source);
        list_field("assumed: %s", set->assumed);
    }
    list_group("Tables of measured kernels");
    for (int i = 0; kernel_table_texts[i] != NULL; i++)
        if (kernel_table_parse(&table, kernel_table_texts[i], "a shipped table", NULL) == OK) list_table(&table);
}
