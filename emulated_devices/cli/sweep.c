/* sweep.c -- `orrery sweep`: a run for each combination of settings, one after the other, and a table of their results.
 *
 *     set:                    # of every run
 *       model: tiny
 *       steps: 50
 *     grid:                   # every combination of these
 *       lr: [1e-3, 3e-3]
 *       dp: [1, 2]
 *
 * A run has a folder, DIR/001: its settings (run.yaml), what it says (out.txt) and its results (run.json).  A run whose
 * results are there, with the same settings, is not repeated: so an interrupted sweep goes on where it was.
 */
#include "emulated_devices/cli/cli.h"
#include "ref/machine/measure.h"
#include "ref/io/time_left.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "ref/io/child.h"
#include "ref/io/columns.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/yaml.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_AXES = 8, MOST_RUNS = 4096, PATH_ROOM = 4096 };

struct sweep {
    const char *program, *file, *dir;
    struct yaml *root;
    const struct yaml *set, *axis[MOST_AXES];
    int axes, size[MOST_AXES], runs;
};

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static enum error_code sweep_refuse(const struct sweep *sweep, const struct yaml *yaml, const char *why,
                                    struct error *err)
{
    return fail(err, ERR_USAGE, "%s: line %d: %s: %s", printable_path(sweep->file).text, yaml->line,
                printable(yaml->key ? yaml->key : "an element").text, why);
}

static enum error_code read_axis(struct sweep *sweep, const struct yaml *yaml, struct error *err)
{
    int n = 0;
    if (yaml->kind != YAML_SEQUENCE) return sweep_refuse(sweep, yaml, "must be a list of values, such as [1, 2]", err);
    if (sweep->axes == MOST_AXES)
        return sweep_refuse(sweep, yaml, "is one setting too many; a grid has at most 8", err);
    for (const struct yaml *v = yaml->child; v; v = v->next, n++)
        if (v->kind != YAML_TEXT) return sweep_refuse(sweep, yaml, "must be a list of values, not of lists", err);
    if (n == 0) return sweep_refuse(sweep, yaml, "has no values", err);
    if (sweep->set && yml_find(sweep->set, yaml->key)) return sweep_refuse(sweep, yaml, "is in `set`, too", err);
    sweep->axis[sweep->axes] = yaml, sweep->size[sweep->axes++] = n;
    sweep->runs *= n;
    return sweep->runs > MOST_RUNS ? sweep_refuse(sweep, yaml, "makes more than 4096 runs", err) : OK;
}

static enum error_code read_sweep(struct sweep *sweep, struct error *err)
{
    static const char *const parts[] = { "set", "grid" };
    enum error_code e = fail_about(err, yml_read(sweep->file, &sweep->root, err), "sweep");
    sweep->runs = 1;
    for (const struct yaml *y = sweep->root ? sweep->root->child : NULL; y && !e; y = y->next) {
        const char *near = nearest_name(y->key, parts, 2);
        if (strcmp(y->key, "set") != 0 && strcmp(y->key, "grid") != 0)
            e = fail(err, ERR_USAGE, "%s: line %d: %s: must be set or grid%s%s",
                     printable_path(sweep->file).text, y->line,
                     printable(y->key).text, near ? "; did you mean " : "", near ? near : "");
        else if (y->kind != YAML_MAPPING) e = sweep_refuse(sweep, y, "must have settings below it", err);
    }
    if (e) return e;
    sweep->set = yml_find(sweep->root, "set");
    const struct yaml *grid = yml_find(sweep->root, "grid");
    for (const struct yaml *y = sweep->set ? sweep->set->child : NULL; y && !e; y = y->next)
        if (y->kind != YAML_TEXT) e = sweep_refuse(sweep, y, "must be one value; lists are for `grid`", err);
    for (const struct yaml *y = grid ? grid->child : NULL; y && !e; y = y->next) e = read_axis(sweep, y, err);
    return !e && sweep->axes == 0 ? fail(err, ERR_USAGE, "%s: has no grid", printable_path(sweep->file).text) : e;
}

/* Every key and every value, before the first run: a wrong one would end all runs, or the last of them after hours. */
static enum error_code check_settings(const struct sweep *sweep, struct error *err)
{
    enum error_code e = OK;
    for (const struct yaml *y = sweep->set ? sweep->set->child : NULL; y && !e; y = y->next)
        e = train_check_setting(y, sweep->file, err);
    for (int a = 0; a < sweep->axes; a++)
        for (const struct yaml *v = sweep->axis[a]->child; v && !e; v = v->next) {
            struct yaml one = *v;
            one.key = sweep->axis[a]->key;
            e = train_check_setting(&one, sweep->file, err);
        }
    return e;
}

/* The value of an axis in a run; the last axis changes first. */
static const char *value_of(const struct sweep *sweep, int run, int axis)
{
    for (int a = sweep->axes - 1; a > axis; a--) run /= sweep->size[a];
    const struct yaml *v = sweep->axis[axis]->child;
    for (int i = run % sweep->size[axis]; i > 0; i--) v = v->next;
    return v->text;
}

