/* programs.c -- what `orrery doctor` finds of the programs and libraries that Orrery uses, and of a short run.
 * doctor.c has a line for each check.  No function fails. */
#include "emulated_devices/cli/doctor/doctor.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/python.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/launch/launch.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/blas.h"
#include "ref/machine/measure.h"
#include "ref/machine/products.h"
#include "ref/machine/system.h"
#include "ref/version.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void doctor_program(struct finding *finding)
{
    char names[FINDING_TEXT / 2] = "";
    size_t used = 0;
    for (int i = 0; backends[i] != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", backends[i]->name);
    finding_say(finding, FINDING_FINE, "Orrery %s, with the backends %s", ORRERY_VERSION, names);
}

enum { NO_PROGRAM = 127 };               /* as shells say */

/* Run a program whose output is of no use.  @return its status; NO_PROGRAM: there is none; -1: it did not end well. */
static int run_unheard(const char *const *words)
{
    enum { LIMIT = 20 };                                /* seconds */
    struct child_end end;
    const pid_t child = child_start();
    if (child == 0) {
        const int nowhere = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) dup2(nowhere, i);
        execvp(words[0], (char *const *)words);
        _exit(NO_PROGRAM);
    }
    if (child < 0) return -1;
    if (!child_wait(child, LIMIT, &end)) return child_stop(child, &end), -1;
    return WIFEXITED(end.how) ? WEXITSTATUS(end.how) : -1;
}

static int ask_version(const char *program)
{
    const char *const words[] = { program, "--version", NULL };
    return run_unheard(words);
}

void doctor_messages(struct finding *finding)
{
    char library[200];
    comm_library(library, sizeof library);
    const int status = ask_version(ORRERY_MPIEXEC);
    if (status == 0) {
        finding_say(finding, FINDING_FINE, "%s; %s starts devices", library, ORRERY_MPIEXEC);
        return;
    }
    finding_say(finding, FINDING_BAD, "%s; %s %s", library, ORRERY_MPIEXEC,
                status == NO_PROGRAM ? "is not in PATH" : "does not work");
    finding_cure(finding, "install MPICH's programs (docs/requirements.sh names the packages); until then "
                          "ORRERY_ONE_PROCESS=1 orrery train .. runs all devices in one process");
}

/* Kernels of 2004 are right, and several times slower than this processor. */
void doctor_matrices(struct finding *finding)
{
    char name[160];
    const char *better = better_kernels();
    finding_say(finding, better ? FINDING_LACK : FINDING_FINE, "%s, kernels for %s", blas_name(name, sizeof name),
                blas_kernel());
    if (better)
        finding_cure(finding, "the library does not know this processor, and is slow: OPENBLAS_CORETYPE=%s is faster",
                     better);
}

void doctor_products(struct finding *finding)
{
    char text[FINDING_TEXT / 2];
    const bool right = products_check(text, sizeof text);
    finding_say(finding, right ? FINDING_FINE : FINDING_BAD, "%s", text);
    if (!right)
        finding_cure(finding, "the BLAS computes wrong numbers on this processor: take other kernels, such as "
                              "OPENBLAS_CORETYPE=Haswell, or a newer library (docs/using/installing.md)");
}

void doctor_compiler(struct finding *finding)
{
    const char *asked = getenv("CC"), *compiler = asked && *asked ? asked : "cc";
    const struct printable shown = printable(compiler);
    if (ask_version(compiler) == 0) {
        finding_say(finding, FINDING_FINE, "%s compiles exercises and plug-ins", shown.text);
        return;
    }
    finding_say(finding, FINDING_LACK, "%s does not work: no exercises, no plug-ins", shown.text);
    finding_cure(finding, "install a C compiler, or set CC to its name");
}

void doctor_cage(struct finding *finding)
{
    static const char *const names[] = { "", "Landlock", "namespaces" };
    const enum cage_kind kind = cage_kind();
    if (kind != CAGE_NONE) {
        finding_say(finding, FINDING_FINE, "students' code is locked in by %s", names[kind]);
        return;
    }
    finding_say(finding, FINDING_LACK, "this system has neither namespaces nor Landlock: `orrery grade` refuses code");
    finding_cure(finding, "a Linux from 5.13 on; or `orrery grade --own-code` for code that you trust");
}

void doctor_python(struct finding *finding)
{
    struct error err = { OK, "" };
    if (python_find(&err) == OK) finding_say(finding, FINDING_FINE, "python3 with numpy: exercises in Python");
    else finding_say(finding, FINDING_FINE, "no exercises in Python: %s", err.text);
}

/* A whole run: two devices are started, train a step, and are compared with one device. */
void doctor_run(struct finding *finding)
{
    enum { LIMIT = 120 };                               /* seconds; a run takes 0.3 s on a quiet machine */
    char self[PATH_MAX];
    struct error err = { OK, "" };
    const bool known = system_program(self, sizeof self);
    const char *const words[] = { self, "train", "--model", "tiny", "--dp", "2", "--steps", "1", "--check", "ref",
                                  "--quiet", NULL };
    const double begun = measure_now();
    if (known && run_aside(words, LIMIT, &err) == OK) {
        finding_say(finding, FINDING_FINE, "a step on 2 devices equals one device; it took %.1f s",
                    measure_now() - begun);
        return;
    }
    finding_say(finding, FINDING_BAD, "orrery train --dp 2 does not work: %s", known ? err.text : "no program");
    finding_cure(finding, "docs/troubleshooting.md has the line; with ORRERY_ONE_PROCESS=1 it may work without MPI's "
                          "launcher");
}
