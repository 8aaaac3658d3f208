/* integer.c -- an integer program: the strategies of all layers in one stage, under the memory of a device.
 *
 *     least  sum of s[l][i] time(l, i) + sum of e[l][a][b] edge(a, b)
 *     with   sum over i of s[l][i] = 1,  s is 0 or 1
 *            sum over b of e[l][a][b] = sum of s[l][i] over the strategies i that cut the stream in way a
 *            sum over a of e[l][a][b] = sum of s[m][i] over those of the reader m in way b
 *            sum of s[l][i] memory(l, i) <= memory
 *
 * This is what Alpa asks CBC for inside a stage, with an edge for each pair of ways to cut the stream in place of each
 * pair of strategies.  GLPK, a kept library, solves the program, where this program was built with it.  Without it, and
 * where GLPK gives up, all plans are looked at if they are few.  Of layers in a chain the fastest plan of any memory is
 * found, and is the answer if it fits.  Else each layer takes the fastest strategy that fits with the leanest of all
 * others, which is a heuristic, and is said.
 *
 * GLPK computes in floating point: times and bytes are brought into a range where its tolerance of 1e-7 is less than a
 * millionth of a step.  What it finds is judged by the table in whole numbers.
 *
 * Apart from tensoropt.c: one plan for one memory, and any graph without eliminations.
 *
 * Source   L. Zheng et al., Alpa, arXiv:2201.12023, section 4; A. Makhorin, GLPK 5.0, reference manual
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/planner.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef ORRERY_GLPK
#include <glpk.h>
static const bool has_glpk = true;
#else
static const bool has_glpk = false;
#endif

enum { ENUMERATED_MOST = 1 << 18,       /* plans: 0.1 s of a processor (tests/devices/test_planners.c) */
       COLUMNS_MOST = 60000,            /* of a program: GLPK takes a minute for as many */
       NODES_MOST = 400 };              /* of branch and bound */

/* ---- the table as a program -------------------------------------------------------------------------------------- */

/* A choice of a layer, of the strategies on all devices.  Of choices that cut the stream alike none is beaten in time
 * and memory by another. */
struct choice_of_layer { int layer, strategy, layout; picoseconds time; uint64_t memory; };

struct program {
    const struct layer_table *table;    /* what layers take */
    uint64_t cap;                       /* bytes for all layers; UINT64_MAX: any */
    struct choice_of_layer *choice;     /* [choices] layer by layer */
    int choices;
    int *first;                         /* [layers + 1] of each layer */
    int links;                          /* pairs of layers between which the stream goes */
    struct layer_link *link;            /* [links] */
};

static void program_close(struct program *program) { free(program->choice), free(program->first), free(program->link); }

/* Whether a strategy of a layer is no worse than another in everything; of equal ones the first is better. */
static bool beats(const struct layer_table *table, int layer, int flight, int a, int b)
{
    const picoseconds x = layer_time(table, layer, a), y = layer_time(table, layer, b);
    const uint64_t m = layer_memory(table, layer, a, flight), n = layer_memory(table, layer, b, flight);
    return table->strategy[a].layout == table->strategy[b].layout && x <= y && m <= n && (x < y || m < n || a < b);
}

static bool may_have(const struct layer_table *table, int layer, int strategy)
{
    return table->strategy[strategy].devices == table->devices && layer_cost_of(table, layer, strategy)->there;
}

static void add_choices(struct program *program, int layer, int flight)
{
    const struct layer_table *const table = program->table;
    for (int s = 0; s < table->strategies; s++) {
        bool beaten = !may_have(table, layer, s);
        for (int i = 0; i < table->strategies && !beaten; i++)
            beaten = i != s && may_have(table, layer, i) && beats(table, layer, flight, i, s);
        if (!beaten)
            program->choice[program->choices++] = (struct choice_of_layer){
                layer, s, table->strategy[s].layout, layer_time(table, layer, s), layer_memory(table, layer, s, flight)
            };
    }
    program->first[layer + 1] = program->choices;
}

static enum error_code program_open(struct program *program, const struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    const uint64_t beside = table->beside[layer_size_find(table, table->devices)];
    *program = (struct program){ .table = table, .links = table->link ? table->links : table->layers - 1 };
    program->cap = search->memory == 0 ? UINT64_MAX : search->memory > beside ? search->memory - beside : 0;
    program->choice = calloc((size_t)(table->layers * table->strategies) + 1, sizeof *program->choice);
    program->first = calloc((size_t)table->layers + 1, sizeof *program->first);
    program->link = calloc((size_t)program->links + 1, sizeof *program->link);
    if (!program->choice || !program->first || !program->link)
        return fail(err, ERR_MEMORY, "no memory for a program of %d layers", table->layers);
    for (int l = 0; l < table->layers; l++) add_choices(program, l, layer_flight(table, 1));
    for (int i = 0; i < program->links; i++)
        program->link[i] = table->link ? table->link[i] : (struct layer_link){ i, i + 1 };
    return OK;
}

