/* assign.c -- dynamic programming over the frontier: the signatures of the tensors that are still needed. */
#include "emulated_devices/schemes/sbp/assign.h"
#include <stdlib.h>
#include <string.h>

/* A signature in a byte. */
enum { CODES = SBP_KINDS * SBP_KINDS, NO_CODE = 255 };

static uint8_t code_of(struct signature s)
{
    int k[SBP_AXES];
    for (int i = 0; i < SBP_AXES; i++) k[i] = s.on[i].kind == SBP_S ? 2 + s.on[i].dim : (int)s.on[i].kind;
    return (uint8_t)(k[0] * SBP_KINDS + k[1]);
}

static struct sbp sbp_of(int k) { return k < 2 ? (struct sbp){ (enum sbp_kind)k, 0 } : (struct sbp)ON_S(k - 2); }
static struct signature signature_of(uint8_t code)
{
    return (struct signature){ { sbp_of(code / SBP_KINDS), sbp_of(code % SBP_KINDS) } };
}

/* One frontier, and the cheapest way to it. */
struct state { uint8_t code[SBP_MOST_TENSORS]; int64_t elements; int node; };
/* What the last operation did on that way. */
struct node { int before; int16_t rule; uint8_t in[SBP_OPERANDS], out; };

struct frontier { struct state *state; int count, room; int *table; int slots; };

struct search {
    const struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    int64_t (*cost)[CODES * CODES];     /* [tensors] of journeys of that shape; -1: not known yet */
    int shape[SBP_MOST_TENSORS];        /* the first tensor with the shape of this one */
    int last_use[SBP_MOST_TENSORS], uses[SBP_MOST_TENSORS];
    struct node *node;
    int nodes, node_room, most;
    bool exact, failed;
    struct frontier from, to;
    struct rule rule[SBP_MOST_RULES];
};

static int64_t journey(struct search *s, int tensor, uint8_t from, uint8_t to)
{
    int64_t *known = &s->cost[s->shape[tensor]][from * CODES + to];
    if (from == to) return 0;
    if (*known < 0)
        *known = boxing_plan(&s->graph->tensor[tensor].shape, s->mesh, signature_of(from), signature_of(to)).elements;
    return *known;
}

/* ---- the set of frontiers: open addressing ----------------------------------------------------------------------- */

