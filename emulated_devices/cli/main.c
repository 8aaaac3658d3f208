/* orrery: a laptop-size model of a GPU cluster.  The shell starts main, which calls the command of the first word;
 * cli/manual/ reads the table of commands.  An error is one line, and its kind sets the exit status (ref/error.h). */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/course/compile/plugin.h"
#include "ref/io/document.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/machine/blas.h"
#include "ref/version.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct command commands[] = {
#define HEADING(words) { NULL, words, NULL },
#define COMMAND(name, words) { #name, words, command_##name },
    COMMANDS(HEADING, COMMAND)
#undef HEADING
#undef COMMAND
    { 0 }
};

static void print_help(void)
{
    say(stdout, 0, "Orrery %s: a laptop-size model of a GPU cluster. Every device is a process; the numbers are real.",
        ORRERY_VERSION);
    printf("\nusage: orrery COMMAND [options]\n"
           "       orrery help COMMAND [WHAT]    its options\n"
           "       orrery --version              its own, and of the libraries it uses\n\n");
    print_commands(commands);
    printf("\n");
    print_wrapped(stdout, 0, "Every command takes --plugin FILE: variants of your own, a C file that is compiled, or "
                  "a shared object.");
    say(stdout, 0, "Exit status: 0 done, 1 failed while running, 2 wrong usage, 3 a check failed.");
}

static void print_version(void)
{
    char mpi[200], blas[160];
    printf("orrery %s\n", ORRERY_VERSION);
    say(stdout, 12, "  messages  %s", comm_library(mpi, sizeof mpi));
    say(stdout, 12, "  matrices  %s, kernels for %s", blas_name(blas, sizeof blas), blas_kernel());
}

/* `orrery help train --dp` as `orrery train --help`.  The words are changed in place. */
static void turn_help_around(int *argc, char **argv)
{
    if (*argc < 3 || strcmp(argv[1], "help") != 0) return;
    const bool topic = *argc > 3 && argv[3][0] != '-';
    argv[1] = argv[2];
    argv[2] = topic ? argv[3] : (char *)"--help";
    if (topic && *argc > 3) argv[3] = (char *)"--help";
    *argc = topic ? 4 : 3;
}

static int end_with(enum error_code e, const struct error *err)
{
    if (launcher_rank() == 0) say(stderr, 8, "orrery: %s", err->text[0] ? err->text : error_meaning(e));
    return end_process(error_exit_status(e));
}

/* A document is also written of what a check has found, and of no other failure. */
static enum error_code close_document(enum error_code e, int status, struct error *err)
{
    struct error why;
    if (e && e != ERR_CHECK) document_leave();
    const enum error_code written = document_close(e ? error_exit_status(e) : status, &why);
    if (written) *err = why;
    return written ? written : e;
}

int main(int argc, char **argv)
{
    struct error err = { OK, "" };
    int status = 0;
    prepare_process(argv);
    enum error_code e = load_plugins(&argc, argv, &err);
    if (e) return end_with(e, &err);
    turn_help_around(&argc, argv);
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) return print_version(), 0;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? 2 : 0;
    }
    const struct command *c = command_find(commands, "", argv[1], &err);
    e = c ? c->run(argc, argv, &status, &err) : ERR_USAGE;
    e = close_document(e, status, &err);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && e == OK && !output_reader_has_left(STDOUT_FILENO))
        e = fail(&err, ERR_FILE, "standard output: cannot be written%s%s", errno ? ": " : "",
                 errno ? strerror(errno) : "");
    return e == OK ? end_process(status) : end_with(e, &err);
}