static struct layer_plan one_stage(const struct layer_table *table)
{
    struct layer_plan plan = { .stages = 1 };
    plan.first[1] = table->layers, plan.devices[0] = table->devices;
    return plan;
}

/* ---- all plans, or a heuristic ----------------------------------------------------------------------------------- */

static double plans_of(const struct program *program)
{
    double plans = 1;
    for (int l = 0; l < program->table->layers; l++) plans *= program->first[l + 1] - program->first[l];
    return plans;
}

/* Look at all plans, as numbers whose digits are the choices of the layers. */
static void look_at_all(const struct program *program, struct layer_search *search)
{
    const int L = program->table->layers;
    int digit[LAYERS_MOST] = { 0 }, l = 0;
    struct layer_plan plan = one_stage(program->table);
    while (l < L) {
        for (int i = 0; i < L; i++) plan.strategy[i] = program->choice[program->first[i] + digit[i]].strategy;
        layer_search_offer(search, &plan);
        search->looked++;
        for (l = 0; l < L && ++digit[l] == program->first[l + 1] - program->first[l]; l++) digit[l] = 0;
    }
}

static bool is_chain(const struct program *program)
{
    bool chain = program->links == program->table->layers - 1;
    for (int i = 0; i < program->links && chain; i++)
        chain = program->link[i].from == i && program->link[i].to == i + 1;
    return chain;
}

/* Layers in a chain: the fastest way to each choice of a layer, from the choices of the layer before.  Memory does not
 * count here; a fastest plan that fits is the fastest of those that fit. */
static bool take_along_chain(const struct program *program, struct layer_search *search)
{
    const struct layer_table *const table = program->table;
    const struct choice_of_layer *const choice = program->choice;
    picoseconds *time = calloc((size_t)program->choices + 1, sizeof *time);     /* [choices] of the fastest way */
    int *before = calloc((size_t)program->choices + 1, sizeof *before);         /* [choices] the choice before, on it */
    struct layer_plan plan = one_stage(table);
    uint64_t memory = 0;
    bool fits = time && before && is_chain(program);
    for (int i = 0; i < program->choices && fits; i++) {
        const int l = choice[i].layer, begin = l > 0 ? program->first[l - 1] : 0, end = l > 0 ? program->first[l] : 0;
        for (int k = begin; k < end; k++, search->looked++) {
            const picoseconds way = time[k] + layer_edge(table, choice[k].strategy, choice[i].strategy);
            if (k == begin || way < time[i]) time[i] = way, before[i] = k;
        }
        time[i] += choice[i].time;
    }
    int at = program->first[table->layers - 1];
    for (int i = at; i < program->choices && fits; i++)
        if (time[i] < time[at]) at = i;
    for (int l = table->layers - 1; l >= 0 && fits; at = before[at], l--) {
        plan.strategy[l] = choice[at].strategy, memory += choice[at].memory;
        fits = memory <= program->cap;
    }
    if (fits) layer_search_offer(search, &plan);
    free(time), free(before);
    return fits;
}

static uint64_t leanest(const struct program *program, int layer)
{
    uint64_t least = UINT64_MAX;
    for (int i = program->first[layer]; i < program->first[layer + 1]; i++)
        if (program->choice[i].memory < least) least = program->choice[i].memory;
    return least;
}

/* One layer after another takes what is fastest after the layer before it, if all others still have room. */
static void take_in_turn(const struct program *program, struct layer_search *search)
{
    const struct layer_table *const table = program->table;
    struct layer_plan plan = one_stage(table);
    uint64_t needed = 0;
    for (int l = 0; l < table->layers; l++) needed += leanest(program, l);
    for (int l = 0; l < table->layers; l++) {
        const struct choice_of_layer *best = NULL;
        picoseconds least = 0;
        const uint64_t others = needed - leanest(program, l);
        for (int i = program->first[l]; i < program->first[l + 1]; i++) {
            const struct choice_of_layer *const c = &program->choice[i];
            picoseconds time = c->time;
            for (int k = 0; k < program->links; k++)
                if (program->link[k].to == l)
                    time += layer_edge(table, plan.strategy[program->link[k].from], c->strategy);
            search->looked++;
            if (others + c->memory <= program->cap && (best == NULL || time < least)) best = c, least = time;
        }
        if (best == NULL) return;
        plan.strategy[l] = best->strategy, needed = others + best->memory;
    }
    layer_search_offer(search, &plan);
}

