/* class_reports.c -- a class's points as a table for spreadsheets, as JSON, and which checks fail most.
 * class.c and cli/course/grade.c call these functions.  Names come from students: a cell that a spreadsheet would
 * compute gets an apostrophe in front.  Errors are those of the files; ERR_MEMORY. */
#include "emulated_devices/course/class/class.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Spreadsheets compute what begins with one of these characters, also behind blanks. */
static bool is_formula(const char *text)
{
    const char *at = text + strspn(text, " ");
    return *at != '\0' && strchr("=+-@\t\r", *at) != NULL;
}

/* Write a cell as RFC 4180 has it: in quotes, with quotes inside doubled, where that is needed. */
static void put_cell(FILE *to, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") || is_formula(text) || text[0] == ' ';
    if (quoted) fputc('"', to);
    if (is_formula(text)) fputc('\'', to);
    for (const char *at = text; *at; at++) {
        if (*at == '"') fputc('"', to);
        fputc(*at, to);
    }
    if (quoted) fputc('"', to);
}

/* A student's row.  The cell of a file that was not judged is empty, and so is the sum then. */
static void put_row(FILE *to, const struct class_grading *class, int student)
{
    const struct submission *s = &class->all.of[student];
    int tenths, of;
    const bool all = class_points(class, student, &tenths, &of);
    put_cell(to, s->name);
    fprintf(to, ",%llu", (unsigned long long)s->variant);
    for (int l = 0; lessons[l]; l++) {
        const struct file_result *file = class_file(class, student, l);
        if (!class->chosen[l]) continue;
        const bool known = file->state == FILE_GRADED || file->state == FILE_MISSING;
        fprintf(to, ",%s", known ? points_text(file->tenths).text : "");
    }
    fprintf(to, ",%s,%s,", all ? points_text(tenths).text : "", points_text(of).text);
    put_cell(to, s->note);
    fprintf(to, "\r\n");
}

enum error_code class_write_csv(const struct class_grading *class, struct error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return fail(err, ERR_MEMORY, "no memory for a table");
    fprintf(to, "name,variant");
    for (int l = 0; lessons[l]; l++) if (class->chosen[l]) fprintf(to, ",%s", lessons[l]->folder);
    fprintf(to, ",points,of,note\r\n");
    for (int s = 0; s < class->all.count; s++) put_row(to, class, s);
    enum error_code e = fclose(to) == 0 ? OK : fail(err, ERR_MEMORY, "no memory for a table");
    if (!e) e = file_write_all(class->csv, text, size, err);
    free(text);
    return e;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* How a check went for the class.  mistake: the one found most often among its failures, and how often. */
struct tally { const struct lesson *lesson; const struct check *check; int passed, failed, gated, mistakes[MISTAKES]; };

static const char *word_of(const cJSON *row, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, key));
    return text ? text : "";
}

/* Count the open and hidden outcomes of a check once for each file: a failure of either is one. */
static void count_file(struct tally *tally, const cJSON *result)
{
    const cJSON *row;
    bool failed = false, gated = false, seen = false;
    const cJSON *checks = cJSON_GetObjectItemCaseSensitive(result, "checks");
    cJSON_ArrayForEach(row, checks) {
        if (strcmp(word_of(row, "name"), tally->check->name) != 0) continue;
        const char *verdict = word_of(row, "verdict");
        seen = true;
        if (strcmp(verdict, "passed") == 0) continue;
        if (strcmp(verdict, "failed") != 0) {
            gated = true;
            continue;
        }
        for (int m = 1; m < MISTAKES && !failed; m++)
            if (strcmp(word_of(row, "mistake"), mistake_name((enum mistake)m)) == 0) tally->mistakes[m]++;
        failed = true;
    }
    tally->failed += failed, tally->gated += !failed && gated, tally->passed += seen && !failed && !gated;
}

