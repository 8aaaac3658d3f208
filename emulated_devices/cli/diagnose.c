/* diagnose.c -- `orrery diagnose`: who is slow in a run, and who hangs, by what its devices remember.
 *
 * main.c calls command_diagnose.  check/slow/ judges, draw/slow_svg.c draws.  Errors: ERR_FILE or ERR_FORMAT of a file,
 * ERR_MEMORY.  *status is 3 if something is found. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"
#include "emulated_devices/draw/slow_svg.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct diagnose_options { const char *run, *svg; bool hangs; double watch; };

static enum error_code parse(struct diagnose_options *options, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "RUN", NULL, OPTION_STRING, &options->run, .required = true,
          .help = "a folder of `orrery train --record DIR`, also while the run goes on, or after it was killed" },
        { "--hang", NULL, OPTION_SWITCH, &options->hangs,
          .help = "the run does not go on: say who hangs, also before its limit of waiting has passed" },
        { "--watch", "SECONDS", OPTION_DOUBLE, &options->watch, .min = 0.05, .max = 1e6,
          .help = "look again every so many seconds until the run ends or hangs, and say what is new; default: once" },
        SVG_OPTION(options->svg),
        { 0 }
    };
    return parse_command("diagnose", "RUN [options]",
                         "Who is slow in a run, and who hangs: the device or the link, inside or outside of\n"
                         "communication, with the evidence (docs/using/diagnose.md). Times are virtual. The exit\n"
                         "status is 3 if something is found.", argc - 2, argv + 2, table, help, err);
}

/* ---- the matrix -------------------------------------------------------------------------------------------------- */

enum { CELL_WIDTH = 5, NAME_WIDTH = 8 };

static void print_matrix(const struct records *records, const int64_t *ratio)
{
    const int size = records->size;
    if (NAME_WIDTH + size * CELL_WIDTH > picture_columns(stdout)) {
        printf("\nThe matrix of delays has %d x %d cells: --svg FILE draws it.\n", size, size);
        return;
    }
    printf("\nMessages beside the cluster's rates: row = sender, column = receiver\n%*s", NAME_WIDTH, "");
    for (int to = 0; to < size; to++) printf("%*d", CELL_WIDTH, to);
    printf("\n");
    for (int from = 0; from < size; from++) {
        printf("%*d", NAME_WIDTH, from);
        for (int to = 0; to < size; to++) {
            const int64_t percent = ratio[from * size + to];
            if (percent < 0) printf("%*s", CELL_WIDTH, ".");
            else printf("%*.1f", CELL_WIDTH, (double)percent / 100);
        }
        printf("\n");
    }
}

