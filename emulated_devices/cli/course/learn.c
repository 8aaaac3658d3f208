/* learn.c -- `orrery learn`: where a student is, what is next, and what is wrong first.  cli/main.c calls
 * command_learn().  ERR_USAGE is for flags that do not go together; other errors are those of a judge's run, and
 * ERR_MEMORY. */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/cli/course/warm.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/python.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- what a score looks like ------------------------------------------------------------------------------------- */

void print_indented(const char *text, int by)
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
    const char *hint[CHECK_HINTS + 1];
    const int count = outcome_hints(first, hint);
    for (int i = 0; i < hints && i < count; i++) {
        printf("  hint %d of %d: ", i + 1, count);
        print_wrapped(stdout, 15, hint[i]);
    }
    if (hints < count) printf("  (--hint shows %s)\n", hints ? "the next hint" : "a hint");
}

/* ---- one lesson -------------------------------------------------------------------------------------------------- */

struct asked {
    const char *lesson, *start, *in, *page, *language;
    bool hint, watch, all, sanitize, solution, draw, list, warmups;
    uint64_t variant;
};

/* A file that was lost costs no points that were reached. */
static void tell_missing(const struct lesson *lesson, const char *path, int *status)
{
    const struct printable shown = printable_path(path);
    printf("%s is not there.  A fresh one:\n\n    orrery learn --start NEW\n", shown.text);
    printf("    cp NEW/%s/%s %s\n", lesson->folder, strrchr(path, '/') + 1, shown.text);
    *status = error_exit_status(ERR_CHECK);
}

enum error_code learn_find_solution(const struct folder *folder, const struct lesson *lesson, char **text, bool *python,
                                    struct error *err)
{
    struct error why = { OK, "" };
    char own[PATH_MAX], inside[PATH_MAX], file[100];
    folder_file(folder, lesson, own, sizeof own);
    *python = is_python(own);
    lesson_file(lesson, *python, file, sizeof file);
    snprintf(inside, sizeof inside, "%s/%s", lesson->folder, file);
    char *whole = tutorial_text(inside, &why);
    const bool has = whole && strstr(whole, "SOLUTION");
    free(whole);
    *text = has ? lesson_text(lesson, file, true, folder->variant, err) : NULL;
    return has && *text == NULL ? err->code : OK;
}

/* A line of what was counted: the student's number, and the instructor's if there is one. */
static void print_count(const char *what, uint64_t own, const uint64_t *best)
{
    if (best) printf("  %-24s %-22llu %llu\n", what, (unsigned long long)own, (unsigned long long)*best);
    else printf("  %-24s %llu\n", what, (unsigned long long)own);
}

static void print_costs(const struct cost *own, const struct cost *best)
{
    printf("\n  All runs of the checks   yours%s\n", best ? "                  the instructor's" : "");
    if (best) printf("  %-24s %-22s %s\n", "virtual time", picoseconds_exact(own->time).text,
                     picoseconds_exact(best->time).text);
    else printf("  %-24s %s\n", "virtual time", picoseconds_exact(own->time).text);
    print_count("messages", own->messages, best ? &best->messages : NULL);
    print_count("bytes sent", own->bytes, best ? &best->bytes : NULL);
    print_count("bytes allocated at once", own->peak, best ? &best->peak : NULL);
}

/* Print what a right solution takes, beside the instructor's: the same runs, on the same inputs. */
static enum error_code compare_costs(const struct folder *folder, const struct lesson *lesson,
                                     const struct asked *asked, const struct score *score, struct error *err)
{
    const struct cost own = score_cost(score);
    char *text;
    bool python;
    if (own.time == 0 && own.bytes == 0 && own.peak == 0) return OK;
    enum error_code e = learn_find_solution(folder, lesson, &text, &python, err);
    if (e) return e;
    if (text == NULL) return print_costs(&own, NULL), OK;
    struct score *best = malloc(sizeof *best);
    const struct judging how = { .variant = folder->variant, .seed = PUBLIC_SEED, .sanitize = asked->sanitize };
    if (best == NULL) e = fail(err, ERR_MEMORY, "no memory for a score");
    else e = judge_source(best, lesson, python, text, strlen(text), &how, err);
    const struct cost of_best = e ? own : score_cost(best);
    if (!e) print_costs(&own, &of_best);
    free(best), free(text);
    return e;
}

