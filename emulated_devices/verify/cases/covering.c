/* covering.c -- searches cases that cover all valid pairs of values, one pair after another.  The caller is cases.c
 * on rank 0; the search is deterministic.  Only covering_open can fail, with ERR_MEMORY. */
#include "emulated_devices/verify/cases/covering.h"
#include <stdlib.h>
#include <string.h>

enum pair_state { OPEN, COVERED, REFUSED };
enum { UNKNOWN, FOUND, NONE, TOLD };            /* states of homes; TOLD: NONE, and reported */

/* Values of all dimensions are numbered in one row: this is the number of one value. */
static int index_of(const struct covering *covering, int dimension, int value)
{
    return covering->before[dimension] + value;
}

/* A pair has its state in the table [total, total]; both orders of a pair have an entry. */
static unsigned char *state_of(struct covering *covering, int a, int va, int b, int vb)
{
    return &covering->pair[index_of(covering, a, va) * covering->total + index_of(covering, b, vb)];
}

enum error_code covering_open(struct covering *covering, struct error *err)
{
    covering->total = 0;
    covering->before = calloc((size_t)covering->dimensions, sizeof *covering->before);
    for (int d = 0; d < covering->dimensions && covering->before; d++)
        covering->before[d] = covering->total, covering->total += covering->values[d];
    const size_t n = (size_t)covering->total;
    covering->pair = calloc(n * n, 1);
    covering->home = calloc(n, sizeof *covering->home);
    covering->has_home = calloc(n, 1);
    if (covering->before && covering->pair && covering->home && covering->has_home) return OK;
    return fail(err, ERR_MEMORY, "no memory for the pairs of %d values", covering->total);
}

void covering_close(struct covering *covering)
{
    free(covering->before), free(covering->pair), free(covering->home), free(covering->has_home);
    covering->before = NULL, covering->pair = NULL, covering->home = NULL, covering->has_home = NULL;
}

void covering_begin(struct covering *covering)
{
    /* A pair that was refused in cases of another kind may be possible in these. */
    for (int i = 0; i < covering->total * covering->total; i++)
        if (covering->pair[i] == REFUSED) covering->pair[i] = OPEN;
    memset(covering->has_home, UNKNOWN, (size_t)covering->total);
    memset(covering->at, 0, sizeof covering->at);
    covering->rest = false;
}

/* Whether a choice is a case; `why` may be NULL. */
static bool covering_fits(const struct covering *covering, const struct choice *choice, struct error *why)
{
    return covering->check(covering->context, choice, why) == OK;
}

/* ---- homes ------------------------------------------------------------------------------------------------------- */

/* Change up to `changes` dimensions, from `from` on and without those in `keep`, until the choice is a case. */
static bool mend(const struct covering *covering, struct choice *choice, const struct choice *keep,
                 int from, int changes)
{
    if (covering_fits(covering, choice, NULL)) return true;
    for (int d = from; d < covering->dimensions && changes > 0; d++) {
        /* Only dimensions after d are tried next, so no combination is tried twice. */
        const int was = choice->value[d];
        if (!covering->varies[d] || keep->value[d]) continue;
        for (int v = 0; v < covering->values[d]; v++) {
            choice->value[d] = v;
            if (v != was && mend(covering, choice, keep, d + 1, changes - 1)) return true;
        }
        choice->value[d] = was;
    }
    return false;
}

enum { CHANGES_TO_A_HOME = 2, CHANGES_TO_A_PAIR = 1 };

/* The default case with this value, or a case with few more changes. */
static const struct choice *home_of(struct covering *covering, int dimension, int value)
{
    const int i = index_of(covering, dimension, value);
    struct choice keep = { { 0 } };
    keep.value[dimension] = 1;
    if (covering->has_home[i] == UNKNOWN) {
        bool found = false;
        /* Fewer changes are tried first: a home has as many defaults as possible. */
        for (int changes = 0; changes <= CHANGES_TO_A_HOME && !found; changes++) {
            covering->home[i] = (struct choice){ { 0 } };
            covering->home[i].value[dimension] = value;
            found = mend(covering, &covering->home[i], &keep, 0, changes);
        }
        covering->has_home[i] = found ? FOUND : NONE;
    }
    return covering->has_home[i] == FOUND ? &covering->home[i] : NULL;
}

/* `below` with all values of `above` that are not defaults. */
static struct choice overlay(const struct covering *covering, const struct choice *below, const struct choice *above)
{
    struct choice x = *below;
    for (int d = 0; d < covering->dimensions; d++)
        if (above->value[d] != 0) x.value[d] = above->value[d];
    return x;
}

/* ---- a case for a pair ------------------------------------------------------------------------------------------- */

/* A value that is in no case is refused once, not once for each pair.  @return whether this is the first time. */
static bool tell_homeless(struct covering *covering, struct value_pair *pair, struct error *why)
{
    for (int i = 0; i < 2; i++) {
        const int d = pair->dimension[i], v = pair->value[i];
        unsigned char *told = &covering->has_home[index_of(covering, d, v)];
        if (home_of(covering, d, v) != NULL || *told == TOLD) continue;
        struct choice x = { { 0 } };
        x.value[d] = v;
        *told = TOLD;
        /* The reason is that of the default case with this value. */
        *pair = (struct value_pair){ { d, -1 }, { v, 0 } };
        return covering_fits(covering, &x, why) || why->code == ERR_PLAN;
    }
    return false;
}

