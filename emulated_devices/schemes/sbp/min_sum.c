/* min_sum.c -- terms, the order of elimination, and the elimination itself.  assign.c calls it; a solve without memory
 * or room for a term is ERR_MEMORY, and min_sum_close is still due. */
#include "emulated_devices/schemes/sbp/min_sum.h"
#include <stdlib.h>
#include <string.h>

void min_sum_open(struct min_sum *min_sum, int variables, const int values[])
{
    *min_sum = (struct min_sum){ .variables = variables };
    memcpy(min_sum->values, values, (size_t)variables * sizeof *values);
    for (int v = 0; v < variables; v++)
        for (int i = 0; i < values[v]; i++) min_sum->value[v][i] = (uint8_t)i;
}

void min_sum_close(struct min_sum *min_sum)
{
    for (int t = 0; t < min_sum->terms; t++) free(min_sum->term[t].cost);
    min_sum->terms = 0;
}

/* Return the place of a variable among those of a term; -1: the term does not have it. */
static int place_in(const struct min_sum_term *term, int variable)
{
    for (int i = 0; i < term->width; i++)
        if (term->of[i] == variable) return i;
    return -1;
}

/* Count a term's costs: the product of its variables' numbers of values. */
static int64_t min_sum_size_of(const struct min_sum *min_sum, const struct min_sum_term *term)
{
    int64_t n = 1;
    for (int i = 0; i < term->width; i++) n *= min_sum->values[term->of[i]];
    return n;
}

struct min_sum_term *min_sum_add(struct min_sum *min_sum, int width, const int of[])
{
    struct min_sum_term *t = &min_sum->term[min_sum->terms];
    /* A full sum adds nothing; the caller reports it as missing memory. */
    if (min_sum->terms == MIN_SUM_TERMS) return NULL;
    *t = (struct min_sum_term){ 0 };
    for (int i = 0; i < width; i++) {
        if (place_in(t, of[i]) >= 0) continue;
        if (t->width == MIN_SUM_WIDTH) return NULL;
        t->of[t->width++] = of[i];
    }
    t->cost = calloc((size_t)min_sum_size_of(min_sum, t), sizeof *t->cost);
    if (t->cost == NULL) return NULL;
    min_sum->terms++;
    return t;
}

/* How far apart the costs of a variable's neighbouring values stand; 0 if the term does not have it. */
static int64_t stride_of(const struct min_sum *min_sum, const struct min_sum_term *term, int variable)
{
    const int place = place_in(term, variable);
    int64_t stride = 1;
    if (place < 0) return 0;
    for (int i = place + 1; i < term->width; i++) stride *= min_sum->values[term->of[i]];
    return stride;
}

