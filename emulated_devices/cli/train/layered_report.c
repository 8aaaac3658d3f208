/* layered_report.c -- what is said of a search by layers: planners side by side, why the first is the first, the
 * frontier, the plan as a file of --plan, JSON.  layered.c calls.  layered_nothing_fits returns ERR_CHECK. */
#include "emulated_devices/plan/sections_file.h"
#include "emulated_devices/cli/train/layered.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* ---- side by side ------------------------------------------------------------------------------------------------ */

static void print_layered_head(const struct layered *layered)
{
    const struct searched *const s = layered->searched;
    const struct layer_table *const t = &layered->table[0];
    if (layered->of_model)
        say(s->out, 8, "search  %d devices of %s for %s in %s: %lld sequences of %lld tokens a step, %s a device",
            t->devices, s->options->cluster.name, s->options->plan.model.name, dtype_name(s->options->plan.dtype),
            (long long)s->options->plan.B, (long long)s->options->plan.S,
            s->search.memory ? memory_format(s->search.memory).text : "any memory");
    else say(s->out, 8, "search  %s: %s, %d devices, %s a device", printable_path(search_asked.table).text,
             t->title[0] ? t->title : "a table", t->devices,
             s->search.memory ? size_format(s->search.memory).text : "any memory");
    say(s->out, 8, "table   %d layers x %d strategies, %d layouts of the residual stream; microbatches%s", t->layers,
        t->strategies, t->layouts, layered->tables > 1 ? ", one table each:" : ":");
    for (int i = 0; i < layered->tables; i++)
        say(s->out, 8, "        %d: %d strategies", layered->table[i].micros, layered->table[i].strategies);
    if (layered->of_model) say(s->out, 8, "        made in %s", time_format(layered->made).text);
}

static void add_row(struct columns *t, const struct layered_row *row)
{
    columns_add(t, LEFT_ALIGNED, "%s", row->planner->name);
    if (row->found) {
        columns_add(t, RIGHT_ALIGNED, "%s", picoseconds_format((double)row->search.verdict.time).text);
        columns_add(t, RIGHT_ALIGNED, "%s", row->step > 0 ? picoseconds_format((double)row->step).text : "-");
        columns_add(t, RIGHT_ALIGNED, "%s", size_format(row->peak > 0 ? row->peak : row->search.verdict.memory).text);
        columns_add(t, RIGHT_ALIGNED, "%d", layered_table(row)->micros);
        columns_add(t, RIGHT_ALIGNED, "%d", row->search.best.stages);
    } else {
        columns_add(t, RIGHT_ALIGNED, "%s", row->refused[0] ? "refused" : "none fits");
        for (int i = 0; i < 4; i++) columns_add(t, RIGHT_ALIGNED, "-");
    }
    columns_add(t, RIGHT_ALIGNED, "%s", count_format((double)row->search.looked).text);
    columns_add(t, RIGHT_ALIGNED, "%s", time_format(row->seconds).text);
    columns_end_row(t);
}

static void print_rows(const struct layered *layered)
{
    struct columns t = columns_start(layered->searched->out);
    fprintf(t.out, "\n");
    do {
        static const char *const titles[] = { "a step by the table", "planned", "memory", "micro", "stages",
                                              "looked at", "took" };
        columns_add(&t, LEFT_ALIGNED, "planner");
        for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) columns_add(&t, RIGHT_ALIGNED, "%s", titles[i]);
        columns_end_row(&t);
        for (int i = 0; i < layered->rows; i++) add_row(&t, &layered->row[i]);
    } while (columns_again(&t));
    for (int i = 0; i < layered->rows; i++)
        if (layered->row[i].refused[0]) say(t.out, 8, "        %s", layered->row[i].refused);
    if (layered->row[0].step == 0 && layered->of_model)
        say(t.out, 8, "        few of its devices do the same, so a step takes minutes to plan: orrery plan --plan "
            "FILE (--out)");
}

