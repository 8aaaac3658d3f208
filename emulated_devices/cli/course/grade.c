/* grade.c -- `orrery grade`: points for a submission or a class, and reports for other programs.  cli/main.c calls
 * command_grade().  Errors: ERR_USAGE of the words, ERR_FILE of the submission or of a report, ERR_MEMORY. */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/course/class/class.h"
#include "emulated_devices/course/grade.h"
#include "ref/io/output.h"
#include <stdio.h>

enum { CHECKS_PRINTED = 12, STOPPED = 128 };    /* a program that a signal N has ended has status 128 + N */

/* These flags are of a class alone. */
struct of_class { bool on; const char *csv, *similar, *roster, *results, *regrade; int jobs; };

static void print_lesson(const struct score *score)
{
    print_score(score, -1, false);
    printf("\n");
    fflush(stdout);
}

static void print_student(const struct class_grading *class, const struct submission *student, int tenths, int of)
{
    (void)class;
    printf("  %6s of %-6s %s\n", points_text(tenths).text, points_text(of).text, printable(student->name).text);
    fflush(stdout);
}

/* Say what else there is to know: students without files, files that could not be judged. */
static void print_notes(const struct class_grading *class)
{
    for (int s = 0; s < class->all.count; s++) {
        const struct submission *student = &class->all.of[s];
        if (student->note[0]) printf("  %s: %s\n", printable(student->name).text, student->note);
    }
}

/* Grade a class.  Status 0: every file was judged, whatever its points are. */
static enum error_code grade_class(const struct grading *g, const struct of_class *of, bool quiet, int *status,
                                   struct error *err)
{
    struct class_grading class = {
        .folder = g->submission, .lessons = g->lessons, .csv = of->csv, .json = g->json, .similar = of->similar,
        .roster = of->roster, .results = of->results, .secret = g->secret, .user = g->user, .regrade = of->regrade,
        .sanitize = g->sanitize, .own_code = g->own_code, .jobs = of->jobs, .variant = g->variant,
        .graded = quiet ? NULL : print_student,
    };
    if (g->junit) return fail(err, ERR_USAGE, "grade: --junit is for one submission, and --class for many");
    enum error_code e = class_grade(&class, err);
    if (!e) {
        if (!quiet) print_notes(&class);
        if (!quiet) class_print_checks(&class, CHECKS_PRINTED);
        printf("%s%d student%s: %d file%s judged, %d kept from before, %d that could not be judged%s\n",
               quiet ? "" : "\n", class.all.count, class.all.count == 1 ? "" : "s", class.judged,
               class.judged == 1 ? "" : "s", class.kept, class.broken,
               class.stopped ? "; stopped early, the reports have what is done" : "");
        *status = class.stopped ? STOPPED + class.stopped : class.broken ? error_exit_status(ERR_FILE) : 0;
    }
    class_free(&class);
    return e;
}

/* A flag of a class without --class is a mistake, and is said before anything runs. */
static enum error_code check_flags(const struct of_class *of, struct error *err)
{
    const char *flag = of->csv ? "--csv" : of->similar ? "--similar" : of->roster ? "--roster"
        : of->results ? "--results" : of->regrade ? "--regrade" : of->jobs ? "--jobs" : NULL;
    return of->on || flag == NULL ? OK : fail(err, ERR_USAGE, "grade: %s needs --class", flag);
}

enum error_code command_grade(int argc, char **argv, int *status, struct error *err)
{
    static const char *const languages[] = { "c", "python", NULL };
    struct grading g = { 0 };
    struct of_class of = { 0 };
    bool quiet = false, help;
    const struct option table[] = {
        { "SUBMISSION", NULL, OPTION_STRING, &g.submission, .required = true,
          .help = "a folder with the student's files, or one file; with --class a folder of submissions" },
        { "--lessons", "LIST", OPTION_STRING, &g.lessons, .help = "such as 1,3-5 or ring; default: all" },
        { "--json", "FILE", OPTION_STRING, &g.json,
          .help = "write Gradescope's results.json: first without points, again after each check; with --class all "
          "students, and how many fail each check" },
        { "--junit", "FILE", OPTION_STRING, &g.junit, .help = "write JUnit's XML, likewise" },
        { "--secret", "FILE", OPTION_STRING, &g.secret,
          .help = "three tenths of the points are for inputs that are drawn from this file's bytes" },
        { "--variant", "N", OPTION_UINT64, &g.variant, .help = "the variant of the course" },
        { "--language", "NAME", OPTION_CHOICE, &g.language, .choices = languages,
          .help = "which file of a lesson counts if both are there; default: that of course.json, else c" },
        { "--user", "NAME", OPTION_STRING, &g.user,
          .help = "run the student's code, and compile it, as this user (as root; default: nobody)" },
        { "--own-code", NULL, OPTION_SWITCH, &g.own_code,
          .help = "grade code that you trust, also where the system cannot hide files from the submission" },
        { "--sanitize", NULL, OPTION_SWITCH, &g.sanitize,
          .help = "compile with sanitizers, without locking processes in" },
        { "--class", NULL, OPTION_SWITCH, &of.on,
          .help = "grade all submissions in a folder, as Gradescope, Moodle or Canvas exports them" },
        { "--csv", "FILE", OPTION_STRING, &of.csv, .help = "with --class: a table of points, a row for each student" },
        { "--jobs", "N", OPTION_INT, &of.jobs, .min = 1, .max = 64,
          .help = "with --class: so many files at the same time; default: 1" },
        { "--roster", "FILE", OPTION_STRING, &of.roster,
          .help = "with --class: lines name,variant: who belongs to the class, and each one's variant" },
        { "--similar", "FOLDER", OPTION_STRING, &of.similar,
          .help = "with --class: pages about pairs of files that have much in common" },
        { "--regrade", "NAME", OPTION_STRING, &of.regrade,
          .help = "with --class: judge this student's files again, or those of all; default: files that are new" },
        { "--results", "FOLDER", OPTION_STRING, &of.results,
          .help = "with --class: where results are kept; default: .orrery-results beside the submissions" },
        { "--quiet", NULL, OPTION_SWITCH, &quiet, .help = "print only the sum" },
        { 0 }
    };
    enum error_code e = parse_command("grade", "SUBMISSION [options]",
                                      "Points for exercises. Status 0: all points, 3: not all, others: nothing was "
                                      "graded.\nWith --class 0 means that every file was graded.", argc - 2, argv + 2,
                                      table, &help, err);
    if (!e && !help) e = check_flags(&of, err);
    if (e || help) return e;
    if (of.jobs == 0) of.jobs = 1;
    if (of.on) return grade_class(&g, &of, quiet, status, err);
    g.graded = quiet ? NULL : print_lesson;
    e = grade(&g, err);
    if (!e) printf("%s of %s points\n", points_text(g.tenths).text, points_text(g.of).text);
    if (!e && g.found == 0)
        printf("No file of a lesson is in it.  A folder of submissions is graded with --class.\n");
    *status = g.tenths == g.of ? 0 : error_exit_status(ERR_CHECK);
    return e;
}
