/* similar.c -- which files of a class have much in common: pairs with their share and their lines, as JSON and as a
 * page.  class.c calls class_write_similar.
 *
 * What the file to complete has already is no evidence (winnow.h).  A share is the part of a file's remaining tokens
 * that the other file has, too.  Short right solutions are alike by themselves: the median of all pairs of a lesson
 * stands beside each share.  Everything that comes from students is escaped.  Errors: those of files, and ERR_MEMORY.
 */
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/class/class.h"
#include "emulated_devices/course/python.h"
#include "emulated_devices/course/class/winnow.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* At most LISTED pairs are kept, TEXTS of them with both texts.  LEAST_SHARE only keeps the page short: it proves
 * nothing, and a teacher reads the pairs from the top. */
enum { LISTED = 300, TEXTS = 40, SOURCE_BYTES = 1 << 20 };
static const double LEAST_SHARE = 0.3;

/* A student's file of a lesson, and two of them.  share: the larger one of the two. */
struct source { int student; bool python; char *text; size_t size; struct winnowed of; };
struct pair { int lesson, a, b; double share, median; };
struct pairs { struct pair of[LISTED]; int count; };

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static int falling(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->share != y->share) return x->share > y->share ? -1 : 1;
    return x->lesson != y->lesson ? x->lesson - y->lesson : x->a != y->a ? x->a - y->a : x->b - y->b;
}

/* Keep a pair if it is among the most alike. */
static void keep_pair(struct pairs *pairs, struct pair pair)
{
    int least = 0;
    if (pair.share < LEAST_SHARE) return;
    if (pairs->count < LISTED) {
        pairs->of[pairs->count++] = pair;
        return;
    }
    for (int i = 1; i < LISTED; i++)
        if (pairs->of[i].share < pairs->of[least].share) least = i;
    if (pair.share > pairs->of[least].share) pairs->of[least] = pair;
}

/* The tokens of a file that are evidence: those in some sequence that the given file does not have. */
static double share_of(const struct source *a, const struct source *b, bool *mark)
{
    const int own = winnow_common(&a->of, &a->of, mark);
    return own < WINNOW_TOKENS ? 0 : (double)winnow_common(&a->of, &b->of, mark) / own;
}

