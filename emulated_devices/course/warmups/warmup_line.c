/* warmup_line.c -- a warm-up that asks for a line of C: its file, and how it is judged.
 *
 * The student's function is compiled as a lesson's is, and runs in the cage (trial.h).  It is called with all arguments
 * of the lines `each`, the smallest first.  The answer is the same line as a formula (formula.h), so what should come
 * out is computed here.  cli/course/ and course/teacher/ call these functions.  Code that is wrong is told and is no
 * error; ERR_FORMAT is a mistake of the warm-up. */
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 6, CASES = 64, FUNCTION_NAME = 40 };

/* Sums of a few floats are compared up to this part. */
#define FLOATS_ARE_NEAR 1e-5

struct parameter { char name[FORMULA_NAME]; bool array, whole; };

/* A function's head, in parts. */
struct head { char name[FUNCTION_NAME]; struct parameter parameter[PARAMETERS]; int parameters; bool whole; };

/* One call: numbers and arrays, in the order of the parameters; want: what should come out. */
struct line_case {
    double number[PARAMETERS], array[PARAMETERS][FORMULA_ELEMENTS], want;
    int count[PARAMETERS];              /* elements of an array */
};

/* The lesson comes first: a check has a pointer to it alone. */
struct line_lesson {
    struct lesson lesson;
    const struct question *question;
    struct head head;
    struct line_case call[CASES];
    int calls;
    const char *functions[2];
};

static enum error_code line_refuse(const struct warmup *warmup, const char *why, struct error *err)
{
    return fail(err, ERR_FORMAT, "warm-up %s of %s: %s", warmup->name, warmup->lesson->folder, why);
}

/* ---- a function's head ------------------------------------------------------------------------------------------- */

/* The last name of "const float *x". */
static void last_name(const char *text, size_t bytes, char *to, size_t size)
{
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1])) bytes--;
    size_t from = bytes;
    while (from > 0 && (isalnum((unsigned char)text[from - 1]) || text[from - 1] == '_')) from--;
    snprintf(to, size, "%.*s", (int)(bytes - from), text + from);
}

