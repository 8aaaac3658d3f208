/* folder.c -- finds a student's folder, and reads and writes the progress there.  cli/course/learn.c calls;
 * cli/course/grade.c and cli/teacher/course.c only choose lessons.  A folder without a course, or an unknown lesson,
 * is ERR_USAGE.  A progress entry that is not valid counts as not tried. */
#define _XOPEN_SOURCE 700               /* realpath */
#include "emulated_devices/course/folder.h"
#include "emulated_devices/course/python.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/sha256.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum error_code read_course(struct folder *folder, struct error *err)
{
    char path[PATH_MAX];
    cJSON *root;
    int64_t variant = 0;
    const char *language = "c";
    snprintf(path, sizeof path, "%s/%s", folder->path, COURSE_FILE);
    enum error_code e = json_read(path, &root, err);
    if (!e) e = json_int(root, path, "variant", 0, INT32_MAX, &variant, err);
    /* A folder that is older, or that is in C, does not say its language. */
    if (!e && cJSON_HasObjectItem(root, "language")) e = json_string(root, path, "language", &language, err);
    folder->variant = (uint64_t)variant, folder->python = !e && strcmp(language, "python") == 0;
    if (!e && !folder->python && strcmp(language, "c") != 0)
        e = fail(err, ERR_FORMAT, "%s: \"language\" is %s; it must be c or python", printable_path(path).text,
                 printable(language).text);
    cJSON_Delete(e == ERR_FILE ? NULL : root);
    snprintf(path, sizeof path, "%s/%s", folder->path, PROGRESS_FILE);
    if (!e && access(path, F_OK) == 0) e = json_read(path, &folder->progress, err);
    if (!e && folder->progress == NULL) folder->progress = cJSON_CreateObject();
    return e;
}

enum error_code folder_open(struct folder *folder, const char *from, struct error *err)
{
    char path[PATH_MAX], *slash;
    *folder = (struct folder){ 0 };
    if (realpath(from, path) == NULL || strlen(path) >= sizeof folder->path)
        return fail(err, ERR_USAGE, "%s: there is no such folder", printable_path(from).text);
    for (;;) {
        char file[PATH_MAX + 32];
        snprintf(file, sizeof file, "%s/%s", path, COURSE_FILE);
        if (access(file, R_OK) == 0) {
            snprintf(folder->path, sizeof folder->path, "%.*s", (int)sizeof folder->path - 1, path);
            return read_course(folder, err);
        }
        slash = strrchr(path, '/');
        if (slash == NULL || slash == path) break;
        *slash = 0;
    }
    return fail(err, ERR_USAGE, "%s: this is not a course's folder, which has a file %s; go into yours (cd), or make "
                "one: orrery learn --start FOLDER", printable_path(from).text, COURSE_FILE);
}

void folder_close(struct folder *folder)
{
    cJSON_Delete(folder->progress);
    folder->progress = NULL;
}

void lesson_file(const struct lesson *lesson, bool python, char *to, size_t size)
{
    if (!python || !lesson_in_python(lesson) || !python_file(lesson, to, size)) snprintf(to, size, "%s", lesson->file);
}

void folder_file(const struct folder *folder, const struct lesson *lesson, char *to, size_t size)
{
    char name[100], other[PATH_MAX];
    lesson_file(lesson, folder->python, name, sizeof name);
    snprintf(to, size, "%s/%s/%s", folder->path, lesson->folder, name);
    if (access(to, F_OK) == 0) return;
    lesson_file(lesson, !folder->python, name, sizeof name);
    snprintf(other, sizeof other, "%s/%s/%s", folder->path, lesson->folder, name);
    if (access(other, F_OK) == 0) snprintf(to, size, "%s", other);
}

static struct sha256_text digest(const struct folder *folder, const struct lesson *lesson)
{
    struct sha256_text text = { "" };
    char path[PATH_MAX];
    folder_file(folder, lesson, path, sizeof path);
    if (sha256_file(path, &text, NULL) != OK) text.text[0] = 0;
    return text;
}

struct progress folder_progress(const struct folder *folder, const struct lesson *lesson)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(folder->progress, lesson->folder);
    struct progress p = { .of = 10 * lesson_points(lesson) };
    int64_t tenths = 0, hints = 0, best = 0;
    const char *then = "";
    if (!cJSON_IsObject(of) || json_int(of, "", "tenths", 0, p.of, &tenths, NULL) != OK ||
        json_int(of, "", "hints", 0, CHECK_HINTS + 1, &hints, NULL) != OK ||
        json_string(of, "", "file", &then, NULL) != OK)
        return p;
    /* A file of an earlier version has no best. */
    if (!cJSON_HasObjectItem(of, "best") || json_int(of, "", "best", 0, p.of, &best, NULL) != OK) best = tenths;
    p.tried = true, p.tenths = (int)tenths, p.hints = (int)hints, p.best = (int)(best > tenths ? best : tenths);
    const char *check = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(of, "check"));
    for (int i = 0; check && lesson->check[i].run; i++)
        if (strcmp(lesson->check[i].name, check) == 0) p.check = &lesson->check[i];
    p.changed = strcmp(digest(folder, lesson).text, then) != 0;
    return p;
}

enum error_code folder_remember(struct folder *folder, const struct lesson *lesson, struct progress progress,
                                struct error *err)
{
    char path[PATH_MAX];
    const int best = progress.tenths > progress.best ? progress.tenths : progress.best;
    cJSON *of = json_add(cJSON_CreateObject(), "tenths %d best %d hints %d", progress.tenths, best, progress.hints);
    if (progress.check) json_add(of, "check %s", progress.check->name);
    json_add(of, "file %s", digest(folder, lesson).text);
    cJSON_DeleteItemFromObjectCaseSensitive(folder->progress, lesson->folder);
    cJSON_AddItemToObject(folder->progress, lesson->folder, of);
    snprintf(path, sizeof path, "%s/%s", folder->path, PROGRESS_FILE);
    return json_write(path, folder->progress, err);
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
