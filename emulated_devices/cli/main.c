/* orrery: a laptop-size model of a GPU cluster. */
#include "emulated_devices/cli/cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    { "train", "train a model on a mesh of emulated devices, and compare it with one device", command_train },
    { "plan", "what a training step would take on up to 4096 devices, without running it", command_plan },
    { "infer", "run a model's forward passes on a mesh, and compare them with one device", command_infer },
    { "verify", "run every registered scheme on every mesh that fits, and compare it with one device", command_verify },
    { "check", "compare another program's tensors with a golden file; name the first wrong one", command_check },
    { "show", "draw a pipeline schedule, a collective or a matrix product, without training", command_show },
    { "bench", "measure steps, schedules, collectives, beside a limit, a published figure or MPI", command_bench },
    { "golden", "compare the one-device model with golden files; measure the bounds beside them", command_golden },
    { "dump", "write every tensor of the one-device model on one batch to a file", command_dump },
    { "affinity", "group experts and tokens of a mixture, for speculative dispatch", command_affinity },
    { "learn", "exercises on emulated devices: where you are, and what is wrong first", command_learn },
    { "grade", "points for exercises, for a person, Gradescope or JUnit", command_grade },
    { "course", "make the folders of a course, and prove its grader", command_course },
    { "list", "list everything registered: name, requirements, cost, source", command_list },
    { 0 }
};

static void print_help(void)
{
    printf("Orrery: a laptop-size model of a GPU cluster. Every device is a process; the numbers are real.\n\n"
           "usage: orrery COMMAND [options]        orrery COMMAND --help\n\n");
    print_commands(commands);
    printf("\nEvery command takes --plugin FILE: variants of your own, a C file that is compiled, or a shared object.\n"
           "Exit status: 0 done, 1 failed while running, 2 wrong usage, 3 a check failed.\n");
}

static int end_with(enum error_code e, const struct error *err)
{
    if (launcher_rank() == 0) fprintf(stderr, "orrery: %s\n", err->text[0] ? err->text : error_meaning(e));
    return end_process(error_exit_status(e));
}

int main(int argc, char **argv)
{
    struct error err = { OK, "" };
    int status = 0;
    prepare_process(argv);
    enum error_code e = load_plugins(&argc, argv, &err);
    if (e) return end_with(e, &err);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? 2 : 0;
    }
    const struct command *c = command_find(commands, "", argv[1], &err);
    e = c ? c->run(argc, argv, &status, &err) : ERR_USAGE;
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && e == OK)
        e = fail(&err, ERR_FILE, "standard output: cannot be written%s%s", errno ? ": " : "",
                 errno ? strerror(errno) : "");
    return e == OK ? end_process(status) : end_with(e, &err);
}
