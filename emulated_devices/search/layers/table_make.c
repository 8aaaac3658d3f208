/* table_make.c -- makes the table of a model: which strategies there are, and what a layer takes with each of them.
 *
 * cli/train/layered.c and tests call.  A strategy whose steps cannot be planned is left out; if none is left the code
 * is ERR_PLAN.  Others are ERR_STOPPED and ERR_MEMORY.
 */
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/search/layers/table_measure.h"
#include "emulated_devices/search/plan_space.h"
#include "emulated_devices/search/layers/table.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stage has at least this part of all devices: deeper pipelines than 32 stages are for more than a search. */
enum { PARTS_MOST = 32 };

/* A dimension has these if no list says it: few values that differ in time and memory, so that a table is made in
 * seconds.  Parts of a layer stay inside a node unless --tp says more. */
static const char usual_tensor[] = "1d-sp", usual_attention[] = "ring-zigzag", usual_data[] = "ddp,zero1,zero3",
                  usual_recompute[] = "none,full", usual_cp[] = "1",
                  /* Devices along tp have different rows, and each expert all rows, or parts of experts. */
                  usual_tensor_of_experts[] = "1d-sp,1d", usual_dispatch[] = "alltoall";

static const char *list_or(const char *list, const char *usual) { return list ? list : usual; }

/* The next word of a list; NULL after the last. */
static const char *next_word(const char **rest, char word[32])
{
    if (*rest == NULL || **rest == '\0') return NULL;
    const size_t n = strcspn(*rest, ",");
    snprintf(word, 32, "%.*s", (int)n, *rest);
    *rest += n + ((*rest)[n] == ',');
    return word;
}

/* ---- which strategies -------------------------------------------------------------------------------------------- */

struct table_maker {
    const struct plan_space *space;
    const struct crew_stop *stop;
    struct layer_table *table;
    int room;
    struct measured_layer *measured;    /* [room] of each strategy */
};

static enum error_code maker_grow(struct table_maker *maker, struct error *err)
{
    struct layer_table *const table = maker->table;
    if (table->strategies < maker->room) return OK;
    const size_t room = 2 * (size_t)maker->room + 64;
    struct strategy *const s = realloc(table->strategy, room * sizeof *s);
    if (s) table->strategy = s;
    struct measured_layer *const m = realloc(maker->measured, room * sizeof *m);
    if (m) maker->measured = m;
    if (!s || !m) return fail(err, ERR_MEMORY, "no memory for %zu strategies", room);
    maker->room = (int)room;
    return OK;
}

static void name_strategy(struct strategy *s)
{
    char mesh[48] = "";
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        const size_t used = strlen(mesh);
        if (s->axis[a] > 1) snprintf(mesh + used, sizeof mesh - used, "%s %d ", axis_name(a), s->axis[a]);
    }
    char experts[48] = "";
    if (s->ep > 1) snprintf(experts, sizeof experts, "ep %d %s ", s->ep, s->dispatch);
    snprintf(s->name, sizeof s->name, "%s%s%s%s%s%s%s%s%s", mesh, experts, s->data, s->axis[TP] > 1 ? " " : "",
             s->axis[TP] > 1 ? s->tensor : "", s->axis[CP] > 1 ? " " : "", s->axis[CP] > 1 ? s->attention : "",
             strcmp(s->recompute, "none") != 0 ? " recompute " : "",
             strcmp(s->recompute, "none") != 0 ? s->recompute : "");
}

/* Strategies that cut the stream alike: one mesh, and one way to cut sequences and tokens. */
static bool layout_equal(const struct strategy *a, const struct strategy *b)
{
    return memcmp(a->axis, b->axis, sizeof a->axis) == 0
           && (a->axis[CP] == 1 || strcmp(a->attention, b->attention) == 0)
           && (a->axis[TP] == 1 || strcmp(a->tensor, b->tensor) == 0);
}

/* Measure a strategy, and keep it if it can be trained. */
static enum error_code add_strategy(struct table_maker *maker, struct strategy s, struct error *err)
{
    struct layer_table *const table = maker->table;
    struct measured_layer measured;
    enum error_code e = measure_layer(maker->space->base, &s, table->micros, maker->stop, &measured, err);
    if (e == ERR_PLAN || e == ERR_USAGE) return OK;
    if (!e && table->strategies == STRATEGIES_MOST)
        e = fail(err, ERR_PLAN, "there are more than %d strategies; limit them with --tp, --recompute, "
                 "--data-parallel, --tensor", STRATEGIES_MOST);
    if (!e) e = maker_grow(maker, err);
    if (e) return e;
    name_strategy(&s);
    s.layout = table->layouts;
    for (int i = 0; i < table->strategies; i++)
        if (layout_equal(&table->strategy[i], &s)) s.layout = table->strategy[i].layout;
    table->layouts += s.layout == table->layouts;
    maker->measured[table->strategies] = measured;
    table->strategy[table->strategies++] = s;
    return OK;
}

