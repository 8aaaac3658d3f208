/* lint.c -- `orrery lint FILE`: calls of a C file that do not match on all devices, found without running it.
 *
 * main.c calls command_lint().  course/lint/ judges.  Errors: ERR_FILE of the file; ERR_FORMAT if it is no text, or too
 * long; ERR_MEMORY.  *status is 3 if something is found. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/lint/lint.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct lint_options { const char *file; int devices, from; };

static enum error_code lint_parse(struct lint_options *options, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &options->file, .required = true,
          .help = "a C file: a solution of a lesson, a plug-in, or a program that calls MPI" },
        { "--devices", "N", OPTION_INT, &options->devices, .min = 2, .max = LINT_DEVICES,
          .help = "judge each function on 2, 3 .. N devices" },
        { "--from", "N", OPTION_INT, &options->from, .min = 2, .max = LINT_DEVICES,
          .help = "on no fewer devices; with --devices N: on N devices only" },
        { 0 }
    };
    return parse_command("lint", "FILE [options]",
                         "Say which collectives and messages of a C file do not match on all devices, without running\n"
                         "it: another order, a member that does not call, another root, count or type, sends without\n"
                         "receives, deadlocks (docs/authors/lint.md). The exit status is 3 if something is found.",
                         argc - 2, argv + 2, table, help, err);
}

static void lint_rows(const char *name, const struct lint_finding *list, int count)
{
    if (!document_table(name)) return;
    for (int i = 0; i < count; i++)
        json_add(document_row(), "kind %s line %d other_line %d function %s devices %d device %d sentence %s",
                 list[i].kind, list[i].line, list[i].other_line, list[i].function, list[i].devices, list[i].device,
                 list[i].text);
}

static void lint_print(const struct lint_options *options, const struct lint_report *report)
{
    char line[LINT_TEXT + PATH_MAX + 200];
    for (int i = 0; i < report->findings; i++)
        say_verdict(stdout, BAD_NEWS, lint_line(line, sizeof line, options->file, &report->finding[i]));
    for (int i = 0; i < report->notes; i++) {
        snprintf(line, sizeof line, "%s:%d: not judged from here on: %s (%s)", printable_path(options->file).text,
                 report->note[i].line, report->note[i].text, report->note[i].function);
        print_wrapped(stdout, 4, line);
    }
    if (report->functions == 0) snprintf(line, sizeof line, "no function here sends or receives");
    else
        snprintf(line, sizeof line, "%d function%s on %d to %d devices, %d judged to the end; %d finding%s",
                 report->functions, plural(report->functions), options->from, options->devices, report->judged,
                 report->findings, plural(report->findings));
    if (report->findings) printf("%s\n", line);
    else say_verdict(stdout, GOOD_NEWS, line);
    json_add(document_data(), "file %s functions %d judged %d findings %d", options->file, report->functions,
             report->judged, report->findings);
    lint_rows("findings", report->finding, report->findings), lint_rows("not_judged", report->note, report->notes);
}

enum error_code command_lint(int argc, char **argv, int *status, struct error *err)
{
    struct lint_options options = { .devices = LINT_USUAL, .from = 2 };
    bool help;
    enum error_code e = lint_parse(&options, argc, argv, &help, err);
    if (e || help) return e;
    if (options.from > options.devices)
        return fail(err, ERR_USAGE, "lint --from %d: --devices is %d", options.from, options.devices);
    struct lint_report *report = calloc(1, sizeof *report);
    e = report ? lint_file(options.file, options.from, options.devices, report, err)
        : fail(err, ERR_MEMORY, "no memory for findings");
    if (!e) {
        lint_print(&options, report);
        if (report->findings) *status = 3;
    }
    free(report);
    return e;
}
