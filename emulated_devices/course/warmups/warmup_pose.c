/* warmup_pose.c -- draws the sizes of a warm-up, computes its answer, and puts both into its texts.  cli/course/ and
 * course/teacher/ call these functions.  Sizes depend only on the variant, the lesson and the warm-up's name.
 * ERR_FORMAT is a mistake of the warm-up: a formula, or a drawing without the word that is asked for. */
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/numeric/philox.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that are not whole, and nearer to each other than this part of them, cannot be told from rounding. */
enum { DRAWINGS = 200, NEAR_PARTS = 50 };

/* The numbers of one warm-up: drawn says how many were drawn.  report: of the command's JSON. */
struct sizes {
    struct question *question;
    uint64_t variant, stream, drawn;
    cJSON *report;
    bool again;                         /* a line `need` does not hold */
    struct error *err;
};

static enum error_code pose_refuse(const struct question *question, const char *why, const char *text,
                                   struct error *err)
{
    return fail(err, ERR_FORMAT, "warm-up %s of %s: %s: %s", question->warmup->name, question->warmup->lesson->folder,
                why, printable(text).text);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

struct number_text warmup_number(double value)
{
    struct number_text t;
    if (value == floor(value) && fabs(value) < 1e15) snprintf(t.text, sizeof t.text, "%.0f", value);
    else snprintf(t.text, sizeof t.text, "%.4g", value);
    return t;
}

/* Cut the noun off "n number", which is counted.  @return the noun, or NULL: there is a formula alone. */
static const char *cut_noun(char *formula)
{
    char *blank = strrchr(formula, ' ');
    if (blank == NULL || blank == formula || strspn(blank + 1, "abcdefghijklmnopqrstuvwxyz") != strlen(blank + 1) ||
        !(isalnum((unsigned char)blank[-1]) || blank[-1] == ')')) return NULL;
    *blank = '\0';
    return blank + 1;
}

/* Write the value of what stands in braces. */
static enum error_code write_value(FILE *to, const struct question *question, char *formula, struct error *err)
{
    struct formula_number n;
    if (strcmp(formula, "word") == 0) return fputs(question->word, to), OK;
    const char *noun = cut_noun(formula);
    if (strcmp(formula, "answer") == 0) n.value = question->right;
    else if (formula_compute(&question->scope, formula, &n, err) != OK) return ERR_FORMAT;
    fputs(warmup_number(n.value).text, to);
    const size_t letters = noun ? strlen(noun) : 0;
    if (noun) fprintf(to, " %s%s", noun, n.value == 1 ? "" : letters > 2 && strcmp(noun + letters - 2, "ch") == 0
                      ? "es" : "s");
    return OK;
}

/* A brace before a blank, as in C, stays. */
char *warmup_text(const struct question *question, const char *text, struct error *err)
{
    char *out = NULL, formula[200];
    size_t size;
    FILE *to = open_memstream(&out, &size);
    enum error_code e = to ? OK : fail(err, ERR_MEMORY, "no memory for a text");
    for (const char *at = text; !e && *at;) {
        const size_t n = at[0] == '{' && !strchr(" \n}", at[1]) ? strcspn(at, "}") : 0;
        if (n == 0) fputc(*at++, to);
        else {
            snprintf(formula, sizeof formula, "%.*s", (int)n - 1, at + 1);
            if (at[n] != '}' || n >= sizeof formula) e = pose_refuse(question, "no } ends a formula", at, err);
            else e = write_value(to, question, formula, err);
            at += n + 1;
        }
    }
    if (to && fclose(to) != 0 && !e) e = fail(err, ERR_MEMORY, "no memory for a text");
    if (e) free(out), out = NULL;
    return out;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static enum error_code compute(const struct question *question, const char *formula, double *value, struct error *err)
{
    struct formula_number n;
    struct error why = { OK, "" };
    if (formula_compute(&question->scope, formula, &n, &why) != OK)
        return pose_refuse(question, why.text, formula, err);
    *value = n.value;
    return OK;
}

/* Draw one of "2..4" or "2,4,8". */
static enum error_code draw_one(struct sizes *sizes, const char *range, double *value)
{
    char text[80];
    const double u = random_uniform(sizes->variant, sizes->stream, sizes->drawn++);
    const char *dots = strstr(range, "..");
    double low = 0, high = 0;
    if (dots) {
        snprintf(text, sizeof text, "%.*s", (int)(dots - range), range);
        enum error_code e = compute(sizes->question, text, &low, sizes->err);
        if (!e) e = compute(sizes->question, dots + 2, &high, sizes->err);
        if (!e && !(low <= high)) return pose_refuse(sizes->question, "the range is empty", range, sizes->err);
        *value = e ? 0 : low + floor(u * (high - low + 1));
        return e;
    }
    int count = 1;
    for (const char *at = range; *at; at++) count += *at == ',';
    const char *at = range;
    for (int i = (int)(u * count); i > 0; i--) at = strchr(at, ',') + 1;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at, ","), at);
    return compute(sizes->question, text, value, sizes->err);
}

