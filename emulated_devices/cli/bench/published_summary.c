/* published_summary.c -- adds up the tables of `orrery bench published`.  published.c calls it after each table and at
 * the end.  Without memory summary_add is ERR_MEMORY; the picture's file can be ERR_FILE. */
#include "emulated_devices/cli/bench/published_summary.h"
#include "emulated_devices/draw/predicted.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of planned steps are added up over files; bubbles and formulas are not. */
static enum summary_kind summary_kind_of(const struct claims *claims)
{
    if (strcmp(claims->quantity, "planned-memory") == 0) return SUMMARY_MEMORY;
    if (claims_are_orders(claims)) return SUMMARY_OTHER;
    return strncmp(claims->quantity, "planned-", 8) == 0 ? SUMMARY_SPEED : SUMMARY_OTHER;
}

static enum error_code summary_add_point(struct published_summary *summary, enum summary_kind kind,
                                         const struct claim *claim, struct error *err)
{
    if (summary->points[kind] == summary->room[kind]) {
        const int room = summary->room[kind] > 0 ? 2 * summary->room[kind] : 64;
        struct predicted_point *more = realloc(summary->point[kind], (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for %d points of the picture", room);
        summary->point[kind] = more, summary->room[kind] = room;
    }
    summary->point[kind][summary->points[kind]++] =
        (struct predicted_point){ claim->measured, claim->predicted, summary->files };
    return OK;
}

enum error_code summary_add(struct published_summary *summary, const struct claims *claims, struct error *err)
{
    struct summary_file file = { .kind = summary_kind_of(claims), .uncounted = claims_uncounted(claims),
                                 .pairs = claims->pairs, .ordered = claims->ordered };
    enum error_code e = OK;
    if (summary->files == SUMMARY_FILES) return fail(err, ERR_MEMORY, "more than %d tables", SUMMARY_FILES);
    snprintf(file.name, sizeof file.name, "%s", claims->name);
    claims_add_errors(claims, false, &file.held_out);
    claims_add_errors(claims, true, &file.fitted);
    for (int i = 0; i < claims->count && !e; i++)
        if (claims->claim[i].computed && claims->claim[i].predicted > 0 && file.kind != SUMMARY_OTHER)
            e = summary_add_point(summary, file.kind, &claims->claim[i], err);
    summary->file[summary->files++] = file;
    return e;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static double summary_mean(const struct claims_errors *errors)
{
    return errors->rows > 0 ? errors->sum / errors->rows : 0;
}

static void summary_add_up(struct claims_errors *all, const struct claims_errors *more)
{
    all->rows += more->rows, all->sum += more->sum, all->worst = fmax(all->worst, more->worst);
}

/* Write rows, mean and worst error as three cells, which are empty without rows. */
static const char *summary_errors(char text[32], const struct claims_errors *errors)
{
    if (errors->rows == 0) snprintf(text, 32, "\t\t");
    else snprintf(text, 32, "%d\t%.2f\t%.2f", errors->rows, summary_mean(errors), errors->worst);
    return text;
}

static void summary_print_files(const struct published_summary *summary)
{
    struct table table = table_start("summary", 1, "table\ttests\tmean %\tworst %\tfits\tmean %\tworst %\tpairs\t"
                                                   "left out");
    for (int i = 0; i < summary->files; i++) {
        const struct summary_file *f = &summary->file[i];
        char tests[32], fits[32], pairs[32] = "", uncounted[16] = "";
        if (f->pairs > 0) snprintf(pairs, sizeof pairs, "%d/%d", f->ordered, f->pairs);
        if (f->uncounted > 0) snprintf(uncounted, sizeof uncounted, "%d", f->uncounted);
        table_row(&table, "%s\t%s\t%s\t%s\t%s", f->name, summary_errors(tests, &f->held_out),
                  summary_errors(fits, &f->fitted), pairs, uncounted);
    }
    table_end(&table);
}

static void summary_print_kind(const struct published_summary *summary, enum summary_kind kind, const char *what)
{
    struct claims_errors tests = { 0 }, fits = { 0 };
    for (int i = 0; i < summary->files; i++)
        if (summary->file[i].kind == kind)
            summary_add_up(&tests, &summary->file[i].held_out), summary_add_up(&fits, &summary->file[i].fitted);
    if (tests.rows > 0)
        printf("  %s, tests: %d rows, error %.2f %% on average, at most %.2f %%\n", what, tests.rows,
               summary_mean(&tests), tests.worst);
    if (fits.rows > 0)
        printf("  %s, fits: %d rows, error %.2f %% on average, at most %.2f %%\n", what, fits.rows,
               summary_mean(&fits), fits.worst);
}

void summary_print(const struct published_summary *summary)
{
    int pairs = 0, ordered = 0;
    printf("Summary\n  tests: no constant was fitted to these rows; pairs: ordered as published, of all\n\n");
    summary_print_files(summary);
    summary_print_kind(summary, SUMMARY_SPEED, "planned speed");
    summary_print_kind(summary, SUMMARY_MEMORY, "planned memory");
    for (int i = 0; i < summary->files; i++) pairs += summary->file[i].pairs, ordered += summary->file[i].ordered;
    if (pairs > 0)
        printf("  pairs: %d of %d ordered as published, %.1f %%\n", ordered, pairs, 100.0 * ordered / pairs);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void summary_json_errors(cJSON *to, const char *key, const struct claims_errors *errors)
{
    if (errors->rows > 0)
        json_add(cJSON_AddObjectToObject(to, key), "rows %d mean_percent %g worst_percent %g", errors->rows,
                 summary_mean(errors), errors->worst);
}

void summary_json(const struct published_summary *summary, cJSON *root)
{
    static const char *const kinds[] = { "other", "speed", "memory" };
    cJSON *files = cJSON_AddArrayToObject(root, "summary");
    for (int i = 0; i < summary->files; i++) {
        const struct summary_file *f = &summary->file[i];
        cJSON *o = json_add(json_row(files), "table %s kind %s not_counted %d pairs %d pairs_as_published %d", f->name,
                            kinds[f->kind], f->uncounted, f->pairs, f->ordered);
        summary_json_errors(o, "tests", &f->held_out);
        summary_json_errors(o, "fits", &f->fitted);
    }
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

/* Number the sources anew: only files with points stand in the picture's list. */
static void summary_number(const struct published_summary *summary, struct predicted_picture *picture)
{
    int number[SUMMARY_FILES];
    for (int i = 0; i < summary->files; i++) {
        const bool drawn = summary->file[i].kind != SUMMARY_OTHER && picture->sources < PREDICTED_SOURCES &&
                           summary->file[i].held_out.rows + summary->file[i].fitted.rows > 0;
        number[i] = drawn ? picture->sources : PREDICTED_SOURCES - 1;
        if (drawn) snprintf(picture->source[picture->sources++], PREDICTED_LABEL, "%.39s", summary->file[i].name);
    }
    for (int k = SUMMARY_SPEED; k < SUMMARY_KINDS; k++)
        for (int i = 0; i < summary->points[k]; i++) {
            struct predicted_point *p = &summary->point[k][i];
            p->source = number[p->source];
        }
}

enum error_code summary_draw(const struct published_summary *summary, const char *path, struct error *err)
{
    struct predicted_picture picture = {
        .panel = { { "a step, s", summary->point[SUMMARY_SPEED], summary->points[SUMMARY_SPEED] },
                   { "peak memory of a device, GiB", summary->point[SUMMARY_MEMORY],
                     summary->points[SUMMARY_MEMORY] } },
    };
    summary_number(summary, &picture);
    return svg_file(path, predicted_svg, &picture, err);
}

void summary_free(struct published_summary *summary)
{
    for (int k = 0; k < SUMMARY_KINDS; k++) free(summary->point[k]);
    *summary = (struct published_summary){ 0 };
}
