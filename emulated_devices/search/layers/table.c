/* table.c -- checks a table of layers and strategies, and judges plans by it.  The planners, cli/train/layered.c and
 * verify/cases/planned.c call.  The check returns ERR_FORMAT or ERR_PLAN; nothing else fails. */
#include "emulated_devices/search/layers/table.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void layer_table_free(struct layer_table *table)
{
    free(table->kind), free(table->strategy), free(table->cost), free(table->edge);
    free(table->percent), free(table->bandwidth), free(table->link);
    *table = (struct layer_table){ .devices = 0 };
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

/* The numbers of devices that strategies have, ascending. */
static enum error_code table_sizes(struct layer_table *table, const char *where, struct error *err)
{
    table->sizes = 0;
    for (int s = 0; s < table->strategies; s++) {
        const int n = table->strategy[s].devices;
        int at = table->sizes;
        if (n > table->devices || layer_size_find(table, n) >= 0) continue;
        if (table->sizes == SIZES_MOST)
            return fail(err, ERR_FORMAT, "%s: strategies have more than %d numbers of devices", where, SIZES_MOST);
        for (; at > 0 && table->size[at - 1] > n; at--) table->size[at] = table->size[at - 1];
        table->size[at] = n, table->sizes++;
    }
    return table->sizes > 0 ? OK : fail(err, ERR_PLAN, "%s: no strategy is on 1 to %d devices", where, table->devices);
}

/* Sums of times and bytes must be numbers of 62 bits, whatever the plan. */
static enum error_code check_sums(const struct layer_table *table, const char *where, struct error *err)
{
    double time = 0, bytes = 0, edge = 0;
    for (int i = 0; i < table->layouts * table->layouts; i++) edge = fmax(edge, (double)table->edge[i]);
    for (int l = 0; l < table->layers; l++) {
        double longest = 0, largest = 0;
        for (int s = 0; s < table->strategies; s++) {
            const struct layer_cost *const c = layer_cost_of(table, l, s);
            longest = fmax(longest, (double)c->time + (double)c->once);
            largest = fmax(largest, (double)c->state + STAGES_MOST * (double)c->activation);
        }
        time += longest, bytes += largest;
    }
    time = 100 * (time + (table->layers + table->links) * edge) * (table->micros + STAGES_MOST);
    if (time < 0x1p62 && bytes < 0x1p62) return OK;
    return fail(err, ERR_FORMAT, "%s: times or bytes of all layers are more than can be counted", where);
}

/* A matrix of rates has a row for each device, and no rate of nothing. */
static enum error_code check_bandwidth(const struct layer_table *table, const char *where, struct error *err)
{
    const int n = table->devices;
    for (int i = 0; i < n * n && table->bandwidth; i++)
        if (i / n != i % n && !(table->bandwidth[i] > 0))
            return fail(err, ERR_FORMAT, "%s: bandwidth from device %d to device %d is %g; rates are above 0", where,
                        i / n, i % n, table->bandwidth[i]);
    return OK;
}

static enum error_code check_links(const struct layer_table *table, const char *where, struct error *err)
{
    for (int i = 0; i < table->links; i++) {
        const struct layer_link *const link = &table->link[i];
        if (link->from < 0 || link->from >= link->to || link->to >= table->layers)
            return fail(err, ERR_FORMAT, "%s: reads: layer %d cannot read layer %d; a layer reads one before it", where,
                        link->to, link->from);
    }
    return OK;
}

enum error_code layer_table_check(struct layer_table *table, const char *where, struct error *err)
{
    enum error_code e = table_sizes(table, where, err);
    if (!e) e = check_sums(table, where, err);
    if (!e) e = check_bandwidth(table, where, err);
    if (!e) e = check_links(table, where, err);
    for (int i = 0; i < table->devices && table->percent && !e; i++)
        if (table->percent[i] < 1)
            e = fail(err, ERR_FORMAT, "%s: percent of device %d is %d; speeds are above 0", where, i,
                     table->percent[i]);
    for (int l = 0; l < table->layers && !e; l++) {
        bool there = false;
        for (int s = 0; s < table->strategies; s++) there = there || layer_cost_of(table, l, s)->there;
        if (!there) e = fail(err, ERR_PLAN, "%s: no strategy is there for layer %d", where, l);
    }
    return e;
}

int layer_size_find(const struct layer_table *table, int devices)
{
    for (int z = 0; z < table->sizes; z++)
        if (table->size[z] == devices) return z;
    return -1;
}

uint64_t layer_table_least(const struct layer_table *table)
{
    uint64_t most = 0;
    for (int l = 0; l < table->layers; l++) {
        uint64_t least = UINT64_MAX;
        for (int s = 0; s < table->strategies; s++) {
            const int size = layer_size_find(table, table->strategy[s].devices);
            if (size < 0 || !layer_cost_of(table, l, s)->there) continue;
            const uint64_t needs = table->beside[size] + layer_memory(table, l, s, 1);
            least = needs < least ? needs : least;
        }
        most = least > most ? least : most;
    }
    return most;
}

picoseconds layer_slowed(const struct layer_table *table, picoseconds time, int first_device, int devices)
{
    int least = 100;
    for (int d = first_device; d < first_device + devices && table->percent; d++)
        if (d == first_device || table->percent[d] < least) least = table->percent[d];
    return least == 100 ? time : (100 * time + least - 1) / least;
}

double layer_bandwidth(const struct layer_table *table, int from, int to)
{
    if (table->bandwidth) return table->bandwidth[(size_t)from * (size_t)table->devices + (size_t)to];
    for (int l = 0; l < table->levels; l++) {
        const int n = table->level[l].devices;
        if (n == 0 || from / n == to / n) return table->level[l].rate;
    }
    return 0;
}

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

picoseconds layer_stage_time(const struct layer_table *table, const struct layer_plan *plan, int stage)
{
    const int from = plan->first[stage], to = plan->first[stage + 1];
    picoseconds sum = 0;
    for (int l = from; l < to; l++) sum += layer_time(table, l, plan->strategy[l]);
    for (int l = from + 1; l < to && table->link == NULL; l++)
        sum += layer_edge(table, plan->strategy[l - 1], plan->strategy[l]);
    for (int i = 0; i < table->links; i++)
        sum += layer_edge(table, plan->strategy[table->link[i].from], plan->strategy[table->link[i].to]);
    return sum;
}

static uint64_t judge_memory(const struct layer_table *table, const struct layer_plan *plan, int stage)
{
    uint64_t sum = table->beside[layer_size_find(table, plan->devices[stage])];
    for (int l = plan->first[stage]; l < plan->first[stage + 1]; l++)
        sum += layer_memory(table, l, plan->strategy[l], layer_flight(table, plan->stages - stage));
    return sum;
}

static bool judge_stage(const struct layer_table *table, const struct layer_plan *plan, int stage, int before)
{
    const int devices = plan->devices[stage];
    bool legal = plan->first[stage] < plan->first[stage + 1] && layer_size_find(table, devices) >= 0
                 && layer_stage_begins(before, devices);
    for (int l = plan->first[stage]; l < plan->first[stage + 1] && legal; l++)
        legal = table->strategy[plan->strategy[l]].devices == devices
                && layer_cost_of(table, l, plan->strategy[l])->there;
    return legal;
}

bool layer_plan_judge(const struct layer_table *table, const struct layer_plan *plan, struct layer_verdict *verdict)
{
    int before = 0;
    *verdict = (struct layer_verdict){ .time = 0 };
    if (plan->stages < 1 || plan->stages > STAGES_MOST || (table->link && plan->stages > 1)) return false;
    for (int s = 0; s < plan->stages; s++) {
        if (!judge_stage(table, plan, s, before) || before + plan->devices[s] > table->devices) return false;
        const picoseconds time = layer_slowed(table, layer_stage_time(table, plan, s), before, plan->devices[s]);
        const uint64_t memory = judge_memory(table, plan, s);
        if (s > 0)
            verdict->hops += table->hop[layer_size_find(table, plan->devices[s - 1])]
                                       [layer_size_find(table, plan->devices[s])];
        if (time > verdict->longest) verdict->longest = time, verdict->slowest = s;
        if (memory > verdict->memory) verdict->memory = memory, verdict->fullest = s;
        verdict->stages += time, before += plan->devices[s];
    }
    verdict->time = verdict->stages + verdict->hops + (table->micros - 1) * verdict->longest;
    return plan->first[0] == 0 && plan->first[plan->stages] == table->layers && before == table->devices;
}

int layer_plan_run_end(const struct layer_plan *plan, int layer)
{
    int stage = 0;
    while (plan->first[stage + 1] <= layer) stage++;
    int end = layer + 1;
    while (end < plan->first[stage + 1] && plan->strategy[end] == plan->strategy[layer]) end++;
    return end;
}

static void describe_more(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    if (used < size) vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

const char *layer_plan_describe(const struct layer_table *table, const struct layer_plan *plan, char *text, size_t size)
{
    text[0] = '\0';
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++])
        for (int l = plan->first[s], end; l < plan->first[s + 1]; l = end) {
            end = layer_plan_run_end(plan, l);
            describe_more(text, size, "%s%s %d", l > 0 ? " | " : "", end - l > 1 ? "layers" : "layer", l);
            if (end - l > 1) describe_more(text, size, "-%d", end - 1);
            describe_more(text, size, " on %s %d", plan->devices[s] > 1 ? "devices" : "device", before);
            if (plan->devices[s] > 1) describe_more(text, size, "-%d", before + plan->devices[s] - 1);
            describe_more(text, size, ": %s", table->strategy[plan->strategy[l]].name);
        }
    return text;
}