static enum error_code line_read_head(const struct warmup *warmup, struct head *head, struct error *err)
{
    const char *open = strchr(warmup->function, '('), *at = open ? open + 1 : "";
    *head = (struct head){ .parameters = 0 };
    if (open == NULL || !strchr(open, ')')) return line_refuse(warmup, "its function has no parentheses", err);
    last_name(warmup->function, (size_t)(open - warmup->function), head->name, sizeof head->name);
    head->whole = strncmp(warmup->function, "int", 3) == 0;
    while (*at && *at != ')') {
        const size_t n = strcspn(at, ",)");
        if (head->parameters == PARAMETERS) return line_refuse(warmup, "its function has too many parameters", err);
        struct parameter *p = &head->parameter[head->parameters++];
        last_name(at, n, p->name, sizeof p->name);
        p->array = memchr(at, '*', n) != NULL;
        p->whole = strncmp(at + strspn(at, " "), "int", 3) == 0;
        at += n + (at[n] == ',');
    }
    return OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* The names that a formula has in one call. */
static enum error_code scope_of(const struct line_lesson *line, const struct line_case *call,
                                struct formula_scope *scope, struct error *err)
{
    enum error_code e = OK;
    *scope = line->question->scope;
    scope->like_c = true, scope->arrays = 0;
    for (int i = 0; i < line->head.parameters && !e; i++) {
        const struct parameter *p = &line->head.parameter[i];
        if (!p->array) e = formula_set(scope, p->name, call->number[i], p->whole, err);
        else if (scope->arrays == FORMULA_ARRAYS)
            e = line_refuse(line->question->warmup, "its function has too many arrays", err);
        else {
            const int a = scope->arrays++;
            snprintf(scope->array[a].name, FORMULA_NAME, "%s", p->name);
            memcpy(scope->array[a].element, call->array[i], sizeof call->array[i]);
            scope->array[a].count = call->count[i];
        }
    }
    return e;
}

/* Compute a formula for one call, as C does; a function that gives an int cuts the rest off. */
static enum error_code compute_case(const struct line_lesson *line, const struct line_case *call, const char *formula,
                                    double *value, struct error *err)
{
    struct formula_scope scope;
    struct formula_number n;
    enum error_code e = scope_of(line, call, &scope, err);
    if (!e) e = formula_compute(&scope, formula, &n, err);
    if (!e) *value = line->head.whole ? trunc(n.value) : n.value;
    return e;
}

/* The elements of an array are whole numbers that differ from place to place and from call to call. */
static void fill_array(struct line_case *call, int parameter, int count, int nth)
{
    for (int i = 0; i < count; i++) call->array[parameter][i] = (3 * i + 5 * nth + 2 * parameter) % 11 - 3 + (nth % 2);
    call->count[parameter] = count;
}

static int parameter_find(const struct head *head, const char *name, size_t bytes)
{
    for (int i = 0; i < head->parameters; i++)
        if (strlen(head->parameter[i].name) == bytes && memcmp(head->parameter[i].name, name, bytes) == 0) return i;
    return -1;
}

struct each { int parameter; double low, high, by; };

/* Read "rank 0..size-1", "V size..3*size by size" or "x[n] 3", whose number is how long the array is. */
static bool read_each(const struct line_lesson *line, const struct line_case *call, const char *text,
                      struct each *each, struct error *err)
{
    const size_t n = strcspn(text, " [");
    char range[120], *dots, *by;
    *each = (struct each){ .parameter = parameter_find(&line->head, text, n), .by = 1 };
    snprintf(range, sizeof range, "%s", text + strcspn(text, " "));
    dots = strstr(range, ".."), by = strstr(range, " by ");
    if (each->parameter < 0 || range[0] == '\0')
        return line_refuse(line->question->warmup, "`each` names no parameter", err), false;
    if (by) *by = '\0';
    if (dots) *dots = '\0';
    if (compute_case(line, call, range, &each->low, err) != OK) return false;
    each->high = each->low;
    if (dots && compute_case(line, call, dots + 2, &each->high, err) != OK) return false;
    if (by && compute_case(line, call, by + 4, &each->by, err) != OK) return false;
    if (each->by >= 1) return true;
    return line_refuse(line->question->warmup, "`each .. by` needs 1 or more", err), false;
}

/* Make the calls of this line `each` and those behind it: the first line changes slowest. */
static enum error_code make_calls(struct line_lesson *line, struct line_case *call, int each, struct error *err)
{
    const char *text = line->question->warmup->each[each];
    struct each range;
    enum error_code e = OK;
    if (text == NULL) {
        e = compute_case(line, call, line->question->warmup->answer, &call->want, err);
        if (!e && line->calls == CASES) e = line_refuse(line->question->warmup, "`each` makes too many calls", err);
        if (!e) line->call[line->calls++] = *call;
        return e;
    }
    if (!read_each(line, call, text, &range, err)) return ERR_FORMAT;
    const int p = range.parameter;
    if (line->head.parameter[p].array) {
        if (!(range.low >= 0 && range.low <= FORMULA_ELEMENTS))
            return line_refuse(line->question->warmup, "an array is long", err);
        fill_array(call, p, (int)range.low, line->calls);
        return make_calls(line, call, each + 1, err);
    }
    for (double v = range.low; v <= range.high && !e; v += range.by) {
        call->number[p] = v;
        e = make_calls(line, call, each + 1, err);
    }
    return e;
}

/* ---- how the function is called ---------------------------------------------------------------------------------- */

/* Write the text that stands between the worker and the function: all calls are made in one. */
static char *calls_text(const struct warmup *warmup, const struct head *head)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL) return NULL;
    fprintf(f, "#include \"course.h\"\n#include \"worker/calls.h\"\n%s;\nstatic void call(struct call *c)\n{\n"
            "    const double *number = c->buffer[0];\n    double *result = c->buffer[1];\n"
            "    for (int64_t k = 0; k < c->number[0]; k++)\n        result[k] = (double)%s(", warmup->function,
            head->name);
    for (int i = 0; i < head->parameters; i++) {
        fputs(i ? ", " : "", f);
        if (head->parameter[i].array) fprintf(f, "(const float *)c->buffer[%d] + k * %d", 2 + i, FORMULA_ELEMENTS);
        else if (head->parameter[i].whole) fprintf(f, "(int)number[k * %d + %d]", PARAMETERS, i);
        else fprintf(f, "number[k * %d + %d]", PARAMETERS, i);
    }
    fprintf(f, ");\n}\nconst struct callable callables[] = { { \"%s\", call }, { 0 } };\n", head->name);
    return fclose(f) == 0 ? text : NULL;
}

/* Write "next(rank = 1, size = 2)". */
static void name_call(const struct line_lesson *line, const struct line_case *call, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "%s(", line->head.name);
    for (int i = 0; i < line->head.parameters && n < size; i++) {
        const struct parameter *p = &line->head.parameter[i];
        n += (size_t)snprintf(to + n, size - n, "%s%s = ", i ? ", " : "", p->name);
        if (n < size && !p->array) n += (size_t)snprintf(to + n, size - n, "%s", warmup_number(call->number[i]).text);
        for (int k = 0; p->array && k < call->count[i] && n < size; k++)
            n += (size_t)snprintf(to + n, size - n, "%s%s", k ? " " : "{", warmup_number(call->array[i][k]).text);
        if (n < size && p->array) n += (size_t)snprintf(to + n, size - n, "}");
    }
    if (n < size) snprintf(to + n, size - n, ")");
}

static bool line_is_near(const struct line_lesson *line, double got, double want)
{
    if (line->head.whole) return got == want;
    return fabs(got - want) <= FLOATS_ARE_NEAR * fmax(1, fabs(want));
}

/* Whether a formula gives what the student's line gave, in all calls. */
static bool gives_the_same(const struct line_lesson *line, const char *formula, const double *got)
{
    double value = 0;
    for (int k = 0; k < line->calls; k++)
        if (compute_case(line, &line->call[k], formula, &value, NULL) != OK || !line_is_near(line, got[k], value))
            return false;
    return true;
}

