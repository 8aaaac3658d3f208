/* verify_plugin.c -- `orrery verify plugin FILE`: the laws of each variant of a plug-in, and which are broken.
 *
 * verify.c calls verify_plugin().  This process compiles the file and never loads it: each variant is judged in a
 * process of its own.  Errors: ERR_CHECK if a law is broken; ERR_USAGE; ERR_FILE and ERR_FORMAT for what is no plug-in;
 * ERR_INTERNAL if a law was never judged.
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/compile/plugin.h"
#include "emulated_devices/course/lint/lint.h"
#include "emulated_devices/verify/plugins/laws.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* The command was asked for this, and has found this so far. */
struct plugin_report {
    struct law_request request;
    const char *file, *only, *json;
    bool built_in, quiet;
    int variants, laws, broken;         /* judged; broken laws of all of them */
    char first[LAW_TEXT], unjudged[LAW_TEXT];   /* the first broken law; a law that was never judged; "" if none */
    cJSON *rows;
};

static enum error_code parse_words(struct plugin_report *report, int argc, char **argv, bool *help, struct error *err)
{
    int seconds = 300;
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &report->file, .help = "a plug-in, a .c file or a .so" },
        { "--built-in", NULL, OPTION_SWITCH, &report->built_in,
          .help = "judge the variants of this program instead" },
        { "--only", "NAME", OPTION_STRING, &report->only,
          .help = "variants with this in their kind and name, such as \"allreduce ring\"" },
        { "--short", NULL, OPTION_SWITCH, &report->request.is_short,
          .help = "leave out long vectors and some formats" },
        { "--limit", "SECONDS", OPTION_INT, &seconds, .min = 1, .max = 1e6,
          .help = "processor time of a variant; on the clock it has six times as long" },
        { "--memory", "SIZE", OPTION_SIZE, &report->request.memory, .help = "memory that a variant may take" },
        { "--quiet", NULL, OPTION_SWITCH, &report->quiet, .help = "no text output" },
        { "--json", "FILE", OPTION_STRING, &report->json,
          .help = "every verdict as JSON; - for stdout, without text output" },
        { 0 }
    };
    const enum error_code e = parse_command(
        "verify plugin", "FILE [options]",
        "Judge each variant of a plug-in by the laws of its kind, and name the laws that it breaks. A variant\n"
        "runs in a process of its own: one that crashes, hangs, prints or takes too much memory breaks a law.\n"
        "docs/authors/plugins.md explains the laws.",
        argc - 3, argv + 3, table, help, err);
    report->request.seconds = seconds;
    report->quiet = report->quiet || (report->json && strcmp(report->json, "-") == 0);
    if (e || *help) return e;
    if (!report->file == !report->built_in)
        return fail(err, ERR_USAGE, "verify plugin: needs a FILE, or --built-in, and not both");
    return report->json && strcmp(report->json, "-") != 0 ? fail_about(err, output_probe(report->json, err), "--json")
        : OK;
}

/* One law's line, and its row for --json. */
static void report_law(struct plugin_report *report, const struct law_variant *variant, const struct law *law,
                       const struct verdict *verdict, bool ended, cJSON *rows)
{
    if (verdict->judged < 0) return;
    cJSON *row = json_add(json_row(rows), "law %s judged %g holds %hhd", law->name, (double)verdict->judged,
                          verdict->judged > 0 && !verdict->broken);
    report->laws++;
    if (verdict->broken) {
        json_add(row, "why %s", verdict->why);
        if (report->broken++ == 0)
            snprintf(report->first, sizeof report->first, "%.80s: law \"%s\": %.280s", variant->name, law->name,
                     verdict->why);
    } else if (verdict->judged == 0 && ended && !report->unjudged[0])
        snprintf(report->unjudged, sizeof report->unjudged, "%.80s: law \"%s\"", variant->name, law->name);
    if (report->quiet) return;
    char line[LAW_TEXT + 200];
    if (verdict->broken) snprintf(line, sizeof line, "%-10s BROKEN  %s", law->name, verdict->why);
    else if (verdict->judged == 0) snprintf(line, sizeof line, "%-10s not judged", law->name);
    else snprintf(line, sizeof line, "%-10s holds   %s", law->name, law->sentence);
    printf("  ");
    print_wrapped(stdout, 21, line);
}

static void report_variant(struct plugin_report *report, struct book *book, int at)
{
    const struct law_variant *const v = &book->variant[at];
    const struct law_kind *const kind = law_kinds[v->kind];
    const bool ended = book->done && !law_verdict(book, LAW_COMPLETE)->broken;
    cJSON *row = json_add(json_row(report->rows), "kind %s name %s", kind->name, v->name);
    cJSON *laws = cJSON_AddArrayToObject(row, "laws");
    const struct law *law;
    report->variants++;
    if (!report->quiet) printf("\n%s %s\n", kind->name, v->name);
    for (int i = LAW_COMPLETE; (law = law_at(kind, i)) != NULL; i++)
        report_law(report, v, law, law_verdict(book, i), ended, laws);
    fflush(stdout);
}