/* All data schemes and recomputations of a mesh with these schemes. */
static enum error_code add_data(struct table_maker *maker, struct strategy s, struct error *err)
{
    const struct plan_space *const space = maker->space;
    const char *const usual = s.axis[DP] * s.axis[CP] > 1 ? usual_data : "ddp";
    const char *data = s.axis[DP] * s.axis[CP] > 1 ? list_or(space->only[BY_DATA], usual) : usual;
    enum error_code e = OK;
    while (!e && next_word(&data, s.data)) {
        const char *recompute = list_or(space->only[BY_RECOMPUTE], usual_recompute);
        while (!e && next_word(&recompute, s.recompute)) e = add_strategy(maker, s, err);
    }
    return e;
}

/* The devices of the machine's largest unit; 1: it has none. */
static int node_devices(const struct plan_space *space)
{
    const struct cluster *const c = space->base->cluster;
    int node = 1;
    for (int l = 0; c && l < c->levels; l++)
        if (c->link[l].devices > node) node = c->link[l].devices;
    return node;
}

/* Parts of the experts that are usual: none, or as many as a node of the stage can have. */
static bool takes_ep(const struct plan_space *space, int devices, int ep)
{
    const int64_t E = space->base->model.mixture.E;
    int most = 1;
    if (ep == 1) return space->sizes[EP] == NULL || plan_space_list_has(space->sizes[EP], 1);
    if (space->base->model.mlp != MLP_MIXTURE || E % ep != 0 || devices % ep != 0) return false;
    if (space->sizes[EP]) return plan_space_list_has(space->sizes[EP], ep);
    for (int n = 1; n <= node_devices(space); n++)
        if (E % n == 0 && devices % n == 0) most = n;
    return ep == most;
}

/* Each device has all experts, or a part of them, which rows are sent to. */
static enum error_code add_experts(struct table_maker *maker, struct strategy s, struct error *err)
{
    enum error_code e = OK;
    for (s.ep = 1; s.ep <= s.devices && !e; s.ep++) {
        const char *dispatch = s.ep > 1 ? list_or(maker->space->only[BY_EXPERTS], usual_dispatch) : "here";
        if (!takes_ep(maker->space, s.devices, s.ep)) continue;
        while (!e && next_word(&dispatch, s.dispatch)) e = add_data(maker, s, err);
    }
    return e;
}

static enum error_code add_schemes(struct table_maker *maker, struct strategy s, struct error *err)
{
    const struct plan_space *const space = maker->space;
    const char *const usual = space->base->model.mlp == MLP_MIXTURE ? usual_tensor_of_experts : usual_tensor,
        *tensor = s.axis[TP] > 1 ? list_or(space->only[BY_TENSOR], usual) : "1d";
    enum error_code e = OK;
    while (!e && next_word(&tensor, s.tensor)) {
        const char *attention = s.axis[CP] > 1 ? list_or(space->only[BY_ATTENTION], usual_attention) : "whole";
        while (!e && next_word(&attention, s.attention)) e = add_experts(maker, s, err);
    }
    return e;
}

/* Parts of a layer that are usual: they divide the heads, and are inside a node. */
static bool takes_tp(const struct plan_space *space, int tp)
{
    const int node = node_devices(space);
    if (space->sizes[TP]) return plan_space_list_has(space->sizes[TP], tp);
    return space->base->model.H % tp == 0 && (tp == 1 || tp <= node || node == 1);
}

/* Whether stages of n devices, one after another, lie in units of the machine all alike: each in one unit, or in whole
 * units.  Others would take longer than the first, which is measured. */
static bool tiles_machine(const struct plan_space *space, int n)
{
    const struct cluster *const c = space->base->cluster;
    for (int l = 0; c && l < c->levels && n < space->devices; l++)
        if (c->link[l].devices > 0 && c->link[l].devices % n != 0 && n % c->link[l].devices != 0) return false;
    return true;
}

