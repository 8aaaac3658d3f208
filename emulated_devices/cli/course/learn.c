/* learn.c -- `orrery learn`: where a student is, what is next, and what is wrong first.  cli/main.c calls
 * command_learn().  ERR_USAGE is for flags that do not go together; other errors are those of a judge's run, and
 * ERR_MEMORY. */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/cli/course/warm.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- what a score looks like ------------------------------------------------------------------------------------- */

static void print_indented(const char *text, int by)
{
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        printf("%*s%.*s\n", n ? by : 0, "", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

/* Columns that the names of a lesson's checks take. */
static int widest_name(const struct score *score)
{
    int widest = 0;
    for (int i = 0; i < score->count; i++) {
        const int n = (int)strlen(score->outcome[i].check->name);
        widest = n > widest ? n : widest;
    }
    return widest;
}

static void print_outcome(const struct score *score, const struct outcome *outcome, bool drawing)
{
    static const char *const words[] = { "", "ok", "FAILS", "--", "" };
    char what[200];
    snprintf(what, sizeof what, "%s%s", outcome->hidden ? "hidden inputs: " : "", outcome->check->title);
    const int left = printf("  %-6s %d.%-*s %4s of %-4s", words[outcome->verdict], outcome->check->part,
                            widest_name(score),
                            outcome->check->name, points_text(outcome->tenths).text, points_text(outcome->of).text);
    printf(" ");
    print_wrapped(stdout, left + 1, what);
    if (outcome->verdict != FAILED) return;
    printf("         ");
    print_wrapped(stdout, 9, outcome->said);
    if (outcome->lines[0]) print_indented(outcome->lines, 9);
    if (drawing && outcome->drawing[0]) printf("\n"), print_indented(outcome->drawing, 5), printf("\n");
}

static const struct outcome *first_failure(const struct score *score)
{
    for (int i = 0; i < score->count; i++)
        if (score->outcome[i].verdict == FAILED) return &score->outcome[i];
    return NULL;
}

void print_score(const struct score *score, int hints, bool drawings)
{
    const struct outcome *first = first_failure(score);
    printf("%02d  %s: %s of %s points\n\n", lesson_number(score->lesson), score->lesson->title,
           points_text(score->tenths).text, points_text(score->of).text);
    if (!score->compiled) {
        print_indented(score->why_not[0] ? score->why_not : "it was not compiled", 2);
        return;
    }
    if (score->why_not[0]) print_indented(score->why_not, 2);
    for (int i = 0; i < score->count; i++)
        if (score->outcome[i].verdict != SKIPPED)
            print_outcome(score, &score->outcome[i], drawings && first == &score->outcome[i]);
    if (first == NULL || hints < 0) return;
    int count = 0;
    while (count < CHECK_HINTS && first->check->hint[count]) count++;
    for (int i = 0; i < hints && i < count; i++) {
        printf("  hint %d of %d: ", i + 1, count);
        print_wrapped(stdout, 15, first->check->hint[i]);
    }
    if (hints < count) printf("  (--hint shows %s)\n", hints ? "the next hint" : "a hint");
}

/* ---- one lesson -------------------------------------------------------------------------------------------------- */

struct asked {
    const char *lesson, *start, *in;
    bool hint, watch, all, sanitize, list, warmups;
    uint64_t variant;
};

/* A file that was lost costs no points that were reached. */
static void tell_missing(const struct lesson *lesson, const char *path, int *status)
{
    const struct printable shown = printable_path(path);
    printf("%s is not there.  A fresh one:\n\n    orrery learn --start NEW\n", shown.text);
    printf("    cp NEW/%s/%s %s\n", lesson->folder, lesson->file, shown.text);
    *status = error_exit_status(ERR_CHECK);
}

static enum error_code try_lesson(struct folder *folder, const struct lesson *lesson,
                                  const struct asked *asked, bool hint, int *status, struct error *err)
{
    char path[PATH_MAX];
    folder_file(folder, lesson, path, sizeof path);
    if (access(path, F_OK) != 0) return tell_missing(lesson, path, status), OK;
    struct score *s = malloc(sizeof *s);
    const struct judging how = { .variant = folder->variant, .seed = PUBLIC_SEED, .sanitize = asked->sanitize,
                                 .first_failure = !asked->all };
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for a score");
    enum error_code e = judge_file(s, lesson, path, &how, err);
    if (!e) {
        struct progress p = folder_progress(folder, lesson);
        const struct outcome *first = first_failure(s);
        const struct check *check = first ? first->check : NULL;
        const bool done = s->tenths == s->of;
        /* Hints of another check were not asked for. */
        p.hints = done ? 0 : hint + (check == p.check ? p.hints : 0), p.check = check, p.tenths = s->tenths;
        if (p.hints > CHECK_HINTS) p.hints = CHECK_HINTS;
        print_score(s, p.hints, true);
        if (done) printf("\n  Done.  `orrery learn` says what is next.\n");
        e = folder_remember(folder, lesson, p, err);
        *status = done ? 0 : error_exit_status(ERR_CHECK);
    }
    free(s);
    return e;
}

/* When a file was last written; 0: it is not there (an editor replaces it). */
static struct timespec written(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_mtim : (struct timespec){ 0 };
}

static enum error_code watch_lesson(struct folder *folder, const struct lesson *lesson,
                                    const struct asked *asked, int *status, struct error *err)
{
    const struct timespec pause = { .tv_nsec = 200000000 };
    char path[PATH_MAX];
    enum error_code e = OK;
    folder_file(folder, lesson, path, sizeof path);
    for (struct timespec last = { .tv_sec = -1 }; !e && !output_reader_has_left(STDOUT_FILENO);) {
        const struct timespec now = written(path);
        if (now.tv_sec != last.tv_sec || now.tv_nsec != last.tv_nsec) {
            if (on_terminal()) printf("\033[H\033[2J");
            e = try_lesson(folder, lesson, asked, false, status, err);
            printf("\n  Waiting for %s to be saved; Ctrl-C ends.\n", printable_path(path).text);
            fflush(stdout);
            last = now;
        }
        nanosleep(&pause, NULL);
    }
    return e;
}

/* ---- all lessons ------------------------------------------------------------------------------------------------- */

static void print_course(const struct folder *folder)
{
    const struct lesson *next = NULL;
    int tenths = 0, of = 0;
    bool changed = false;
    printf("Course in %s", printable_path(folder->path).text);
    if (folder->variant) printf(", variant %llu", (unsigned long long)folder->variant);
    printf("\n\n");
    for (int i = 0; lessons[i]; i++) {
        const struct lesson *l = lessons[i];
        const struct progress p = folder_progress(folder, l);
        const bool all = p.tried && p.tenths == p.of;
        if (!all && next == NULL) next = l;
        changed |= p.changed;
        printf("  %s %02d  %-49s %4s of %-2s %s\n", next == l ? "->" : "  ", lesson_number(l), l->title,
               points_text(p.tenths).text, points_text(p.of).text,
               !p.tried ? "not tried" : p.changed ? "changed" : all ? "done" : "begun");
        tenths += p.tenths, of += p.of;
    }
    if (changed) printf("\nchanged: the file is another one since it had these points; try it again\n");
    printf("\n%s of %s points", points_text(tenths).text, points_text(of).text);
    if (next == NULL) printf(".  All lessons are done.\n");
    else
        printf(".  Next: read %s/README.md, write %s/%s, then\n\n    orrery learn %02d\n", next->folder, next->folder,
               next->file, lesson_number(next));
}

/* ---- warm-ups ---------------------------------------------------------------------------------------------------- */

static enum error_code try_offered(struct folder *folder, const struct lesson *lesson, bool hint, struct error *err)
{
    const struct asked asked = { .lesson = lesson->folder };
    int status = 0;
    return try_lesson(folder, lesson, &asked, hint, &status, err);
}

/* Between a person and a terminal `orrery learn` is a conversation; else it says what is next. */
static bool is_conversation(const struct asked *asked)
{
    return asked->warmups || (!asked->all && !asked->sanitize && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
}

static enum error_code learn_warmups(const struct asked *asked, int *status, struct error *err)
{
    struct folder f;
    if (asked->lesson && (asked->list || asked->warmups || asked->watch))
        return fail(err, ERR_USAGE, asked->watch ? "learn: --watch needs a lesson, and %s is a warm-up"
                    : "learn --list and --warmups: take no LESSON (%s)", printable(asked->lesson).text);
    enum error_code e = folder_open(&f, asked->in, err);
    if (e) return e;
    if (asked->lesson) e = warm_ask(&f, asked->lesson, asked->hint, status, err);
    else e = asked->list ? warm_list(&f, err) : warm_loop(&f, try_offered, err);
    folder_close(&f);
    return e;
}

static enum error_code learn(const struct asked *asked, int *status, struct error *err)
{
    if (asked->lesson ? warm_is_named(asked->lesson) || asked->list || asked->warmups
        : asked->list || (!asked->hint && !asked->watch && is_conversation(asked)))
        return learn_warmups(asked, status, err);
    struct folder f;
    const struct lesson *l = asked->lesson ? lesson_find(asked->lesson, err) : NULL;
    if (asked->lesson && l == NULL) return ERR_USAGE;
    if (l == NULL && (asked->hint || asked->watch))
        return fail(err, ERR_USAGE, "learn: --hint and --watch need LESSON");
    enum error_code e = folder_open(&f, asked->in, err);
    if (e) return e;
    if (l == NULL) print_course(&f);
    else if (asked->watch) e = watch_lesson(&f, l, asked, status, err);
    else e = try_lesson(&f, l, asked, asked->hint, status, err);
    folder_close(&f);
    return e;
}

static enum error_code start_course(const struct asked *asked, struct error *err)
{
    if (asked->lesson || asked->hint || asked->watch)
        return fail(err, ERR_USAGE, "learn --start FOLDER: takes no LESSON");
    enum error_code e = write_student_tree(asked->start, asked->variant, err);
    if (e) return e;
    const char *where = printable_path(asked->start).text;
    printf("The course is in %s.  Begin with its README.md, then:\n\n    cd %s\n    orrery learn\n", where, where);
    return OK;
}

enum error_code command_learn(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .in = "." };
    bool help;
    const struct option table[] = {
        { "LESSON", NULL, OPTION_STRING, &a.lesson,
          .help = "number or name of a lesson, or of a warm-up, 03.2; default: where you are, and what is next" },
        { "--start", "FOLDER", OPTION_STRING, &a.start, .help = "make a new folder to work in" },
        { "--variant", "N", OPTION_UINT64, &a.variant, .help = "with --start: the variant of the exercises" },
        { "--in", "FOLDER", OPTION_STRING, &a.in, .help = "the folder that --start made, or a folder inside" },
        { "--hint", NULL, OPTION_SWITCH, &a.hint, .help = "also show one more hint about the first failure" },
        { "--list", NULL, OPTION_SWITCH, &a.list, .help = "all warm-ups and lessons, and which are done" },
        { "--warmups", NULL, OPTION_SWITCH, &a.warmups,
          .help = "ask warm-ups and lessons one after another, as `orrery learn` does on a terminal" },
        { "--all", NULL, OPTION_SWITCH, &a.all, .help = "do not stop at the first failure" },
        { "--watch", NULL, OPTION_SWITCH, &a.watch, .help = "try the lesson again whenever the file is saved" },
        { "--sanitize", NULL, OPTION_SWITCH, &a.sanitize,
          .help = "compile your file with sanitizers, which find wrong indices; takes several times as long" },
        { 0 }
    };
    enum error_code e = parse_command("learn", "[LESSON] [options]",
                                      "Exercises on emulated devices: try your solution of a lesson. Status 0: all its "
                                      "points, 3: not yet.", argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    return a.start ? start_course(&a, err) : learn(&a, status, err);
}
