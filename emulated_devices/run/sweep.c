/* sweep.c -- a run for each combination of settings, one after the other, each a process of this program.
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
 * cli/sweep.c calls these functions.  ERR_USAGE names the line of the file that is wrong; ERR_COMM: no process can
 * start; ERR_CHECK or ERR_FORMAT: a run failed; ERR_MEMORY.
 */
#include "emulated_devices/run/sweep.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "ref/io/child.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/machine/measure.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RUNS = 4096, PATH_ROOM = 4096 };

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
    if (sweep->axes == SWEEP_MOST_AXES)
        return sweep_refuse(sweep, yaml, "is one setting too many; a grid has at most 8", err);
    for (const struct yaml *v = yaml->child; v; v = v->next, n++)
        if (v->kind != YAML_TEXT) return sweep_refuse(sweep, yaml, "must be a list of values, not of lists", err);
    if (n == 0) return sweep_refuse(sweep, yaml, "has no values", err);
    if (sweep->set && yml_find(sweep->set, yaml->key)) return sweep_refuse(sweep, yaml, "is in `set`, too", err);
    sweep->axis[sweep->axes] = yaml, sweep->size[sweep->axes++] = n;
    sweep->runs *= n;
    return sweep->runs > MOST_RUNS ? sweep_refuse(sweep, yaml, "makes more than 4096 runs", err) : OK;
}

static enum error_code read_parts(struct sweep *sweep, struct error *err)
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
static enum error_code check_settings(const struct sweep *sweep, sweep_check *check, struct error *err)
{
    enum error_code e = OK;
    for (const struct yaml *y = sweep->set ? sweep->set->child : NULL; y && !e; y = y->next)
        e = check(y, sweep->file, err);
    for (int a = 0; a < sweep->axes; a++)
        for (const struct yaml *v = sweep->axis[a]->child; v && !e; v = v->next) {
            struct yaml one = *v;
            one.key = sweep->axis[a]->key;
            e = check(&one, sweep->file, err);
        }
    return e;
}

enum error_code sweep_read(struct sweep *sweep, sweep_check *check, struct error *err)
{
    const enum error_code e = read_parts(sweep, err);
    return e ? e : check_settings(sweep, check, err);
}

/* The last axis changes first. */
const char *sweep_value(const struct sweep *sweep, int run, int axis)
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
        yml_print_text(f, sweep_value(sweep, run, a));
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

/* ---- results ----------------------------------------------------------------------------------------------------- */

static double number_of(const cJSON *o, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(x) ? x->valuedouble : NAN;
}

static void read_result(const struct sweep *sweep, int run, struct sweep_result *result)
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

enum error_code sweep_run(const struct sweep *sweep, struct sweep_result *result, sweep_listener *told,
                          struct error *err)
{
    enum error_code e = OK;
    const double began = measure_now();
    int ran = 0;
    child_take_signals(note_signal);
    for (int run = 0; run < sweep->runs; run++) result[run].how = -1;
    for (int run = 0; run < sweep->runs && !e && !caught; run++) {
        char *settings = settings_of(sweep, run, err);
        if (settings == NULL) return err->code;
        const bool done = is_done(sweep, run, settings);
        told(sweep, run, done, measure_now() - began, (double)ran / (ran + sweep->runs - run));
        if (done) result[run].how = 0;
        else {
            ran++;
            e = run_one(sweep, run, settings, &result[run].how, err);
        }
        free(settings);
    }
    for (int run = 0; run < sweep->runs && !e; run++)
        if (result[run].how < 128) read_result(sweep, run, &result[run]);
        else result[run] = (struct sweep_result){ result[run].how, NAN, NAN, NAN, NAN };
    return e;
}

enum error_code sweep_verdict(const struct sweep *sweep, const struct sweep_result *result, int *status,
                              struct error *err)
{
    for (int run = 0; run < sweep->runs && !caught; run++)
        if (result[run].how > 0)
            return fail(err, result[run].how == 3 ? ERR_CHECK : ERR_FORMAT, "run %03d ended with status %d: see "
                        "%s/%03d/out.txt", run + 1, result[run].how, printable_path(sweep->dir).text, run + 1);
    if (caught) *status = 128 + caught;
    return OK;
}