/* Every mesh of a stage with n devices whose copies divide a microbatch. */
static enum error_code add_size(struct table_maker *maker, int n, struct error *err)
{
    const struct plan_space *const space = maker->space;
    const int64_t sequences = space->base->B / maker->table->micros;
    enum error_code e = OK;
    for (int tp = 1; tp <= n; tp++)
        for (int cp = 1; cp <= n / tp && !e; cp++) {
            const int dp = n / tp / cp;
            struct strategy s = { .devices = n, .axis = { [DP] = dp, [CP] = cp, [TP] = tp, [PP] = 1, [EP] = 1 } };
            if (tp * cp * dp != n || sequences % dp != 0 || !takes_tp(space, tp) ||
                !plan_space_list_has(list_or(space->sizes[CP], usual_cp), cp) ||
                !plan_space_list_has(space->sizes[DP], dp)) continue;
            e = add_schemes(maker, s, err);
        }
    return e;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum { FIRST, MIDDLE, LAST, KINDS };    /* layers: with the embedding, inside, with the loss */

static void put_cost(struct layer_table *table, int kind, int strategy, struct layer_cost cost)
{
    cost.there = true;
    table->cost[kind * table->strategies + strategy] = cost;
}

static struct layer_cost with_end(struct layer_cost layer, struct layer_cost end)
{
    layer.time += end.time, layer.once += end.once, layer.computing += end.computing;
    layer.state += end.state, layer.activation += end.activation;
    layer.shared += end.shared;
    for (int i = 0; i < CLUSTER_LEVELS; i++) layer.sent[i] += end.sent[i];
    return layer;
}

/* A stage has beside its layers what any strategy of its size needs for a while, so that memory adds up.  The last
 * stage's logits are more, and count with its layer. */
static void put_costs(struct table_maker *maker)
{
    struct layer_table *const table = maker->table;
    for (int s = 0; s < table->strategies; s++) {
        uint64_t *const beside = &table->beside[layer_size_find(table, table->strategy[s].devices)];
        if (maker->measured[s].passing > *beside) *beside = maker->measured[s].passing;
    }
    for (int s = 0; s < table->strategies; s++) {
        const struct measured_layer *const m = &maker->measured[s];
        const uint64_t beside = table->beside[layer_size_find(table, table->strategy[s].devices)];
        struct layer_cost last = m->last;
        if (m->passing_last > beside) last.state += m->passing_last - beside;
        put_cost(table, MIDDLE, s, m->layer);
        put_cost(table, FIRST, s, with_end(m->layer, m->first));
        put_cost(table, LAST, s, with_end(table->layers == 1 ? with_end(m->layer, m->first) : m->layer, last));
    }
}

static enum error_code put_edges(struct table_maker *maker, struct error *err)
{
    struct layer_table *const table = maker->table;
    enum error_code e = OK;
    for (int a = 0; a < table->strategies && !e; a++)
        for (int b = 0; b < table->strategies && !e; b++) {
            const struct strategy *const from = &table->strategy[a], *const to = &table->strategy[b];
            picoseconds *const edge = &table->edge[from->layout * table->layouts + to->layout];
            if (from->layout == to->layout || from->devices != to->devices || *edge > 0) continue;
            e = measure_edge(maker->space->base, from, to, table->micros, edge, err);
        }
    return e;
}

/* Room for everything that the strategies decide. */
static enum error_code open_costs(struct layer_table *table, struct error *err)
{
    table->kinds = KINDS;
    table->kind = calloc((size_t)table->layers, sizeof *table->kind);
    table->cost = calloc((size_t)(KINDS * table->strategies), sizeof *table->cost);
    table->edge = calloc((size_t)(table->layouts * table->layouts), sizeof *table->edge);
    if (!table->kind || !table->cost || !table->edge)
        return fail(err, ERR_MEMORY, "no memory for %d strategies", table->strategies);
    for (int l = 0; l < table->layers; l++)
        table->kind[l] = l == table->layers - 1 ? LAST : l == 0 ? FIRST : MIDDLE;
    for (int s = 0; s < table->strategies; s++)         /* the check wants one for each layer */
        for (int k = 0; k < KINDS; k++) table->cost[k * table->strategies + s].there = true;
    return layer_table_check(table, "--planner", err);
}

/* The products of a layer: to heads, from heads, and both of the feed-forward part. */
static void put_products(struct layer_table *table, const struct plan *base)
{
    const struct model_config *const m = &base->model;
    const int64_t rows = base->B / table->micros * base->S;
    const struct layer_product all[] = { { rows, m->D, (m->H + 2 * m->K) * m->A }, { rows, m->H * m->A, m->D },
                                         { rows, m->D, m->F }, { rows, m->F, m->D } };
    table->products = sizeof all / sizeof *all;
    memcpy(table->product, all, sizeof all);
}

static enum error_code take_machine(struct layer_table *table, const struct plan *base, struct error *err)
{
    const struct cluster *const c = base->cluster;
    for (int a = 0; a < table->sizes; a++)
        for (int b = 0; b < table->sizes; b++)
            table->hop[a][b] = measure_hop(base, table->size[a], table->size[b], table->micros);
    table->stream = (uint64_t)(base->B / table->micros * base->S * base->model.D) * dtype_size(base->dtype);
    put_products(table, base);
    table->levels = c ? c->levels : 0;
    for (int l = 0; l < table->levels; l++)
        table->level[l].devices = c->link[l].devices, table->level[l].rate = (double)c->link[l].rate;
    if (c == NULL || c->speeds == 0) return OK;
    table->percent = calloc((size_t)table->devices, sizeof *table->percent);
    if (table->percent == NULL) return fail(err, ERR_MEMORY, "no memory for the speeds of %d devices", table->devices);
    for (int d = 0; d < table->devices; d++) table->percent[d] = cluster_percent(c, d);
    return OK;
}

/* Layers must be alike, so that two of them say what each takes. */
static enum error_code check_model(const struct plan_space *space, int micros, struct error *err)
{
    const struct plan *const base = space->base;
    if (layer_set_count(&base->model.dense.at, base->model.L) > 0)
        return fail(err, ERR_PLAN, "--model %s: some layers are dense and some have experts; plans by layers are of "
                    "equal layers", base->model.name);
    if (base->model.L > LAYERS_MOST)
        return fail(err, ERR_PLAN, "--model %s: has %lld layers; plans by layers have at most %d", base->model.name,
                    (long long)base->model.L, LAYERS_MOST);
    if (base->B % micros != 0)
        return fail(err, ERR_PLAN, "--micro %d: does not divide --batch %lld", micros, (long long)base->B);
    return OK;
}

enum error_code layer_table_make(struct layer_table *table, const struct plan_space *space, int micros,
                                 const struct crew_stop *stop, struct error *err)
{
    struct table_maker maker = { .space = space, .stop = stop, .table = table };
    *table = (struct layer_table){ .devices = space->devices, .micros = micros, .layers = (int)space->base->model.L };
    snprintf(table->title, sizeof table->title, "%s on %s", space->base->model.name,
             space->base->cluster ? space->base->cluster->name : "any machine");
    enum error_code e = check_model(space, micros, err);
    for (int n = 1; n <= space->devices && !e; n++)
        if (space->devices % n == 0 && space->devices / n <= PARTS_MOST && tiles_machine(space, n))
            e = add_size(&maker, n, err);
    if (!e && table->strategies == 0)
        e = fail(err, ERR_PLAN, "--devices %d --micro %d: no strategy can be trained: copies must divide the %lld "
                 "sequences of a microbatch, parts of a layer the %lld heads", space->devices, micros,
                 (long long)(space->base->B / micros), (long long)space->base->model.H);
    if (!e) e = open_costs(table, err);
    if (!e) e = take_machine(table, space->base, err);
    if (!e) put_costs(&maker);
    if (!e) e = put_edges(&maker, err);
    free(maker.measured);
    if (e) layer_table_free(table);
    return e;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static enum error_code fill_section(struct plan *section, const struct strategy *s, struct interval layers, int device,
                                    struct error *err)
{
    const enum error_code e = mesh_make(&section->mesh, s->axis, err);
    section->mesh.first = device, section->layers = layers;
    section->tensor = s->tensor, section->attention = s->attention;
    section->data.scheme = s->data, section->recompute = s->recompute;
    if (s->ep > 1) section->ep = s->ep, section->etp = 1, section->dispatch = s->dispatch;
    return e;
}

enum error_code layer_plan_fill(const struct layer_table *table, const struct layer_plan *plan,
                                const struct plan *base, struct plan *out, struct sections *sections,
                                struct error *err)
{
    int count = 0;
    for (int l = 0; l < table->layers; l = layer_plan_run_end(plan, l)) count++;
    *out = *base;
    out->micros = table->micros, out->schedule = "1f1b", out->sections = NULL;
    enum error_code e = sections_open(sections, out, count, err);
    if (e) return e;
    for (int s = 0, i = 0, device = 0; s < plan->stages; device += plan->devices[s++])
        for (int l = plan->first[s], end; l < plan->first[s + 1] && !e; l = end) {
            end = layer_plan_run_end(plan, l);
            e = fill_section(&sections->at[i++], &table->strategy[plan->strategy[l]],
                             (struct interval){ l, end - l }, device, err);
        }
    out->sections = sections;
    if (e) sections_free(sections);
    return e;
}

enum error_code layer_plan_sections(const struct layer_table *table, const struct layer_plan *plan,
                                    const struct plan *base, struct plan *out, struct sections *sections,
                                    struct error *err)
{
    enum error_code e = layer_plan_fill(table, plan, base, out, sections, err);
    if (e) return e;
    e = plan_check(out, err);
    if (e) sections_free(sections);
    return e;
}
