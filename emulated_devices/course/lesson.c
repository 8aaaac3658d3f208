/* lesson.c -- finds lessons, draws inputs of checks, and notes failures.  cli/course/ and every check call it.
 * Inputs depend only on the seed, the lesson and the check, so a run can be repeated.  A lesson that does not exist
 * is ERR_USAGE. */
#include "emulated_devices/course/lesson.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include "ref/numeric/philox.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const int COURSE_DEVICES[] = { 1, 2, 3, 4, 5, 7, 8, 0 };

/* Folders begin with their number. */
int lesson_number(const struct lesson *lesson) { return atoi(lesson->folder); }

int lesson_points(const struct lesson *lesson)
{
    int sum = 0;
    for (const struct check *c = lesson->check; c->run; c++) sum += c->points;
    return sum;
}

/* The ending of the file says which kind of lesson it is. */
bool lesson_has_kernels(const struct lesson *lesson)
{
    const size_t n = strlen(lesson->file);
    return lesson->functions == NULL && n > 3 && strcmp(lesson->file + n - 3, ".cu") == 0;
}

/* A word is a number, a folder, or a folder without its number; a near word is named in the error. */
const struct lesson *lesson_find(const char *word, struct error *err)
{
    const char *names[200];                     /* folders; then the same without their numbers */
    size_t n = 0;
    char *end;
    const long number = strtol(word, &end, 10);
    for (; lessons[n] && n < 100; n++) {
        names[n] = lessons[n]->folder;
        if (strcmp(word, lessons[n]->folder) == 0 || strcmp(word, lessons[n]->folder + 3) == 0 ||
            (*word && !*end && number == lesson_number(lessons[n]))) return lessons[n];
    }
    /* A number that no lesson has is answered with the range of numbers. */
    if (*word && !*end) {
        fail(err, ERR_USAGE, "there is no lesson %s; there are %02d to %02d", printable(word).text,
             lesson_number(lessons[0]), lesson_number(lessons[n - 1]));
        return NULL;
    }
    for (size_t i = 0; i < n; i++) names[n + i] = names[i] + 3;
    /* A near folder is looked for first, then a near name without its number. */
    if (nearest_name(word, names, n)) fail_unknown_name(err, "LESSON", word, names, n);
    else if (nearest_name(word, names + n, n)) fail_unknown_name(err, "LESSON", word, names + n, n);
    else fail_unknown_name(err, "LESSON", word, names, n);
    return NULL;
}

/* A choice depends on the variant and the name of the choice.  Variant 0 has the first alternative. */
int lesson_choice(const struct lesson *lesson, const char *name, uint64_t variant)
{
    char stream[120];
    for (const struct vary *v = lesson->vary; v->name; v++) {
        if (strcmp(v->name, name) != 0) continue;
        snprintf(stream, sizeof stream, "%s %s", lesson->folder, name);
        return variant == 0 ? 0 : (int)(random_uniform(variant, random_stream(stream), 0) * v->choices);
    }
    fprintf(stderr, "orrery: lesson %s has no choice %s\n", lesson->folder, name);
    abort();
}

int judge_choice(const struct judge *judge, const char *name) { return lesson_choice(judge->lesson, name,
                                                                                     judge->variant); }

/* Drop the sign of a NaN: 0/0 has a sign on some processors, and reports are the same on all. */
static void drop_signs_of_nan(char *text)
{
    for (char *at = text; (at = strstr(at, " -nan")) != NULL;) memmove(at + 1, at + 2, strlen(at + 2) + 1);
}

/* Only the first failure of a check is kept; the later ones are its consequences. */
bool judge_fails(struct judge *judge, const char *format, ...)
{
    va_list list;
    if (judge->failed) return false;
    judge->failed = true;
    va_start(list, format);
    vsnprintf(judge->said, sizeof judge->said, format, list);
    va_end(list);
    drop_signs_of_nan(judge->said);
    return false;
}

/* Draw the next number of this check's stream: inputs depend on the seed, the check and how many were drawn
 * before. */
static double lesson_draw(struct judge *judge)
{
    char stream[120];
    if (judge->drawn == 0) {
        snprintf(stream, sizeof stream, "%s %d %s", judge->lesson->folder, judge->check->part, judge->check->name);
        judge->stream = random_stream(stream);
    }
    return random_uniform(judge->seed, judge->stream, judge->drawn++);
}

/* This draws a whole number from low to high, both included. */
int64_t judge_draw(struct judge *judge, int64_t low, int64_t high)
{
    return low + (int64_t)(lesson_draw(judge) * (double)(high - low + 1));
}

void judge_whole(struct judge *judge, float *x, int64_t count, int range)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)judge_draw(judge, -range, range);
}

/* Fill with numbers of 24 bits, of sizes from 1/16 to 16: most additions round. */
void judge_rough(struct judge *judge, float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        static const float size[] = { 0.0625f, 0.25f, 1, 4, 16 };
        const double u = lesson_draw(judge);
        x[i] = (float)(2 * u - 1) * size[(int64_t)(u * 4096) % 5];
    }
}

/* C [m, n] = A [m, k] B [k, n], or with the transpose of A or B.  Every product and every sum is rounded to float. */
void judge_matrix_product(float *C, const float *A, const float *B, int64_t m, int64_t k, int64_t n, bool across_a,
                          bool across_b)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += judge_times(A[across_a ? l * m + i : i * k + l], B[across_b ? j * k + l : l * n + j]);
            C[i * n + j] = sum;
        }
}
