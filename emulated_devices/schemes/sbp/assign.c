/* assign.c -- a variable for each tensor, its signature; a term for each operation, the least its journeys can send. */
#include "emulated_devices/schemes/sbp/assign.h"
#include "emulated_devices/schemes/sbp/min_sum.h"
#include <stdlib.h>
#include <string.h>

enum { CODES = SBP_KINDS * SBP_KINDS };
_Static_assert((int)SBP_MOST_SIGNATURES <= (int)MIN_SUM_VALUES && (int)SBP_MOST_TENSORS <= (int)MIN_SUM_VARIABLES &&
               SBP_MOST_OPS + (int)SBP_MOST_TENSORS <= (int)MIN_SUM_TERMS, "a graph fits into a sum");

struct search {
    const struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    int64_t price;                      /* of an element kept */
    int64_t unit;                       /* the price of an element sent, or 1 for a picosecond */
    int64_t (*cost)[CODES * CODES];     /* [tensors] of journeys of that shape, by the codes of signatures */
    picoseconds (*op)[SBP_MOST_RULES];  /* [operations] of each rule, on a mesh with a cluster */
    int shape[SBP_MOST_TENSORS];        /* the first tensor with the shape of this one */
    int uses[SBP_MOST_TENSORS];
    int variable[SBP_MOST_TENSORS], variables;
    struct signature signature[SBP_MOST_TENSORS][SBP_MOST_SIGNATURES];  /* what a variable's values stand for */
    int signatures[SBP_MOST_TENSORS];
    struct min_sum sum;
};

/* ---- journeys ---------------------------------------------------------------------------------------------------- */

static int code_of(struct signature s)
{
    int k[SBP_AXES];
    for (int i = 0; i < SBP_AXES; i++) k[i] = s.on[i].kind == SBP_S ? 2 + s.on[i].dim : (int)s.on[i].kind;
    return k[0] * SBP_KINDS + k[1];
}

static int first_of_shape(const struct sbp_graph *g, int tensor)
{
    const struct shape *t = &g->tensor[tensor].shape, *u = &g->tensor[0].shape;
    int first = 0;
    /* Journeys of tensors with equal shapes cost the same, so they are measured once. */
    while (u->ndim != t->ndim || u->granule != t->granule || memcmp(u->dim, t->dim, sizeof u->dim) != 0)
        u = &g->tensor[++first].shape;
    return first;
}

static void measure_journeys(struct search *s, int tensor)
{
    const struct shape *t = &s->graph->tensor[tensor].shape;
    struct signature all[SBP_MOST_SIGNATURES];
    int64_t cost[CODES * CODES];
    const int n = signature_all(t, s->mesh, all);
    boxing_costs(t, s->mesh, cost);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) s->cost[tensor][code_of(all[i]) * CODES + code_of(all[k])] = cost[i * n + k];
}

