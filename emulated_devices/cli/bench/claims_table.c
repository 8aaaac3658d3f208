/* claims_table.c -- prints claims as a table, and adds them to a JSON document.  cli/bench/published.c,
 * cli/bench/offload.c and tables of cli/bench/schemes print.  Only cli/bench/published.c adds claims to a document.
 * claims_show passes errors on. */
#include "emulated_devices/cli/bench/claims_table.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_bounds(const struct claims *claims)
{
    for (int i = 0; i < claims->count; i++)
        if (!isnan(claims->claim[i].least) || !isnan(claims->claim[i].most)) return true;
    return false;
}

static void claims_table_add_row(struct table *table, const struct claims *claims,
                                 const struct claim *claim, bool bounds)
{
    char published[32] = "", error[32] = "", must[64] = "", more[2 * CLAIM_TEXT + 80] = "";
    const bool explained = !claim->holds && claim->why != NULL;
    if (!isnan(claim->published)) {
        snprintf(published, sizeof published, "%.*f", claims->digits, claim->published);
        snprintf(error, sizeof error, "%+.2f", claim->error);
    }
    if (!isnan(claim->least)) snprintf(must, sizeof must, "at least %g", claim->least);
    if (!isnan(claim->most)) snprintf(must, sizeof must, "at most %g", claim->most);
    if (bounds)
        snprintf(more, sizeof more, "\t%s\t%s\t%s%s%s", must, claim->holds ? "yes" : "NO",
                 claim->says ? claim->says : "", explained ? "; " : "", explained ? claim->why : "");
    table_row(table, "%s\t%s\t%.*f\t%s%s", claim->what, published, claims->digits, claim->ours, error, more);
}

/* Print what the words have and no source prints: each text once, with the first row that has it. */
static void claims_print_assumed(const struct claims *claims)
{
    for (int i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->claim[i];
        bool before = !claim->computed || claim->assumed == NULL;
        for (int j = 0; j < i && !before; j++)
            before = claims->claim[j].computed && claims->claim[j].assumed &&
                     strcmp(claims->claim[j].assumed, claim->assumed) == 0;
        if (!before) say(stdout, 4, "  assumed, first of %s: %s", claim->what, claim->assumed);
    }
}

/* How many rows have the same reason not to be counted as row i; 0: a row before i has it. */
static int claims_alike_uncounted(const struct claims *claims, int i)
{
    int alike = 0;
    for (int j = 0; j < claims->count; j++) {
        const char *reason = claims->claim[j].uncounted;
        if (reason == NULL || strcmp(reason, claims->claim[i].uncounted) != 0) continue;
        if (j < i) return 0;
        alike++;
    }
    return alike;
}

/* Rows that are listed only: each, or how many have each reason. */
static void claims_print_uncounted(const struct claims *claims, bool every)
{
    for (int i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->claim[i];
        const int alike = claim->uncounted ? claims_alike_uncounted(claims, i) : 0;
        if (claim->uncounted && every)
            say(stdout, 4, "  not counted: %s, %.*f: %s", claim->what, claims->digits, claim->published,
                claim->uncounted);
        else if (alike > 0)
            say(stdout, 4, "  not counted, %d row%s: %s", alike, alike == 1 ? "" : "s", claim->uncounted);
    }
}

void claims_print(const struct claims *claims, bool every)
{
    const bool bounds = has_bounds(claims);
    say(stdout, 0, "%s", claims->title);
    say(stdout, 2, "  %s", claims->source);
    say(stdout, 2, "  %s; calibrated on %s\n", claims->unit, claims->calibrated);
    struct table table = table_start(claims->name, 1, bounds ? "what\tpublished\tours\terror %\tmust be\tholds\tclaim"
                                                             : "what\tpublished\tours\terror %");
    for (int i = 0; i < claims->count; i++)
        if (claims->claim[i].computed) claims_table_add_row(&table, claims, &claims->claim[i], bounds);
    if ((claims->brief && !every) || claims->computed == 0) table_drop(&table);
    else table_end(&table);
    int hold = 0;
    for (int i = 0; i < claims->count; i++) hold += claims->claim[i].computed && claims->claim[i].holds;
    if (bounds)
        printf("  %d of %d hold\n", hold, claims->computed);
    else if (claims->computed > 0 && !claims_are_orders(claims))
        printf("  %d rows: error %.2f %% on average, median %.2f %%, at most %.2f %%\n", claims->computed,
               claims->mean, claims->median, claims->worst);
    if (claims->pairs > 0)
        printf("  %d of %d pairs are ordered as published\n", claims->ordered, claims->pairs);
    claims_print_assumed(claims);
    claims_print_uncounted(claims, every);
    printf("\n");
}

enum error_code claims_show(const char *name, const struct claims_setting *setting, struct error *err)
{
    struct claims claims;
    enum error_code e = claims_find(&claims, name, NULL, err);
    if (e) return e;
    e = claims_compute(&claims, setting, err);
    if (!e && (setting->status == NULL || *setting->status == 0)) claims_print(&claims, true);
    claims_free(&claims);
    return e;
}

void claims_add(const struct claims *claims, cJSON *sections)
{
    cJSON *section = json_add(json_row(sections), "title %s source %s calibrated_on %s unit %s", claims->title,
                              claims->source, claims->calibrated, claims->unit);
    if (claims->pairs > 0) json_add(section, "pairs %d pairs_as_published %d", claims->pairs, claims->ordered);
    cJSON *rows = cJSON_AddArrayToObject(section, "rows");
    for (int i = 0; i < claims->count; i++) {
        const struct claim *claim = &claims->claim[i];
        if (!claim->computed) continue;
        cJSON *row = json_add(json_row(rows), "what %s published %g ours %g error_percent %g holds %hhd fitted %hhd",
                              claim->what, claim->published, claim->ours, claim->error, claim->holds, claim->fitted);
        if (claim->assumed) json_add(row, "assumed %s", claim->assumed);
    }
    cJSON *uncounted = claims_uncounted(claims) > 0 ? cJSON_AddArrayToObject(section, "not_counted") : NULL;
    for (int i = 0; i < claims->count && uncounted; i++)
        if (claims->claim[i].uncounted)
            json_add(json_row(uncounted), "what %s published %g reason %s", claims->claim[i].what,
                     claims->claim[i].published, claims->claim[i].uncounted);
}
