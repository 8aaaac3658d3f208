#include "emulated_devices/verify/cases/covering.h"
#include <stdlib.h>
#include <string.h>

enum pair_state { OPEN, COVERED, REFUSED };
enum { UNKNOWN, FOUND, NONE, TOLD };            /* states of homes; TOLD: NONE, and reported */

static int index_of(const struct covering *c, int dimension, int value) { return c->before[dimension] + value; }

static unsigned char *state_of(struct covering *c, int a, int va, int b, int vb)
{
    return &c->pair[index_of(c, a, va) * c->total + index_of(c, b, vb)];
}

enum error_code covering_open(struct covering *c, struct error *err)
{
    c->total = 0;
    c->before = calloc((size_t)c->dimensions, sizeof *c->before);
    for (int d = 0; d < c->dimensions && c->before; d++) c->before[d] = c->total, c->total += c->values[d];
    const size_t n = (size_t)c->total;
    c->pair = calloc(n * n, 1);
    c->home = calloc(n, sizeof *c->home);
    c->has_home = calloc(n, 1);
    if (c->before && c->pair && c->home && c->has_home) return OK;
    return fail(err, ERR_MEMORY, "no memory for the pairs of %d values", c->total);
}

void covering_close(struct covering *c)
{
    free(c->before), free(c->pair), free(c->home), free(c->has_home);
    c->before = NULL, c->pair = NULL, c->home = NULL, c->has_home = NULL;
}

void covering_begin(struct covering *c)
{
    for (int i = 0; i < c->total * c->total; i++)
        if (c->pair[i] == REFUSED) c->pair[i] = OPEN;
    memset(c->has_home, UNKNOWN, (size_t)c->total);
    memset(c->at, 0, sizeof c->at);
    c->rest = false;
}

static bool fits(const struct covering *c, const struct choice *x, struct error *why)
{
    return c->check(c->context, x, why) == OK;
}

/* ---- homes ------------------------------------------------------------------------------------------------------- */

/* Change up to `changes` dimensions, from `from` on and without those in `keep`, until the choice is a case. */
static bool mend(const struct covering *c, struct choice *x, const struct choice *keep, int from, int changes)
{
    if (fits(c, x, NULL)) return true;
    for (int d = from; d < c->dimensions && changes > 0; d++) {
        const int was = x->value[d];
        if (!c->varies[d] || keep->value[d]) continue;
        for (int v = 0; v < c->values[d]; v++) {
            x->value[d] = v;
            if (v != was && mend(c, x, keep, d + 1, changes - 1)) return true;
        }
        x->value[d] = was;
    }
    return false;
}

enum { CHANGES_TO_A_HOME = 2, CHANGES_TO_A_PAIR = 1 };

/* The default case with this value, or a case with few more changes. */
static const struct choice *home_of(struct covering *c, int dimension, int value)
{
    const int i = index_of(c, dimension, value);
    struct choice keep = { { 0 } };
    keep.value[dimension] = 1;
    if (c->has_home[i] == UNKNOWN) {
        bool found = false;
        for (int changes = 0; changes <= CHANGES_TO_A_HOME && !found; changes++) {
            c->home[i] = (struct choice){ { 0 } };
            c->home[i].value[dimension] = value;
            found = mend(c, &c->home[i], &keep, 0, changes);
        }
        c->has_home[i] = found ? FOUND : NONE;
    }
    return c->has_home[i] == FOUND ? &c->home[i] : NULL;
}

/* `below` with all values of `above` that are not defaults. */
static struct choice overlay(const struct covering *c, const struct choice *below, const struct choice *above)
{
    struct choice x = *below;
    for (int d = 0; d < c->dimensions; d++)
        if (above->value[d] != 0) x.value[d] = above->value[d];
    return x;
}

/* ---- a case for a pair ------------------------------------------------------------------------------------------- */

/* A value that is in no case is refused once, not once for each pair.  @return whether this is the first time. */
static bool tell_homeless(struct covering *c, struct value_pair *p, struct error *why)
{
    for (int i = 0; i < 2; i++) {
        const int d = p->dimension[i], v = p->value[i];
        unsigned char *told = &c->has_home[index_of(c, d, v)];
        if (home_of(c, d, v) != NULL || *told == TOLD) continue;
        struct choice x = { { 0 } };
        x.value[d] = v;
        *told = TOLD;
        *p = (struct value_pair){ { d, -1 }, { v, 0 } };
        return fits(c, &x, why) || why->code == ERR_PLAN;
    }
    return false;
}