/* ---- GLPK -------------------------------------------------------------------------------------------------------- */

#ifdef ORRERY_GLPK

/* A program for GLPK: its columns are choices, then edges. */
struct model {
    const struct program *program;
    glp_prob *of;
    int *edge;                          /* [links * layouts * layouts] the column of an edge */
    int *row, *column, entries;         /* of the matrix; GLPK counts from 1 */
    double *value;
    double time_unit, memory_unit;
};

static void add_entry(struct model *model, int row, int column, double value)
{
    const int n = ++model->entries;
    model->row[n] = row, model->column[n] = column, model->value[n] = value;
}

/* Whether a layer has a choice that cuts the stream in this way. */
static bool has_layout(const struct program *program, int layer, int layout)
{
    bool has = false;
    for (int i = program->first[layer]; i < program->first[layer + 1]; i++)
        has = has || program->choice[i].layout == layout;
    return has;
}

static int program_row(struct model *model, int type, double low, double high)
{
    const int row = glp_add_rows(model->of, 1);
    glp_set_row_bnds(model->of, row, type, low, high);
    return row;
}

/* Every layer has one choice, and all of them fit. */
static void put_choices(struct model *model)
{
    const struct program *const p = model->program;
    const int memory = p->cap < UINT64_MAX ? program_row(model, GLP_UP, 0, (double)p->cap / model->memory_unit) : 0;
    for (int l = 0; l < p->table->layers; l++) {
        const int row = program_row(model, GLP_FX, 1, 1);
        for (int i = p->first[l]; i < p->first[l + 1]; i++) {
            const int column = glp_add_cols(model->of, 1);
            glp_set_col_kind(model->of, column, GLP_BV);
            glp_set_obj_coef(model->of, column, (double)p->choice[i].time / model->time_unit);
            add_entry(model, row, column, 1);
            if (memory) add_entry(model, memory, column, (double)p->choice[i].memory / model->memory_unit);
        }
    }
}

/* The choices of a layer in this way are as many as the edges of a link with this end. */
static void put_end(struct model *model, int link, int layer, int layout, bool reads)
{
    const struct program *const p = model->program;
    const int n = p->table->layouts, row = program_row(model, GLP_FX, 0, 0);
    for (int i = p->first[layer]; i < p->first[layer + 1]; i++)
        if (p->choice[i].layout == layout) add_entry(model, row, i + 1, -1);
    for (int other = 0; other < n; other++) {
        const int edge = model->edge[(link * n + (reads ? other : layout)) * n + (reads ? layout : other)];
        if (edge > 0) add_entry(model, row, edge, 1);
    }
}

static void put_edges(struct model *model)
{
    const struct program *const p = model->program;
    const int n = p->table->layouts;
    for (int k = 0; k < p->links; k++) {
        const struct layer_link link = p->link[k];
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) {
                if (!has_layout(p, link.from, a) || !has_layout(p, link.to, b)) continue;
                const int column = glp_add_cols(model->of, 1);
                glp_set_col_bnds(model->of, column, GLP_LO, 0, 0);
                glp_set_obj_coef(model->of, column, (double)p->table->edge[a * n + b] / model->time_unit);
                model->edge[(k * n + a) * n + b] = column;
            }
        for (int a = 0; a < n; a++) {
            if (has_layout(p, link.from, a)) put_end(model, k, link.from, a, false);
            if (has_layout(p, link.to, a)) put_end(model, k, link.to, a, true);
        }
    }
}

static bool model_open(struct model *model, const struct program *program)
{
    const int n = program->table->layouts;
    const size_t edges = (size_t)program->links * (size_t)n * (size_t)n,
        entries = 4 * (size_t)program->choices + 2 * edges + 2 * (size_t)program->links * (size_t)program->choices;
    picoseconds longest = 1;
    uint64_t largest = 1;
    for (int i = 0; i < program->choices; i++) {
        if (program->choice[i].time > longest) longest = program->choice[i].time;
        if (program->choice[i].memory > largest) largest = program->choice[i].memory;
    }
    *model = (struct model){ .program = program, .of = glp_create_prob(), .time_unit = (double)longest / 1000,
                             .memory_unit = (double)largest / 1000 };
    model->edge = calloc(edges + 1, sizeof *model->edge);
    model->row = calloc(entries + 1, sizeof *model->row), model->column = calloc(entries + 1, sizeof *model->column);
    model->value = calloc(entries + 1, sizeof *model->value);
    if (!model->edge || !model->row || !model->column || !model->value) return false;
    glp_set_obj_dir(model->of, GLP_MIN);
    put_choices(model), put_edges(model);
    glp_load_matrix(model->of, model->entries, model->row, model->column, model->value);
    return true;
}