/* ---- why --------------------------------------------------------------------------------------------------------- */

/* Say what a reader must know of a plan besides its promise. */
static void print_limits(const struct layered *layered, const struct layered_row *row)
{
    FILE *const out = layered->searched->out;
    if (row->search.thinned)
        say(out, 8, "        up to this: the table is large, so points, bounds or units of memory stand for several "
            "near them");
    if (row->search.note[0]) say(out, 8, "        %s", row->search.note);
    if (row->memory < layered->searched->search.memory)
        say(out, 8, "        with %s less memory: a planned step of its first plan needs more than the table says",
            size_format(layered->searched->search.memory - row->memory).text);
    if (row->search.slot) say(out, 8, "        devices have other places than their order: --slots");
    if (row->search.predicted > 0)
        say(out, 8, "        by its own formula a step takes %s",
            picoseconds_format((double)row->search.predicted).text);
}

/* A run of layers with one strategy, on a line of its own. */
static void print_layers(const struct layered *layered, const struct layered_row *row)
{
    const struct layer_table *const table = layered_table(row);
    const struct layer_plan *const plan = &row->search.best;
    FILE *const out = layered->searched->out;
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++]) {
        const picoseconds time = layer_slowed(table, layer_stage_time(table, plan, s), before, plan->devices[s]);
        for (int l = plan->first[s], end; l < plan->first[s + 1]; l = end) {
            char layers[48], devices[48];
            end = layer_plan_run_end(plan, l);
            snprintf(layers, sizeof layers, end - l > 1 ? "layers %d-%d" : "layer %d", l, end - 1);
            snprintf(devices, sizeof devices, plan->devices[s] > 1 ? "devices %d-%d" : "device %d", before,
                     before + plan->devices[s] - 1);
            say(out, 8, "        %s on %s: %s", layers, devices, table->strategy[plan->strategy[l]].name);
        }
        if (plan->stages > 1)
            say(out, 8, "            stage %d: %s a microbatch%s", s, picoseconds_format((double)time).text,
                s == row->search.verdict.slowest ? ", the longest" : "");
    }
}

static struct figure more_of(picoseconds more)
{
    const struct figure size = picoseconds_format((double)more);
    struct figure change;
    snprintf(change.text, sizeof change.text, "%s%.30s", more > 0 ? "+" : "", size.text);
    return change;
}

/* Say what another planner's plan spends more, by the table: in the longest stage, while the pipeline fills, and in
 * hops. */
static void print_layered_why(const struct layered *layered, const struct layered_row *other)
{
    const struct layered_row *const first = &layered->row[0];
    const struct layer_verdict *const a = &first->search.verdict, *const b = &other->search.verdict;
    const int64_t m = layered_table(first)->micros, n = layered_table(other)->micros;
    const picoseconds longest = n * b->longest - m * a->longest,
                      filling = b->stages - b->longest - (a->stages - a->longest), hops = b->hops - a->hops;
    if (b->time == a->time) {
        say(layered->searched->out, 8, "        %s: the same time by the table", other->planner->name);
        return;
    }
    say(layered->searched->out, 8, "        %s takes %s more by the table, %.1f %%: longest stage %s over all "
        "microbatches, other stages while the pipeline fills %s, hops %s", other->planner->name,
        picoseconds_format((double)(b->time - a->time)).text, 100 * ((double)b->time / (double)a->time - 1),
        more_of(longest).text, more_of(filling).text, more_of(hops).text);
}

static void print_explained(const struct layered *layered)
{
    FILE *const out = layered->searched->out;
    for (int i = 0; i < layered->rows; i++) {
        const struct layered_row *const row = &layered->row[i];
        say(out, 8, "\n%s", row->planner->name);
        say(out, 8, "        %s; of its plan: %s", row->planner->description, row->planner->promise);
        if (row->found) print_layers(layered, row);
        else say(out, 8, "        %s", row->refused[0] ? row->refused : "finds no plan that fits");
        if (i > 0 && row->found) print_layered_why(layered, row);
        if (row->found) print_limits(layered, row);
    }
}

