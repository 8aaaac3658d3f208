/* assign.c -- a variable for each tensor, its signature; a term for each operation, the least its journeys can send.
 *
 * cli/show/sbp.c calls sbp_assign and sbp_assign_within; tests call them on small graphs.  Input is a graph with pins
 * and a mesh.  Output is a signature for each tensor and a rule for each operation.  Errors are ERR_PLAN, with the
 * operation or limit that stands in the way, and ERR_MEMORY.
 */
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

/* Return a signature as a number below CODES: its kinds on both axes are the digits. */
static int code_of(struct signature signature)
{
    int k[SBP_AXES];
    for (int i = 0; i < SBP_AXES; i++)
        k[i] = signature.on[i].kind == SBP_S ? 2 + signature.on[i].dim : (int)signature.on[i].kind;
    return k[0] * SBP_KINDS + k[1];
}

static int first_of_shape(const struct sbp_graph *sbp_graph, int tensor)
{
    const struct shape *t = &sbp_graph->tensor[tensor].shape, *u = &sbp_graph->tensor[0].shape;
    int first = 0;
    /* Journeys of tensors with equal shapes cost the same, so they are measured once. */
    while (u->ndim != t->ndim || u->granule != t->granule || memcmp(u->dim, t->dim, sizeof u->dim) != 0)
        u = &sbp_graph->tensor[++first].shape;
    return first;
}

/* Fill the table of a shape: the cost from each signature that fits to each other, by their codes. */
static void measure_journeys(struct search *search, int tensor)
{
    const struct shape *t = &search->graph->tensor[tensor].shape;
    struct signature all[SBP_MOST_SIGNATURES];
    int64_t cost[CODES * CODES];
    const int n = signature_all(t, search->mesh, all);
    boxing_costs(t, search->mesh, cost);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) search->cost[tensor][code_of(all[i]) * CODES + code_of(all[k])] = cost[i * n + k];
}