static int rising_share(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Compare all pairs of a lesson's files. */
static enum error_code compare_all(struct pairs *pairs, int lesson, const struct source *of, int n, struct error *err)
{
    size_t most = 1, all = 0;
    for (int i = 0; i < n; i++)
        if ((size_t)of[i].of.tokens > most) most = (size_t)of[i].of.tokens;
    bool *mark = malloc(most * sizeof *mark);
    double *shares = malloc(((size_t)n * (size_t)n / 2 + 1) * sizeof *shares);
    enum error_code e = mark && shares ? OK : fail(err, ERR_MEMORY, "no memory to compare files");
    struct pairs own = { .count = 0 };
    for (int a = 0; a < n && !e; a++)
        for (int b = a + 1; b < n; b++) {
            if (of[a].python != of[b].python) continue;         /* two languages have nothing in common */
            const double x = share_of(&of[a], &of[b], mark), y = share_of(&of[b], &of[a], mark);
            const double share = x > y ? x : y;
            shares[all++] = share;
            keep_pair(&own, (struct pair){ lesson, of[a].student, of[b].student, share, 0 });
        }
    if (!e && all > 0) qsort(shares, all, sizeof *shares, rising_share);
    for (int i = 0; i < own.count; i++) {
        own.of[i].median = shares[all / 2];
        keep_pair(pairs, own.of[i]);
    }
    free(mark), free(shares);
    return e;
}

/* Read a student's file; a file that is too large, or is no file, is not compared.
 * @param known  what students began with: in C, and in Python. */
static enum error_code read_source(struct source *source, const struct class_grading *class, int student, int lesson,
                                   const struct winnowed known[2], struct error *err)
{
    const char *path = class->all.of[student].file[lesson];
    struct error none = { OK, "" };
    struct stat st;
    *source = (struct source){ .student = student };
    if (path == NULL || lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return OK;
    if (file_read_all(path, SOURCE_BYTES, &source->text, &source->size, &none) != OK) return source->text = NULL, OK;
    source->python = is_python(path);
    return winnow(&source->of, source->python ? WINNOW_PYTHON : WINNOW_C, source->text, source->size,
                  &known[source->python], false, err);
}

static void free_source(struct source *source)
{
    free(source->text);
    winnow_free(&source->of);
}

/* Read the files that students of this variant began with: in C, and in Python if the lesson has that. */
static enum error_code read_skeletons(struct winnowed known[2], int lesson, uint64_t variant, struct error *err)
{
    enum error_code e = OK;
    known[0] = known[1] = (struct winnowed){ 0 };
    for (int python = 0; python <= lesson_in_python(lessons[lesson]) && !e; python++) {
        char file[100], *text;
        lesson_file(lessons[lesson], python, file, sizeof file);
        text = lesson_text(lessons[lesson], file, false, variant, err);
        if (text == NULL) return err->code;
        e = winnow(&known[python], python ? WINNOW_PYTHON : WINNOW_C, text, strlen(text), NULL, true, err);
        free(text);
    }
    return e;
}

static void free_skeletons(struct winnowed known[2]) { winnow_free(&known[0]), winnow_free(&known[1]); }

/* Read what is compared: two files of a pair, or all of a lesson.  Texts that are not C are not compared. */
static enum error_code compare_lesson(struct pairs *pairs, const struct class_grading *class, int lesson,
                                      struct error *err)
{
    struct winnowed known[2];
    struct source *of = calloc((size_t)class->all.count, sizeof *of);
    if (of == NULL) return fail(err, ERR_MEMORY, "no memory to compare files");
    enum error_code e = read_skeletons(known, lesson, class->variant, err);
    int n = 0;
    for (int s = 0; s < class->all.count && !e; s++) {
        e = read_source(&of[n], class, s, lesson, known, err);
        if (e || of[n].text) n++;
    }
    if (!e) e = compare_all(pairs, lesson, of, n, err);
    for (int i = 0; i < n; i++) free_source(&of[i]);
    free_skeletons(known);
    free(of);
    return e;
}

/* ---- lines of a pair --------------------------------------------------------------------------------------------- */

/* Both files of a pair, and which of their lines the other one has, too. */
struct opened { struct source side[2]; bool *line[2]; int lines[2]; };

static void mark_lines(struct opened *opened, int side)
{
    const struct winnowed *own = &opened->side[side].of;
    bool *mark = calloc((size_t)own->tokens + 1, sizeof *mark);
    opened->lines[side] = 1;
    for (size_t i = 0; i < opened->side[side].size; i++) opened->lines[side] += opened->side[side].text[i] == '\n';
    opened->line[side] = calloc((size_t)opened->lines[side] + 2, sizeof(bool));
    if (mark && opened->line[side]) {
        winnow_common(own, &opened->side[1 - side].of, mark);
        for (int t = 0; t < own->tokens; t++)
            if (mark[t] && own->line[t] <= opened->lines[side]) opened->line[side][own->line[t]] = true;
    }
    free(mark);
}

static enum error_code open_pair(struct opened *opened, const struct class_grading *class, const struct pair *pair,
                                 struct error *err)
{
    struct winnowed known[2];
    *opened = (struct opened){ 0 };
    enum error_code e = read_skeletons(known, pair->lesson, class->variant, err);
    for (int side = 0; side < 2 && !e; side++)
        e = read_source(&opened->side[side], class, side ? pair->b : pair->a, pair->lesson, known, err);
    for (int side = 0; side < 2 && !e; side++) {
        mark_lines(opened, side);
        if (opened->line[side] == NULL) e = fail(err, ERR_MEMORY, "no memory to compare files");
    }
    free_skeletons(known);
    return e;
}

static void close_pair(struct opened *opened)
{
    for (int side = 0; side < 2; side++) {
        free_source(&opened->side[side]);
        free(opened->line[side]);
    }
}

/* Find the next lines in common from *line on.  @return false: there are no more. */
static bool next_range(const struct opened *opened, int side, int *line, int *last)
{
    while (*line <= opened->lines[side] && !opened->line[side][*line]) ++*line;
    if (*line > opened->lines[side]) return false;
    for (*last = *line; *last < opened->lines[side] && opened->line[side][*last + 1];) ++*last;
    return true;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_ranges(cJSON *row, const char *key, const struct opened *opened, int side)
{
    cJSON *list = cJSON_AddArrayToObject(row, key);
    int last;
    for (int line = 1; next_range(opened, side, &line, &last); line = last + 1) {
        const int ends[2] = { line, last };
        cJSON_AddItemToArray(list, cJSON_CreateIntArray(ends, 2));
    }
}

static void add_pair(cJSON *list, const struct class_grading *class, const struct pair *pair,
                     const struct opened *opened)
{
    cJSON *row = json_row(list);
    json_add(row, "lesson %s a %s b %s share %g median %g", lessons[pair->lesson]->folder,
             class->all.of[pair->a].name, class->all.of[pair->b].name, pair->share, pair->median);
    add_ranges(row, "lines_a", opened, 0), add_ranges(row, "lines_b", opened, 1);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void put_escaped(FILE *to, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '&') fputs("&amp;", to);
        else if (c == '<') fputs("&lt;", to);
        else if (c == '>') fputs("&gt;", to);
        else if (c == '"') fputs("&quot;", to);
        else if (c == '\'') fputs("&#39;", to);
        else if (c < ' ' && c != '\n' && c != '\t') fputc('?', to);
        else fputc(c, to);
    }
}

static void put_head(FILE *to)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Files that are alike</title>\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
          ":root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5em auto; "
          "max-width: 76em; padding: 0 1em }\n"
          "table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: left; "
          "border-bottom: 1px solid #8886 }\n"
          "td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }\n"
          "td:last-child { overflow-wrap: anywhere } @media (max-width: 40em) { td, th { padding: .2em .4em } }\n"
          ".two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26em), 1fr)); gap: 1em }\n"
          "pre { overflow: auto; max-height: 32em; font-size: 12px; margin: 0; border: 1px solid #8886; padding: .5em }"
          "\nmark { background: #fc06; color: inherit; display: inline-block; min-width: 100% }\n"
          "@media print { pre { max-height: none } }\n</style></head><body>\n<h1>Files that are alike</h1>\n", to);
    fprintf(to, "<p>Pairs with at least %.0f %% in common.  The file that students began with does not count, and "
            "neither do names, comments and blanks.  Short right solutions are alike by themselves: compare a share "
            "with the median of all pairs of its lesson, and read both files before you say anything.</p>\n",
            100 * LEAST_SHARE);
}