static char *settings_of(const struct sweep *sweep, int run, struct error *err)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    for (const struct yaml *y = sweep->set && f ? sweep->set->child : NULL; y; y = y->next) {
        fprintf(f, "%s: ", y->key);
        yml_print_text(f, y->text);
        fputc('\n', f);
    }
    for (int a = 0; a < sweep->axes && f; a++) {
        fprintf(f, "%s: ", sweep->axis[a]->key);
        yml_print_text(f, value_of(sweep, run, a));
        fputc('\n', f);
    }
    if (f && fclose(f) == 0) return text;
    free(text);
    fail(err, ERR_MEMORY, "no memory for the settings of run %d", run + 1);
    return NULL;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static char *path_of(char path[PATH_ROOM], const struct sweep *sweep, int run, const char *name)
{
    snprintf(path, PATH_ROOM, "%.3900s/%03d%s%s", sweep->dir, run + 1, name[0] ? "/" : "", name);
    return path;
}

static bool has_settings(const char *path, const char *settings)
{
    char *text;
    size_t count;
    if (access(path, F_OK) != 0 || file_read_all(path, YAML_FILE_LIMIT, &text, &count, NULL)) return false;
    const bool same = strcmp(text, settings) == 0;
    free(text);
    return same;
}

/* Whether its results are there, and are those of these settings. */
static bool is_done(const struct sweep *sweep, int run, const char *settings)
{
    char path[PATH_ROOM];
    return has_settings(path_of(path, sweep, run, "run.yaml"), settings) &&
           access(path_of(path, sweep, run, "run.json"), F_OK) == 0;
}

static void become(const struct sweep *sweep, int run)
{
    char config[PATH_ROOM], json[PATH_ROOM], out[PATH_ROOM];
    char *words[] = { (char *)sweep->program, (char *)"train", (char *)"--config",
                     path_of(config, sweep, run, "run.yaml"),
                      (char *)"--json", path_of(json, sweep, run, "run.json"), NULL };
    const int fd = open(path_of(out, sweep, run, "out.txt"), O_WRONLY | O_CREAT | O_TRUNC, 0666),
              nothing = open("/dev/null", O_RDONLY);
    if (fd < 0 || nothing < 0) _exit(126);
    dup2(nothing, STDIN_FILENO), dup2(fd, STDOUT_FILENO), dup2(fd, STDERR_FILENO);
    execvp(words[0], words);
    _exit(127);
}

static int caught;                      /* the signal that has stopped a run; 0: none */

/* The run has ended after its step; nothing is lost but its rest. */
static void note_signal(int number) { caught = number; }

