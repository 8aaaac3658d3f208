/* collective.c -- `orrery show allreduce` and its likes: reads which call is drawn.  show.c calls show_collective().
 * ERR_USAGE names a collective that does not exist; other errors are those of a drawing. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/draw/collective/collective.h"
#include <stdio.h>
#include <string.h>

enum error_code show_collective(int argc, char **argv, int *status, struct error *err)
{
    struct collective_shown a = { .devices = 4, .count = -1 };
    const char *cluster = CLUSTER_USUAL;
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    char command[64];
    bool help;
    while (a.operation < OPERATION_COUNT && strcmp(operation_name(a.operation), argv[2]) != 0) a.operation++;
    if (a.operation == OPERATION_COUNT) return fail(err, ERR_USAGE, "show %s: there is no such collective", argv[2]);
    const struct option table[] = {
        { "ALGO", NULL, OPTION_STRING, &a.algorithm,
          .help = "algorithm, or auto (the least time); default: the first one of `orrery list collectives`" },
        { "--devices", "P", OPTION_INT, &a.devices, .min = 1, .max = SHOW_MOST_DEVICES, .help = "number of devices" },
        { "--count", "N", OPTION_INT, &a.count, .min = 0, .max = 1 << 20,
          .help = "elements of the vector, of 8 bytes each; -1: one for each device" },
        { "--root", "R", OPTION_INT, &a.root, .min = 0, .max = SHOW_MOST_DEVICES - 1,
          .help = "for collectives that have one" },
        CLUSTER_OPTION(cluster, "whose times are shown"),
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { "--svg", "FILE", OPTION_STRING, &a.svg, .help = "also draw to an SVG file, a panel for each step" },
        { "--page", "FILE", OPTION_STRING, &a.page, .help = "also write a page that shows it message by message" },
        { "--plain", NULL, OPTION_SWITCH, &a.plain, .help = "no colours" },
        { 0 }
    };
    snprintf(command, sizeof command, "show %s", argv[2]);
    enum error_code e = parse_command(
        command, "[ALGO] [options]", "Run a collective, and draw step by step what each device sends and holds.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    set_wait_limit(limit);
    if (a.count < 0) a.count = a.operation == ALLTOALL ? 1 : a.devices;
    e = cluster_find(&a.cluster, cluster, err);
    if (!e) e = collective_shown_check(&a, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, &a.cluster, collective_show, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
