/* warm.c -- asks warm-ups and offers lessons, line by line: any terminal will do, and a file or a pipe.  learn.c
 * calls warm_ask, warm_loop and warm_list.  A student's answer is never an error; ERR_USAGE is a warm-up that does not
 * exist, ERR_FILE and ERR_FORMAT are those of the folder and of the lessons' texts. */
#define _DEFAULT_SOURCE                 /* TIOCGWINSZ */
#include "emulated_devices/cli/course/warm.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 20, WIDEST = 80, LIST_LEFT = 15 };   /* columns of a terminal; where titles begin in a list */
enum { PATIENT = 3 };                   /* after so many wrong answers the answer is offered */

/* A warm-up, or with NULL the lesson itself. */
struct warm_item { const struct lesson *lesson; const struct warmup *warmup; };

struct warm {
    struct folder *folder;
    struct warmups *of;                 /* [lessons] */
    struct warm_item *item;             /* [items] in the order in which they are offered */
    int items, at, columns;             /* at: which is offered */
    bool single, keys_told, ended;      /* one warm-up alone; the keys were named; the input has ended */
    bool answered, right;               /* this time: something was judged; and it was right */
    warm_lesson *try_lesson;
    struct question question;                 /* the warm-up that is offered */
};

/* ---- all warm-ups ------------------------------------------------------------------------------------------------ */

/* terminal_columns() has 40 at least; questions fit half of that. */
static int count_columns(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return WIDEST;
    return size.ws_col < NARROWEST ? NARROWEST : size.ws_col > WIDEST ? WIDEST : size.ws_col;
}

static void warm_close(struct warm *warm)
{
    for (int i = 0; warm->of && lessons[i]; i++) warmups_free(&warm->of[i]);
    question_free(&warm->question);
    free(warm->of), free(warm->item);
}

static enum error_code warm_open(struct warm *warm, struct folder *folder, struct error *err)
{
    int n = 0;
    while (lessons[n]) n++;
    *warm = (struct warm){ .folder = folder, .columns = count_columns() };
    warm->of = calloc((size_t)n, sizeof *warm->of);
    warm->item = calloc((size_t)n * (WARMUPS + 1), sizeof *warm->item);
    if (warm->of == NULL || warm->item == NULL) return fail(err, ERR_MEMORY, "no memory for warm-ups");
    for (int i = 0; i < n; i++) {
        const enum error_code e = warmups_read(&warm->of[i], lessons[i], folder->variant, err);
        if (e) return e;
        for (int k = 0; k < warm->of[i].count; k++)
            warm->item[warm->items++] = (struct warm_item){ lessons[i], &warm->of[i].warmup[k] };
        warm->item[warm->items++] = (struct warm_item){ lessons[i], NULL };
    }
    return OK;
}

static bool item_is_done(const struct folder *folder, const struct warm_item *item)
{
    if (item->warmup) return warmup_recall(folder, item->warmup).state >= WARMUP_SKIPPED;
    const struct progress p = folder_progress(folder, item->lesson);
    return p.tried && p.tenths == p.of;
}

