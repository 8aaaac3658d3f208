#include "emulated_devices/schemes/sbp/min_sum.h"
#include <stdlib.h>
#include <string.h>

void min_sum_open(struct min_sum *m, int variables, const int values[])
{
    *m = (struct min_sum){ .variables = variables };
    memcpy(m->values, values, (size_t)variables * sizeof *values);
    for (int v = 0; v < variables; v++)
        for (int i = 0; i < values[v]; i++) m->value[v][i] = (uint8_t)i;
}

void min_sum_close(struct min_sum *m)
{
    for (int t = 0; t < m->terms; t++) free(m->term[t].cost);
    m->terms = 0;
}

static int place_in(const struct min_sum_term *t, int variable)
{
    for (int i = 0; i < t->width; i++)
        if (t->of[i] == variable) return i;
    return -1;
}

static int64_t size_of(const struct min_sum *m, const struct min_sum_term *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->width; i++) n *= m->values[t->of[i]];
    return n;
}

struct min_sum_term *min_sum_add(struct min_sum *m, int width, const int of[])
{
    struct min_sum_term *t = &m->term[m->terms];
    if (m->terms == MIN_SUM_TERMS) return NULL;
    *t = (struct min_sum_term){ 0 };
    for (int i = 0; i < width; i++) {
        if (place_in(t, of[i]) >= 0) continue;
        if (t->width == MIN_SUM_WIDTH) return NULL;
        t->of[t->width++] = of[i];
    }
    t->cost = calloc((size_t)size_of(m, t), sizeof *t->cost);
    if (t->cost == NULL) return NULL;
    m->terms++;
    return t;
}

/* How far apart the costs of a variable's neighbouring values stand; 0 if the term does not have it. */
static int64_t stride_of(const struct min_sum *m, const struct min_sum_term *t, int variable)
{
    const int place = place_in(t, variable);
    int64_t stride = 1;
    if (place < 0) return 0;
    for (int i = place + 1; i < t->width; i++) stride *= m->values[t->of[i]];
    return stride;
}