static int64_t journey(const struct search *s, int tensor, struct signature from, struct signature to)
{
    return s->unit * s->cost[s->shape[tensor]][code_of(from) * CODES + code_of(to)];
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* A tensor has a variable of its own, unless it must be like another. */
static int owner_of(const struct sbp_graph *g, int tensor)
{
    while (g->tensor[tensor].like >= 0 && !g->tensor[tensor].pinned) tensor = g->tensor[tensor].like;
    return tensor;
}

/* A pin, or all signatures.  Nobody is given partial sums, so what enters the graph has none. */
static int values_of(const struct search *s, int owner, struct signature all[])
{
    const struct sbp_graph *g = s->graph;
    struct signature fits[SBP_MOST_SIGNATURES];
    bool enters = false;
    int n = 0;
    if (g->tensor[owner].pinned) return all[0] = g->tensor[owner].pin, 1;
    for (int t = 0; t < g->tensors; t++) enters = enters || (owner_of(g, t) == owner && !graph_makes(g, t));
    for (int i = 0, most = signature_all(&g->tensor[owner].shape, s->mesh, fits); i < most; i++)
        if (!enters || !signature_has(fits[i], SBP_P)) all[n++] = fits[i];
    return n;
}

static void make_variables(struct search *s)
{
    const struct sbp_graph *g = s->graph;
    int of_owner[SBP_MOST_TENSORS];
    for (int t = 0; t < g->tensors; t++) of_owner[t] = -1;
    for (int t = 0; t < g->tensors; t++) {
        const int owner = owner_of(g, t);
        if (of_owner[owner] < 0) {
            of_owner[owner] = s->variables;
            s->signatures[s->variables] = values_of(s, owner, s->signature[s->variables]);
            s->variables++;
        }
        s->variable[t] = of_owner[owner];
    }
    min_sum_open(&s->sum, s->variables, s->signatures);
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* A result is kept as it must be, or as it comes; one that several read may also be changed once for all of them. */
static int64_t cost_of_result(const struct search *s, int tensor, struct signature made, struct signature kept)
{
    const struct sbp_tensor *t = &s->graph->tensor[tensor];
    const bool same = signature_equal(made, kept), must = t->pinned || t->like >= 0;
    if (!must && !same && (s->uses[tensor] <= 1 || signature_has(kept, SBP_P))) return MIN_SUM_NEVER;
    return journey(s, tensor, made, kept);
}

/* By one rule each value of each operand's variable costs this, the result's last, and the operation itself `own`. */
struct by_rule { int64_t own, cost[SBP_OPERANDS + 1][SBP_MOST_SIGNATURES]; };

static int tensor_at(const struct sbp_op *op, int operand) { return operand == op->inputs ? op->out : op->in[operand]; }

static void price_rule(const struct search *s, int o, const struct rule *rules, int which, struct by_rule *by)
{
    const struct sbp_op *op = &s->graph->op[o];
    const struct rule *r = &rules[which];
    by->own = s->op[o][which];
    for (int k = 0; k <= op->inputs; k++) {
        const int t = tensor_at(op, k), v = s->variable[t];
        for (int i = 0; i < s->signatures[v]; i++)
            by->cost[k][i] = k == op->inputs ? cost_of_result(s, t, r->out, s->signature[v][i])
                                             : journey(s, t, s->signature[v][i], r->in[k]);
    }
}

static int64_t price_of(const struct search *s, const struct sbp_op *op, const struct by_rule *by, const int value[])
{
    int64_t sum = by->own;
    for (int k = 0; k <= op->inputs; k++) sum += by->cost[k][value[s->variable[tensor_at(op, k)]]];
    return sum;
}

/* The next combination of a term's values.  @return whether there was one. */
static bool next_values(const struct search *s, const struct min_sum_term *t, int value[])
{
    for (int i = t->width - 1; i >= 0; i--) {
        if (++value[t->of[i]] < s->signatures[t->of[i]]) return true;
        value[t->of[i]] = 0;
    }
    return false;
}

static enum error_code no_memory(const struct search *s, struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for the signatures of %d tensors", s->graph->tensors);
}

static enum error_code add_operation(struct search *s, int o, struct error *err)
{
    const struct sbp_op *op = &s->graph->op[o];
    struct rule rule[SBP_MOST_RULES];
    struct by_rule by;
    int of[SBP_OPERANDS + 1], value[SBP_MOST_TENSORS];
    const int rules = graph_rules(s->graph, op, s->mesh, rule);
    if (rules == 0)
        return fail(err, ERR_PLAN,
                    "%s, which makes %s, has no legal signature on %d devices: nothing can be cut into so many parts",
                    op->operator->name, s->graph->tensor[op->out].name, sbp_devices(s->mesh));
    for (int k = 0; k <= op->inputs; k++) of[k] = s->variable[tensor_at(op, k)];
    struct min_sum_term *t = min_sum_add(&s->sum, op->inputs + 1, of);
    if (t == NULL) return no_memory(s, err);
    for (int r = 0; r < rules; r++) {
        /* `at` counts the combinations in the order in which next_values goes through them. */
        int64_t at = 0;
        memset(value, 0, sizeof value);
        price_rule(s, o, rule, r, &by);
        do {
            /* The term keeps the cheapest rule for each combination of signatures. */
            const int64_t cost = price_of(s, op, &by, value);
            if (r == 0 || cost < t->cost[at]) t->cost[at] = cost < MIN_SUM_NEVER ? cost : MIN_SUM_NEVER;
            at++;
        } while (next_values(s, t, value));
    }
    return OK;
}

/* The part of the device that has most of a tensor. */
static int64_t largest_part(const struct search *s, int tensor, struct signature kept)
{
    const struct shape *t = &s->graph->tensor[tensor].shape;
    int64_t most = 0;
    for (int d = 0; d < sbp_devices(s->mesh); d++) {
        const int64_t n = box_count(signature_box(t, s->mesh, kept, d), t->ndim);
        most = n > most ? n : most;
    }
    return most;
}

static enum error_code add_memory(struct search *s, struct error *err)
{
    for (int t = 0; t < s->graph->tensors && s->price > 0; t++) {
        const int v = s->variable[t];
        struct min_sum_term *term = min_sum_add(&s->sum, 1, &v);
        if (term == NULL) return no_memory(s, err);
        for (int i = 0; i < s->signatures[v]; i++)
            term->cost[i] = s->price * largest_part(s, t, s->signature[v][i]);
    }
    return OK;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void add_elements(void *sum, int op, int operand, int tensor, const struct boxing *b)
{
    (void)op, (void)operand, (void)tensor;
    *(int64_t *)sum += b->elements;
}

static void read_back(const struct search *s, const int value[], struct assignment *a)
{
    const struct sbp_graph *g = s->graph;
    struct rule rule[SBP_MOST_RULES];
    struct by_rule by;
    a->cost = a->kept = 0;
    for (int t = 0; t < g->tensors; t++) {
        a->tensor[t] = s->signature[s->variable[t]][value[s->variable[t]]];
        a->kept += largest_part(s, t, a->tensor[t]);
    }
    for (int o = 0; o < g->ops; o++) {
        const int rules = graph_rules(g, &g->op[o], s->mesh, rule);
        int64_t least = INT64_MAX;
        /* With the signatures known, the operation takes the rule that made its term's cost. */
        for (int r = 0; r < rules; r++) {
            price_rule(s, o, rule, r, &by);
            const int64_t cost = price_of(s, &g->op[o], &by, value);
            if (cost < least) least = cost, a->rule[o] = rule[r];
        }
        a->cost += least;
    }
    a->time = s->mesh->cluster ? a->cost : 0;
    a->elements = 0;
    assignment_each(g, a, add_elements, &a->elements);
}

/* Costs are whole numbers that must stay far below what cannot be. */
static enum error_code check_size(const struct search *s, struct error *err)
{
    double all = 0;
    for (int t = 0; t < s->graph->tensors; t++) {
        double n = 1;
        for (int d = 0; d < s->graph->tensor[t].shape.ndim; d++) n *= (double)s->graph->tensor[t].shape.dim[d];
        all += n;
    }
    if (all * sbp_devices(s->mesh) * 8 * (double)(SBP_PRICE_OF_SENT + s->price) < (double)MIN_SUM_NEVER) return OK;
    return fail(err, ERR_PLAN, "%.2g elements on %d devices are too many to count what is sent", all,
                sbp_devices(s->mesh));
}

/* The times of all operations, and whether sums of them and of journeys stay far below what cannot be. */
static enum error_code measure_operations(struct search *s, struct error *err)
{
    const struct sbp_graph *g = s->graph;
    struct rule rule[SBP_MOST_RULES];
    int64_t longest = 0;
    s->op = calloc((size_t)g->ops + 1, sizeof *s->op);
    if (s->op == NULL) return no_memory(s, err);
    /* Without a cluster only journeys cost; the zeros stay. */
    if (s->mesh->cluster == NULL) return OK;
    for (int o = 0; o < g->ops; o++)
        for (int r = 0, rules = graph_rules(g, &g->op[o], s->mesh, rule); r < rules; r++) {
            s->op[o][r] = sbp_op_time(g, &g->op[o], s->mesh, &rule[r]);
            if (s->op[o][r] < 0) return no_memory(s, err);
            if (s->op[o][r] > longest) longest = s->op[o][r];
        }
    for (int t = 0; t < g->tensors; t++)
        for (int i = 0; s->shape[t] == t && i < CODES * CODES; i++)
            if (s->cost[t][i] > longest && s->cost[t][i] < INT64_MAX / 8) longest = s->cost[t][i];
    if (longest < MIN_SUM_NEVER / (g->ops + 1) / (SBP_OPERANDS + 2)) return OK;
    return fail(err, ERR_PLAN, "--by time: a step of the graph takes %.0f s, too long to add up in picoseconds",
                (double)longest / 1e12);
}

static enum error_code search_run(struct search *s, int64_t most, struct assignment *a, struct error *err)
{
    const struct sbp_graph *g = s->graph;
    int value[SBP_MOST_TENSORS];
    int64_t least = 0;
    enum error_code e = check_size(s, err);
    if (e) return e;
    s->cost = calloc((size_t)g->tensors, sizeof *s->cost);
    if (s->cost == NULL) return no_memory(s, err);
    for (int t = 0; t < g->tensors; t++) {
        s->shape[t] = first_of_shape(g, t);
        if (s->shape[t] == t) measure_journeys(s, t);
    }
    for (int o = 0; o < g->ops; o++)
        for (int i = 0; i < g->op[o].inputs; i++) s->uses[g->op[o].in[i]]++;
    make_variables(s);
    e = measure_operations(s, err);
    for (int o = 0; o < g->ops && !e; o++) e = add_operation(s, o, err);
    if (!e) e = add_memory(s, err);
    /* Values are left out until no term that arises is too large; the answer may then miss the best. */
    if (!e) a->exact = !min_sum_narrow(&s->sum, most);
    if (!e) e = min_sum_solve(&s->sum, value, &least, err);
    if (!e && least >= MIN_SUM_NEVER)
        e = fail(err, ERR_PLAN, "no signatures of %d tensors on %d devices respect all that is pinned", g->tensors,
                 sbp_devices(s->mesh));
    if (!e) read_back(s, value, a);
    return e;
}

enum error_code sbp_assign(const struct sbp_graph *g, const struct sbp_mesh *m, int64_t price, int64_t most,
                           struct assignment *a, struct error *err)
{
    struct search *s = calloc(1, sizeof *s);
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for a search");
    s->graph = g, s->mesh = m, s->price = price;
    s->unit = m->cluster ? 1 : SBP_PRICE_OF_SENT;
    *a = (struct assignment){ .mesh = *m };
    const enum error_code e = search_run(s, most, a, err);
    min_sum_close(&s->sum);
    free(s->cost), free(s->op);
    free(s);
    return e;
}

static int64_t all_elements(const struct sbp_graph *g)
{
    int64_t sum = 1;
    for (int t = 0; t < g->tensors; t++) {
        int64_t n = 1;
        for (int d = 0; d < g->tensor[t].shape.ndim; d++) n *= g->tensor[t].shape.dim[d];
        sum += n;
    }
    return sum;
}

/* Find the corner between two corners, by the price at which both cost the same. */
static enum error_code between(const struct sbp_graph *g, const struct sbp_mesh *m, int64_t kept, int64_t most,
                               struct assignment *low, struct assignment *high, struct error *err)
{
    struct assignment *a = malloc(sizeof *a);
    enum error_code e = a ? OK : fail(err, ERR_MEMORY, "no memory for an assignment");
    for (bool found = true; found && !e;) {
        const int64_t price = (high->cost - low->cost) / (low->kept - high->kept);
        e = sbp_assign(g, m, price > 0 ? price : 1, most, a, err);
        found = !e && a->kept < low->kept && a->kept > high->kept;
        if (found) *(a->kept > kept ? low : high) = *a;
    }
    free(a);
    return e;
}

enum error_code sbp_assign_within(const struct sbp_graph *g, const struct sbp_mesh *m, int64_t kept, int64_t most,
                                  struct assignment *a, struct error *err)
{
    struct assignment *low = malloc(sizeof *low);
    /* more than bringing it again */
    const int64_t dearest = m->cluster ? MIN_SUM_NEVER / 16 / all_elements(g) : (int64_t)SBP_PRICE_OF_SENT * 4 *
                                                                                   sbp_devices(m);
    if (low == NULL) return fail(err, ERR_MEMORY, "no memory for an assignment");
    enum error_code e = sbp_assign(g, m, 0, most, low, err);
    if (!e && low->kept <= kept) *a = *low;
    else if (!e) {
        e = sbp_assign(g, m, dearest, most, a, err);
        if (!e && a->kept > kept)
            e = fail(err, ERR_PLAN, "--kept %lld: the fullest device keeps at least %lld elements of all tensors",
                     (long long)kept, (long long)a->kept);
        if (!e) e = between(g, m, kept, most, low, a, err);
    }
    free(low);
    return e;
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

void assignment_each(const struct sbp_graph *g, const struct assignment *a,
                     void (*f)(void *context, int op, int operand, int tensor, const struct boxing *), void *context)
{
    for (int o = 0; o < g->ops; o++)
        for (int i = 0; i <= g->op[o].inputs; i++) {
            const bool out = i == g->op[o].inputs;
            const int t = out ? g->op[o].out : g->op[o].in[i];
            const struct boxing b = out ? boxing_plan(&g->tensor[t].shape, &a->mesh, a->rule[o].out, a->tensor[t])
                                        : boxing_plan(&g->tensor[t].shape, &a->mesh, a->tensor[t], a->rule[o].in[i]);
            f(context, o, i, t, &b);
        }
}

struct sum { const struct sbp_graph *graph; const struct assignment *assignment; int device; int64_t elements; };

static void add_journey(void *context, int op, int operand, int tensor, const struct boxing *b)
{
    struct sum *s = context;
    (void)op, (void)operand;
    for (int i = 0; i < b->steps; i++)
        s->elements += boxing_sent(&s->graph->tensor[tensor].shape, &s->assignment->mesh, &b->step[i], s->device);
}

int64_t assignment_sent(const struct sbp_graph *g, const struct assignment *a, int device)
{
    struct sum s = { g, a, device, 0 };
    assignment_each(g, a, add_journey, &s);
    return s.elements;
}
