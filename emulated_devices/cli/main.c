/* orrery: a laptop-size model of a GPU cluster. */
#include "emulated_devices/cli/cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    { "train", "train a model on a mesh of emulated devices, and check it against one", command_train },
    { "verify", "run everything registered on every fitting mesh, and check it against one device", command_verify },
    { "check", "somebody's tensors beside a golden file: the first wrong one, where, by how much", command_check },
    { "show", "draw a pipeline schedule, or a collective step by step, without training anything", command_show },
    { "bench", "training steps, schedules, collectives: each figure beside a limit, a published one or MPI's", command_bench },
    { "golden", "hold the one-device model to golden files; measure the bounds beside them", command_golden },
    { "dump", "every tensor of the one-device model on one batch, in a file", command_dump },
    { "list", "everything registered: name, what it needs, what it costs, where it is from", command_list },
    { 0 }
};

static void print_help(void)
{
    printf("Orrery: a laptop-size model of a GPU cluster. Every device is a process; the numbers are real.\n\n"
           "usage: orrery COMMAND [options]        orrery COMMAND --help\n\n");
    print_commands(commands);
    printf("\nExit status: 0 done, 1 failed while running, 2 wrong usage, 3 a check did not hold.\n");
}

int main(int argc, char **argv)
{
    struct error err = { OK, "" };
    int status = 0;
    prepare_process(argv);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? 2 : 0;
    }
    const struct command *c = command_find(commands, "", argv[1], &err);
    enum error_code e = c ? c->run(argc, argv, &status, &err) : ERR_USAGE;
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && e == OK)
        e = fail(&err, ERR_FILE, "standard output: cannot be written%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
    if (e == OK) return status;
    if (launcher_rank() == 0) {
        fprintf(stderr, "orrery: %s\n", err.text[0] ? err.text : error_meaning(e));
    }
    return error_exit_status(e);
}