static bool is_wanted(const struct plugin_report *report, const struct law_variant *variant)
{
    char full[LAW_NAME + 40];
    snprintf(full, sizeof full, "%s %s", law_kinds[variant->kind]->name, variant->name);
    return report->only == NULL || strstr(full, report->only) != NULL;
}

/* A plug-in that could not be listed: the last variant in the book lacks something, or loading has crashed. */
static bool list_is_broken(struct plugin_report *report, struct book *book)
{
    const struct law_variant loading = { 0, "plug-in" };
    const struct law_variant *const v = book->variants ? &book->variant[book->variants - 1] : &loading;
    cJSON *laws = NULL;
    for (int i = LAW_COMPLETE; i <= LAW_QUIET; i++) {
        if (!law_verdict(book, i)->broken) continue;
        if (laws == NULL) {
            if (!report->quiet) printf("\n%s\n", report->file);
            laws = cJSON_AddArrayToObject(json_add(json_row(report->rows), "kind %s name %s",
                                                   book->variants ? law_kinds[v->kind]->name : "", v->name), "laws");
        }
        report_law(report, v, law_at(law_kinds[0], i), law_verdict(book, i), false, laws);
    }
    return laws != NULL;
}

static enum error_code judge_all(struct plugin_report *report, struct book *book, struct error *err)
{
    enum error_code e = laws_list(&report->request, book, err);
    if (e) return report->file ? fail(err, e, "%s: %s", printable_path(report->file).text, book->text) : e;
    if (list_is_broken(report, book)) return OK;
    for (int i = 0; i < book->variants && !e; i++) {
        if (!is_wanted(report, &book->variant[i])) continue;
        const struct law_variant variant = book->variant[i];
        e = laws_try(&report->request, i, book, err);
        book->variant[i] = variant;
        if (!e) report_variant(report, book, i);
    }
    return e;
}

/* Say which calls of its text do not match, before anything runs: a hint where to look, and no law. */
static void report_lint(const struct plugin_report *report, cJSON *root)
{
    struct lint_report *lint = calloc(1, sizeof *lint);
    struct error none;
    char line[LINT_TEXT + PATH_MAX + 200];
    const size_t length = strlen(report->file);
    const bool is_text = length > 2 && strcmp(report->file + length - 2, ".c") == 0;
    cJSON *rows = is_text ? cJSON_AddArrayToObject(root, "lint") : NULL;
    if (lint && is_text && lint_file(report->file, 2, LINT_USUAL, lint, &none) == OK)
        for (int i = 0; i < lint->findings; i++) {
            const struct lint_finding *const one = &lint->finding[i];
            json_add(json_row(rows), "kind %s line %d function %s devices %d sentence %s", one->kind, one->line,
                     one->function, one->devices, one->text);
            if (!report->quiet) printf("%s\n", lint_line(line, sizeof line, report->file, one));
        }
    free(lint);
}

static enum error_code finish(struct plugin_report *report, cJSON *root, struct error *err)
{
    if (!report->quiet)
        printf("\n%d variant%s, %d laws, %d broken\n", report->variants, plural(report->variants), report->laws,
               report->broken);
    json_add(root, "variants_judged %d laws %d broken %d", report->variants, report->laws, report->broken);
    const enum error_code e = report->json ? json_write(report->json, root, err) : OK;
    if (e) return e;
    if (report->broken)
        return fail(err, ERR_CHECK, "%d of %d laws are broken; first %s", report->broken, report->laws, report->first);
    if (report->unjudged[0]) return fail(err, ERR_INTERNAL, "%s was never judged", report->unjudged);
    if (report->variants) return OK;
    return fail(err, ERR_USAGE, "--only %s: there is no such variant",
                printable(report->only ? report->only : "").text);
}

enum error_code verify_plugin(int argc, char **argv, struct error *err)
{
    struct plugin_report report = { .request.memory = (uint64_t)4 << 30 };
    char path[PATH_MAX];
    bool help;
    enum error_code e = parse_words(&report, argc, argv, &help, err);
    if (e || help) return e;
    if (report.file) {
        e = plugin_object(report.file, path, err);
        if (e) {
            const struct error why = *err;
            return fail(err, e, "%s: %s", printable_path(report.file).text, why.text);
        }
        report.request.object = path;
    }
    struct book *book = book_open();
    if (book == NULL) return fail(err, ERR_MEMORY, "no memory for the verdicts");
    cJSON *root = document_start("orrery verify plugin");
    if (report.file) json_add(root, "file %s", report.file), report_lint(&report, root);
    report.rows = cJSON_AddArrayToObject(root, "variants");
    e = judge_all(&report, book, err);
    if (!e) e = finish(&report, root, err);
    cJSON_Delete(root);
    book_close(book);
    return e;
}