/* Whoever has all points may see how somebody else has done it. */
static enum error_code show_solution(const struct folder *folder, const struct lesson *lesson, bool done,
                                     struct error *err)
{
    char *text;
    bool python;
    if (!done) {
        printf("\n  The solution is shown when yours has all points.\n");
        return OK;
    }
    enum error_code e = learn_find_solution(folder, lesson, &text, &python, err);
    if (e) return e;
    if (text) printf("\n  The instructor's:\n\n%s", text);
    else printf("\n  This course comes without solutions.\n");
    free(text);
    return OK;
}

static enum error_code try_lesson(struct folder *folder, const struct lesson *lesson,
                                  const struct asked *asked, bool hint, int *status, struct error *err)
{
    char path[PATH_MAX];
    folder_file(folder, lesson, path, sizeof path);
    if (access(path, F_OK) != 0) return tell_missing(lesson, path, status), OK;
    struct score *s = malloc(sizeof *s);
    const bool shows = asked->page != NULL || asked->draw;
    const struct judging how = { .variant = folder->variant, .seed = PUBLIC_SEED, .sanitize = asked->sanitize,
                                 .first_failure = !asked->all, .kept = shows ? kept_open() : NULL };
    if (s == NULL || (shows && how.kept == NULL)) {
        free(s);
        return fail(err, ERR_MEMORY, "no memory for a score");
    }
    enum error_code e = judge_file(s, lesson, path, &how, err);
    if (!e) {
        struct progress p = folder_progress(folder, lesson);
        const struct outcome *first = first_failure(s);
        const struct check *check = first ? first->check : NULL;
        const bool done = s->tenths == s->of;
        /* Hints of another check were not asked for. */
        p.hints = done ? 0 : hint + (check == p.check ? p.hints : 0), p.check = check, p.tenths = s->tenths;
        if (p.hints > CHECK_HINTS + 1) p.hints = CHECK_HINTS + 1;
        print_score(s, p.hints, true);
        if (done) printf("\n  Done.  `orrery learn` says what is next.\n");
        else if (p.best > p.tenths)
            printf("\n  Your best is %s of %s points.\n", points_text(p.best).text, points_text(p.of).text);
        const char *failure = done ? NULL : first ? first->said : "not all is right";
        if (done) e = compare_costs(folder, lesson, asked, s, err);
        if (asked->solution && !e) e = show_solution(folder, lesson, done, err);
        if (!e) e = folder_remember(folder, lesson, p, err);
        if (!e && shows) e = learn_show_run(folder, lesson, &how, failure, asked->page, asked->draw, err);
        *status = done ? 0 : error_exit_status(ERR_CHECK);
    }
    kept_close(how.kept);
    free(s);
    return e;
}

/* When a file was last written; 0: it is not there (an editor replaces it). */
static struct timespec written(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? system_changed(&st) : (struct timespec){ 0 };
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
    int tenths = 0, of = 0, most = 0;
    bool changed = false;
    printf("Course in %s", printable_path(folder->path).text);
    if (folder->variant) printf(", variant %llu", (unsigned long long)folder->variant);
    printf("\n\n");
    for (int i = 0; lessons[i]; i++) {
        const struct lesson *l = lessons[i];
        const struct progress p = folder_progress(folder, l);
        const bool all = p.tried && p.tenths == p.of;
        if (!all && next == NULL) next = l;
        char best[24];
        const int known = p.tried ? p.best : 0;
        changed |= p.changed, most += known;
        snprintf(best, sizeof best, "best %s", points_text(known).text);
        printf("  %s %02d  %-49s %4s of %-2s %s\n", next == l ? "->" : "  ", lesson_number(l), l->title,
               points_text(p.tenths).text, points_text(p.of).text,
               !p.tried ? "not tried" : p.best > p.tenths ? best : p.changed ? "changed" : all ? "done" : "begun");
        tenths += p.tenths, of += p.of;
    }
    if (changed) printf("\nchanged: the file is another one since it had these points; try it again\n");
    printf("\n%s of %s points", points_text(tenths).text, points_text(of).text);
    if (most > tenths) printf(", at best %s", points_text(most).text);
    printf(most > tenths && next ? ".\n" : ".  ");
    if (next == NULL) printf("All lessons are done.\n");
    else {
        char file[PATH_MAX];
        folder_file(folder, next, file, sizeof file);
        printf("Next: read %s/README.md, write %s/%s, then\n\n    orrery learn %02d\n", next->folder, next->folder,
               strrchr(file, '/') + 1, lesson_number(next));
    }
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
    if (l == NULL && (asked->hint || asked->watch || asked->solution))
        return fail(err, ERR_USAGE, "learn: --hint, --watch and --solution need LESSON");
    if (asked->page || asked->draw) {
        if (l == NULL) return fail(err, ERR_USAGE, "learn: --page and --draw need LESSON");
        if (l->functions == NULL)
            return fail(err, ERR_USAGE, "learn --page, --draw: lesson %02d has no runs of devices", lesson_number(l));
    }
    enum error_code e = folder_open(&f, asked->in, err);
    if (e) return e;
    if (l == NULL) print_course(&f);
    else if (asked->watch) e = watch_lesson(&f, l, asked, status, err);
    else e = try_lesson(&f, l, asked, asked->hint, status, err);
    folder_close(&f);
    return e;
}