static void put_name(FILE *to, const struct class_grading *class, int student)
{
    const char *name = class->all.of[student].name;
    put_escaped(to, name, strlen(name));
}

/* Write a file with its lines numbered, and those in common marked. */
static void put_source(FILE *to, const struct class_grading *class, int student, const struct opened *opened, int side)
{
    const char *at = opened->side[side].text, *end = at + opened->side[side].size;
    fputs("<div><h3>", to);
    put_name(to, class, student);
    fputs("</h3><pre tabindex=\"0\">", to);
    for (int line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop ? stop : end) - at);
        const bool common = opened->line[side][line];
        fprintf(to, "%s%4d  ", common ? "<mark>" : "", line);
        put_escaped(to, at, n);
        fputs(common ? "</mark>\n" : "\n", to);
        at += n + 1;
    }
    fputs("</pre></div>\n", to);
}

static void put_table(FILE *to, const struct class_grading *class, const struct pairs *pairs)
{
    fputs("<table><tr><th>share</th><th>median</th><th>lesson</th><th>students</th></tr>\n", to);
    for (int i = 0; i < pairs->count; i++) {
        const struct pair *pair = &pairs->of[i];
        fprintf(to, "<tr><td class=\"n\">%.0f %%</td><td class=\"n\">%.0f %%</td><td>%s</td><td>", 100 * pair->share,
                100 * pair->median, lessons[pair->lesson]->folder);
        if (i < TEXTS) fprintf(to, "<a href=\"#pair%d\">", i + 1);
        put_name(to, class, pair->a);
        fputs(" and ", to);
        put_name(to, class, pair->b);
        fputs(i < TEXTS ? "</a></td></tr>\n" : "</td></tr>\n", to);
    }
    fputs("</table>\n", to);
    if (pairs->count == 0) fputs("<p>There are none.</p>\n", to);
}

static void put_pair(FILE *to, const struct class_grading *class, const struct pair *pair, int number,
                     const struct opened *opened)
{
    fprintf(to, "<h2 id=\"pair%d\">%.0f %% of %s</h2>\n<div class=\"two\">\n", number, 100 * pair->share,
            lessons[pair->lesson]->folder);
    put_source(to, class, pair->a, opened, 0);
    put_source(to, class, pair->b, opened, 1);
    fputs("</div>\n", to);
}

/* ---- both reports ------------------------------------------------------------------------------------------------ */

static enum error_code write_both(const struct class_grading *class, const struct pairs *pairs, FILE *page, cJSON *list,
                                  struct error *err)
{
    enum error_code e = OK;
    put_head(page);
    put_table(page, class, pairs);
    for (int i = 0; i < pairs->count && !e; i++) {
        struct opened opened;
        e = open_pair(&opened, class, &pairs->of[i], err);
        if (!e) add_pair(list, class, &pairs->of[i], &opened);
        if (!e && i < TEXTS) put_pair(page, class, &pairs->of[i], i + 1, &opened);
        close_pair(&opened);
    }
    fputs("</body></html>\n", page);
    return e;
}

enum error_code class_write_similar(const struct class_grading *class, struct error *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t size;
    struct pairs *pairs = calloc(1, sizeof *pairs);
    FILE *page = pairs ? open_memstream(&text, &size) : NULL;
    if (page == NULL) return free(pairs), fail(err, ERR_MEMORY, "no memory to compare files");
    cJSON *root = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(root, "pairs");
    enum error_code e = OK;
    for (int l = 0; lessons[l] && !e; l++)
        if (class->chosen[l] && (lessons[l]->functions || lesson_has_kernels(lessons[l])))
            e = compare_lesson(pairs, class, l, err);
    qsort(pairs->of, (size_t)pairs->count, sizeof *pairs->of, falling);
    if (!e) e = write_both(class, pairs, page, list, err);
    if (fclose(page) != 0 && !e) e = fail(err, ERR_MEMORY, "no memory to compare files");
    if (!e && mkdir(class->similar, 0777) != 0 && errno != EEXIST)
        e = fail(err, ERR_FILE, "%s: %s", printable_path(class->similar).text, strerror(errno));
    path_of(path, sizeof path, class->similar, "similar.html");
    if (!e) e = file_write_all(path, text, size, err);
    path_of(path, sizeof path, class->similar, "similar.json");
    if (!e) e = json_finish(path, root, err);
    else cJSON_Delete(root);
    free(text), free(pairs);
    return e;
}