/* Return the cost of a tensor's journey in the unit of the search: prices, or picoseconds. */
static int64_t journey(const struct search *search, int tensor, struct signature from, struct signature to)
{
    return search->unit * search->cost[search->shape[tensor]][code_of(from) * CODES + code_of(to)];
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* A tensor has a variable of its own, unless it must be like another. */
static int owner_of(const struct sbp_graph *sbp_graph, int tensor)
{
    /* A pinned tensor keeps its pin, whatever it should be like. */
    while (sbp_graph->tensor[tensor].like >= 0 && !sbp_graph->tensor[tensor].pinned)
        tensor = sbp_graph->tensor[tensor].like;
    return tensor;
}

/* A pin, or all signatures.  Nobody is given partial sums, so what enters the graph has none. */
static int values_of(const struct search *search, int owner, struct signature all[])
{
    const struct sbp_graph *g = search->graph;
    struct signature fits[SBP_MOST_SIGNATURES];
    bool enters = false;
    int n = 0;
    /* A pin leaves one value. */
    if (g->tensor[owner].pinned) return all[0] = g->tensor[owner].pin, 1;
    for (int t = 0; t < g->tensors; t++) enters = enters || (owner_of(g, t) == owner && !graph_makes(g, t));
    for (int i = 0, most = signature_all(&g->tensor[owner].shape, search->mesh, fits); i < most; i++)
        if (!enters || !signature_has(fits[i], SBP_P)) all[n++] = fits[i];
    return n;
}

/* Give each owner a variable, and each tensor the variable of its owner. */
static void make_variables(struct search *search)
{
    const struct sbp_graph *g = search->graph;
    int of_owner[SBP_MOST_TENSORS];
    for (int t = 0; t < g->tensors; t++) of_owner[t] = -1;
    for (int t = 0; t < g->tensors; t++) {
        const int owner = owner_of(g, t);
        if (of_owner[owner] < 0) {
            of_owner[owner] = search->variables;
            search->signatures[search->variables] = values_of(search, owner, search->signature[search->variables]);
            search->variables++;
        }
        search->variable[t] = of_owner[owner];
    }
    min_sum_open(&search->sum, search->variables, search->signatures);
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* A result is kept as it must be, or as it comes; one that several read may also be changed once for all of them. */
static int64_t cost_of_result(const struct search *search, int tensor, struct signature made, struct signature kept)
{
    const struct sbp_tensor *t = &search->graph->tensor[tensor];
    const bool same = signature_equal(made, kept), must = t->pinned || t->like >= 0;
    /* A result that one operation reads changes on the way there, so keeping the result changed gains nothing. */
    if (!must && !same && (search->uses[tensor] <= 1 || signature_has(kept, SBP_P))) return MIN_SUM_NEVER;
    return journey(search, tensor, made, kept);
}

/* An operation has these costs by one rule: `own` for the operation, cost[k][i] for value i of operand k's variable.
 * The result is the last operand. */
struct by_rule { int64_t own, cost[SBP_OPERANDS + 1][SBP_MOST_SIGNATURES]; };

/* Return the tensor of an operand; the operand after the inputs is the result. */
static int tensor_at(const struct sbp_op *op, int operand) { return operand == op->inputs ? op->out : op->in[operand]; }

/* Fill `by` with the costs of one rule: journeys of operands to the rule, of the result from the rule. */
static void price_rule(const struct search *search, int o, const struct rule *rules, int which, struct by_rule *by)
{
    const struct sbp_op *op = &search->graph->op[o];
    const struct rule *r = &rules[which];
    by->own = search->op[o][which];
    for (int k = 0; k <= op->inputs; k++) {
        const int t = tensor_at(op, k), v = search->variable[t];
        for (int i = 0; i < search->signatures[v]; i++)
            by->cost[k][i] = k == op->inputs ? cost_of_result(search, t, r->out, search->signature[v][i])
                                             : journey(search, t, search->signature[v][i], r->in[k]);
    }
}

/* Return the cost of an operation by one rule, if all variables have these values. */
static int64_t price_of(const struct search *search, const struct sbp_op *op, const struct by_rule *by,
                        const int value[])
{
    int64_t sum = by->own;
    for (int k = 0; k <= op->inputs; k++) sum += by->cost[k][value[search->variable[tensor_at(op, k)]]];
    return sum;
}

/* The next combination of a term's values.  @return whether there was one. */
static bool next_values(const struct search *search, const struct min_sum_term *term, int value[])
{
    for (int i = term->width - 1; i >= 0; i--) {
        if (++value[term->of[i]] < search->signatures[term->of[i]]) return true;
        value[term->of[i]] = 0;
    }
    return false;
}

static enum error_code assign_no_memory(const struct search *search, struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for the signatures of %d tensors", search->graph->tensors);
}

/* Add the term of an operation: for each combination of its tensors' signatures the least over the rules. */
static enum error_code add_operation(struct search *search, int o, struct error *err)
{
    const struct sbp_op *op = &search->graph->op[o];
    struct rule rule[SBP_MOST_RULES];
    struct by_rule by;
    int of[SBP_OPERANDS + 1], value[SBP_MOST_TENSORS];
    const int rules = graph_rules(search->graph, op, search->mesh, rule);
    /* A product must be divided; with no dimension large enough it has no rule. */
    if (rules == 0)
        return fail(err, ERR_PLAN,
                    "%s, which makes %s, has no legal signature on %d devices: nothing can be cut into so many parts",
                    op->operator->name, search->graph->tensor[op->out].name, sbp_devices(search->mesh));
    /* Operands with one variable, such as a tensor read twice, count once in the term. */
    for (int k = 0; k <= op->inputs; k++) of[k] = search->variable[tensor_at(op, k)];
    struct min_sum_term *t = min_sum_add(&search->sum, op->inputs + 1, of);
    if (t == NULL) return assign_no_memory(search, err);
    for (int r = 0; r < rules; r++) {
        /* `at` counts the combinations in the order in which next_values goes through them. */
        int64_t at = 0;
        memset(value, 0, sizeof value);
        price_rule(search, o, rule, r, &by);
        do {
            /* The term keeps the cheapest rule for each combination of signatures. */
            const int64_t cost = price_of(search, op, &by, value);
            if (r == 0 || cost < t->cost[at]) t->cost[at] = cost < MIN_SUM_NEVER ? cost : MIN_SUM_NEVER;
            at++;
        } while (next_values(search, t, value));
    }
    return OK;
}

/* The part of the device that has most of a tensor. */
static int64_t largest_part(const struct search *search, int tensor, struct signature kept)
{
    const struct shape *t = &search->graph->tensor[tensor].shape;
    int64_t most = 0;
    for (int d = 0; d < sbp_devices(search->mesh); d++) {
        const int64_t n = box_count(signature_box(t, search->mesh, kept, d), t->ndim);
        most = n > most ? n : most;
    }
    return most;
}

/* With a price on what is kept, each tensor adds a term of its own: price times the largest part. */
static enum error_code add_memory(struct search *search, struct error *err)
{
    for (int t = 0; t < search->graph->tensors && search->price > 0; t++) {
        const int v = search->variable[t];
        struct min_sum_term *term = min_sum_add(&search->sum, 1, &v);
        if (term == NULL) return assign_no_memory(search, err);
        for (int i = 0; i < search->signatures[v]; i++)
            term->cost[i] = search->price * largest_part(search, t, search->signature[v][i]);
    }
    return OK;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* Add one journey's elements; assignment_each calls it. */
static void add_elements(void *sum, int op, int operand, int tensor, const struct boxing *boxing)
{
    (void)op, (void)operand, (void)tensor;
    *(int64_t *)sum += boxing->elements;
}

/* Turn the values of the least sum into an assignment: signatures, rules, and what they cost. */
static void read_back(const struct search *search, const int value[], struct assignment *assignment)
{
    const struct sbp_graph *g = search->graph;
    struct rule rule[SBP_MOST_RULES];
    struct by_rule by;
    assignment->cost = assignment->kept = 0;
    for (int t = 0; t < g->tensors; t++) {
        assignment->tensor[t] = search->signature[search->variable[t]][value[search->variable[t]]];
        assignment->kept += largest_part(search, t, assignment->tensor[t]);
    }
    for (int o = 0; o < g->ops; o++) {
        const int rules = graph_rules(g, &g->op[o], search->mesh, rule);
        int64_t least = INT64_MAX;
        /* With the signatures known, the operation takes the rule that made its term's cost. */
        for (int r = 0; r < rules; r++) {
            price_rule(search, o, rule, r, &by);
            const int64_t cost = price_of(search, &g->op[o], &by, value);
            if (cost < least) least = cost, assignment->rule[o] = rule[r];
        }
        assignment->cost += least;
    }
    /* On a cluster the cost is picoseconds; elements are then counted apart. */
    assignment->time = search->mesh->cluster ? assignment->cost : 0;
    assignment->elements = 0;
    assignment_each(g, assignment, add_elements, &assignment->elements);
}

/* Costs are whole numbers that must stay far below what cannot be. */
static enum error_code check_size(const struct search *search, struct error *err)
{
    double all = 0;
    for (int t = 0; t < search->graph->tensors; t++) {
        double n = 1;
        for (int d = 0; d < search->graph->tensor[t].shape.ndim; d++)
            n *= (double)search->graph->tensor[t].shape.dim[d];
        all += n;
    }
    if (all * sbp_devices(search->mesh) * 8 * (double)(SBP_PRICE_OF_SENT + search->price) < (double)MIN_SUM_NEVER)
        return OK;
    return fail(err, ERR_PLAN, "%.2g elements on %d devices are too many to count what is sent", all,
                sbp_devices(search->mesh));
}

/* The times of all operations, and whether sums of them and of journeys stay far below what cannot be. */
static enum error_code measure_operations(struct search *search, struct error *err)
{
    const struct sbp_graph *g = search->graph;
    struct rule rule[SBP_MOST_RULES];
    int64_t longest = 0;
    search->op = calloc((size_t)g->ops + 1, sizeof *search->op);
    if (search->op == NULL) return assign_no_memory(search, err);
    /* Without a cluster only journeys cost; the zeros stay. */
    if (search->mesh->cluster == NULL) return OK;
    for (int o = 0; o < g->ops; o++)
        for (int r = 0, rules = graph_rules(g, &g->op[o], search->mesh, rule); r < rules; r++) {
            search->op[o][r] = sbp_op_time(g, &g->op[o], search->mesh, &rule[r]);
            if (search->op[o][r] < 0) return assign_no_memory(search, err);
            if (search->op[o][r] > longest) longest = search->op[o][r];
        }
    for (int t = 0; t < g->tensors; t++)
        for (int i = 0; search->shape[t] == t && i < CODES * CODES; i++)
            if (search->cost[t][i] > longest && search->cost[t][i] < INT64_MAX / 8) longest = search->cost[t][i];
    if (longest < MIN_SUM_NEVER / (g->ops + 1) / (SBP_OPERANDS + 2)) return OK;
    return fail(err, ERR_PLAN, "--by time: a step of the graph takes %.0f s, too long to add up in picoseconds",
                (double)longest / 1e12);
}

/* Run the search in its order: measure, make variables and terms, narrow, solve, read back. */
static enum error_code search_run(struct search *search, int64_t most, struct assignment *assignment, struct error *err)
{
    const struct sbp_graph *g = search->graph;
    int value[SBP_MOST_TENSORS];
    int64_t least = 0;
    enum error_code e = check_size(search, err);
    if (e) return e;
    search->cost = calloc((size_t)g->tensors, sizeof *search->cost);
    if (search->cost == NULL) return assign_no_memory(search, err);
    for (int t = 0; t < g->tensors; t++) {
        search->shape[t] = first_of_shape(g, t);
        if (search->shape[t] == t) measure_journeys(search, t);
    }
    for (int o = 0; o < g->ops; o++)
        for (int i = 0; i < g->op[o].inputs; i++) search->uses[g->op[o].in[i]]++;
    /* Variables come before terms, which are made of them; `uses` tells which results several operations read. */
    make_variables(search);
    e = measure_operations(search, err);
    for (int o = 0; o < g->ops && !e; o++) e = add_operation(search, o, err);
    if (!e) e = add_memory(search, err);
    /* Values are left out until no term that arises is too large; the answer may then miss the best. */
    if (!e) assignment->exact = !min_sum_narrow(&search->sum, most);
    if (!e) e = min_sum_solve(&search->sum, value, &least, err);
    if (!e && least >= MIN_SUM_NEVER)
        e = fail(err, ERR_PLAN, "no signatures of %d tensors on %d devices respect all that is pinned", g->tensors,
                 sbp_devices(search->mesh));
    if (!e) read_back(search, value, assignment);
    return e;
}

enum error_code sbp_assign(const struct sbp_graph *sbp_graph, const struct sbp_mesh *sbp_mesh, int64_t price,
                           int64_t most, struct assignment *assignment, struct error *err)
{
    /* The search is too large for the stack: it has the signatures of all variables. */
    struct search *s = calloc(1, sizeof *s);
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for a search");
    s->graph = sbp_graph, s->mesh = sbp_mesh, s->price = price;
    s->unit = sbp_mesh->cluster ? 1 : SBP_PRICE_OF_SENT;
    *assignment = (struct assignment){ .mesh = *sbp_mesh };
    const enum error_code e = search_run(s, most, assignment, err);
    min_sum_close(&s->sum);
    free(s->cost), free(s->op);
    free(s);
    return e;
}

/* Count the elements of all tensors, plus one, so that a price can be divided by the sum. */
static int64_t all_elements(const struct sbp_graph *sbp_graph)
{
    int64_t sum = 1;
    for (int t = 0; t < sbp_graph->tensors; t++) {
        int64_t n = 1;
        for (int d = 0; d < sbp_graph->tensor[t].shape.ndim; d++) n *= sbp_graph->tensor[t].shape.dim[d];
        sum += n;
    }
    return sum;
}

/* Find the corner between two corners, by the price at which both cost the same.  At the end `high` keeps at most
 * `kept`. */
static enum error_code assign_between(const struct sbp_graph *sbp_graph, const struct sbp_mesh *sbp_mesh, int64_t kept,
                                      int64_t most, struct assignment *low, struct assignment *high, struct error *err)
{
    struct assignment *a = malloc(sizeof *a);
    enum error_code e = a ? OK : fail(err, ERR_MEMORY, "no memory for an assignment");
    for (bool found = true; found && !e;) {
        const int64_t price = (high->cost - low->cost) / (low->kept - high->kept);
        e = sbp_assign(sbp_graph, sbp_mesh, price > 0 ? price : 1, most, a, err);
        found = !e && a->kept < low->kept && a->kept > high->kept;
        /* A new corner replaces the one on its side of the limit. */
        if (found) *(a->kept > kept ? low : high) = *a;
    }
    free(a);
    return e;
}

enum error_code sbp_assign_within(const struct sbp_graph *sbp_graph, const struct sbp_mesh *sbp_mesh, int64_t kept,
                                  int64_t most, struct assignment *assignment, struct error *err)
{
    struct assignment *low = malloc(sizeof *low);
    /* At this price keeping an element costs more than bringing it again. */
    const int64_t dearest = sbp_mesh->cluster ? MIN_SUM_NEVER / 16 / all_elements(sbp_graph)
        : (int64_t)SBP_PRICE_OF_SENT * 4 *
                                                                                   sbp_devices(sbp_mesh);
    if (low == NULL) return fail(err, ERR_MEMORY, "no memory for an assignment");
    enum error_code e = sbp_assign(sbp_graph, sbp_mesh, 0, most, low, err);
    /* The cheapest assignment is the answer if it keeps few enough. */
    if (!e && low->kept <= kept) *assignment = *low;
    else if (!e) {
        e = sbp_assign(sbp_graph, sbp_mesh, dearest, most, assignment, err);
        if (!e && assignment->kept > kept)
            e = fail(err, ERR_PLAN, "--kept %lld: the fullest device keeps at least %lld elements of all tensors",
                     (long long)kept, (long long)assignment->kept);
        if (!e) e = assign_between(sbp_graph, sbp_mesh, kept, most, low, assignment, err);
    }
    free(low);
    return e;
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

void assignment_each(const struct sbp_graph *sbp_graph, const struct assignment *assignment,
                     void (*f)(void *context, int op, int operand, int tensor, const struct boxing *), void *context)
{
    for (int o = 0; o < sbp_graph->ops; o++)
        for (int i = 0; i <= sbp_graph->op[o].inputs; i++) {
            /* An operand travels from its kept signature to the rule's, a result from the rule's to its kept one. */
            const bool out = i == sbp_graph->op[o].inputs;
            const int t = out ? sbp_graph->op[o].out : sbp_graph->op[o].in[i];
            const struct boxing b = out ? boxing_plan(&sbp_graph->tensor[t].shape, &assignment->mesh,
                                                      assignment->rule[o].out, assignment->tensor[t])
                                        : boxing_plan(&sbp_graph->tensor[t].shape, &assignment->mesh,
                                                      assignment->tensor[t], assignment->rule[o].in[i]);
            f(context, o, i, t, &b);
        }
}

/* add_journey gets this context, and adds up the elements that one device sends. */
struct sum { const struct sbp_graph *graph; const struct assignment *assignment; int device; int64_t elements; };

static void add_journey(void *context, int op, int operand, int tensor, const struct boxing *boxing)
{
    struct sum *s = context;
    (void)op, (void)operand;
    for (int i = 0; i < boxing->steps; i++)
        s->elements += boxing_sent(&s->graph->tensor[tensor].shape, &s->assignment->mesh, &boxing->step[i], s->device);
}

int64_t assignment_sent(const struct sbp_graph *sbp_graph, const struct assignment *assignment, int device)
{
    struct sum s = { sbp_graph, assignment, device, 0 };
    assignment_each(sbp_graph, assignment, add_journey, &s);
    return s.elements;
}
