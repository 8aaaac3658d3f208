/* zero_table.c -- `orrery plan --zero-table`: one plan with each data scheme in turn, a row each.  train.c calls on
 * rank 0.  ERR_CHECK means that no row fits; ERR_USAGE, that there is one copy of the model, or several steps. */
#include "emulated_devices/cli/train/compare.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/run/report/report_speed.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* A data scheme, and the plan's step with it. */
struct zero_row {
    const char *scheme;
    int group;                          /* of --shard-group; 0: none */
    struct error why;                   /* the code is not OK: the plan cannot have the scheme */
    struct arena_use held;              /* by the fullest device at its peak */
    uint64_t sent;                      /* by all devices */
    double step;                        /* picoseconds; replayed, if the cluster needs that */
    double exposed;                     /* share of the step; below 0: not known */
    bool fits;
};

enum { ZERO_ROWS = 64 };
struct zero_table { const struct train_options *options; struct zero_row row[ZERO_ROWS]; int rows; };

/* Neighbours along dp on one node, if they are a part of all; else half of the copies, or all of them. */
static int usual_group(const struct plan *plan)
{
    const int copies = plan_copies(plan);
    const struct cluster *c = plan->cluster;
    const int node = c && c->levels > 1 ? c->link[c->levels - 2].devices : 0;
    int n = 1;
    while (n < plan->mesh.size[DP] && mesh_neighbour(&plan->mesh, 0, DP, n) < node) n++;
    n *= plan->mesh.size[CP];
    if (n > 1 && n < copies && copies % n == 0) return n;
    return copies % 2 == 0 && copies > 2 ? copies / 2 : copies;
}

static uint64_t sent_by_all(const struct train_record *record)
{
    const struct folding *const folding = &record->folded.folding;
    uint64_t sum = 0;
    for (int n = 0; n < folding_lives(folding); n++)
        for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
            sum += ledger_kind(&record->device[n].counted, k).bytes_sent;
    return sum * (uint64_t)folding_share(folding);
}

static void zero_take(struct zero_row *row, const struct planned_step *planned)
{
    const struct train_record *const r = &planned->record;
    const struct plan_path *const path = &planned->findings.path;
    const uint64_t has = report_budget(r->options);
    row->held = planned->findings.peak[planned->findings.fullest].use;
    row->sent = sent_by_all(r);
    row->step = r->replayed > 0 ? (double)r->replayed : report_virtual_step(r);
    row->exposed = path->total > 0 ? 100 * (double)step_share_exposed(&path->share) / (double)path->total / 100 : -1;
    row->fits = has == 0 || row->held.total <= has;
}

/* Plan the step with one scheme; a plan that cannot have the scheme is left out, with the reason. */
static enum error_code zero_plan(struct zero_row *row, const struct train_options *options, struct error *err)
{
    struct train_options o = *options;
    struct planned_step planned;
    struct shards unread;
    o.timeline = NULL;
    o.plan.data.scheme = row->scheme;
    if (o.plan.data.group == 0 && data_shards(&unread, &o.plan.data, plan_copies(&o.plan), 0, &row->why))
        o.plan.data.group = row->group = usual_group(&o.plan);
    row->why.code = plan_check(&o.plan, &row->why);
    if (row->why.code) return OK;
    const enum error_code e = planned_step_open(&planned, &o, err);
    if (!e) zero_take(row, &planned);
    planned_step_close(&planned);
    return e;
}

/* ---- saying ------------------------------------------------------------------------------------------------------ */

static void zero_print_row(struct columns *columns, const struct zero_row *row, const struct figure_scale *time,
                           const struct figure_scale *size, const struct figure_scale *sent)
{
    columns_add(columns, LEFT_ALIGNED, "%s", row->scheme);
    columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(time, 1e-12 * row->step).text);
    if (row->exposed >= 0) columns_add(columns, RIGHT_ALIGNED, "%.1f", 100 * row->exposed);
    else columns_add(columns, RIGHT_ALIGNED, "-");
    columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(sent, (double)row->sent).text);
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(size, (double)row->held.tag[tag]).text);
    columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(size, (double)row->held.total).text);
    columns_add(columns, LEFT_ALIGNED, "%s", row->fits ? "yes" : "NO");
    columns_end_row(columns);
}

