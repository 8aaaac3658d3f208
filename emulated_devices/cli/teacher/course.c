/* course.c -- `orrery course`: a course's folders, and a proof of its grader.  cli/main.c calls command_course().
 * ERR_USAGE is for a command line without a folder and --prove; other errors are those of files. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/teacher/teacher.h"
#include <stdio.h>
#include <string.h>

struct asked {
    const char *student, *teacher, *skeletons, *lessons, *language;
    uint64_t variant;
    struct proof_part part;
    bool prove, sanitize;
};

/* A line for each thing that was tried, below the name of its lesson. */
static void print_proof(const char *word, const char *name, const char *text)
{
    if (word == NULL) printf("%s\n", name);
    else printf(name[0] ? "  %-6s %-36s %s\n" : "  %-6s %s%s\n", word, name, text);
    fflush(stdout);
}

static enum error_code do_course(const struct asked *asked, struct error *err)
{
    bool chosen[MOST_LESSONS];
    enum error_code e = lessons_chosen(asked->lessons, chosen, err);
    if (!e && !asked->prove && !asked->student && !asked->teacher && !asked->skeletons)
        e = fail(err, ERR_USAGE, "course: give --student FOLDER, --teacher FOLDER or --prove");
    if (!e && asked->prove)
        e = prove_lessons(chosen, asked->variant, asked->part, asked->sanitize, print_proof, err);
    if (!e && asked->student) e = write_student_tree(asked->student, asked->part.python, asked->variant, err);
    if (!e && asked->teacher) e = write_teacher_tree(asked->teacher, asked->variant, err);
    if (!e && asked->skeletons) e = write_skeletons(asked->skeletons, err);
    return e;
}

enum error_code command_course(int argc, char **argv, int *status, struct error *err)
{
    static const char *const languages[] = { "c", "python", NULL };
    struct asked a = { .language = "c" };
    bool help;
    (void)status;
    const struct option table[] = {
        { "--student", "FOLDER", OPTION_STRING, &a.student, .help = "make the student's tree: pages and skeletons" },
        { "--teacher", "FOLDER", OPTION_STRING, &a.teacher, .help = "make the teacher's tree: solutions and graders" },
        { "--skeletons", "FOLDER", OPTION_STRING, &a.skeletons,
          .help = "put the lessons without solutions into a copy of tutorials/: what students' programs read" },
        { "--variant", "N", OPTION_UINT64, &a.variant, .help = "which of the variants of the exercises" },
        { "--language", "NAME", OPTION_CHOICE, &a.language, .choices = languages,
          .help = "with --student: of the files; with --prove: whose solutions are tried; default: c" },
        { "--prove", NULL, OPTION_SWITCH, &a.prove,
          .help = "try the grader: skeletons have no points, solutions all, wrong solutions lose the right ones" },
        { "--mutants", "N", OPTION_INT, &a.part.most, .min = 0, .max = 1000,
          .help = "with --prove: so many wrong solutions of each lesson; default: 0, all" },
        { "--mutant", "NAME", OPTION_STRING, &a.part.name,
          .help = "with --prove: the wrong solution of this name alone" },
        { "--warmups", NULL, OPTION_SWITCH, &a.part.warmups, .help = "with --prove: the warm-ups alone" },
        { "--lessons", "LIST", OPTION_STRING, &a.lessons, .help = "with --prove: such as 1,3-5; default: all" },
        { "--sanitize", NULL, OPTION_SWITCH, &a.sanitize, .help = "with --prove: compile with sanitizers" },
        { 0 }
    };
    enum error_code e = parse_command("course", "[options]", "Make a course of the lessons in tutorials/, or try its "
                                      "grader.", argc - 2, argv + 2, table, &help, err);
    a.part.python = strcmp(a.language, "python") == 0;
    return e || help ? e : do_course(&a, err);
}