/* "x[3] 1..9": an array. */
static enum error_code draw_array(struct sizes *sizes, const char *name, const char *count, const char *range)
{
    struct formula_scope *scope = &sizes->question->scope;
    double n = 0;
    enum error_code e = compute(sizes->question, count, &n, sizes->err);
    if (e) return e;
    if (!(n >= 0 && n <= FORMULA_ELEMENTS) || scope->arrays == FORMULA_ARRAYS)
        return pose_refuse(sizes->question, "the array is too long", name, sizes->err);
    const int a = scope->arrays++;
    snprintf(scope->array[a].name, FORMULA_NAME, "%.*s", FORMULA_NAME - 1, name);
    scope->array[a].count = (int)n;
    for (int i = 0; i < scope->array[a].count && !e; i++) e = draw_one(sizes, range, &scope->array[a].element[i]);
    return e;
}

/* Find "devices.0.sent" in a report. */
static enum error_code pose_take_number(struct sizes *sizes, const char *name, const char *path)
{
    const struct question *p = sizes->question;
    if (sizes->report == NULL) {
        char *words = p->warmup->run ? warmup_text(p, p->warmup->run, sizes->err) : NULL, line[600];
        if (words == NULL) return pose_refuse(p, "there is no command to take it from", path, sizes->err);
        snprintf(line, sizeof line, "%s --json -", words);
        free(words);
        char *text = warmup_run(line, sizes->err);
        if (text == NULL) return sizes->err->code;
        const enum error_code e = json_parse(text, strlen(text), line, &sizes->report, sizes->err);
        free(text);
        if (e) return e;
    }
    const cJSON *at = sizes->report;
    for (const char *from = path; at && *from;) {
        char key[60], *end;
        const size_t n = strcspn(from, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, from);
        const long i = strtol(key, &end, 10);
        at = cJSON_IsArray(at) && *end == '\0' ? cJSON_GetArrayItem(at, (int)i)
                                               : cJSON_GetObjectItemCaseSensitive(at, key);
        from += n + (from[n] == '.');
    }
    if (!cJSON_IsNumber(at)) return pose_refuse(p, "the report has no such number", path, sizes->err);
    return formula_set(&sizes->question->scope, name, at->valuedouble, false, sizes->err);
}

/* Cut off a word; at: behind it. */
static void cut_word(const char **at, char *word, size_t size)
{
    *at += strspn(*at, " ");
    const size_t n = strcspn(*at, " ");
    snprintf(word, size, "%.*s", (int)n, *at);
    *at += n;
    *at += strspn(*at, " ");
}

/* One of the lines draw, let, take and need. */
static enum error_code take_size(struct sizes *sizes, const char *line)
{
    char what[8], name[60];
    const char *at = line;
    double value = 0;
    enum error_code e;
    cut_word(&at, what, sizeof what);
    if (strcmp(what, "need") == 0) {
        e = compute(sizes->question, at, &value, sizes->err);
        sizes->again |= !e && value == 0;
        return e;
    }
    cut_word(&at, name, sizeof name);
    char *bracket = strchr(name, '[');
    if (strcmp(what, "take") == 0) return pose_take_number(sizes, name, at);
    if (bracket) {
        *bracket = '\0', bracket[strcspn(bracket + 1, "]") + 1] = '\0';
        return draw_array(sizes, name, bracket + 1, at);
    }
    if (strcmp(what, "let") == 0) {
        if (*at != '=') return pose_refuse(sizes->question, "`let NAME = FORMULA` is expected", line, sizes->err);
        e = compute(sizes->question, at + 1, &value, sizes->err);
    } else e = draw_one(sizes, at, &value);
    return e ? e : formula_set(&sizes->question->scope, name, value, value == floor(value), sizes->err);
}