static void zero_print(FILE *out, const struct zero_table *table)
{
    static const char *const titles[] = { "weights", "grads", "states", "activ.", "buffers", "peak", "fits" };
    double longest = 0;
    uint64_t most = 0, sent = 0;
    for (int i = 0; i < table->rows; i++) {
        const struct zero_row *r = &table->row[i];
        longest = r->step > longest ? r->step : longest, most = r->held.total > most ? r->held.total : most;
        sent = r->sent > sent ? r->sent : sent;
    }
    const struct figure_scale time = time_scale(1e-12 * longest), size = size_scale(most), of_sent = size_scale(sent);
    struct columns c = columns_start(out);
    c.keys = 1;
    say(out, 0, "\nthe step with each data scheme: what the fullest device holds at its peak, in %s; what all devices "
        "send, in %s", size.name, of_sent.name);
    do {
        columns_add(&c, LEFT_ALIGNED, "scheme"), columns_add(&c, RIGHT_ALIGNED, "step %s", time.name);
        columns_add(&c, RIGHT_ALIGNED, "exposed %%"), columns_add(&c, RIGHT_ALIGNED, "sent");
        for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
            columns_add(&c, i == ARENA_TAG_COUNT + 1 ? LEFT_ALIGNED : RIGHT_ALIGNED, "%s", titles[i]);
        columns_end_row(&c);
        for (int i = 0; i < table->rows; i++)
            if (table->row[i].why.code == OK) zero_print_row(&c, &table->row[i], &time, &size, &of_sent);
    } while (columns_again(&c));
    for (int i = 0; i < table->rows; i++) {
        const struct zero_row *r = &table->row[i];
        if (r->why.code) say(out, 8, "left    %s: %s", r->scheme, r->why.text);
        else if (r->group > 0) say(out, 8, "        %s with --shard-group %d", r->scheme, r->group);
    }
}

static enum error_code zero_json(const struct zero_table *table, struct error *err)
{
    const struct train_options *const o = table->options;
    cJSON *root = document_start("orrery plan --zero-table"), *rows, *left;
    json_add(root, "model %s cluster %s devices %d memory_bytes %g", o->plan.model.name, o->cluster.name,
             o->plan.mesh.devices, (double)report_budget(o));
    rows = cJSON_AddArrayToObject(root, "rows"), left = cJSON_AddArrayToObject(root, "left_out");
    for (int i = 0; i < table->rows; i++) {
        const struct zero_row *r = &table->row[i];
        cJSON *row = json_add(json_row(r->why.code ? left : rows), "data_parallel %s", r->scheme), *held;
        if (r->why.code) json_add(row, "why %s", r->why.text);
        if (r->why.code) continue;
        if (r->group > 0) json_add(row, "shard_group %d", r->group);
        json_add(row, "virtual_step_ps %g peak_bytes %g sent_bytes %g fits %hhd", r->step, (double)r->held.total,
                 (double)r->sent, r->fits);
        if (r->exposed >= 0) json_add(row, "exposed_communication %g", r->exposed);
        held = cJSON_AddObjectToObject(row, "held_bytes");
        for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
            cJSON_AddNumberToObject(held, arena_tag_name(tag), (double)r->held.tag[tag]);
    }
    return fail_about(err, json_finish(o->json, root, err), "--json");
}

enum error_code zero_table(const struct train_options *options, struct error *err)
{
    struct zero_table table = { .options = options };
    enum error_code e = OK;
    int fit = 0;
    if (options->steps != 1) return fail(err, ERR_USAGE, "--zero-table: is of one step");
    if (plan_copies(&options->plan) == 1)
        return fail(err, ERR_USAGE, "--zero-table: the plan has one copy of the model, which no data scheme shares; "
                    "--dp N has several");
    for (int i = 0; scheme_at(DATA_SCHEME, i) && table.rows < ZERO_ROWS && !e; i++) {
        const struct scheme *s = scheme_at(DATA_SCHEME, i);
        if (s->equality == DIFFERS) continue;           /* trains another function */
        struct zero_row *const row = &table.row[table.rows++];
        *row = (struct zero_row){ .scheme = s->name };
        e = zero_plan(row, options, err);
        fit += row->why.code == OK && row->fits;
    }
    if (e) return e;
    zero_print(run_stream(options), &table);
    if (options->json) e = zero_json(&table, err);
    if (e || fit > 0) return e;
    return fail(err, ERR_CHECK, "--memory %s: the plan fits with none of the data schemes",
                size_word(report_budget(options)).text);
}