/* Find a case for a pair: the overlay of both values' homes, with few changes. */
static bool seed(struct covering *c, const struct value_pair *p, struct choice *x, struct error *why)
{
    const struct choice *home[2];
    struct choice keep = { { 0 } };
    for (int i = 0; i < 2; i++) {
        home[i] = home_of(c, p->dimension[i], p->value[i]);
        keep.value[p->dimension[i]] = 1;
    }
    if (home[0] == NULL || home[1] == NULL) return false;
    for (int changes = 0; changes <= CHANGES_TO_A_PAIR; changes++)
        for (int over = 0; over < 2; over++) {
            *x = overlay(c, home[!over], home[over]);
            for (int i = 0; i < 2; i++) x->value[p->dimension[i]] = p->value[i];
            if (mend(c, x, &keep, 0, changes)) return true;
        }
    return fits(c, x, why);
}

/* The number of open pairs of a value with the other values of a choice. */
static int gain(struct covering *c, const struct choice *x, int dimension, int value)
{
    int n = 0;
    for (int d = 0; d < c->dimensions; d++)
        n += d != dimension && c->varies[d] && *state_of(c, dimension, value, d, x->value[d]) == OPEN;
    return n;
}

/* Choose the valid value that covers the most open pairs. */
static void improve(struct covering *c, struct choice *x, int dimension)
{
    int best = x->value[dimension], most = gain(c, x, dimension, best);
    for (int v = 0; v < c->values[dimension]; v++) {
        struct choice other = *x;
        other.value[dimension] = v;
        const int n = gain(c, x, dimension, v);
        if (n > most && fits(c, &other, NULL)) best = v, most = n;
    }
    x->value[dimension] = best;
}

static void cover(struct covering *c, const struct choice *x)
{
    for (int a = 0; a < c->dimensions; a++)
        for (int b = 0; b < c->dimensions; b++)
            if (a != b) *state_of(c, a, x->value[a], b, x->value[b]) = COVERED;
}

static void make_case(struct covering *c, const struct value_pair *p, struct choice *x)
{
    for (int d = 0; d < c->dimensions; d++)
        if (c->varies[d] && d != p->dimension[0] && d != p->dimension[1]) improve(c, x, d);
    cover(c, x);
}

/* ---- from pair to pair ------------------------------------------------------------------------------------------- */

static bool is_wanted(struct covering *c, const struct value_pair *p)
{
    const int a = p->dimension[0], b = p->dimension[1];
    const bool first = a == c->first || b == c->first;
    return c->varies[a] && c->varies[b] && first != c->rest && *state_of(c, a, p->value[0], b, p->value[1]) == OPEN;
}

/* Go to the next pair. */
static bool step_pair(struct covering *c)
{
    int *at = c->at;
    if (++at[3] < c->values[at[1]]) return true;
    at[3] = 0;
    if (++at[2] < c->values[at[0]]) return true;
    at[2] = 0;
    if (++at[1] < c->dimensions) return true;
    if (++at[0] < c->dimensions - 1) {
        at[1] = at[0] + 1;
        return true;
    }
    at[0] = 0, at[1] = 1;
    c->rest = !c->rest;
    return c->rest;
}

static void refuse(struct covering *c, const struct value_pair *p)
{
    for (int i = 0; i < 2; i++) *state_of(c, p->dimension[i], p->value[i], p->dimension[!i], p->value[!i]) = REFUSED;
}

enum covering_result covering_next(struct covering *c, struct choice *x, struct value_pair *p, struct error *why)
{
    if (c->at[1] == 0) c->at[1] = 1;                    /* after covering_begin */
    do {
        *p = (struct value_pair){ { c->at[0], c->at[1] }, { c->at[2], c->at[3] } };
        if (!is_wanted(c, p)) continue;
        if (seed(c, p, x, why)) {
            make_case(c, p, x);
            return COVERING_CASE;
        }
        refuse(c, p);
        const bool both = home_of(c, p->dimension[0], p->value[0]) && home_of(c, p->dimension[1], p->value[1]);
        if (both ? why->code == ERR_PLAN : tell_homeless(c, p, why)) return COVERING_REFUSED;
    } while (step_pair(c));
    return COVERING_DONE;
}
