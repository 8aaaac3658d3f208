/* grade.c -- `orrery grade`: points for a submission, and reports for other programs.  cli/main.c calls
 * command_grade().  Errors: ERR_USAGE of the words, ERR_FILE of the submission or of a report, ERR_MEMORY. */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/course/grade.h"
#include <stdio.h>

static void print_lesson(const struct score *score)
{
    print_score(score, -1, false);
    printf("\n");
    fflush(stdout);
}

enum error_code command_grade(int argc, char **argv, int *status, struct error *err)
{
    static const char *const languages[] = { "c", "python", NULL };
    struct grading g = { 0 };
    bool quiet = false, help;
    const struct option table[] = {
        { "SUBMISSION", NULL, OPTION_STRING, &g.submission, .required = true,
          .help = "a folder with the student's files, or one file" },
        { "--lessons", "LIST", OPTION_STRING, &g.lessons, .help = "such as 1,3-5 or ring; default: all" },
        { "--json", "FILE", OPTION_STRING, &g.json,
          .help = "write Gradescope's results.json: first without points, again after each check" },
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
        { "--quiet", NULL, OPTION_SWITCH, &quiet, .help = "print only the sum" },
        { 0 }
    };
    enum error_code e = parse_command("grade", "SUBMISSION [options]",
                                      "Points for exercises. Status 0: all points, 3: not all, others: nothing was "
                                      "graded.", argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    g.graded = quiet ? NULL : print_lesson;
    e = grade(&g, err);
    if (!e) printf("%s of %s points\n", points_text(g.tenths).text, points_text(g.of).text);
    *status = g.tenths == g.of ? 0 : error_exit_status(ERR_CHECK);
    return e;
}