/* Count all checks of the chosen lessons.  @return how many; *all for free(), NULL without memory. */
static int count_checks(const struct class_grading *class, struct tally **all)
{
    int n = 0;
    *all = calloc((size_t)MOST_LESSONS * LESSON_CHECKS, sizeof **all);
    for (int l = 0; *all && lessons[l]; l++)
        for (const struct check *c = lessons[l]->check; class->chosen[l] && c->run; c++) {
            struct tally *t = &(*all)[n++];
            t->lesson = lessons[l], t->check = c;
            for (int s = 0; s < class->all.count; s++) {
                const struct file_result *file = class_file(class, s, l);
                if (file->state == FILE_GRADED) count_file(t, file->result);
            }
        }
    return n;
}

/* The mistake that was found most often; MISTAKE_UNKNOWN: none was. */
static enum mistake usual_mistake(const struct tally *tally)
{
    int most = MISTAKE_UNKNOWN;
    for (int m = 1; m < MISTAKES; m++)
        if (tally->mistakes[m] > 0 && (most == MISTAKE_UNKNOWN || tally->mistakes[m] > tally->mistakes[most])) most = m;
    return (enum mistake)most;
}

static int fails_more(const void *a, const void *b)
{
    const struct tally *x = a, *y = b;
    const int by_lesson = strcmp(x->lesson->folder, y->lesson->folder);
    return x->failed != y->failed ? y->failed - x->failed : by_lesson ? by_lesson : (int)(x->check - y->check);
}

void class_print_checks(const struct class_grading *class, int most)
{
    struct tally *all;
    const int n = count_checks(class, &all);
    if (all) qsort(all, (size_t)n, sizeof *all, fails_more);
    for (int i = 0; all && i < n && i < most && all[i].failed > 0; i++) {
        const struct tally *t = &all[i];
        const enum mistake usual = usual_mistake(t);
        if (i == 0) printf("\nChecks that fail most:\n\n");
        printf("  %4d of %-4d %-16s %-18s", t->failed, t->failed + t->gated + t->passed, t->lesson->folder,
               t->check->name);
        if (usual) printf("  %d: %s", t->mistakes[usual], mistake_name(usual));
        printf("\n");
    }
    free(all);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_student(cJSON *list, const struct class_grading *class, int student)
{
    static const char *const states[] = { "missing", "not judged", "not judged", "graded", "cannot be judged" };
    const struct submission *s = &class->all.of[student];
    int tenths, of;
    const bool all = class_points(class, student, &tenths, &of);
    cJSON *row = json_row(list);
    json_add(row, "name %s variant %g points %g of %g complete %hhd note %s", s->name, (double)s->variant,
             tenths / 10.0, of / 10.0, all, s->note);
    cJSON *files = cJSON_AddArrayToObject(row, "lessons");
    for (int l = 0; lessons[l]; l++) {
        const struct file_result *file = class_file(class, student, l);
        if (!class->chosen[l]) continue;
        cJSON *one = json_row(files);
        json_add(one, "lesson %s state %s points %g of %g", lessons[l]->folder, states[file->state],
                 file->tenths / 10.0, file->of / 10.0);
        if (file->state != FILE_GRADED) continue;
        cJSON_AddItemToObject(one, "checks", cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(file->result, "checks"),
                                                             true));
        json_add(one, "why_not %s", word_of(file->result, "why_not"));
    }
}

enum error_code class_write_json(const struct class_grading *class, struct error *err)
{
    struct tally *all;
    cJSON *root = cJSON_CreateObject(), *students = cJSON_AddArrayToObject(root, "students");
    cJSON *checks = cJSON_AddArrayToObject(root, "checks");
    const int n = count_checks(class, &all);
    for (int s = 0; s < class->all.count; s++) add_student(students, class, s);
    for (int i = 0; all && i < n; i++) {
        cJSON *row = json_row(checks);
        json_add(row, "lesson %s check %s passed %d failed %d gated %d", all[i].lesson->folder, all[i].check->name,
                 all[i].passed, all[i].failed, all[i].gated);
        cJSON *mistakes = cJSON_AddObjectToObject(row, "mistakes");
        for (int m = 1; m < MISTAKES; m++)
            if (all[i].mistakes[m]) cJSON_AddNumberToObject(mistakes, mistake_name((enum mistake)m),
                                                            all[i].mistakes[m]);
    }
    free(all);
    json_add(root, "complete %hhd", class->stopped == 0 && class->broken == 0);
    return json_finish(class->json, root, err);
}