static void print_layered_frontier(const struct layered *layered)
{
    FILE *const out = layered->searched->out;
    for (int i = 0; i < layered->rows; i++) {
        const struct layered_row *const row = &layered->row[i];
        enum { SHOWN = 12 };
        if (row->search.points < 2) continue;
        fprintf(out, "\nless memory for more time, of the plans of one stage by %s: %d points\n", row->planner->name,
                row->search.points);
        const int every = (row->search.points + SHOWN - 1) / SHOWN;
        for (int p = 0; p < row->search.points; p += every)
            say(out, 8, "%10s  %s", picoseconds_format((double)row->search.point[p].time).text,
                size_format(row->search.point[p].memory).text);
    }
}

/* Places as the words of --slots: "4-7,0-3"; empty without. */
static void slots_words(const struct layered_row *row, char *text, size_t size)
{
    const int *const slot = row->search.slot, n = layered_table(row)->devices;
    size_t used = (size_t)snprintf(text, size, slot ? " --slots " : "%s", "");
    for (int d = 0, end; slot && d < n; d = end) {
        for (end = d + 1; end < n && slot[end] == slot[end - 1] + 1; end++) { }
        if (used < size) used += (size_t)snprintf(text + used, size - used, "%s%d", d > 0 ? "," : "", slot[d]);
        if (end - d > 1 && used < size) used += (size_t)snprintf(text + used, size - used, "-%d", slot[end - 1]);
    }
}

/* The words that run the first plan. */
static void print_layered_words(const struct layered *layered)
{
    const struct searched *const s = layered->searched;
    char slots[2000];
    if (!layered->of_model) return;
    slots_words(&layered->row[0], slots, sizeof slots);
    say(s->out, 8, "run     orrery train --plan %s --micro %d%s%s%s",
        search_asked.out ? printable_path(search_asked.out).text : "FILE", layered_table(&layered->row[0])->micros,
        slots, s->common[0] ? " " : "", s->common);
    if (search_asked.out == NULL) say(s->out, 8, "        --out FILE writes the file");
}

void layered_print(const struct layered *layered)
{
    FILE *const out = layered->searched->out;
    const struct layered_row *const first = &layered->row[0];
    print_layered_head(layered);
    print_rows(layered);
    if (search_asked.explain) print_explained(layered);
    else {
        say(out, 8, "\nbest    by %s: %s", first->planner->name, first->planner->promise);
        print_layers(layered, first);
        print_limits(layered, first);
    }
    print_layered_frontier(layered);
    fprintf(out, "\n");
    print_layered_words(layered);
}

/* ---- a file of --plan -------------------------------------------------------------------------------------------- */

enum error_code layered_write(const struct layered *layered, const char *path, struct error *err)
{
    const struct layered_row *const row = &layered->row[0];
    const struct layer_table *const table = layered_table(row);
    const struct layer_plan *const plan = &row->search.best;
    struct plan filled;
    struct sections sections;
    char *text = NULL;
    size_t size = 0;
    for (int l = 0; l < table->layers; l++)
        if (table->strategy[plan->strategy[l]].axis[DP] == 0)
            return fail(err, ERR_USAGE, "%s: strategy %s has no mesh and no schemes, so it is no plan of a model",
                        printable_path(path).text, table->strategy[plan->strategy[l]].name);
    enum error_code e = layer_plan_fill(table, plan, &layered->searched->options->plan, &filled, &sections, err);
    if (e) return e;
    FILE *const to = open_memstream(&text, &size);
    if (to == NULL) return sections_free(&sections), fail(err, ERR_MEMORY, "no memory for a plan");
    fprintf(to, "# orrery search --planner %s: %s; with --micro %d\n", row->planner->name, table->title, table->micros);
    sections_write(&filled, to);
    sections_free(&sections);
    const bool made = fclose(to) == 0;
    e = made ? file_write_all(path, text, size, err) : fail(err, ERR_MEMORY, "no memory");
    free(text);
    return e;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_sections(cJSON *row, const struct layered_row *from)
{
    const struct layer_table *const table = layered_table(from);
    const struct layer_plan *const plan = &from->search.best;
    cJSON *const list = cJSON_AddArrayToObject(row, "sections");
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++])
        for (int l = plan->first[s], end; l < plan->first[s + 1]; l = end) {
            end = layer_plan_run_end(plan, l);
            json_add(json_row(list), "stage %d first_layer %d last_layer %d first_device %d devices %d strategy %s", s,
                     l, end - 1, before, plan->devices[s], table->strategy[plan->strategy[l]].name);
        }
}