/* @param[out] how  its exit status; 128 and more: it was stopped. */
static enum error_code run_one(const struct sweep *sweep, int run, const char *settings, int *how, struct error *err)
{
    char path[PATH_ROOM];
    struct child_end end;
    enum error_code e = series_make(path_of(path, sweep, run, ""), err);
    unlink(path_of(path, sweep, run, "run.json"));
    if (!e) e = file_write_all(path_of(path, sweep, run, "run.yaml"), settings, strlen(settings), err);
    if (e) return e;
    fflush(stdout);
    const pid_t child = child_start();
    if (child == 0) become(sweep, run);
    if (child < 0) return fail(err, ERR_COMM, "there is no room for another process");
    child_wait(child, 0, &end);                         /* training takes as long as it takes */
    *how = WIFEXITED(end.how) ? WEXITSTATUS(end.how) : 128 + WTERMSIG(end.how);
    if (*how >= 128) unlink(path_of(path, sweep, run, "run.json"));         /* of a part of the run */
    return OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct result { int how; double validation, loss, seconds, virtual_ps; };

static double number_of(const cJSON *o, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(x) ? x->valuedouble : NAN;
}

static void read_result(const struct sweep *sweep, int run, struct result *result)
{
    char path[PATH_ROOM];
    cJSON *root;
    result->validation = result->loss = result->seconds = result->virtual_ps = NAN;
    if (access(path_of(path, sweep, run, "run.json"), F_OK) != 0 || json_read(path, &root, NULL)) return;
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(root, "steps");
    result->validation = number_of(root, "validation_loss");
    result->loss = number_of(cJSON_GetArrayItem(steps, cJSON_GetArraySize(steps) - 1), "loss");
    result->seconds = number_of(root, "median_step_seconds");
    result->virtual_ps = number_of(root, "virtual_step_ps");
    cJSON_Delete(root);
}

static void loss_cell(struct columns *columns, double loss)
{
    if (isfinite(loss)) columns_add(columns, RIGHT_ALIGNED, "%.4f", loss);
    else columns_add(columns, RIGHT_ALIGNED, "%s", "");
}

static void time_cell(struct columns *columns, const struct figure_scale *scale, double seconds)
{
    columns_add(columns, RIGHT_ALIGNED, "%s", isfinite(seconds) ? scale_format(scale, seconds).text : "");
}

static double virtual_seconds(const struct result *result) { return 1e-12 * result->virtual_ps; }
static double median_seconds(const struct result *result) { return result->seconds; }

/* The unit of a column. */
static struct figure_scale column_scale_of(const struct sweep *sweep, const struct result *result,
                                  double (*seconds)(const struct result *))
{
    double longest = 0;
    for (int run = 0; run < sweep->runs; run++)
        if (isfinite(seconds(&result[run]))) longest = fmax(longest, seconds(&result[run]));
    return time_scale(longest);
}

static const char *status_name(int how)
{
    return how < 0 ? "not run" : how == 0 ? "done" : how == 3 ? "DIFFERS" : how >= 128 ? "stopped" : "FAILED";
}

static void print_table(const struct sweep *sweep, const struct result *result)
{
    const struct figure_scale wall = column_scale_of(sweep, result, median_seconds),
                              clock = column_scale_of(sweep, result, virtual_seconds);
    struct columns t = columns_start(stdout);
    t.keys = 1;
    do {
        columns_add(&t, RIGHT_ALIGNED, "run");
        for (int a = 0; a < sweep->axes; a++) columns_add(&t, RIGHT_ALIGNED, "%s", sweep->axis[a]->key);
        columns_add(&t, RIGHT_ALIGNED, "loss"), columns_add(&t, RIGHT_ALIGNED, "held-out");
        columns_add(&t, RIGHT_ALIGNED, "median %s", wall.name);
        columns_add(&t, RIGHT_ALIGNED, "virtual %s", clock.name);
        columns_add(&t, LEFT_ALIGNED, "status");
        columns_end_row(&t);
        for (int run = 0; run < sweep->runs; run++) {
            const struct result *r = &result[run];
            columns_add(&t, RIGHT_ALIGNED, "%03d", run + 1);
            for (int a = 0; a < sweep->axes; a++)
                columns_add(&t, RIGHT_ALIGNED, "%s", printable(value_of(sweep, run, a)).text);
            loss_cell(&t, r->loss), loss_cell(&t, r->validation);
            time_cell(&t, &wall, median_seconds(r)), time_cell(&t, &clock, virtual_seconds(r));
            columns_add(&t, LEFT_ALIGNED, "%s", status_name(r->how));
            columns_end_row(&t);
        }
    } while (columns_again(&t));
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code run_all(const struct sweep *sweep, struct result *result, struct error *err)
{
    enum error_code e = OK;
    const double began = measure_now();
    int ran = 0;
    for (int run = 0; run < sweep->runs; run++) result[run].how = -1;
    for (int run = 0; run < sweep->runs && !e && !caught; run++) {
        char *settings = settings_of(sweep, run, err);
        if (settings == NULL) return err->code;
        if (is_done(sweep, run, settings))
            result[run].how = 0, printf("run %03d of %d: done before\n", run + 1, sweep->runs);
        else {
            const struct time_left_text left =
                time_left_of(measure_now() - began, (double)ran / (ran + sweep->runs - run));
            ran++;
            printf("run %03d of %d%s%s\n", run + 1, sweep->runs, on_terminal() && left.text[0] ? ", " : "",
                   on_terminal() ? left.text : "");
            e = run_one(sweep, run, settings, &result[run].how, err);
        }
        free(settings);
    }
    for (int run = 0; run < sweep->runs && !e; run++)
        if (result[run].how < 128) read_result(sweep, run, &result[run]);
        else result[run] = (struct result){ result[run].how, NAN, NAN, NAN, NAN };
    return e;
}

/* The exit status: of the signal, or of the first run that failed. */
static enum error_code sweep_verdict(const struct sweep *sweep, const struct result *result, int *status,
                                     struct error *err)
{
    for (int run = 0; run < sweep->runs && !caught; run++)
        if (result[run].how > 0)
            return fail(err, result[run].how == 3 ? ERR_CHECK : ERR_FORMAT, "run %03d ended with status %d: see "
                        "%s/%03d/out.txt", run + 1, result[run].how, printable_path(sweep->dir).text, run + 1);
    if (caught) *status = 128 + caught;
    return OK;
}

enum error_code command_sweep(int argc, char **argv, int *status, struct error *err)
{
    struct sweep s = { .program = argv[0], .dir = NULL };
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &s.file, .required = true,
          .help = "`set` and `grid`, as docs/using/runs.md has them" },
        { "--out", "DIR", OPTION_STRING, &s.dir, .required = true, .help = "a folder for the runs' folders" },
        { 0 }
    };
    bool help;
    enum error_code e = parse_command("sweep", "FILE --out DIR", "Train once for each combination of settings; what is "
                                      "done is not repeated.", argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    if (under_launcher()) return fail(err, ERR_USAGE, "sweep: starts its runs itself; not under a launcher");
    e = read_sweep(&s, err);
    if (!e) e = check_settings(&s, err);
    if (!e) e = fail_about(err, series_make(s.dir, err), "--out");
    struct result *result = e ? NULL : calloc((size_t)s.runs, sizeof *result);
    if (!e && result == NULL) e = fail(err, ERR_MEMORY, "no memory for %d results", s.runs);
    child_take_signals(note_signal);
    if (!e) e = run_all(&s, result, err);
    if (!e) print_table(&s, result), e = sweep_verdict(&s, result, status, err);
    free(result);
    yml_free(s.root);
    return e;
}