static void model_close(struct model *model)
{
    if (model->of) glp_delete_prob(model->of);
    glp_free_env();
    free(model->edge), free(model->row), free(model->column), free(model->value);
}

/* GLPK ends after so many nodes, so that the answer does not depend on the machine's speed. */
static void count_nodes(glp_tree *tree, void *context)
{
    int total;
    glp_ios_tree_size(tree, NULL, NULL, &total);
    *(int *)context = total;
    if (total > NODES_MOST) glp_ios_terminate(tree);
}

/* Solve the program.  @return whether the plan is the best of all, or none fits. */
static bool solve_by_glpk(const struct program *program, struct layer_search *search, struct error *err,
                          enum error_code *code)
{
    struct model model;
    struct layer_plan plan = one_stage(program->table);
    glp_iocp how;
    int nodes = 0, status = 0;
    glp_term_out(GLP_OFF);
    *code = model_open(&model, program) ? OK : fail(err, ERR_MEMORY, "no memory for an integer program");
    if (!*code) {
        glp_init_iocp(&how);
        how.presolve = GLP_ON, how.msg_lev = GLP_MSG_OFF, how.cb_func = count_nodes, how.cb_info = &nodes;
        const int ended = glp_intopt(model.of, &how);
        status = ended == GLP_ENOPFS ? GLP_NOFEAS : glp_mip_status(model.of);
        search->looked += nodes;
    }
    for (int i = 0; i < program->choices && (status == GLP_OPT || status == GLP_FEAS); i++)
        if (glp_mip_col_val(model.of, i + 1) > 0.5)
            plan.strategy[program->choice[i].layer] = program->choice[i].strategy;
    if (status == GLP_OPT || status == GLP_FEAS) layer_search_offer(search, &plan);
    model_close(&model);
    if (status == GLP_OPT && search->found)
        snprintf(search->note, sizeof search->note, "GLPK has proven it, in %d node%s of branch and bound", nodes,
                 nodes == 1 ? "" : "s");
    return (status == GLP_OPT && search->found) || status == GLP_NOFEAS;
}

#endif

/* Whether GLPK is there, is asked, and has the answer. */
static bool ask_glpk(const struct program *program, struct layer_search *search, struct error *err,
                     enum error_code *code)
{
    *code = OK;
#ifdef ORRERY_GLPK
    const double columns = program->choices
        + (double)program->links * program->table->layouts * program->table->layouts;
    return !search->own_code && columns <= COLUMNS_MOST && solve_by_glpk(program, search, err, code);
#else
    (void)program, (void)search, (void)err;
    return false;
#endif
}

/* ---- the planner ------------------------------------------------------------------------------------------------- */

static enum error_code integer_solve(struct layer_search *search, struct error *err)
{
    struct program program;
    enum error_code e;
    if (layer_size_find(search->table, search->table->devices) < 0) return OK;  /* no strategy is on all devices */
    e = program_open(&program, search, err);
    const double plans = e ? 0 : plans_of(&program);
    if (plans > 0 && !ask_glpk(&program, search, err, &e) && !e) {
        if (plans <= ENUMERATED_MOST) {
            look_at_all(&program, search);
            snprintf(search->note, sizeof search->note, "all %.0f plans were looked at", plans);
        } else if (take_along_chain(&program, search)) {
            snprintf(search->note, sizeof search->note, "the fastest of %.2g plans of a chain, which fits", plans);
        } else {
            take_in_turn(&program, search);
            search->unproven = true;
            snprintf(search->note, sizeof search->note, "a heuristic: %.2g plans are too many to look at, and %s",
                     plans, has_glpk && !search->own_code ? "GLPK gave up" : "this program was built without GLPK");
        }
    }
    program_close(&program);
    return e;
}

const struct planner planner_integer = {
    .name = "integer", .description = "an integer program for one stage, by GLPK",
    .source = "L. Zheng et al., Alpa, arXiv:2201.12023, section 4; GLPK",
    .promise = "no plan of one stage is faster by the table, and fits, unless a heuristic is said",
    .solve = integer_solve, .exact_of = LAYERS_ONE_STAGE,
};