enum error_code layered_json(const struct layered *layered, struct error *err)
{
    cJSON *const root = document_start("orrery search by layers");
    const struct layer_table *const t = &layered->table[0];
    json_add(root, "title %s devices %d layers %d strategies %d memory_bytes %g words %s", t->title, t->devices,
             t->layers, t->strategies, (double)layered->searched->search.memory, layered->searched->common);
    cJSON *const list = cJSON_AddArrayToObject(root, "planners");
    for (int i = 0; i < layered->rows; i++) {
        const struct layered_row *const from = &layered->row[i];
        cJSON *const row = json_add(json_row(list), "planner %s found %hhd looked %g", from->planner->name,
                                    from->found, (double)from->search.looked);
        if (from->refused[0]) json_add(row, "refused %s", from->refused);
        if (!from->found) continue;
        json_add(row, "micro %d table_step_ps %g table_peak_bytes %g thinned %hhd", layered_table(from)->micros,
                 (double)from->search.verdict.time, (double)from->search.verdict.memory, from->search.thinned);
        if (from->search.note[0]) json_add(row, "note %s", from->search.note);
        if (from->search.unproven) json_add(row, "heuristic %hhd", from->search.unproven);
        if (from->step > 0)
            json_add(row, "virtual_step_ps %g peak_bytes %g", (double)from->step, (double)from->peak);
        if (from->search.predicted > 0) json_add(row, "own_step_ps %g", (double)from->search.predicted);
        if (from->search.slot)
            cJSON_AddItemToObject(row, "slots",
                                  cJSON_CreateIntArray(from->search.slot, layered_table(from)->devices));
        add_sections(row, from);
        cJSON *const frontier = from->search.points > 0 ? cJSON_AddArrayToObject(row, "frontier") : NULL;
        for (int p = 0; p < from->search.points; p++)
            json_add(json_row(frontier), "step_ps %g bytes %g", (double)from->search.point[p].time,
                     (double)from->search.point[p].memory);
    }
    return fail_about(err, json_finish(layered->searched->options->json, root, err), "--json");
}

/* ---- nothing fits ------------------------------------------------------------------------------------------------ */

enum error_code layered_nothing_fits(const struct layered *layered, struct error *err)
{
    const struct searched *const s = layered->searched;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < layered->rows; i++)
        if (layered->rows == 1 && layered->row[i].refused[0])
            return fail(err, ERR_PLAN, "%s", layered->row[i].refused);
    for (int t = 0; t < layered->tables; t++) {
        const uint64_t needs = layer_table_least(&layered->table[t]);
        least = needs < least ? needs : least;
    }
    if (s->search.memory == 0)
        return fail(err, ERR_CHECK, "--planner %s: there is no plan: no strategies fill all %d devices",
                    search_asked.planner ? search_asked.planner : PLANNER_ALL, layered->table[0].devices);
    return fail(err, ERR_CHECK, "--memory %s: no plan by layers fits%s: a layer alone needs at least %s by the table, "
                "with the strategy that needs least", size_word(s->search.memory).text,
                layered->rows == 1 ? " that this planner knows" : "", size_format(least).text);
}