int64_t min_sum_at(const struct min_sum *m, const struct min_sum_term *t, const int value[])
{
    int64_t at = 0;
    for (int i = 0; i < t->width; i++) at = at * m->values[t->of[i]] + value[t->of[i]];
    return at;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* Which variables a term that arises would have: those that share a term with this one. */
struct order { bool joined[MIN_SUM_VARIABLES][MIN_SUM_VARIABLES], gone[MIN_SUM_VARIABLES]; };

static void order_begin(struct order *o, const struct min_sum *m)
{
    memset(o, 0, sizeof *o);
    for (int t = 0; t < m->terms; t++)
        for (int i = 0; i < m->term[t].width; i++)
            for (int k = 0; k < m->term[t].width; k++) o->joined[m->term[t].of[i]][m->term[t].of[k]] = true;
}

static double size_after(const struct order *o, const struct min_sum *m, int variable)
{
    double n = 1;
    for (int v = 0; v < m->variables; v++)
        if (v != variable && !o->gone[v] && o->joined[variable][v]) n *= m->values[v];
    return n;
}

static int order_next(struct order *o, const struct min_sum *m, double *size)
{
    int best = -1;
    for (int v = 0; v < m->variables; v++) {
        const double n = o->gone[v] ? 0 : size_after(o, m, v);
        if (!o->gone[v] && (best < 0 || n < *size)) best = v, *size = n;
    }
    /* The variables that shared a term with this one share the term that arises. */
    for (int v = 0; v < m->variables && best >= 0; v++)
        for (int w = 0; w < m->variables; w++)
            if (o->joined[best][v] && o->joined[best][w]) o->joined[v][w] = true;
    if (best >= 0) o->gone[best] = true;
    return best;
}

/* The largest term that arises, with the values of the variable that goes. */
static double largest(const struct min_sum *m)
{
    struct order o;
    double most = 0, size = 0;
    order_begin(&o, m);
    for (int v; (v = order_next(&o, m, &size)) >= 0;)
        if (size * m->values[v] > most) most = size * m->values[v];
    return most;
}

/* ---- fewer values ------------------------------------------------------------------------------------------------ */

/* For each value of a variable the sum, over its terms, of the least that each can be. */
static void least_with(const struct min_sum *m, int variable, int64_t least[])
{
    memset(least, 0, (size_t)m->values[variable] * sizeof *least);
    for (int t = 0; t < m->terms; t++) {
        const struct min_sum_term *term = &m->term[t];
        const int64_t stride = stride_of(m, term, variable), size = size_of(m, term);
        int64_t here[MIN_SUM_VALUES];
        if (stride == 0) continue;
        for (int i = 0; i < m->values[variable]; i++) here[i] = INT64_MAX;
        for (int64_t at = 0; at < size; at++) {
            int64_t *const of = &here[at / stride % m->values[variable]];
            if (term->cost[at] < *of) *of = term->cost[at];
        }
        for (int i = 0; i < m->values[variable]; i++)
            least[i] = least[i] + here[i] < MIN_SUM_NEVER ? least[i] + here[i] : MIN_SUM_NEVER;
    }
}

/* Keep these values of a variable, in their order. */
static void keep_values(struct min_sum *m, int variable, const bool keep[])
{
    const int before = m->values[variable];
    int kept = 0;
    for (int t = 0; t < m->terms; t++) {
        struct min_sum_term *term = &m->term[t];
        const int64_t stride = stride_of(m, term, variable), size = size_of(m, term);
        int64_t to = 0;
        for (int64_t at = 0; at < size && stride > 0; at++)
            if (keep[at / stride % before]) term->cost[to++] = term->cost[at];
    }
    for (int i = 0; i < before; i++)
        if (keep[i]) m->value[variable][kept++] = m->value[variable][i];
    m->values[variable] = kept;
}

static void keep_least(struct min_sum *m, int variable, int most)
{
    int64_t least[MIN_SUM_VALUES];
    bool keep[MIN_SUM_VALUES];
    if (m->values[variable] <= most) return;
    least_with(m, variable, least);
    for (int i = 0; i < m->values[variable]; i++) {
        int before = 0;
        for (int k = 0; k < m->values[variable]; k++)
            before += least[k] < least[i] || (least[k] == least[i] && k < i);
        keep[i] = before < most;
    }
    keep_values(m, variable, keep);
}

bool min_sum_narrow(struct min_sum *m, int64_t most)
{
    bool narrowed = false;
    for (int v = 0; v < m->variables; v++) {            /* values that cannot be at all */
        int64_t least[MIN_SUM_VALUES];
        bool keep[MIN_SUM_VALUES], some = false;
        least_with(m, v, least);
        for (int i = 0; i < m->values[v]; i++) keep[i] = least[i] < MIN_SUM_NEVER, some = some || keep[i];
        if (some) keep_values(m, v, keep);
    }
    /* One value less at a time, all variables lose those with the highest least cost. */
    for (int values = MIN_SUM_VALUES - 1; values > 1 && largest(m) > (double)most; values--) {
        for (int v = 0; v < m->variables; v++) keep_least(m, v, values);
        narrowed = true;
    }
    return narrowed;
}

/* ---- elimination ------------------------------------------------------------------------------------------------- */

/* How a variable went: the best value for each combination of the others. */
struct gone { int variable; struct min_sum_term others; uint8_t *best; };

/* The terms that are joined, how far each moves with a variable of the new term, and with the one that goes. */
struct join {
    int terms, *term;
    int64_t (*step)[MIN_SUM_WIDTH], *inner;
};

/* For one combination of the others the least over the values of the variable that goes. */
static int64_t least_of(const struct min_sum *m, const struct join *j, const int64_t at[], int values, uint8_t *best)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < values; i++) {
        int64_t sum = 0;
        for (int t = 0; t < j->terms; t++) sum += m->term[j->term[t]].cost[at[t] + i * j->inner[t]];
        if (sum < least) least = sum, *best = (uint8_t)i;
    }
    return least < MIN_SUM_NEVER ? least : MIN_SUM_NEVER;
}

/* All combinations of the others, the last variable fastest. */
static void fill(const struct min_sum *m, const struct join *j, struct gone *g)
{
    int value[MIN_SUM_WIDTH] = { 0 };
    int64_t at[MIN_SUM_TERMS] = { 0 };
    const int64_t size = size_of(m, &g->others);
    for (int64_t n = 0; n < size; n++) {
        g->others.cost[n] = least_of(m, j, at, m->values[g->variable], &g->best[n]);
        for (int i = g->others.width - 1; i >= 0; i--) {
            const int values = m->values[g->others.of[i]];
            /* A digit goes one up, or back to zero and carries; `at` follows in every joined term. */
            const int64_t turn = value[i] + 1 < values ? 1 : 1 - values;
            for (int t = 0; t < j->terms; t++) at[t] += turn * j->step[t][i];
            value[i] += (int)turn;
            if (turn == 1) break;
        }
    }
}