/* Say which wrong answer it is; else the smallest call that is wrong. */
static void compare_calls(struct judge *judge, const struct line_lesson *line, const double *got)
{
    char call[300];
    int k = 0;
    while (k < line->calls && line_is_near(line, got[k], line->call[k].want)) k++;
    if (k == line->calls) return;
    name_call(line, &line->call[k], call, sizeof call);
    const struct warmup_wrong *w = line->question->warmup->wrong;
    while (w->answer && !gives_the_same(line, w->answer, got)) w++;
    char *means = w->answer ? warmup_text(line->question, w->means, NULL) : NULL;
    judge_fails(judge, "%s is %s, and should be %s.%s%s", call, warmup_number(got[k]).text,
                warmup_number(line->call[k].want).text, means ? "  " : "", means ? means : "");
    free(means);
}

/* The only check of such a lesson: one run of one device makes all calls. */
static void run_calls(struct judge *judge)
{
    const struct line_lesson *line = (const struct line_lesson *)judge->lesson;
    struct trial *r = trial_open(judge, line->head.name, 1, "%s", "");
    double *number = trial_buffer(r, 0, 0, sizeof *number * CASES * PARAMETERS, BUFFER_IN);
    double *result = trial_buffer(r, 0, 1, sizeof *result * CASES, BUFFER_OUT);
    for (int i = 0; i < line->head.parameters; i++) {
        float *x = line->head.parameter[i].array
            ? trial_buffer(r, 0, 2 + i, sizeof *x * CASES * FORMULA_ELEMENTS, BUFFER_IN) : NULL;
        for (int k = 0; k < line->calls; k++) {
            number[k * PARAMETERS + i] = line->call[k].number[i];
            for (int n = 0; x && n < FORMULA_ELEMENTS; n++)
                x[k * FORMULA_ELEMENTS + n] = (float)line->call[k].array[i][n];
        }
    }
    r->device[0].number[0] = line->calls;
    if (trial_call(r)) compare_calls(judge, line, result);
    trial_close(r);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* "warmup_next.c": letters of the warm-up's name. */
static void file_name(const struct warmup *warmup, char *to, size_t size)
{
    snprintf(to, size, "warmup_%s.c", warmup->name);
    for (; *to; to++) if (*to == '-') *to = '_';
}

void warmup_file(const struct folder *folder, const struct warmup *warmup, char *to, size_t size)
{
    char name[100];
    file_name(warmup, name, sizeof name);
    snprintf(to, size, "%s/%s/%s", folder->path, warmup->lesson->folder, name);
}

char *warmup_file_text(const struct warmup *warmup, const char *line, struct error *err)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL) return fail(err, ERR_MEMORY, "no memory for a text"), NULL;
    fprintf(f, "/* %02d.%d  %s.  `orrery learn %02d.%d` asks and judges. */\n#include \"course.h\"\n\n%s\n{\n",
            lesson_number(warmup->lesson), warmup->number, warmup->title, lesson_number(warmup->lesson),
            warmup->number, warmup->function);
    if (line == NULL) fprintf(f, "    return 0;   /* your line */\n}\n");
    else if (strchr(line, ';')) fprintf(f, "    %s\n}\n", line);
    else fprintf(f, "    return %s;\n}\n", line + (strncmp(line, "return ", 7) == 0 ? 7 : 0));
    return fclose(f) == 0 ? text : NULL;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static void tell_score(const struct score *score, struct reply *reply)
{
    const struct outcome *o = &score->outcome[0];
    reply->kind = !score->compiled ? REPLY_UNREADABLE : score->tenths == score->of ? REPLY_RIGHT : REPLY_WRONG;
    snprintf(reply->text, sizeof reply->text, "%s%s%s", score->compiled ? o->said : score->why_not,
             score->compiled && o->lines[0] ? "\n" : "", score->compiled ? o->lines : "");
}

enum error_code warmup_judge(const struct question *question, const char *path, const struct judging *how,
                             struct reply *reply, struct error *err)
{
    const struct warmup *w = question->warmup;
    struct line_lesson *line = calloc(1, sizeof *line);
    struct score *score = calloc(1, sizeof *score);
    struct line_case call = { .want = 0 };
    char name[100];
    enum error_code e = line && score ? line_read_head(w, &line->head, err) : fail(err, ERR_MEMORY, "no memory to "
                                                                                   "judge");
    if (!e) line->question = question, e = make_calls(line, &call, 0, err);
    char *calls = e ? NULL : calls_text(w, &line->head);
    if (!e && calls == NULL) e = fail(err, ERR_MEMORY, "no memory to judge");
    if (!e) {
        file_name(w, name, sizeof name);
        line->functions[0] = line->head.name;
        line->lesson = (struct lesson){ .folder = w->lesson->folder, .title = w->title, .file = name,
                                        .functions = line->functions, .calls = calls,
                                        .check = { { 1, "line", "the line is right", 1, { run_calls } } } };
        e = judge_file(score, &line->lesson, path, how, err);
    }
    if (!e) tell_score(score, reply);
    free(calls), free(score), free(line);
    return e;
}
