/* report.c -- `orrery report`: runs side by side, on one page that needs nothing else.  main.c calls
 * command_report().  Errors: ERR_FILE or ERR_FORMAT of a run's file, ERR_USAGE of the words, ERR_MEMORY. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/draw/report/page.h"

enum error_code command_report(int argc, char **argv, int *status, struct error *err)
{
    const char *path[MOST_RUNS] = { NULL }, *out = "report.html";
    struct option table[MOST_RUNS + 2] = { { 0 } };
    struct told_run run[MOST_RUNS];
    bool help;
    int runs = 0;
    (void)status;
    for (int i = 0; i < MOST_RUNS; i++)
        table[i] = (struct option){ "RUN", NULL, OPTION_STRING, &path[i], .required = i == 0,
                                    .help = i ? NULL : "what --json or --log FILE.jsonl has written, or a checkpoint's "
                                                       "folder; at most 12 of them" };
    table[MOST_RUNS] = (struct option){ "--out", "FILE", OPTION_STRING, &out, .help = "the page: one file of HTML" };
    enum error_code e = parse_command("report", "RUN... [--out FILE]",
                                      "Draw runs: losses, plan, timeline, memory, messages, roofline, what differs.",
                                      argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    for (; runs < MOST_RUNS && path[runs] && !e; runs++) e = run_read(&run[runs], path[runs], err);
    if (!e) e = page_write(out, run, runs, err);
    for (int i = 0; i < runs; i++) run_free(&run[i]);
    return e;
}
