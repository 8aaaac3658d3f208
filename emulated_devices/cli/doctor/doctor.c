/* doctor.c -- `orrery doctor`: whether this machine can run Orrery, and what is missing.  main.c calls
 * command_doctor().  The status is 1 if something keeps runs from working; there are no other errors. */
#include "emulated_devices/cli/doctor/doctor.h"
#include "emulated_devices/cli/cli.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdarg.h>
#include <stdio.h>

static const struct { const char *name; void (*look)(struct finding *); bool takes_time; } checks[] = {
    { "program", doctor_program, false },
    { "cores", doctor_cores, false },
    { "load", doctor_load, false },
    { "memory", doctor_memory, false },
    { "shared", doctor_shared, false },
    { "temporary", doctor_temporary, false },
    { "messages", doctor_messages, false },
    { "matrices", doctor_matrices, false },
    { "products", doctor_products, false },
    { "compiler", doctor_compiler, false },
    { "cage", doctor_cage, false },
    { "python", doctor_python, false },
    { "a run", doctor_run, true },
};
enum { CHECKS = sizeof checks / sizeof *checks, LEFT = 19 };

static const char *const kinds[] = { "ok", "lack", "BAD" };

void finding_say(struct finding *finding, enum finding_kind kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->says, sizeof finding->says, format, args);
    va_end(args);
    finding->kind = kind;
}

void finding_cure(struct finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->cure, sizeof finding->cure, format, args);
    va_end(args);
}

static void finding_print(const char *name, const struct finding *finding)
{
    printf("  %-5s %-10s ", kinds[finding->kind], name);
    print_wrapped(stdout, LEFT, finding->says);
    if (finding->cure[0]) printf("%*s", LEFT, ""), print_wrapped(stdout, LEFT, finding->cure);
    fflush(stdout);                                     /* the next one may take seconds, or end this process */
    if (document_table("checks"))
        json_add(document_row(), "check %s kind %s says %s cure %s", name, kinds[finding->kind], finding->says,
                 finding->cure);
}

/* @return how many findings keep runs from working; *lacks: how many others are not fine. */
static int look_at_all(bool quick, int *lacks)
{
    int bad = 0;
    for (int i = 0; i < CHECKS; i++) {
        struct finding finding = { 0 };
        if (quick && checks[i].takes_time) continue;
        checks[i].look(&finding);
        finding_print(checks[i].name, &finding);
        bad += finding.kind == FINDING_BAD, *lacks += finding.kind == FINDING_LACK;
    }
    return bad;
}

static void print_verdict(int bad, int lacks)
{
    char text[120] = "OK: runs work.";
    if (bad)
        snprintf(text, sizeof text, "FAILED: %d thing%s keep%s runs from working.", bad, plural(bad),
                 bad == 1 ? "s" : "");
    else if (lacks) snprintf(text, sizeof text, "OK: runs work; %d thing%s could be better.", lacks, plural(lacks));
    say_verdict(stdout, bad ? BAD_NEWS : GOOD_NEWS, text);
}

enum error_code command_doctor(int argc, char **argv, int *status, struct error *err)
{
    bool help, quick = false;
    int lacks = 0;
    const struct option table[] = {
        { "--quick", NULL, OPTION_SWITCH, &quick, .help = "leave out the run on two devices, which takes seconds" },
        { 0 }
    };
    enum error_code e = parse_command("doctor", "[options]",
                                      "Look whether this machine can run Orrery: cores, memory, MPI, BLAS, compilers, "
                                      "and a short run.\nStatus 0: runs work; 1: something keeps them from it.",
                                      argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    const int bad = look_at_all(quick, &lacks);
    printf("\n");
    print_verdict(bad, lacks);
    *status = bad ? error_exit_status(ERR_COMM) : 0;
    return OK;
}