static size_t hash_of(const uint8_t *code, int n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) h = (h ^ code[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

static int *slot_of(struct frontier *f, const uint8_t *code, int n)
{
    size_t at = hash_of(code, n) & (size_t)(f->slots - 1);
    while (f->table[at] >= 0 && memcmp(f->state[f->table[at]].code, code, (size_t)n) != 0)
        at = (at + 1) & (size_t)(f->slots - 1);
    return &f->table[at];
}

static bool frontier_grow(struct frontier *f, int tensors)
{
    const int room = f->room ? 2 * f->room : 1024;
    struct state *state = realloc(f->state, (size_t)room * sizeof *state);
    if (state) f->state = state;
    int *table = realloc(f->table, 4 * (size_t)room * sizeof *table);
    if (table) f->table = table;
    if (!state || !table) return false;
    f->room = room;
    f->slots = 4 * room;
    for (int i = 0; i < f->slots; i++) table[i] = -1;
    for (int i = 0; i < f->count; i++) *slot_of(f, f->state[i].code, tensors) = i;
    return true;
}

static void frontier_clear(struct frontier *f)
{
    f->count = 0;
    for (int i = 0; i < f->slots; i++) f->table[i] = -1;
}

static int add_node(struct search *s, struct node n)
{
    if (s->nodes == s->node_room) {
        const int room = s->node_room ? 2 * s->node_room : 4096;
        struct node *node = realloc(s->node, (size_t)room * sizeof *node);
        if (node == NULL) return -1;
        s->node = node;
        s->node_room = room;
    }
    s->node[s->nodes] = n;
    return s->nodes++;
}

/* Keep a frontier if it is new, or reached with less. */
static void reach(struct search *s, const struct state *new, struct node by)
{
    const int n = s->graph->tensors;
    if (s->to.count == s->to.room && !frontier_grow(&s->to, n)) s->failed = true;
    if (s->failed) return;
    int *slot = slot_of(&s->to, new->code, n);
    if (*slot >= 0 && s->to.state[*slot].elements <= new->elements) return;
    if (*slot < 0) {
        *slot = s->to.count++;
        s->to.state[*slot] = *new;
    }
    s->to.state[*slot].elements = new->elements;
    s->to.state[*slot].node = add_node(s, by);
    s->failed = s->failed || s->to.state[*slot].node < 0;
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

struct chosen { int op; const struct rule *rule; struct node node; };

/* The result is kept as it must be, or as it comes; one that several read may also be changed once for all of them. */
static void finish(struct search *s, struct state *at, struct chosen *step)
{
    const struct sbp_graph *g = s->graph;
    const int out = g->op[step->op].out;
    const struct sbp_tensor *t = &g->tensor[out];
    const uint8_t made = code_of(step->rule->out);
    struct signature all[SBP_MOST_SIGNATURES];
    int n = 1;
    all[0] = step->rule->out;
    if (t->pinned) all[0] = t->pin;
    else if (t->like >= 0) all[0] = signature_of(at->code[t->like]);
    else if (s->uses[out] > 1) n = signature_all(&t->shape, s->mesh, all);
    for (int i = 0; i < n; i++) {
        if (n > 1 && signature_has(all[i], SBP_P) && !signature_equal(all[i], step->rule->out)) continue;
        struct state new = *at;
        new.elements += journey(s, out, made, code_of(all[i]));
        new.code[out] = step->node.out = code_of(all[i]);
        for (int k = 0; k < g->tensors; k++)
            if (s->last_use[k] <= step->op) new.code[k] = NO_CODE;
        reach(s, &new, step->node);
    }
}

/* Operand after operand; one that is read for the first time is an input, whose signature may be free. */
static void bring_operands(struct search *s, struct state *at, struct chosen *step, int i)
{
    const struct sbp_op *op = &s->graph->op[step->op];
    if (i == op->inputs) {
        finish(s, at, step);
        return;
    }
    const int k = op->in[i];
    const struct sbp_tensor *t = &s->graph->tensor[k];
    const uint8_t was = at->code[k];
    struct signature all[SBP_MOST_SIGNATURES];
    int n = 1;
    if (was != NO_CODE) all[0] = signature_of(was);
    else if (t->pinned) all[0] = t->pin;
    else if (t->like >= 0) all[0] = signature_of(at->code[t->like]);
    else n = signature_all(&t->shape, s->mesh, all);
    for (int a = 0; a < n; a++) {
        if (was == NO_CODE && signature_has(all[a], SBP_P)) continue;         /* nobody is given partial sums */
        const int64_t cost = journey(s, k, code_of(all[a]), code_of(step->rule->in[i]));
        at->code[k] = step->node.in[i] = code_of(all[a]);
        at->elements += cost;
        bring_operands(s, at, step, i + 1);
        at->elements -= cost;
    }
    at->code[k] = was;
}

static int by_elements(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    if (x->elements != y->elements) return x->elements < y->elements ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* ---- fewer frontiers --------------------------------------------------------------------------------------------- */

/* Whether a tensor's signature decides those of tensors to come. */
static bool is_liked_after(const struct sbp_graph *g, int tensor, int op)
{
    for (int o = op + 1; o < g->ops; o++) {
        if (g->tensor[g->op[o].out].like == tensor) return true;
        for (int i = 0; i < g->op[o].inputs; i++)
            if (g->tensor[g->op[o].in[i]].like == tensor) return true;
    }
    return false;
}

/* Whether x does at least as well as y whatever follows: it could bring each tensor to y's
 * signature whenever it is read. */
static bool beats(struct search *s, const struct state *x, const struct state *y, int op)
{
    const struct sbp_graph *g = s->graph;
    int64_t elements = x->elements;
    for (int t = 0; t < g->tensors && elements <= y->elements; t++) {
        if (x->code[t] == y->code[t]) continue;
        if (x->code[t] == NO_CODE || y->code[t] == NO_CODE || is_liked_after(g, t, op)) return false;
        int reads = 0;
        for (int o = op + 1; o < g->ops; o++)
            for (int i = 0; i < g->op[o].inputs; i++) reads += g->op[o].in[i] == t;
        elements += reads * journey(s, t, x->code[t], y->code[t]);
    }
    return elements <= y->elements;
}

/* Drop those that one of the cheapest beats, then the dearest beyond the limit. */
static void thin(struct search *s, int op)
{
    enum { CHEAPEST = 32 };
    struct frontier *f = &s->to;
    int kept = 0;
    qsort(f->state, (size_t)f->count, sizeof *f->state, by_elements);
    for (int i = 0; i < f->count; i++) {
        bool beaten = false;
        for (int k = 0; k < kept && k < CHEAPEST && !beaten; k++) beaten = beats(s, &f->state[k], &f->state[i], op);
        if (!beaten) f->state[kept++] = f->state[i];
    }
    s->exact = s->exact && kept <= s->most;
    f->count = kept <= s->most ? kept : s->most;
}

static enum error_code do_op(struct search *s, int o, struct error *err)
{
    const struct sbp_op *op = &s->graph->op[o];
    const int rules = graph_rules(s->graph, op, s->mesh, s->rule);
    frontier_clear(&s->to);
    for (int i = 0; i < s->from.count && !s->failed; i++)
        for (int r = 0; r < rules; r++) {
            struct state at = s->from.state[i];
            struct chosen step = { o, &s->rule[r], { .before = at.node, .rule = (int16_t)r } };
            bring_operands(s, &at, &step, 0);
        }
    if (s->failed) return fail(err, ERR_MEMORY, "no memory for the signatures of %d tensors", s->graph->tensors);
    if (s->to.count == 0)
        return fail(err, ERR_PLAN,
                    "%s, which makes %s, has no legal signature on %d devices: nothing in it can be cut so often",
                    op->operator->name, s->graph->tensor[op->out].name, sbp_devices(s->mesh));
    thin(s, o);
    const struct frontier old = s->from;
    s->from = s->to;
    s->to = old;
    return OK;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void read_back(const struct search *s, struct assignment *a)
{
    int best = 0;
    struct rule rule[SBP_MOST_RULES];
    for (int i = 1; i < s->from.count; i++)
        if (s->from.state[i].elements < s->from.state[best].elements) best = i;
    a->elements = s->from.state[best].elements;
    for (int o = s->graph->ops - 1, at = s->from.state[best].node; o >= 0; at = s->node[at].before, o--) {
        const struct sbp_op *op = &s->graph->op[o];
        graph_rules(s->graph, op, s->mesh, rule);
        a->rule[o] = rule[s->node[at].rule];
        a->tensor[op->out] = signature_of(s->node[at].out);
        for (int i = 0; i < op->inputs; i++) a->tensor[op->in[i]] = signature_of(s->node[at].in[i]);
    }
}

static int first_of_shape(const struct sbp_graph *g, int tensor)
{
    const struct shape *t = &g->tensor[tensor].shape, *u = &g->tensor[0].shape;
    int first = 0;
    while (u->ndim != t->ndim || u->granule != t->granule || memcmp(u->dim, t->dim, sizeof u->dim) != 0)
        u = &g->tensor[++first].shape;
    return first;
}

static enum error_code search_open(struct search *s, struct error *err)
{
    const struct sbp_graph *g = s->graph;
    s->cost = malloc((size_t)g->tensors * sizeof *s->cost);
    if (s->cost == NULL || !frontier_grow(&s->from, g->tensors) || !frontier_grow(&s->to, g->tensors))
        return fail(err, ERR_MEMORY, "no memory for the signatures of %d tensors", g->tensors);
    memset(s->cost, 0xff, (size_t)g->tensors * sizeof *s->cost);
    for (int t = 0; t < g->tensors; t++) s->last_use[t] = graph_last_use(g, t), s->shape[t] = first_of_shape(g, t);
    for (int o = 0; o < g->ops; o++)
        for (int i = 0; i < g->op[o].inputs; i++) s->uses[g->op[o].in[i]]++;
    struct state start = { .node = -1 };
    memset(start.code, NO_CODE, sizeof start.code);
    s->from.state[s->from.count++] = start;
    return OK;
}

enum error_code sbp_assign(const struct sbp_graph *g, const struct sbp_mesh *m, int most, struct assignment *a,
                           struct error *err)
{
    struct search *s = calloc(1, sizeof *s);
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for a search");
    *s = (struct search){ .graph = g, .mesh = m, .most = most, .exact = true };
    *a = (struct assignment){ .mesh = *m };
    enum error_code e = search_open(s, err);
    for (int o = 0; o < g->ops && !e; o++) e = do_op(s, o, err);
    if (!e) read_back(s, a);
    a->exact = s->exact;
    free(s->cost), free(s->node), free(s->from.state), free(s->from.table), free(s->to.state), free(s->to.table),
        free(s);
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