/* Lessons in C that cannot be solved in Python, in one line. */
static void tell_without_python(void)
{
    int count = 0;
    for (int i = 0; lessons[i]; i++)
        if (lessons[i]->functions && !lesson_in_python(lessons[i]))
            printf("%s %02d", count++ ? "," : "In C only, not in Python: lesson", lesson_number(lessons[i]));
    if (count) printf("\n");
}

/* Whether a shell that is asked for `orrery` starts this program. */
static bool is_in_path(const char *program)
{
    struct stat own, other;
    char copy[4 * PATH_MAX], one[PATH_MAX];
    const char *path = getenv("PATH");
    if (path == NULL || stat(program, &own) != 0) return false;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *rest = NULL, *at = strtok_r(copy, ":", &rest); at; at = strtok_r(NULL, ":", &rest)) {
        path_of(one, sizeof one, at, "orrery");
        if (stat(one, &other) == 0) return own.st_dev == other.st_dev && own.st_ino == other.st_ino;
    }
    return false;
}

/* Pages and messages say `orrery`: whoever built the program and called ./orrery needs its folder in PATH first. */
static void tell_path(void)
{
    char program[PATH_MAX];
    if (!system_program(program, sizeof program) || is_in_path(program)) return;
    char *slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    printf("    export PATH=\"%s:$PATH\"\n", printable_path(program).text);
}

static enum error_code start_course(const struct asked *asked, struct error *err)
{
    if (asked->lesson || asked->hint || asked->watch || asked->solution)
        return fail(err, ERR_USAGE, "learn --start FOLDER: takes no LESSON");
    const bool python = asked->language && strcmp(asked->language, "python") == 0;
    enum error_code e = python ? python_find(err) : OK;
    if (!e) e = write_student_tree(asked->start, python, asked->variant, err);
    if (e) return e;
    if (python) tell_without_python();
    const struct printable where = printable_path(asked->start);
    printf("The course is in %s.  Begin with its README.md, then:\n\n", where.text);
    tell_path();
    printf("    cd %s\n    orrery learn\n", where.text);
    return OK;
}

enum error_code command_learn(int argc, char **argv, int *status, struct error *err)
{
    static const char *const languages[] = { "c", "python", NULL };
    struct asked a = { .in = "." };
    bool help;
    const struct option table[] = {
        { "LESSON", NULL, OPTION_STRING, &a.lesson,
          .help = "number or name of a lesson, or of a warm-up, 03.2; default: where you are, and what is next" },
        { "--start", "FOLDER", OPTION_STRING, &a.start, .help = "make a new folder to work in" },
        { "--variant", "N", OPTION_UINT64, &a.variant, .help = "with --start: the variant of the exercises" },
        { "--language", "NAME", OPTION_CHOICE, &a.language, .choices = languages,
          .help = "with --start: of the files that you complete; default: c" },
        { "--in", "FOLDER", OPTION_STRING, &a.in, .help = "the folder that --start made, or a folder inside" },
        { "--hint", NULL, OPTION_SWITCH, &a.hint, .help = "also show one more hint about the first failure" },
        { "--solution", NULL, OPTION_SWITCH, &a.solution,
          .help = "also show the instructor's file, when yours has all points" },
        { "--list", NULL, OPTION_SWITCH, &a.list, .help = "all warm-ups and lessons, and which are done" },
        { "--warmups", NULL, OPTION_SWITCH, &a.warmups,
          .help = "ask warm-ups and lessons one after another, as `orrery learn` does on a terminal" },
        { "--all", NULL, OPTION_SWITCH, &a.all, .help = "do not stop at the first failure" },
        { "--draw", NULL, OPTION_SWITCH, &a.draw,
          .help = "draw a run of yours as text, beside the right one if all is right" },
        { "--page", "FILE", OPTION_STRING, &a.page,
          .help = "write a page that shows it moving; of a failure the run that fails, and where" },
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