/* Find a case for a pair: the overlay of both values' homes, with few changes. */
static bool seed(struct covering *covering, const struct value_pair *pair, struct choice *choice, struct error *why)
{
    const struct choice *home[2];
    struct choice keep = { { 0 } };
    for (int i = 0; i < 2; i++) {
        home[i] = home_of(covering, pair->dimension[i], pair->value[i]);
        keep.value[pair->dimension[i]] = 1;
    }
    if (home[0] == NULL || home[1] == NULL) return false;
    /* Fewer changes are tried first, with either home on top where both set one dimension. */
    for (int changes = 0; changes <= CHANGES_TO_A_PAIR; changes++)
        for (int over = 0; over < 2; over++) {
            *choice = overlay(covering, home[!over], home[over]);
            for (int i = 0; i < 2; i++) choice->value[pair->dimension[i]] = pair->value[i];
            if (mend(covering, choice, &keep, 0, changes)) return true;
        }
    return covering_fits(covering, choice, why);
}

/* The result is the number of open pairs of a value with the other values of a choice. */
static int gain(struct covering *covering, const struct choice *choice, int dimension, int value)
{
    int n = 0;
    for (int d = 0; d < covering->dimensions; d++)
        n += d != dimension && covering->varies[d]
            && *state_of(covering, dimension, value, d, choice->value[d]) == OPEN;
    return n;
}

/* Choose the valid value that covers the most open pairs. */
static void improve(struct covering *covering, struct choice *choice, int dimension)
{
    int best = choice->value[dimension], most = gain(covering, choice, dimension, best);
    for (int v = 0; v < covering->values[dimension]; v++) {
        struct choice other = *choice;
        other.value[dimension] = v;
        const int n = gain(covering, choice, dimension, v);
        if (n > most && covering_fits(covering, &other, NULL)) best = v, most = n;
    }
    choice->value[dimension] = best;
}

/* Mark all pairs of a case's values as covered, in both orders. */
static void cover(struct covering *covering, const struct choice *choice)
{
    for (int a = 0; a < covering->dimensions; a++)
        for (int b = 0; b < covering->dimensions; b++)
            if (a != b) *state_of(covering, a, choice->value[a], b, choice->value[b]) = COVERED;
}

/* Improve a case that has been found for a pair: every other dimension takes the value with most open pairs. */
static void make_case(struct covering *covering, const struct value_pair *pair, struct choice *choice)
{
    for (int d = 0; d < covering->dimensions; d++)
        if (covering->varies[d] && d != pair->dimension[0] && d != pair->dimension[1]) improve(covering, choice, d);
    cover(covering, choice);
}

/* ---- from pair to pair ------------------------------------------------------------------------------------------- */

/* Whether a pair is open and belongs to the current round: first pairs with the first dimension, then the rest. */
static bool is_wanted(struct covering *covering, const struct value_pair *pair)
{
    const int a = pair->dimension[0], b = pair->dimension[1];
    const bool first = a == covering->first || b == covering->first;
    return covering->varies[a] && covering->varies[b] && first != covering->rest
           && *state_of(covering, a, pair->value[0], b, pair->value[1]) == OPEN;
}

/* Go to the next pair: values count fastest, then dimensions, then the second round begins.  After the last pair
 * this returns false. */
static bool step_pair(struct covering *covering)
{
    int *at = covering->at;
    if (++at[3] < covering->values[at[1]]) return true;
    at[3] = 0;
    if (++at[2] < covering->values[at[0]]) return true;
    at[2] = 0;
    if (++at[1] < covering->dimensions) return true;
    if (++at[0] < covering->dimensions - 1) {
        at[1] = at[0] + 1;
        return true;
    }
    at[0] = 0, at[1] = 1;
    covering->rest = !covering->rest;
    return covering->rest;
}

/* No case has this pair: mark both of its entries. */
static void covering_refuse(struct covering *covering, const struct value_pair *pair)
{
    for (int i = 0; i < 2; i++)
        *state_of(covering, pair->dimension[i], pair->value[i], pair->dimension[!i], pair->value[!i]) = REFUSED;
}

enum covering_result covering_next(struct covering *covering, struct choice *choice, struct value_pair *pair,
                                   struct error *why)
{
    if (covering->at[1] == 0) covering->at[1] = 1;                    /* after covering_begin */
    do {
        *pair = (struct value_pair){ { covering->at[0], covering->at[1] }, { covering->at[2], covering->at[3] } };
        if (!is_wanted(covering, pair)) continue;
        if (seed(covering, pair, choice, why)) {
            make_case(covering, pair, choice);
            return COVERING_CASE;
        }
        /* A value without a home is reported once.  Two values with homes are reported if plan_check refuses the
         * pair. */
        covering_refuse(covering, pair);
        const bool both = home_of(covering, pair->dimension[0], pair->value[0])
            && home_of(covering, pair->dimension[1], pair->value[1]);
        if (both ? why->code == ERR_PLAN : tell_homeless(covering, pair, why)) return COVERING_REFUSED;
    } while (step_pair(covering));
    return COVERING_DONE;
}