/* Begin with the choices of the lesson, and draw all sizes. */
static enum error_code take_sizes(struct sizes *sizes)
{
    struct question *p = sizes->question;
    enum error_code e = OK;
    p->scope = (struct formula_scope){ .numbers = 0 };
    sizes->again = false;
    for (const struct vary *v = p->warmup->lesson->vary; v->name && !e; v++)
        e = formula_set(&p->scope, v->name, lesson_choice(p->warmup->lesson, v->name, sizes->variant), true,
                        sizes->err);
    for (int i = 0; p->warmup->size[i] && !e && !sizes->again; i++) e = take_size(sizes, p->warmup->size[i]);
    cJSON_Delete(sizes->report);
    sizes->report = NULL;
    return e;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* Whether an answer that is meant as `a` may be taken for `b`. */
static bool are_alike(double a, double b)
{
    if (a == floor(a) && b == floor(b)) return a == b;
    return fabs(a - b) <= fmax(fabs(a), fabs(b)) / NEAR_PARTS;
}

/* Whether wrong numbers are apart from the right one and from each other. */
static enum error_code numbers_apart(const struct question *question, bool *apart, struct error *err)
{
    double wrong[WARMUP_WRONG];
    enum error_code e = compute(question, question->warmup->answer, &((struct question *)question)->right, err);
    for (int i = 0; question->warmup->wrong[i].answer && !e; i++) {
        e = compute(question, question->warmup->wrong[i].answer, &wrong[i], err);
        *apart &= !e && !are_alike(wrong[i], question->right);
        for (int k = 0; k < i; k++) *apart &= !are_alike(wrong[k], wrong[i]);
    }
    return e;
}

/* Compare words in the same way. */
static enum error_code words_apart(const struct question *question, bool *apart, struct error *err)
{
    struct reply reply;
    enum error_code e = OK;
    for (int i = 0; question->warmup->wrong[i].answer && !e; i++) {
        char *word = warmup_text(question, question->warmup->wrong[i].answer, err),
             *means = word ? warmup_text(question, question->warmup->wrong[i].means, err) : NULL;
        e = means ? warmup_answer(question, word, &reply, err) : err->code;
        *apart &= !e && reply.kind == REPLY_WRONG && strcmp(reply.text, means) == 0;
        free(word), free(means);
    }
    return e;
}

/* Draw once.  @param[out] apart  whether no wrong answer is right with these sizes. */
static enum error_code pose_once(struct sizes *sizes, bool *apart)
{
    struct question *p = sizes->question;
    enum error_code e = take_sizes(sizes);
    *apart = !sizes->again;
    if (e || sizes->again) return e;
    if (p->warmup->kind == ASKS_NUMBER) e = numbers_apart(p, apart, sizes->err);
    /* A command runs only for sizes that will do. */
    if (!e && *apart && p->warmup->run && (p->warmup->cell || p->warmup->from)) {
        free(p->picture), p->picture = NULL;
        e = warmup_draw_picture(p, sizes->err);
        if (!e && p->warmup->spoil && strcmp(p->word, p->spoilt) == 0) *apart = false;
    }
    if (!e && *apart && p->warmup->kind == ASKS_WORD) e = words_apart(p, apart, sizes->err);
    return e;
}

enum error_code warmup_pose(struct question *question, const struct warmup *warmup, uint64_t variant, struct error *err)
{
    char stream[160];
    struct error why = { OK, "" };
    bool apart = false;
    *question = (struct question){ .warmup = warmup };
    snprintf(stream, sizeof stream, "%s warm-up %s", warmup->lesson->folder, warmup->name);
    struct sizes s = { .question = question, .variant = variant, .stream = random_stream(stream), .err = &why };
    enum error_code e = OK;
    for (int i = 0; i < DRAWINGS && !e && !apart; i++) e = pose_once(&s, &apart);
    if (e) return fail(err, e, "%s", why.text);
    if (!apart) return pose_refuse(question, "no sizes tell wrong answers from the right one", warmup->title, err);
    return OK;
}

void question_free(struct question *question)
{
    free(question->picture);
    question->picture = NULL;
}
