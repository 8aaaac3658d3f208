/* orrery: a laptop-size model of a GPU cluster. */
#include "emulated_devices/cli/cli.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    { "train", "train a model on a mesh of emulated devices, and check it against one", command_train },
    { "bench", "speed of this machine: a training step beside the matrix product", command_bench },
    { "list", "everything registered: name, what it needs, what it costs, where it is from", command_list },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(void)
{
    printf("Orrery: a laptop-size model of a GPU cluster. Every device is a process; the numbers are real.\n\n"
           "usage: orrery COMMAND [options]        orrery COMMAND --help\n\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-8s %s\n", commands[i].name, commands[i].description);
    printf("\nExit status: 0 done, 1 failed while running, 2 wrong usage, 3 a check did not hold.\n");
}

void print_usage(const char *command, const char *usage, const char *what, const struct option *table)
{
    if (launcher_rank() != 0) return;
    printf("%s\n\nusage: orrery %s %s\n", what, command, usage);
    options_print_help(stdout, table);
}

static const struct command *find(const char *name, struct error *err)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
        names[i] = commands[i].name;
    }
    const char *near = nearest_name(name, names, COMMANDS);
    fail(err, ERR_USAGE, near ? "%s is not a command; did you mean %s?" : "%s is not a command; orrery --help shows them", name, near);
    return NULL;
}

int main(int argc, char **argv)
{
    struct error err = { OK, "" };
    int status = 0;
    signal(SIGXFSZ, SIG_IGN);           /* a file that grows too large is an error to report, not a death */
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? 2 : 0;
    }
    const struct command *c = find(argv[1], &err);
    enum error_code e = c ? c->run(argc, argv, &status, &err) : ERR_USAGE;
    if (e == OK) return status;
    if (launcher_rank() == 0) {
        fflush(stdout);
        fprintf(stderr, "orrery: %s\n", err.text[0] ? err.text : error_meaning(e));
    }
    return error_exit_status(e);
}