int64_t min_sum_at(const struct min_sum *min_sum, const struct min_sum_term *term, const int value[])
{
    int64_t at = 0;
    /* Costs lie in the order of the term's variables, the last one fastest. */
    for (int i = 0; i < term->width; i++) at = at * min_sum->values[term->of[i]] + value[term->of[i]];
    return at;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* joined[v] has the variables that share a term with v: the term that arises without v has these. */
struct order { bool joined[MIN_SUM_VARIABLES][MIN_SUM_VARIABLES], gone[MIN_SUM_VARIABLES]; };

/* Join all pairs of variables that share a term. */
static void order_begin(struct order *order, const struct min_sum *min_sum)
{
    memset(order, 0, sizeof *order);
    for (int t = 0; t < min_sum->terms; t++)
        for (int i = 0; i < min_sum->term[t].width; i++)
            for (int k = 0; k < min_sum->term[t].width; k++)
                order->joined[min_sum->term[t].of[i]][min_sum->term[t].of[k]] = true;
}

/* Return the size of the term that arises if this variable goes; double, because the product can be huge. */
static double size_after(const struct order *order, const struct min_sum *min_sum, int variable)
{
    double n = 1;
    for (int v = 0; v < min_sum->variables; v++)
        if (v != variable && !order->gone[v] && order->joined[variable][v]) n *= min_sum->values[v];
    return n;
}

/* Choose the variable whose elimination makes the smallest term.  @return the variable; -1: none is left. */
static int order_next(struct order *order, const struct min_sum *min_sum, double *size)
{
    int best = -1;
    for (int v = 0; v < min_sum->variables; v++) {
        const double n = order->gone[v] ? 0 : size_after(order, min_sum, v);
        if (!order->gone[v] && (best < 0 || n < *size)) best = v, *size = n;
    }
    /* The variables that shared a term with this one share the term that arises. */
    for (int v = 0; v < min_sum->variables && best >= 0; v++)
        for (int w = 0; w < min_sum->variables; w++)
            if (order->joined[best][v] && order->joined[best][w]) order->joined[v][w] = true;
    if (best >= 0) order->gone[best] = true;
    return best;
}

/* The largest term that arises, with the values of the variable that goes. */
static double min_sum_largest(const struct min_sum *min_sum)
{
    struct order o;
    double most = 0, size = 0;
    order_begin(&o, min_sum);
    for (int v; (v = order_next(&o, min_sum, &size)) >= 0;)
        if (size * min_sum->values[v] > most) most = size * min_sum->values[v];
    return most;
}

/* ---- fewer values ------------------------------------------------------------------------------------------------ */

/* Add up, for each value of a variable, the least that each of its terms can then be. */
static void least_with(const struct min_sum *min_sum, int variable, int64_t least[])
{
    memset(least, 0, (size_t)min_sum->values[variable] * sizeof *least);
    for (int t = 0; t < min_sum->terms; t++) {
        const struct min_sum_term *term = &min_sum->term[t];
        /* here[i] is the least cost of the term with value i, whatever its other variables are. */
        const int64_t stride = stride_of(min_sum, term, variable), size = min_sum_size_of(min_sum, term);
        int64_t here[MIN_SUM_VALUES];
        if (stride == 0) continue;
        for (int i = 0; i < min_sum->values[variable]; i++) here[i] = INT64_MAX;
        for (int64_t at = 0; at < size; at++) {
            int64_t *const of = &here[at / stride % min_sum->values[variable]];
            if (term->cost[at] < *of) *of = term->cost[at];
        }
        for (int i = 0; i < min_sum->values[variable]; i++)
            least[i] = least[i] + here[i] < MIN_SUM_NEVER ? least[i] + here[i] : MIN_SUM_NEVER;
    }
}

/* Keep these values of a variable, in their order. */
static void keep_values(struct min_sum *min_sum, int variable, const bool keep[])
{
    const int before = min_sum->values[variable];
    int kept = 0;
    for (int t = 0; t < min_sum->terms; t++) {
        struct min_sum_term *term = &min_sum->term[t];
        const int64_t stride = stride_of(min_sum, term, variable), size = min_sum_size_of(min_sum, term);
        /* Costs move down in place: `to` never passes `at`. */
        int64_t to = 0;
        for (int64_t at = 0; at < size && stride > 0; at++)
            if (keep[at / stride % before]) term->cost[to++] = term->cost[at];
    }
    for (int i = 0; i < before; i++)
        if (keep[i]) min_sum->value[variable][kept++] = min_sum->value[variable][i];
    /* The number changes last, because strides and sizes above are those before. */
    min_sum->values[variable] = kept;
}

/* Keep at most `most` values of a variable: those with the smallest sum of least costs. */
static void keep_least(struct min_sum *min_sum, int variable, int most)
{
    int64_t least[MIN_SUM_VALUES];
    bool keep[MIN_SUM_VALUES];
    if (min_sum->values[variable] <= most) return;
    least_with(min_sum, variable, least);
    for (int i = 0; i < min_sum->values[variable]; i++) {
        int before = 0;
        for (int k = 0; k < min_sum->values[variable]; k++)
            before += least[k] < least[i] || (least[k] == least[i] && k < i);
        keep[i] = before < most;
    }
    keep_values(min_sum, variable, keep);
}

bool min_sum_narrow(struct min_sum *min_sum, int64_t most)
{
    bool narrowed = false;
    for (int v = 0; v < min_sum->variables; v++) {            /* values that cannot be at all */
        int64_t least[MIN_SUM_VALUES];
        bool keep[MIN_SUM_VALUES], some = false;
        least_with(min_sum, v, least);
        for (int i = 0; i < min_sum->values[v]; i++) keep[i] = least[i] < MIN_SUM_NEVER, some = some || keep[i];
        /* A variable without a possible value keeps all, so that the solve finds that nothing can be. */
        if (some) keep_values(min_sum, v, keep);
    }
    /* Values are left out in rounds: in each, all variables with the most values lose those with the highest least
     * cost. */
    for (int values = MIN_SUM_VALUES - 1; values > 1 && min_sum_largest(min_sum) > (double)most; values--) {
        for (int v = 0; v < min_sum->variables; v++) keep_least(min_sum, v, values);
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

/* Find the least cost over the values of the variable that goes, for one combination of the others. */
static int64_t least_of(const struct min_sum *min_sum, const struct join *join, const int64_t at[], int values,
                        uint8_t *best)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < values; i++) {
        int64_t sum = 0;
        for (int t = 0; t < join->terms; t++) sum += min_sum->term[join->term[t]].cost[at[t] + i * join->inner[t]];
        if (sum < least) least = sum, *best = (uint8_t)i;
    }
    return least < MIN_SUM_NEVER ? least : MIN_SUM_NEVER;
}

/* All combinations of the others, the last variable fastest. */
static void min_sum_fill(const struct min_sum *min_sum, const struct join *join, struct gone *gone)
{
    int value[MIN_SUM_WIDTH] = { 0 };
    int64_t at[MIN_SUM_TERMS] = { 0 };
    const int64_t size = min_sum_size_of(min_sum, &gone->others);
    for (int64_t n = 0; n < size; n++) {
        gone->others.cost[n] = least_of(min_sum, join, at, min_sum->values[gone->variable], &gone->best[n]);
        for (int i = gone->others.width - 1; i >= 0; i--) {
            const int values = min_sum->values[gone->others.of[i]];
            /* A digit goes one up, or back to zero and carries; `at` follows in every joined term. */
            const int64_t turn = value[i] + 1 < values ? 1 : 1 - values;
            for (int t = 0; t < join->terms; t++) at[t] += turn * join->step[t][i];
            value[i] += (int)turn;
            if (turn == 1) break;
        }
    }
}

/* Collect the variables of all terms that have this one, without this one.  @return whether there was room. */
static bool min_sum_gather(const struct min_sum *min_sum, struct gone *gone)
{
    gone->others.width = 0;
    for (int t = 0; t < min_sum->terms; t++) {
        if (place_in(&min_sum->term[t], gone->variable) < 0) continue;
        for (int i = 0; i < min_sum->term[t].width; i++) {
            const int v = min_sum->term[t].of[i];
            if (v == gone->variable || place_in(&gone->others, v) >= 0) continue;
            if (gone->others.width == MIN_SUM_WIDTH) return false;
            gone->others.of[gone->others.width++] = v;
        }
    }
    return true;
}

/* The joined terms go; the new one stays. */
static void replace(struct min_sum *min_sum, const struct join *join, struct min_sum_term by)
{
    /* Terms go from the last one on, so the places of the earlier ones stay right. */
    for (int t = join->terms - 1; t >= 0; t--) {
        free(min_sum->term[join->term[t]].cost);
        min_sum->term[join->term[t]] = min_sum->term[--min_sum->terms];
    }
    min_sum->term[min_sum->terms++] = by;
}

/* Eliminate one variable: join the terms that have it, and remember its best values for reading back. */
static enum error_code eliminate(struct min_sum *min_sum, struct gone *gone, struct error *err)
{
    int term[MIN_SUM_TERMS];
    int64_t step[MIN_SUM_TERMS][MIN_SUM_WIDTH], inner[MIN_SUM_TERMS];
    struct join j = { 0, term, step, inner };
    bool made = min_sum_gather(min_sum, gone);
    /* Each joined term is read with its own strides, in the order of the new term's variables. */
    for (int t = 0; t < min_sum->terms && made; t++) {
        if (place_in(&min_sum->term[t], gone->variable) < 0) continue;
        for (int i = 0; i < gone->others.width; i++)
            step[j.terms][i] = stride_of(min_sum, &min_sum->term[t], gone->others.of[i]);
        inner[j.terms] = stride_of(min_sum, &min_sum->term[t], gone->variable);
        term[j.terms++] = t;
    }
    const int64_t size = made ? min_sum_size_of(min_sum, &gone->others) : 0;
    /* `new` has the memory of costs, and later belongs to the sum; `gone` keeps the list of variables. */
    struct min_sum_term new = gone->others;
    if (made) new.cost = malloc((size_t)size * sizeof *new.cost), gone->best = malloc((size_t)size);
    if (!made || !new.cost || !gone->best) {
        free(new.cost);
        return fail(err, ERR_MEMORY, "no memory for a term of %lld costs", (long long)size);
    }
    gone->others = new;
    min_sum_fill(min_sum, &j, gone);
    replace(min_sum, &j, new);
    return OK;
}

/* A variable with one value is no variable: terms do not need it. */
static void forget_constants(struct min_sum *min_sum)
{
    for (int t = 0; t < min_sum->terms; t++) {
        struct min_sum_term *term = &min_sum->term[t];
        int left = 0;
        for (int i = 0; i < term->width; i++)
            if (min_sum->values[term->of[i]] > 1) term->of[left++] = term->of[i];
        term->width = left;
    }
}

enum error_code min_sum_solve(struct min_sum *min_sum, int value[], int64_t *least, struct error *err)
{
    struct order o;
    struct gone *gone = calloc((size_t)min_sum->variables + 1, sizeof *gone);
    int eliminated = 0;
    double size = 0;
    if (gone == NULL) return fail(err, ERR_MEMORY, "no memory for %d variables", min_sum->variables);
    enum error_code e = OK;
    forget_constants(min_sum);
    order_begin(&o, min_sum);
    for (int v; !e && (v = order_next(&o, min_sum, &size)) >= 0;) {
        /* The variable counts as eliminated also after an error, so that its memory is freed. */
        gone[eliminated] = (struct gone){ .variable = v };
        e = eliminate(min_sum, &gone[eliminated++], err);
    }
    /* Without variables every term that is left is one number. */
    *least = 0;
    for (int t = 0; t < min_sum->terms && !e; t++) *least += min_sum->term[t].cost[0];
    if (!e) memset(value, 0, (size_t)min_sum->variables * sizeof *value);
    /* When a variable is set, those that its best value depends on are set already: they went later. */
    for (int i = eliminated - 1; i >= 0 && !e; i--)
        value[gone[i].variable] = gone[i].best[min_sum_at(min_sum, &gone[i].others, value)];
    /* Values are numbered anew after some were left out; here they get their old numbers back. */
    for (int v = 0; v < min_sum->variables && !e; v++) value[v] = min_sum->value[v][value[v]];
    for (int i = 0; i < eliminated; i++) free(gone[i].best);
    free(gone);
    return e;
}
