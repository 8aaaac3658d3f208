/* results.c -- scores as files for other programs: Gradescope's results.json, JUnit's XML. */
#include "emulated_devices/cli/course/course.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Gradescope -------------------------------------------------------------------------------------------------- */

static void describe(const struct outcome *o, char *to, size_t size)
{
    static const char *const words[] = { "not tried\n", "", "", "", "not tried\n" };
    snprintf(to, size, "%s%s%s%s%s%s", words[o->verdict], o->said, o->said[0] ? "\n" : "", o->drawing[0] ? "\n" : "",
             o->drawing, o->verdict == FAILED && !o->hidden && o->check->hint[0] ? "\nHint: " : "");
    if (o->verdict == FAILED && !o->hidden && o->check->hint[0])
        snprintf(to + strlen(to), size - strlen(to), "%s\n", o->check->hint[0]);
}

static cJSON *test_of(const struct score *s, const struct outcome *o)
{
    cJSON *t = cJSON_CreateObject();
    char text[JUDGE_TEXT + JUDGE_DRAWING + 600], number[24], name[200];
    snprintf(number, sizeof number, "%d.%d", lesson_number(s->lesson), (int)(o - s->outcome) + 1);
    snprintf(name, sizeof name, "%s: %s%s", s->lesson->title, o->check->title, o->hidden ? " (hidden inputs)" : "");
    describe(o, text, sizeof text);
    cJSON_AddStringToObject(t, "number", number);
    cJSON_AddStringToObject(t, "name", name);
    cJSON_AddNumberToObject(t, "score", o->tenths / 10.0);
    cJSON_AddNumberToObject(t, "max_score", o->of / 10.0);
    cJSON_AddStringToObject(t, "status", o->verdict == PASSED ? "passed" : "failed");
    cJSON_AddStringToObject(t, "output", text);
    cJSON_AddStringToObject(t, "output_format", "text");
    cJSON *tags = cJSON_AddArrayToObject(t, "tags");
    cJSON_AddItemToArray(tags, cJSON_CreateString(s->lesson->folder));
    cJSON_AddItemToArray(tags, cJSON_CreateString(o->check->name));
    cJSON_AddStringToObject(t, "visibility", o->hidden ? "after_published" : "visible");
    return t;
}

static cJSON *compiled_of(const struct score *s)
{
    cJSON *t = cJSON_CreateObject();
    char number[24], name[200];
    snprintf(number, sizeof number, "%d.0", lesson_number(s->lesson));
    snprintf(name, sizeof name, "%s: %s", s->lesson->title,
             s->lesson->functions ? "compiles, and calls only what course.h has" : "the file is there");
    cJSON_AddStringToObject(t, "number", number);
    cJSON_AddStringToObject(t, "name", name);
    cJSON_AddStringToObject(t, "status", s->compiled ? "passed" : "failed");
    cJSON_AddStringToObject(t, "output", s->why_not);
    cJSON_AddStringToObject(t, "output_format", "text");
    cJSON_AddStringToObject(t, "visibility", "visible");
    return t;
}

enum error_code write_gradescope(const char *path, const struct score *scores, int count, struct error *err)
{
    cJSON *root = cJSON_CreateObject(), *tests = cJSON_AddArrayToObject(root, "tests");
    int tenths = 0;
    for (int i = 0; i < count; i++) {
        tenths += scores[i].tenths;
        cJSON_AddItemToArray(tests, compiled_of(&scores[i]));
        for (int k = 0; k < scores[i].count; k++)
            cJSON_AddItemToArray(tests, test_of(&scores[i], &scores[i].outcome[k]));
    }
    cJSON_AddNumberToObject(root, "score", tenths / 10.0);
    cJSON_AddStringToObject(root, "output_format", "text");
    cJSON_AddStringToObject(root, "visibility", "visible");
    cJSON_AddStringToObject(root, "stdout_visibility", "hidden");
    enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}

/* ---- JUnit ------------------------------------------------------------------------------------------------------- */

/* Text that grows; bytes NULL: no memory. */
struct paper { char *bytes; size_t used, room; };

static void put(struct paper *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct paper *p, const char *format, ...)
{
    char line[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    const size_t n = strlen(line);
    if (p->bytes && p->used + n + 1 > p->room) {
        p->room = 2 * (p->room + n);
        char *more = realloc(p->bytes, p->room);
        if (more == NULL) free(p->bytes);
        p->bytes = more;
    }
    if (p->bytes == NULL) return;
    memcpy(p->bytes + p->used, line, n + 1);
    p->used += n;
}

/* Control characters may not be in XML at all. */
static void put_text(struct paper *p, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        switch (*c) {
        case '&': put(p, "&amp;"); break;
        case '<': put(p, "&lt;"); break;
        case '>': put(p, "&gt;"); break;
        case '"': put(p, "&quot;"); break;
        default:
            if (*c >= 32 || *c == '\n' || *c == '\t') put(p, "%c", *c);
            else put(p, "?");
        }
}

static void put_case(struct paper *p, const struct score *s, const struct outcome *o)
{
    char text[JUDGE_TEXT + JUDGE_DRAWING + 600];
    put(p, "    <testcase classname=\"%s\" name=\"%s%s: ", s->lesson->folder, o->check->name,
        o->hidden ? ", hidden" : "");
    put_text(p, o->check->title);
    put(p, "\">");
    if (o->verdict != PASSED) {
        put(p, "<failure message=\"%s of ", points_text(o->tenths).text);
        put(p, "%s points\">", points_text(o->of).text);
        describe(o, text, sizeof text);
        put_text(p, s->compiled ? text : s->why_not);
        put(p, "</failure>");
    }
    put(p, "</testcase>\n");
}

enum error_code write_junit(const char *path, const struct score *scores, int count, struct error *err)
{
    struct paper p = { calloc(1, 4096), 0, 4096 };
    put(&p, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (int i = 0; i < count; i++) {
        int failures = 0;
        for (int k = 0; k < scores[i].count; k++) failures += scores[i].outcome[k].verdict != PASSED;
        put(&p, "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\">\n", scores[i].lesson->folder, scores[i].count,
            failures);
        for (int k = 0; k < scores[i].count; k++) put_case(&p, &scores[i], &scores[i].outcome[k]);
        put(&p, "  </testsuite>\n");
    }
    put(&p, "</testsuites>\n");
    if (p.bytes == NULL) return fail(err, ERR_MEMORY, "no memory for %s", printable_path(path).text);
    const enum error_code e = file_write_all(path, p.bytes, p.used, err);
    free(p.bytes);
    return e;
}
