#define _XOPEN_SOURCE 700               /* realpath */
#include "emulated_devices/cli/course/course.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/sha256.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum error_code read_course(struct folder *f, struct error *err)
{
    char path[PATH_MAX];
    cJSON *root;
    int64_t variant = 0;
    snprintf(path, sizeof path, "%s/%s", f->path, COURSE_FILE);
    enum error_code e = json_read(path, &root, err);
    if (!e) e = json_int(root, path, "variant", 0, INT32_MAX, &variant, err);
    f->variant = (uint64_t)variant;
    cJSON_Delete(e == ERR_FILE ? NULL : root);
    snprintf(path, sizeof path, "%s/%s", f->path, PROGRESS_FILE);
    if (!e && access(path, F_OK) == 0) e = json_read(path, &f->progress, err);
    if (!e && f->progress == NULL) f->progress = cJSON_CreateObject();
    return e;
}

enum error_code folder_open(struct folder *f, const char *from, struct error *err)
{
    char path[PATH_MAX], *slash;
    *f = (struct folder){ 0 };
    if (realpath(from, path) == NULL || strlen(path) >= sizeof f->path)
        return fail(err, ERR_USAGE, "%s: there is no such folder", printable_path(from).text);
    for (;;) {
        char file[PATH_MAX + 32];
        snprintf(file, sizeof file, "%s/%s", path, COURSE_FILE);
        if (access(file, R_OK) == 0) {
            snprintf(f->path, sizeof f->path, "%.*s", (int)sizeof f->path - 1, path);
            return read_course(f, err);
        }
        slash = strrchr(path, '/');
        if (slash == NULL || slash == path) break;
        *slash = 0;
    }
    return fail(err, ERR_USAGE, "%s: this is not a course's folder, which has a file %s; go into yours (cd), or make "
                "one: orrery learn --start FOLDER", printable_path(from).text, COURSE_FILE);
}

void folder_close(struct folder *f)
{
    cJSON_Delete(f->progress);
    f->progress = NULL;
}

void folder_file(const struct folder *f, const struct lesson *l, char *to, size_t size)
{
    snprintf(to, size, "%s/%s/%s", f->path, l->folder, l->file);
}

static struct sha256_text digest(const struct folder *f, const struct lesson *l)
{
    struct sha256_text text = { "" };
    char path[PATH_MAX];
    folder_file(f, l, path, sizeof path);
    if (sha256_file(path, &text, NULL) != OK) text.text[0] = 0;
    return text;
}

struct progress folder_progress(const struct folder *f, const struct lesson *l)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(f->progress, l->folder);
    struct progress p = { .of = 10 * lesson_points(l) };
    int64_t tenths = 0, hints = 0;
    const char *then = "";
    if (!cJSON_IsObject(of) || json_int(of, "", "tenths", 0, p.of, &tenths, NULL) != OK ||
        json_int(of, "", "hints", 0, CHECK_HINTS, &hints, NULL) != OK || json_string(of, "", "file", &then, NULL) != OK)
        return p;
    p.tried = true, p.tenths = (int)tenths, p.hints = (int)hints;
    const char *check = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(of, "check"));
    for (int i = 0; check && l->check[i].run; i++)
        if (strcmp(l->check[i].name, check) == 0) p.check = &l->check[i];
    p.changed = strcmp(digest(f, l).text, then) != 0;
    return p;
}

enum error_code folder_remember(struct folder *f, const struct lesson *l, struct progress p, struct error *err)
{
    char path[PATH_MAX];
    cJSON *of = cJSON_CreateObject();
    cJSON_AddNumberToObject(of, "tenths", p.tenths);
    cJSON_AddNumberToObject(of, "hints", p.hints);
    if (p.check) cJSON_AddStringToObject(of, "check", p.check->name);
    cJSON_AddStringToObject(of, "file", digest(f, l).text);
    cJSON_DeleteItemFromObjectCaseSensitive(f->progress, l->folder);
    cJSON_AddItemToObject(f->progress, l->folder, of);
    snprintf(path, sizeof path, "%s/%s", f->path, PROGRESS_FILE);
    return json_write(path, f->progress, err);
}

enum error_code lessons_chosen(const char *list, bool chosen[MOST_LESSONS], struct error *err)
{
    int count = 0;
    while (lessons[count]) count++;
    for (int i = 0; i < MOST_LESSONS; i++) chosen[i] = list == NULL && i < count;
    for (const char *at = list ? list : ""; *at;) {
        char word[80], *end;
        const size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        long first = strtol(word, &end, 10), last = first;
        if (end != word && *end == '-') last = strtol(end + 1, &end, 10);
        if (end != word && *end == 0 && last > first) {
            int found = 0;
            for (int i = 0; lessons[i]; i++)
                if (lesson_number(lessons[i]) >= first && lesson_number(lessons[i]) <= last) chosen[i] = true, found++;
            if (found == 0)
                return fail(err, ERR_USAGE, "--lessons %s: there are no such lessons", printable(word).text);
        } else {
            const struct lesson *l = lesson_find(word, err);
            if (l == NULL) return ERR_USAGE;
            for (int i = 0; lessons[i]; i++) chosen[i] |= lessons[i] == l;
        }
        at += n + (at[n] == ',');
    }
    return OK;
}
