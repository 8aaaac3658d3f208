/* runs.c -- reads a run for a report from JSON, a log or a checkpoint.  draw/report/report.c reads runs;
 * draw/report/charts.c takes single numbers out of them.  A file that is none of the three is ERR_FORMAT.  Errors of
 * files are passed on. */
#include "emulated_devices/draw/report/runs.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LOG_LIMIT = 1 << 28 };           /* bytes */

double run_number(const cJSON *o, const char *key, double none)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(x) ? x->valuedouble : none;
}

const char *run_text(const cJSON *o, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(x) ? x->valuestring : NULL;
}

double run_element(const cJSON *array, int i, double none)
{
    const cJSON *x = cJSON_GetArrayItem(array, i);
    return cJSON_IsNumber(x) ? x->valuedouble : none;
}

/* ---- a log ------------------------------------------------------------------------------------------------------- */

/* Put one object of a log into the run: what it says of itself, its steps, at the end its report. */
static void take_record(cJSON *root, cJSON *steps, cJSON *o)
{
    static const char *const of_start[] = { "written_by", "settings" };
    const char *type = run_text(o, "type");
    cJSON *report = cJSON_DetachItemFromObject(o, "report");
    if (type && strcmp(type, "start") == 0)
        for (int i = 0; i < 2; i++) {
            cJSON_DeleteItemFromObject(root, of_start[i]);
            cJSON_AddItemToObject(root, of_start[i], cJSON_DetachItemFromObject(o, of_start[i]));
        }
    for (cJSON *x = report ? report->child : NULL, *next; x; x = next) {
        next = x->next;
        cJSON_DeleteItemFromObjectCaseSensitive(root, x->string);
        cJSON_AddItemToObject(root, x->string, cJSON_DetachItemViaPointer(report, x));
    }
    cJSON_Delete(report);
    if (type && strcmp(type, "step") == 0) cJSON_AddItemToArray(steps, o);
    else cJSON_Delete(o);
}

/* A last line that is not whole is left out: the run may be going on. */
static enum error_code read_log(struct told_run *told_run, char *text, size_t length, struct error *err)
{
    cJSON *steps = cJSON_CreateArray(), *one;
    enum error_code e = OK;
    int lines = 0;
    told_run->root = cJSON_CreateObject();
    for (size_t at = 0; at < length && !e; lines++) {
        char *end = memchr(text + at, '\n', length - at);
        if (end == NULL) break;
        *end = '\0';
        e = json_parse(text + at, (size_t)(end - (text + at)), told_run->path, &one, err);
        if (!e && !cJSON_IsObject(one)) {
            cJSON_Delete(one);
            e = fail(err, ERR_FORMAT, "%s: line %d is no object", printable_path(told_run->path).text, lines + 1);
        }
        if (!e) take_record(told_run->root, steps, one);
        at = (size_t)(end - text) + 1;
    }
    cJSON_AddItemToObject(told_run->root, "steps", steps);
    if (!e && lines == 0) e = fail(err, ERR_FORMAT, "%s: has no whole line", printable_path(told_run->path).text);
    return e;
}

/* ---- a checkpoint ------------------------------------------------------------------------------------------------ */

static cJSON *from_yaml(const struct yaml *yaml)
{
    if (yaml->kind == YAML_TEXT) return cJSON_CreateString(yaml->text);
    cJSON *o = yaml->kind == YAML_MAPPING ? cJSON_CreateObject() : cJSON_CreateArray();
    for (const struct yaml *c = yaml->child; c; c = c->next)
        if (yaml->kind == YAML_MAPPING) cJSON_AddItemToObject(o, c->key, from_yaml(c));
        else cJSON_AddItemToArray(o, from_yaml(c));
    return o;
}

static enum error_code read_origin(struct told_run *told_run, const struct checkpoint *checkpoint, struct error *err)
{
    char *text;
    size_t length;
    struct yaml *y;
    enum error_code e = bundle_read(&checkpoint->files, ORIGIN_FILE, YAML_FILE_LIMIT, &text, &length, err);
    if (e) return e;
    e = yml_parse(text, length, ORIGIN_FILE, &y, err);
    free(text);
    if (e) return e;
    cJSON *settings = cJSON_AddObjectToObject(told_run->root, "settings");
    for (const struct yaml *s = y->child; s; s = s->next)
        if (strcmp(s->key, SETTINGS_WRITTEN_BY) == 0) cJSON_AddItemToObject(told_run->root, "written_by", from_yaml(s));
        else cJSON_AddItemToObject(settings, s->key, from_yaml(s));
    yml_free(y);
    return OK;
}

static enum error_code read_checkpoint(struct told_run *told_run, struct error *err)
{
    static char path[4096];
    struct checkpoint c;
    if (!series_newest(path, sizeof path, told_run->path))
        return fail(err, ERR_FORMAT, "%s: has no checkpoint", printable_path(told_run->path).text);
    enum error_code e = checkpoint_open(&c, path, err);
    if (e) return e;
    told_run->root = cJSON_CreateObject();
    json_add(told_run->root, "saved_step %g", (double)c.step);
    cJSON_AddItemToObject(told_run->root, "run", cJSON_Duplicate(c.run, true));
    e = read_origin(told_run, &c, err);
    checkpoint_close(&c);
    return e;
}

/* ---- any --------------------------------------------------------------------------------------------------------- */

static void take_name(struct told_run *told_run)
{
    const char *at = strrchr(told_run->path, '/');
    snprintf(told_run->name, sizeof told_run->name, "%.60s", at && at[1] ? at + 1 : told_run->path);
}

enum error_code run_read(struct told_run *told_run, const char *path, struct error *err)
{
    struct stat st;
    char *text;
    size_t length;
    const size_t n = strlen(path);
    *told_run = (struct told_run){ .path = path };
    take_name(told_run);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return read_checkpoint(told_run, err);
    if (n < 6 || strcmp(path + n - 6, ".jsonl") != 0) {
        const enum error_code e = json_read(path, &told_run->root, err);
        if (e || (cJSON_IsObject(told_run->root) && cJSON_HasObjectItem(told_run->root, "steps"))) return e;
        return fail(err, ERR_FORMAT, "%s: is not what --json of train, infer or plan writes",
                    printable_path(path).text);
    }
    enum error_code e = file_read_all(path, LOG_LIMIT, &text, &length, err);
    if (e) return e;
    e = read_log(told_run, text, length, err);
    free(text);
    return e;
}

void run_free(struct told_run *told_run)
{
    cJSON_Delete(told_run->root);
    *told_run = (struct told_run){ .path = NULL };
}
