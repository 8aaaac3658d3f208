/* compare.c -- computes our number for each claim, and says which claims do not hold.  cli/bench/published.c and
 * cli/bench/claims_table.c call these functions.  An unknown quantity, or words that its options refuse, are
 * ERR_FORMAT.  Without memory the code is ERR_MEMORY.  claims_hold reports ERR_CHECK for the first claim that does
 * not hold. */
#include "emulated_devices/bench/claims/quantity.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Per cent: far below any printed digit, for numbers that are equal but were added in another order. */
static const double ROUNDING = 1e-9;

static const struct quantity *find_quantity(const char *name)
{
    for (const struct quantity *quantity = quantities; quantity->name; quantity++)
        if (strcmp(quantity->name, name) == 0) return quantity;
    return NULL;
}

static bool claim_holds(const struct claims *claims, const struct claim *claim)
{
    for (int i = 0; i < claims->musts; i++)
        if (!claims->must[i].mean && !(fabs(claim->error) <= claims->must[i].within + ROUNDING)) return false;
    if (!isnan(claim->least) && !(claim->ours >= claim->least)) return false;
    return isnan(claim->most) || claim->ours <= claim->most;
}

static enum error_code compute_claim(struct claims *claims, struct claim *claim, const struct quantity *quantity,
                                     const struct claims_setting *setting, struct error *err)
{
    if (claim->words + setting->words > CLAIM_WORDS)
        return fail(err, ERR_FORMAT, "%s: line %d: it has too many words", claims->where, claim->line);
    for (int i = 0; i < setting->words; i++) claim->word[claim->words++] = setting->word[i];
    const enum error_code e = quantity->compute(claim, setting, err);
    if (e == ERR_USAGE || e == ERR_PLAN) {              /* the file is what is wrong */
        const struct error cause = *err;
        return fail(err, ERR_FORMAT, "%s: line %d: %s", claims->where, claim->line, cause.text);
    }
    if (e) return e;
    claim->error = 100 * (claim->ours / claim->published - 1);
    claim->computed = true;
    claim->holds = claim_holds(claims, claim);
    return OK;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum error_code summarise(struct claims *claims, struct error *err)
{
    double *error = malloc((size_t)claims->count * sizeof *error), sum = 0;
    int numbers = 0;
    if (error == NULL) return fail(err, ERR_MEMORY, "no memory for %d errors", claims->count);
    for (int i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->claim[i];
        if (!claim->computed) continue;
        claims->computed++;
        claims->broken += !claim->holds && claim->why == NULL;
        if (!isnan(claim->published)) sum += error[numbers++] = fabs(claim->error);
    }
    if (numbers > 0) {
        qsort(error, (size_t)numbers, sizeof *error, by_size);
        claims->mean = sum / numbers;
        claims->worst = error[numbers - 1];
        claims->median = (error[numbers / 2] + error[(numbers - 1) / 2]) / 2;
    }
    free(error);
    return OK;
}

static bool claim_is_wanted(const struct claim *claim, const struct claims_setting *setting)
{
    if (claim->uncounted) return false;
    return setting->every ? !claim->quick : !claim->seldom;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static bool claims_are_pair(const struct claims_orders *orders, const struct claim *a, const struct claim *b)
{
    if (!a->computed || !b->computed || isnan(a->published) || isnan(b->published)) return false;
    for (int i = 0; i < orders->flags; i++)
        if (strcmp(claim_word(a, orders->flag[i]), claim_word(b, orders->flag[i])) != 0) return false;
    const double more = fmax(a->published, b->published), less = fmin(a->published, b->published);
    return 100 * (more / less - 1) >= orders->apart;
}

bool claims_are_orders(const struct claims *claims)
{
    return strcmp(claims->quantity, "planned-order") == 0 || strcmp(claims->quantity, "planned-packing") == 0;
}

/* Count claims that are pairs themselves.  Their published number is the factor between both plans, or 1: a source
 * says only that the first plan is faster. */
static void claims_order_rows(struct claims *claims)
{
    for (int i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->claim[i];
        if (!claim->computed) continue;
        claims->pairs++;
        claims->ordered += (claim->published >= 1) == (claim->ours > 1);
    }
}

/* Count the pairs, and those that ours orders as published.  A tie of ours is not the same order. */
static void claims_order(struct claims *claims)
{
    if (claims_are_orders(claims)) claims_order_rows(claims);
    if (claims->orders.flags == 0) return;
    for (int i = 0; i < claims->count; i++)
        for (int j = i + 1; j < claims->count; j++) {
            const struct claim *a = &claims->claim[i], *b = &claims->claim[j];
            if (!claims_are_pair(&claims->orders, a, b)) continue;
            claims->pairs++;
            claims->ordered += (a->published > b->published && a->ours > b->ours) ||
                               (a->published < b->published && a->ours < b->ours);
        }
}

void claims_add_errors(const struct claims *claims, bool fitted, struct claims_errors *errors)
{
    for (int i = 0; i < claims->count && !claims_are_orders(claims); i++) {
        const struct claim *claim = &claims->claim[i];
        if (!claim->computed || claim->fitted != fitted || isnan(claim->published)) continue;
        errors->rows++;
        errors->sum += fabs(claim->error);
        errors->worst = fmax(errors->worst, fabs(claim->error));
    }
}

int claims_uncounted(const struct claims *claims)
{
    int rows = 0;
    for (int i = 0; i < claims->count; i++) rows += claims->claim[i].uncounted != NULL;
    return rows;
}

enum error_code claims_compute(struct claims *claims, const struct claims_setting *setting, struct error *err)
{
    const struct quantity *quantity = find_quantity(claims->quantity);
    enum error_code e = OK;
    if (quantity == NULL)
        return fail(err, ERR_FORMAT, "%s: there is no quantity %s", claims->where, printable(claims->quantity).text);
    for (int i = 0; i < claims->count && !e && (setting->status == NULL || *setting->status == 0); i++)
        if (claim_is_wanted(&claims->claim[i], setting))
            e = compute_claim(claims, &claims->claim[i], quantity, setting, err);
    if (!e) claims_order(claims);
    return e ? e : summarise(claims, err);
}

enum error_code claims_hold(const struct claims *claims, struct error *err)
{
    for (int i = 0; i < claims->count && claims->broken > 0; i++) {
        const struct claim *claim = &claims->claim[i];
        if (claim->computed && !claim->holds && claim->why == NULL)
            return fail(err, ERR_CHECK, "%s: %d of %d claims do not hold; the first: %s: published %g, ours %g",
                        claims->title, claims->broken, claims->computed, claim->what, claim->published, claim->ours);
    }
    for (int i = 0; i < claims->musts; i++)
        if (claims->must[i].mean && !(claims->mean <= claims->must[i].within))
            return fail(err, ERR_CHECK, "%s: the mean error is %.2f %%, at most %g %% expected", claims->title,
                        claims->mean, claims->must[i].within);
    return OK;
}