/* The variables of the terms that have this one, without it.  @return whether there was room. */
static bool gather(const struct min_sum *m, struct gone *g)
{
    g->others.width = 0;
    for (int t = 0; t < m->terms; t++) {
        if (place_in(&m->term[t], g->variable) < 0) continue;
        for (int i = 0; i < m->term[t].width; i++) {
            const int v = m->term[t].of[i];
            if (v == g->variable || place_in(&g->others, v) >= 0) continue;
            if (g->others.width == MIN_SUM_WIDTH) return false;
            g->others.of[g->others.width++] = v;
        }
    }
    return true;
}

/* The joined terms go; the new one stays. */
static void replace(struct min_sum *m, const struct join *j, struct min_sum_term by)
{
    /* Terms go from the last one on, so the places of the earlier ones stay right. */
    for (int t = j->terms - 1; t >= 0; t--) {
        free(m->term[j->term[t]].cost);
        m->term[j->term[t]] = m->term[--m->terms];
    }
    m->term[m->terms++] = by;
}

static enum error_code eliminate(struct min_sum *m, struct gone *g, struct error *err)
{
    int term[MIN_SUM_TERMS];
    int64_t step[MIN_SUM_TERMS][MIN_SUM_WIDTH], inner[MIN_SUM_TERMS];
    struct join j = { 0, term, step, inner };
    bool made = gather(m, g);
    /* Each joined term is read with its own strides, in the order of the new term's variables. */
    for (int t = 0; t < m->terms && made; t++) {
        if (place_in(&m->term[t], g->variable) < 0) continue;
        for (int i = 0; i < g->others.width; i++) step[j.terms][i] = stride_of(m, &m->term[t], g->others.of[i]);
        inner[j.terms] = stride_of(m, &m->term[t], g->variable);
        term[j.terms++] = t;
    }
    const int64_t size = made ? size_of(m, &g->others) : 0;
    struct min_sum_term new = g->others;
    if (made) new.cost = malloc((size_t)size * sizeof *new.cost), g->best = malloc((size_t)size);
    if (!made || !new.cost || !g->best) {
        free(new.cost);
        return fail(err, ERR_MEMORY, "no memory for a term of %lld costs", (long long)size);
    }
    g->others = new;
    fill(m, &j, g);
    replace(m, &j, new);
    return OK;
}

/* A variable with one value is no variable: terms do not need it. */
static void forget_constants(struct min_sum *m)
{
    for (int t = 0; t < m->terms; t++) {
        struct min_sum_term *term = &m->term[t];
        int left = 0;
        for (int i = 0; i < term->width; i++)
            if (m->values[term->of[i]] > 1) term->of[left++] = term->of[i];
        term->width = left;
    }
}

enum error_code min_sum_solve(struct min_sum *m, int value[], int64_t *least, struct error *err)
{
    struct order o;
    struct gone *gone = calloc((size_t)m->variables + 1, sizeof *gone);
    int eliminated = 0;
    double size = 0;
    if (gone == NULL) return fail(err, ERR_MEMORY, "no memory for %d variables", m->variables);
    enum error_code e = OK;
    forget_constants(m);
    order_begin(&o, m);
    for (int v; !e && (v = order_next(&o, m, &size)) >= 0;) {
        gone[eliminated] = (struct gone){ .variable = v };
        e = eliminate(m, &gone[eliminated++], err);
    }
    /* Without variables every term that is left is one number. */
    *least = 0;
    for (int t = 0; t < m->terms && !e; t++) *least += m->term[t].cost[0];
    if (!e) memset(value, 0, (size_t)m->variables * sizeof *value);
    /* When a variable is set, those that its best value depends on are set already: they went later. */
    for (int i = eliminated - 1; i >= 0 && !e; i--)
        value[gone[i].variable] = gone[i].best[min_sum_at(m, &gone[i].others, value)];
    /* Values are numbered anew after some were left out; here they get their old numbers back. */
    for (int v = 0; v < m->variables && !e; v++) value[v] = m->value[v][value[v]];
    for (int i = 0; i < eliminated; i++) free(gone[i].best);
    free(gone);
    return e;
}