static void matrix_document(const struct records *records, const int64_t *ratio)
{
    const int size = records->size;
    if (!document_table("delays")) return;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            if (ratio[from * size + to] >= 0)
                json_add(document_row(), "from %d to %d percent %g", from, to, (double)ratio[from * size + to]);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void print_devices(const struct records *records)
{
    uint64_t first, end;
    const int steps = records_steps(records, &first, &end);
    struct table t = table_start("devices", 1, "device\tcalls\tworks us\tby rates us\tin calls us");
    for (int d = 0; d < records->size && steps > 0; d++) {
        double worked = 0, usual = 0, calls = 0;
        for (uint64_t s = first; s < end; s++) {
            const struct step_record *const step = records_step(&records->of[d], s);
            worked += (double)step->worked, usual += (double)step->usual, calls += (double)step->in_calls;
        }
        table_row(&t, "%d\t%" PRIu64 "\t%.3f\t%.3f\t%.3f", d, records->of[d].head->calls, worked / steps / 1e6,
                  usual / steps / 1e6, calls / steps / 1e6);
    }
    if (steps > 0) printf("\nA mean step of each device\n"), table_end(&t);
    else table_drop(&t);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void findings_document(const struct slow *slow, const struct records *records)
{
    char text[SLOW_SENTENCE];
    json_add(document_data(), "devices %d steps %d first_step %g last_step %g hangs %hhd more_findings %d",
             records->size, slow->steps, (double)slow->first, (double)slow->last, slow->hangs, slow->more);
    if (!document_table("findings")) return;
    for (int i = 0; i < slow->count; i++) {
        const struct slow_finding *const f = &slow->of[i];
        json_add(document_row(), "class %s part %s device %d other %d steps %g first_step %g percent %g "
                 "others_percent %g sentence %s", slow_class_name(f->class), slow_part_name(f->part), f->device,
                 f->other, (double)f->steps, (double)f->first, (double)f->percent, (double)f->others,
                 slow_sentence(text, slow, f, records));
    }
}

static void diagnose_verdict(const struct slow *slow, const struct records *records)
{
    char text[SLOW_SENTENCE], line[SLOW_SENTENCE + 20];
    for (int i = 0; i < slow->count; i++) {
        slow_sentence(text, slow, &slow->of[i], records);
        snprintf(line, sizeof line, "%s: %s", slow->of[i].class >= HANG_COMMUNICATION ? "HANGS" : "SLOW", text);
        say_verdict(stdout, BAD_NEWS, line);
    }
    if (slow->more > 0) printf("and %d findings more\n", slow->more);
    if (slow->count > 0) return;
    if (slow->hangs)
        say_verdict(stdout, BAD_NEWS, "NOBODY: no device waits for another, so none of them holds the run");
    else if (slow->steps == 0) printf("no step has ended on all devices yet\n");
    else {
        snprintf(line, sizeof line, "OK: no device and no link stands out in %d step%s", slow->steps,
                 slow->steps == 1 ? "" : "s");
        say_verdict(stdout, GOOD_NEWS, line);
    }
}

static enum error_code diagnose_show(const struct diagnose_options *options, const struct slow *slow,
                                     const struct records *records, struct error *err)
{
    int64_t *const ratio = calloc((size_t)records->size * (size_t)records->size, sizeof *ratio);
    if (ratio == NULL) return fail(err, ERR_MEMORY, "no memory for a matrix of %d devices", records->size);
    const struct slow_picture picture = { slow, records, ratio };
    slow_matrix(records, ratio);
    diagnose_verdict(slow, records);
    if (slow->steps > 0) print_matrix(records, ratio);
    print_devices(records);
    findings_document(slow, records);
    matrix_document(records, ratio);
    const enum error_code e = options->svg ? fail_about(err, svg_file(options->svg, slow_svg, &picture, err), "--svg")
                                           : OK;
    free(ratio);
    return e;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static bool goes_on(const struct records *records)
{
    for (int d = 0; d < records->size; d++)
        if (records->of[d].head->state != RECORD_RUNS) return false;
    return true;
}

/* A finding is new if no earlier look has said the same of the same device. */
static void say_new(struct slow *said, const struct slow *slow, const struct records *records)
{
    char text[SLOW_SENTENCE];
    for (int i = 0; i < slow->count; i++) {
        bool known = said->count == SLOW_FINDINGS;
        for (int k = 0; k < said->count; k++)
            known = known || (said->of[k].class == slow->of[i].class && said->of[k].part == slow->of[i].part
                              && said->of[k].device == slow->of[i].device && said->of[k].other == slow->of[i].other);
        if (known) continue;
        said->of[said->count++] = slow->of[i];
        say(stdout, 8, "step %" PRId64 ": %s", slow->last, slow_sentence(text, slow, &slow->of[i], records));
        fflush(stdout);
    }
}

/* The last look is shown in full. */
static enum error_code watch(const struct diagnose_options *options, struct error *err)
{
    struct slow said = { .count = 0 }, slow;
    struct records records;
    const time_t seconds = (time_t)options->watch;
    const struct timespec pause = { seconds, (long)((options->watch - (double)seconds) * 1e9) };
    for (;;) {
        enum error_code e = records_read(&records, options->run, err);
        if (e) return e;
        e = slow_judge(&slow, &records, options->hangs, err);
        if (!e) say_new(&said, &slow, &records);
        const bool more = !e && goes_on(&records);
        records_close(&records);
        if (e || !more) return e;
        nanosleep(&pause, NULL);
    }
}

enum error_code command_diagnose(int argc, char **argv, int *status, struct error *err)
{
    struct diagnose_options o = { .watch = 0 };
    struct records records;
    struct slow slow;
    bool help;
    enum error_code e = parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    if (o.watch > 0) e = watch(&o, err);
    if (!e) e = records_read(&records, o.run, err);
    if (e) return e;
    e = slow_judge(&slow, &records, o.hangs, err);
    if (!e) e = diagnose_show(&o, &slow, &records, err);
    if (!e && (slow.count > 0 || slow.hangs)) *status = 3;
    records_close(&records);
    return e;
}