/* The first that is not done, from a place on. */
static int next_item(const struct warm *warm, int from)
{
    for (int i = from; i < warm->items; i++) if (!item_is_done(warm->folder, &warm->item[i])) return i;
    return -1;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* Lines that begin with `|` are figures and stay as they are. */
static void warm_print(const struct warm *warm, int left, const char *text)
{
    char line[WARMUP_TEXT];
    while (*text) {
        const size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (line[0] == '|') printf("%*s%s\n", line[1] ? left + 1 : 0, "", line[1] ? line + 1 : "");
        else {
            printf("%*s", line[0] ? left : 0, "");
            print_wrapped_at(stdout, left, warm->columns, line);
        }
        text += n + (text[n] == '\n');
    }
}

/* Print a text whose formulas are replaced by their values. */
static enum error_code print_text(const struct warm *warm, const char *text, struct error *err)
{
    char *said = warmup_text(&warm->question, text, err);
    if (said == NULL) return err->code;
    warm_print(warm, 2, said);
    free(said);
    return OK;
}

/* A figure, as it is. */
static void print_figure(const char *text)
{
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        printf("%s%.*s\n", n ? "  " : "", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

struct item_name { char text[32]; };

static struct item_name name_of(const struct warm_item *item)
{
    struct item_name name;
    if (item->warmup) snprintf(name.text, sizeof name.text, "%02d.%d", lesson_number(item->lesson),
                               item->warmup->number);
    else snprintf(name.text, sizeof name.text, "%02d", lesson_number(item->lesson));
    return name;
}

static void print_title(const struct warm *warm, const struct warm_item *item, const char *title)
{
    printf("\n%-5s ", name_of(item).text);
    print_wrapped_at(stdout, 6, warm->columns, title);
    printf("\n");
}

/* How many warm-ups of a lesson are answered, as "2 of 5 warm-ups". */
static void count_answered(const struct warm *warm, const struct lesson *lesson, char *text, size_t size)
{
    int answered = 0, all = 0;
    for (int i = 0; i < warm->items; i++) {
        if (warm->item[i].lesson != lesson || warm->item[i].warmup == NULL) continue;
        answered += warmup_recall(warm->folder, warm->item[i].warmup).state == WARMUP_DONE, all++;
    }
    snprintf(text, size, "%d of %d warm-ups", answered, all);
}

/* Print a line for each item; current: with an arrow.  only: of this lesson alone, and the other lessons without their
 * warm-ups; NULL: all. */
static void print_list(const struct warm *warm, int current, const struct lesson *only)
{
    static const char *const marks[] = { "", "tried", "skip", "seen", "ok" };
    char text[300], answered[60];
    for (int i = 0; i < warm->items; i++) {
        const struct warm_item *item = &warm->item[i];
        const struct progress p = folder_progress(warm->folder, item->lesson);
        const bool all = p.tried && p.tenths == p.of;
        if (only && item->warmup && item->lesson != only) continue;
        count_answered(warm, item->lesson, answered, sizeof answered);
        if (item->warmup) snprintf(text, sizeof text, "%s", item->warmup->title);
        else snprintf(text, sizeof text, "%s: %s, %s of %s points", item->lesson->title, answered,
                      points_text(p.tenths).text, points_text(p.of).text);
        const char *mark = item->warmup ? marks[warmup_recall(warm->folder, item->warmup).state]
            : all ? "ok" : p.tried ? "tried" : "";
        printf("%2s %-5s %-5s ", i == current ? "->" : "", mark, name_of(item).text);
        /* On a narrow terminal the title has a line of its own. */
        const int left = warm->columns < 2 * LIST_LEFT ? 3 : LIST_LEFT;
        if (left < LIST_LEFT) printf("\n%*s", left, "");
        print_wrapped_at(stdout, left, warm->columns, text);
    }
}

static void print_keys(const struct warm *warm)
{
    warm_print(warm, 2, warm->single ? "Keys, each with Enter: h a hint, a the answer, q quit."
               : "Keys, each with Enter: h a hint, a the answer, s skip, n next, p previous, l list, g 03.2 go "
                 "there, q quit.  Write = before an answer that is such a letter.");
}

/* ---- what is offered --------------------------------------------------------------------------------------------- */

/* A line of C has a file, which is there when the question is asked. */
static enum error_code write_file(const struct warm *warm, const char *line, struct error *err)
{
    char path[PATH_MAX];
    const struct warmup *w = warm->question.warmup;
    warmup_file(warm->folder, w, path, sizeof path);
    if (line == NULL && access(path, F_OK) == 0) return OK;
    char *text = warmup_file_text(w, line, err);
    enum error_code e = text ? file_write_all(path, text, strlen(text), err) : err->code;
    free(text);
    return e;
}

static enum error_code print_warmup(struct warm *warm, const struct warm_item *item, struct error *err)
{
    const struct warmup *w = item->warmup;
    char title[200];
    snprintf(title, sizeof title, "%s%s", w->title, item_is_done(warm->folder, item) ? " (done)" : "");
    print_title(warm, item, title);
    question_free(&warm->question);
    enum error_code e = warmup_pose(&warm->question, w, warm->folder->variant, err);
    if (!e) e = print_text(warm, w->ask, err);
    if (!e && warm->question.picture) printf("\n"), print_figure(warm->question.picture);
    if (!e && w->kind == ASKS_LINE) e = write_file(warm, NULL, err);
    if (!e && w->kind == ASKS_LINE) {
        char text[300], path[PATH_MAX];
        warmup_file(warm->folder, w, path, sizeof path);
        printf("\n");
        snprintf(text, sizeof text, "|%s", w->function);
        warm_print(warm, 2, text);
        snprintf(text, sizeof text, "Type the expression that it returns; or write it into %s/%s and press Enter.",
                 item->lesson->folder, strrchr(path, '/') + 1);
        printf("\n");
        warm_print(warm, 2, text);
    }
    printf("\n");
    if (!e && !warm->keys_told) print_keys(warm), warm->keys_told = true;
    return e;
}

static enum error_code print_item(struct warm *warm, struct error *err)
{
    char text[400], path[PATH_MAX];
    const struct warm_item *item = &warm->item[warm->at];
    const struct lesson *l = item->lesson;
    if (item->warmup) return print_warmup(warm, item, err);
    folder_file(warm->folder, l, path, sizeof path);
    const struct progress p = folder_progress(warm->folder, l);
    snprintf(text, sizeof text, "%s: %s of %s points", l->title, points_text(p.tenths).text, points_text(p.of).text);
    print_title(warm, item, text);
    snprintf(text, sizeof text, "The lesson.  Read %s/README.md and write %s/%s; then press Enter: what fails first is "
             "shown.  h tries it, and shows a hint more.", l->folder, l->folder, strrchr(path, '/') + 1);
    warm_print(warm, 2, text);
    printf("\n");
    return OK;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static enum error_code remember(struct warm *warm, struct warmup_progress progress, struct error *err)
{
    return warmup_remember(warm->folder, warm->question.warmup, progress, err);
}

static enum error_code tell_answer(struct warm *warm, const struct reply *reply, struct error *err)
{
    const struct warmup *w = warm->question.warmup;
    struct warmup_progress p = warmup_recall(warm->folder, w);
    warm->answered = true, warm->right = reply->kind == REPLY_RIGHT;
    if (warm->right) {
        p.tries++, p.state = WARMUP_DONE;
        warm_print(warm, 2, "Right.");
        enum error_code e = print_text(warm, w->why, err);
        if (!e && !warm->single) warm_print(warm, 2, "Enter goes on.");
        return e ? e : remember(warm, p, err);
    }
    warm_print(warm, 2, reply->text);
    if (reply->kind == REPLY_UNREADABLE) return OK;
    p.tries++;
    if (p.state == WARMUP_NEW) p.state = WARMUP_TRIED;
    if (p.hints == 0) warm_print(warm, 2, "(h shows a hint)");
    else if (p.tries >= PATIENT) warm_print(warm, 2, "(a shows the answer)");
    return remember(warm, p, err);
}

static enum error_code judge_line(struct warm *warm, const char *line, struct error *err)
{
    char path[PATH_MAX];
    struct reply *reply = calloc(1, sizeof *reply);
    const struct judging how = { .variant = warm->folder->variant, .seed = PUBLIC_SEED, .first_failure = true };
    enum error_code e = reply ? write_file(warm, line, err) : fail(err, ERR_MEMORY, "no memory to judge");
    warmup_file(warm->folder, warm->question.warmup, path, sizeof path);
    if (!e) e = warmup_judge(&warm->question, path, &how, reply, err);
    if (!e) e = tell_answer(warm, reply, err);
    free(reply);
    return e;
}

static enum error_code take_answer(struct warm *warm, const char *answer, struct error *err)
{
    struct reply reply;
    for (const char *at = answer; warm->question.warmup->kind == ASKS_LINE && *at; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > 126)
            return warm_print(warm, 2, "The answer has characters that are no text of C."), OK;
    if (warm->question.warmup->kind == ASKS_LINE) return judge_line(warm, answer, err);
    const enum error_code e = warmup_answer(&warm->question, answer, &reply, err);
    return e ? e : tell_answer(warm, &reply, err);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static enum error_code show_hint(struct warm *warm, struct error *err)
{
    const struct warmup *w = warm->question.warmup;
    struct warmup_progress p = warmup_recall(warm->folder, w);
    int count = 0;
    enum error_code e = OK;
    while (count < WARMUP_HINTS && w->hint[count]) count++;
    p.hints = p.hints < count ? p.hints + 1 : count;
    for (int i = 0; i < p.hints && !e; i++) {
        printf("  hint %d of %d:\n", i + 1, count);
        e = print_text(warm, w->hint[i], err);
    }
    return e ? e : remember(warm, p, err);
}

static enum error_code show_answer(struct warm *warm, struct error *err)
{
    char right[300], text[340];
    struct warmup_progress p = warmup_recall(warm->folder, warm->question.warmup);
    warmup_right(&warm->question, right, sizeof right);
    snprintf(text, sizeof text, "The answer is %s.", right);
    warm_print(warm, 2, text);
    if (p.state != WARMUP_DONE) p.state = WARMUP_SHOWN;
    enum error_code e = print_text(warm, warm->question.warmup->why, err);
    return e ? e : remember(warm, p, err);
}

/* Go to an item and print it. */
static enum error_code go_to(struct warm *warm, int item, struct error *err)
{
    if (item < 0 || item >= warm->items) {
        warm_print(warm, 2, item < 0 ? "This is the first." : "This is the last.");
        return OK;
    }
    warm->at = item;
    return print_item(warm, err);
}

static enum error_code skip_item(struct warm *warm, struct error *err)
{
    const struct warm_item *item = &warm->item[warm->at];
    enum error_code e = OK;
    if (item->warmup) {
        struct warmup_progress p = warmup_recall(warm->folder, item->warmup);
        if (p.state < WARMUP_SKIPPED) p.state = WARMUP_SKIPPED, e = remember(warm, p, err);
    }
    return e ? e : go_to(warm, warm->at + 1, err);
}

/* Enter alone: what the item waits for. */
static enum error_code press_enter(struct warm *warm, struct error *err)
{
    const struct warm_item *item = &warm->item[warm->at];
    const int next = next_item(warm, warm->at + 1);
    const bool done = item_is_done(warm->folder, item);
    if (item->warmup == NULL && (!done || folder_progress(warm->folder, item->lesson).changed))
        return warm->try_lesson(warm->folder, item->lesson, false, err);
    if (warm->single && item->warmup->kind == ASKS_LINE) return judge_line(warm, NULL, err);
    if (!warm->single && done) return go_to(warm, next < 0 ? warm->at + 1 : next, err);
    if (item->warmup->kind == ASKS_LINE) return judge_line(warm, NULL, err);
    warm_print(warm, 2, "An answer is expected; h shows a hint.");
    return OK;
}

static enum error_code press_key(struct warm *warm, char key, struct error *err)
{
    const struct warm_item *item = &warm->item[warm->at];
    switch (key) {
    case 'h':
        return item->warmup ? show_hint(warm, err) : warm->try_lesson(warm->folder, item->lesson, true, err);
    case 'a':
        if (item->warmup) return show_answer(warm, err);
        return warm_print(warm, 2, "A lesson is shown no answer."), OK;
    case 'l': return printf("\n"), print_list(warm, warm->at, item->lesson), OK;
    case 's': return skip_item(warm, err);
    case 'n': return go_to(warm, warm->at + 1, err);
    case 'p': return go_to(warm, warm->at - 1, err);
    case 'q': return warm->ended = true, OK;
    default: return print_keys(warm), OK;
    }
}

/* One warm-up alone has no next. */
static bool is_key(const struct warm *warm, const char *line)
{
    return line[0] && line[1] == '\0' && strchr(warm->single ? "haq?" : "halsnpq?", tolower((unsigned char)line[0]));
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* Read a line of at most ANSWER_MOST bytes.  `text` has "" for one that is longer, or has a NUL: then it is told.
 * @return false: the input has ended. */
static bool read_answer(const struct warm *warm, char text[ANSWER_MOST + 1], bool *readable)
{
    int c, n = 0;
    bool any = false;
    *readable = true;
    while ((c = getchar()) != EOF && c != '\n') {
        any = true;
        if (n == ANSWER_MOST || c == '\0') *readable = false;
        else if (c != '\r') text[n++] = (char)c;
    }
    while (n > 0 && text[n - 1] == ' ') n--;
    text[n] = '\0';
    memmove(text, text + strspn(text, " "), (size_t)n - strspn(text, " ") + 1);
    if (c == EOF && !any) return false;
    if (!isatty(STDIN_FILENO)) printf("%s\n", printable(text).text);
    if (!*readable) warm_print(warm, 2, "The answer is too long, or no text.");
    return true;
}

bool warm_is_named(const char *word)
{
    const char *dot = strrchr(word, '.');
    return dot && dot != word && dot[1] != '\0';
}

/* Find the item of "03.2", or the lesson of "03". */
static enum error_code find_item(struct warm *warm, const char *word, struct error *err)
{
    char name[80];
    const char *dot = warm_is_named(word) ? strrchr(word, '.') : NULL;
    snprintf(name, sizeof name, "%.*s", dot && dot - word < 79 ? (int)(dot - word) : 79, word);
    const struct lesson *l = lesson_find(name, err);
    int count = 0;
    if (l == NULL) return ERR_USAGE;
    for (int i = 0; i < warm->items && dot == NULL; i++)
        if (warm->item[i].lesson == l && warm->item[i].warmup == NULL) return warm->at = i, OK;
    for (int i = 0; i < warm->items; i++) {
        char *end;
        const struct warmup *w = warm->item[i].warmup;
        if (warm->item[i].lesson != l || w == NULL) continue;
        count++;
        const long number = strtol(dot + 1, &end, 10);
        if ((*end == '\0' && number == w->number) || strcmp(w->name, dot + 1) == 0) return warm->at = i, OK;
    }
    if (count == 0) return fail(err, ERR_USAGE, "lesson %02d has no warm-ups", lesson_number(l));
    return fail(err, ERR_USAGE, "there is no warm-up %s; lesson %02d has %02d.1 to %02d.%d", printable(word).text,
                lesson_number(l), lesson_number(l), lesson_number(l), count);
}

static enum error_code warm_take_line(struct warm *warm, const char *line, struct error *err)
{
    if (!warm->single && strncasecmp(line, "g ", 2) == 0) {
        struct error none = { OK, "" };
        if (find_item(warm, line + 2 + strspn(line + 2, " "), &none) == OK) return print_item(warm, err);
        return warm_print(warm, 2, none.text), OK;
    }
    if (is_key(warm, line)) return press_key(warm, (char)tolower((unsigned char)line[0]), err);
    if (line[0] == '\0') return press_enter(warm, err);
    if (warm->item[warm->at].warmup == NULL)
        return warm_print(warm, 2, "Enter tries the lesson; ? names the keys."), OK;
    return take_answer(warm, line + (line[0] == '='), err);
}

static enum error_code converse(struct warm *warm, struct error *err)
{
    char line[ANSWER_MOST + 1];
    bool readable;
    enum error_code e = print_item(warm, err);
    while (!e && !warm->ended && !output_reader_has_left(STDOUT_FILENO)) {
        const struct warm_item *item = &warm->item[warm->at];
        if (warm->single && warm->right) break;
        printf("%s> ", name_of(item).text);
        fflush(stdout);
        if (!read_answer(warm, line, &readable)) {
            printf("\n");
            break;
        }
        if (readable) e = warm_take_line(warm, line, err);
    }
    return e;
}

/* A file that was changed in an editor is judged when the input ends. */
static enum error_code judge_saved(struct warm *warm, struct error *err)
{
    char path[PATH_MAX], *now = NULL;
    size_t bytes;
    const struct warmup *w = warm->question.warmup;
    warmup_file(warm->folder, w, path, sizeof path);
    char *first = warmup_file_text(w, NULL, err);
    enum error_code e = first ? OK : err->code;
    const bool changed = !e && file_read_all(path, 1 << 20, &now, &bytes, NULL) == OK && strcmp(now, first) != 0;
    free(first), free(now);
    return changed ? judge_line(warm, NULL, err) : e;
}

enum error_code warm_ask(struct folder *folder, const char *word, bool hint, int *status, struct error *err)
{
    struct warm w;
    enum error_code e = warm_open(&w, folder, err);
    w.single = true;
    if (!e) e = find_item(&w, word, err);
    const struct warmup *asked = e ? NULL : w.item[w.at].warmup;
    if (!e && hint) e = print_item(&w, err);
    if (!e && hint) e = show_hint(&w, err);
    else if (!e) e = converse(&w, err);
    if (!e && !hint && asked->kind == ASKS_LINE && !w.answered) e = judge_saved(&w, err);
    /* Without an answer now, an earlier one counts. */
    const bool done = !e && (w.answered ? w.right : warmup_recall(folder, asked).state == WARMUP_DONE);
    if (!e) *status = done ? 0 : error_exit_status(ERR_CHECK);
    warm_close(&w);
    return e;
}

enum error_code warm_loop(struct folder *folder, warm_lesson *try_lesson, struct error *err)
{
    struct warm w;
    enum error_code e = warm_open(&w, folder, err);
    w.try_lesson = try_lesson;
    const int first = e ? 0 : next_item(&w, 0);
    w.at = first < 0 ? 0 : first;
    if (!e && first < 0) warm_print(&w, 0, "All warm-ups and lessons are done.");
    if (!e) e = converse(&w, err);
    warm_close(&w);
    return e;
}

enum error_code warm_list(const struct folder *folder, struct error *err)
{
    struct warm w;
    enum error_code e = warm_open(&w, (struct folder *)folder, err);
    if (!e) print_list(&w, next_item(&w, 0), NULL);
    warm_close(&w);
    return e;
}
