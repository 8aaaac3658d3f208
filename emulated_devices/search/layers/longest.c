/* longest.c -- cuts layers into stages whose longest one is short, by dynamic programming.
 *
 *     A[k][i][d] = min over j and n of max(least(i..j-1 on n devices), A[k-1][j][d-n])
 *
 * What else a step takes, the other stages while the pipeline fills and the hops, is not counted.  Of all numbers of
 * stages the table's time decides.
 *
 * pipedream.c and piper.c call.  Without memory the code is ERR_MEMORY; other codes are the rule's.
 */
#include "emulated_devices/search/layers/longest.h"
#include <stdlib.h>

static const picoseconds NO_STAGE = INT64_MAX / 4;

struct longest {
    struct layer_search *search;
    const struct stage_rule *rule;
    picoseconds *most;                  /* A, [k][layer][devices left] */
    int16_t *end, *size;                /* of the first stage */
};

static size_t longest_at(const struct longest *longest, int k, int layer, int left)
{
    const struct layer_table *const table = longest->search->table;
    return ((size_t)k * (size_t)(table->layers + 1) + (size_t)layer) * (size_t)(table->devices + 1) + (size_t)left;
}

static enum error_code longest_cell(struct longest *longest, int k, int layer, int left, struct error *err)
{
    const struct layer_table *const table = longest->search->table;
    const size_t at = longest_at(longest, k, layer, left);
    const struct stage_rule *const rule = longest->rule;
    longest->most[at] = NO_STAGE;
    for (int z = 0; z < table->sizes; z++) {
        const int n = table->size[z], before = table->devices - left;
        if (n > left || !layer_stage_begins(before, n)) continue;
        for (int end = k == 1 ? table->layers : layer + 1; end <= table->layers - (k - 1); end++) {
            const picoseconds behind = k == 1 ? left == n ? 0 : NO_STAGE
                                              : longest->most[longest_at(longest, k - 1, end, left - n)];
            picoseconds time;
            if (behind >= longest->most[at]) continue;
            const enum error_code e = rule->least(rule->context, layer, end, z, layer_flight(table, k), &time, err);
            if (e) return e;
            if (time < 0) break;
            time = layer_slowed(table, time, before, n);
            if (time >= longest->most[at]) break;       /* more layers take longer */
            longest->most[at] = time > behind ? time : behind;
            longest->end[at] = (int16_t)end, longest->size[at] = (int16_t)z;
        }
    }
    return OK;
}

static enum error_code longest_trace(struct longest *longest, int stages, struct error *err)
{
    const struct layer_table *const table = longest->search->table;
    struct layer_plan plan = { .stages = stages };
    enum error_code e = OK;
    if (longest->most[longest_at(longest, stages, 0, table->devices)] >= NO_STAGE) return OK;
    for (int s = 0, layer = 0, left = table->devices; s < stages && !e; s++) {
        const size_t at = longest_at(longest, stages - s, layer, left);
        const int z = longest->size[at];
        plan.first[s] = layer, plan.devices[s] = table->size[z];
        e = longest->rule->trace(longest->rule->context, layer, longest->end[at], z, layer_flight(table, stages - s),
                                 plan.strategy, err);
        layer = longest->end[at], left -= table->size[z];
    }
    plan.first[stages] = table->layers;
    if (!e) layer_search_offer(longest->search, &plan);
    return e;
}

/* Numbers of devices that are left: multiples of the smallest stage, if all stages are. */
static int longest_step(const struct layer_table *table)
{
    for (int z = 1; z < table->sizes; z++)
        if (table->size[z] % table->size[0] != 0) return 1;
    return table->devices % table->size[0] == 0 ? table->size[0] : 1;
}

static enum error_code longest_fill(struct longest *longest, struct error *err)
{
    const struct layer_table *const table = longest->search->table;
    const int step = longest_step(table);
    int most = table->devices / table->size[0];
    if (most > table->layers) most = table->layers;
    if (most > STAGES_MOST) most = STAGES_MOST;
    const size_t room = longest_at(longest, most + 1, 0, 0);
    longest->most = malloc(room * sizeof *longest->most);
    longest->end = malloc(room * sizeof *longest->end), longest->size = malloc(room * sizeof *longest->size);
    if (!longest->most || !longest->end || !longest->size)
        return fail(err, ERR_MEMORY, "no memory for %d stages of %d layers", most, table->layers);
    enum error_code e = OK;
    for (int k = 1; k <= most && !e; k++) {
        for (int layer = table->layers - k; layer >= 0 && !e; layer--)
            for (int left = 0; left <= table->devices && !e; left += step)
                e = longest_cell(longest, k, layer, left, err);
        if (!e) e = longest_trace(longest, k, err);
    }
    longest->search->looked += (int64_t)room;
    return e;
}

enum error_code longest_solve(struct layer_search *search, const struct stage_rule *rule, struct error *err)
{
    struct longest longest = { .search = search, .rule = rule };
    const enum error_code e = longest_fill(&longest, err);
    free(longest.most), free(longest.end), free(longest.size);
    return e;
}
