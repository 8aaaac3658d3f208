/* reports.c -- scores as files for other programs: Gradescope's results.json, JUnit's XML.  grade.c calls these
 * functions.  Errors: ERR_MEMORY, and ERR_FILE if a file cannot be written; files are written whole or not at all
 * (ref/io/output.h). */
#include "emulated_devices/course/folder.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Gradescope -------------------------------------------------------------------------------------------------- */

static void results_describe(const struct outcome *outcome, char *to, size_t size)
{
    static const char *const words[] = { "not tried\n", "", "", "", "not tried\n" };
    const char *hint[CHECK_HINTS + 1];
    const bool hints = outcome->verdict == FAILED && !outcome->hidden && outcome_hints(outcome, hint) > 0;
    snprintf(to, size, "%s%s%s%s%s", words[outcome->verdict], outcome->said, outcome->said[0] ? "\n" : "",
             outcome->drawing[0] ? "\n" : "", outcome->drawing);
    if (hints) snprintf(to + strlen(to), size - strlen(to), "\nHint: %s\n", hint[0]);
}

static cJSON *test_of(const struct score *score, const struct outcome *outcome)
{
    cJSON *t = cJSON_CreateObject();
    char text[JUDGE_TEXT + JUDGE_DRAWING + 600], number[24], name[200];
    snprintf(number, sizeof number, "%d.%d", lesson_number(score->lesson), (int)(outcome - score->outcome) + 1);
    snprintf(name, sizeof name, "%s: %s%s", score->lesson->title, outcome->check->title,
             outcome->hidden ? " (hidden inputs)" : "");
    results_describe(outcome, text, sizeof text);
    json_add(t, "number %s name %s score %g max_score %g status %s output %s output_format %s", number, name,
             outcome->tenths / 10.0, outcome->of / 10.0, outcome->verdict == PASSED ? "passed" : "failed", text,
             "text");
    cJSON *tags = cJSON_AddArrayToObject(t, "tags");
    cJSON_AddItemToArray(tags, cJSON_CreateString(score->lesson->folder));
    cJSON_AddItemToArray(tags, cJSON_CreateString(outcome->check->name));
    json_add(t, "visibility %s", outcome->hidden ? "after_published" : "visible");
    return t;
}

static cJSON *compiled_of(const struct score *score)
{
    cJSON *t = cJSON_CreateObject();
    char number[24], name[200];
    snprintf(number, sizeof number, "%d.0", lesson_number(score->lesson));
    snprintf(name, sizeof name, "%s: %s", score->lesson->title,
             score->lesson->functions ? "compiles, and calls only what course.h has" : "the file is there");
    json_add(t, "number %s name %s status %s output %s output_format %s visibility %s", number, name,
             score->compiled ? "passed" : "failed", score->why_not, "text", "visible");
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
    json_add(root, "score %g output_format %s visibility %s stdout_visibility %s", tenths / 10.0, "text", "visible",
             "hidden");
    return json_finish(path, root, err);
}

/* ---- JUnit ------------------------------------------------------------------------------------------------------- */

/* Text that grows; bytes NULL: no memory. */
struct paper { char *bytes; size_t used, room; };

static void results_put(struct paper *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void results_put(struct paper *paper, const char *format, ...)
{
    char line[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    const size_t n = strlen(line);
    if (paper->bytes && paper->used + n + 1 > paper->room) {
        paper->room = 2 * (paper->room + n);
        char *more = realloc(paper->bytes, paper->room);
        if (more == NULL) free(paper->bytes);
        paper->bytes = more;
    }
    if (paper->bytes == NULL) return;
    memcpy(paper->bytes + paper->used, line, n + 1);
    paper->used += n;
}

/* Control characters may not be in XML at all. */
static void put_text(struct paper *paper, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        switch (*c) {
        case '&': results_put(paper, "&amp;"); break;
        case '<': results_put(paper, "&lt;"); break;
        case '>': results_put(paper, "&gt;"); break;
        case '"': results_put(paper, "&quot;"); break;
        default:
            if (*c >= 32 || *c == '\n' || *c == '\t') results_put(paper, "%c", *c);
            else results_put(paper, "?");
        }
}

static void put_case(struct paper *paper, const struct score *score, const struct outcome *outcome)
{
    char text[JUDGE_TEXT + JUDGE_DRAWING + 600];
    results_put(paper, "    <testcase classname=\"%s\" name=\"%s%s: ", score->lesson->folder, outcome->check->name,
                outcome->hidden ? ", hidden" : "");
    put_text(paper, outcome->check->title);
    results_put(paper, "\">");
    if (outcome->verdict != PASSED) {
        results_put(paper, "<failure message=\"%s of ", points_text(outcome->tenths).text);
        results_put(paper, "%s points\">", points_text(outcome->of).text);
        results_describe(outcome, text, sizeof text);
        put_text(paper, score->compiled ? text : score->why_not);
        results_put(paper, "</failure>");
    }
    results_put(paper, "</testcase>\n");
}

enum error_code write_junit(const char *path, const struct score *scores, int count, struct error *err)
{
    struct paper p = { calloc(1, 4096), 0, 4096 };
    results_put(&p, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (int i = 0; i < count; i++) {
        int failures = 0;
        for (int k = 0; k < scores[i].count; k++) failures += scores[i].outcome[k].verdict != PASSED;
        results_put(&p, "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\">\n", scores[i].lesson->folder,
                    scores[i].count, failures);
        for (int k = 0; k < scores[i].count; k++) put_case(&p, &scores[i], &scores[i].outcome[k]);
        results_put(&p, "  </testsuite>\n");
    }
    results_put(&p, "</testsuites>\n");
    if (p.bytes == NULL) return fail(err, ERR_MEMORY, "no memory for %s", printable_path(path).text);
    const enum error_code e = file_write_all(path, p.bytes, p.used, err);
    free(p.bytes);
    return e;
}
