/* kernel.c -- `orrery kernel FILE.cu`: which operations a file of kernels has, and whether they are right.  main.c
 * calls command_kernel().  ERR_USAGE is for a file without such an operation; other errors are those of trying a
 * kernel. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/compile/kernel_file.h"
#include "emulated_devices/verify/conformance/conformance.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <stdlib.h>

static void print_note(const char *text) { say(stdout, 6, "      %s", text); }

static void print_row(const char *row, int cases, double worst, const char *word)
{
    printf("  %-48s %3d cases  %8.2g  %s\n", row, cases, worst, word);
    fflush(stdout);
}

static enum error_code list_operations(const struct kernel_file *file, const struct kernel_request *request,
                                       bool check, struct error *err)
{
    int found = 0;
    for (int row = 0; row < conformance_rows(); row++)
        if (kernel_file_has(file, request, row) && found++ >= 0 && !check) printf("%s\n", conformance_row(row));
    if (found > 0) return OK;
    return fail(err, ERR_USAGE, request->only ? "defines no operation with %s in its name"
                                        : "defines no operation: no function cuda_OPERATION%s of kernels.h",
                request->only ? request->only : "");
}

enum error_code command_kernel(int argc, char **argv, int *status, struct error *err)
{
    struct kernel_request q = { .limit = 60, .line = print_note, .row = print_row };
    struct kernel_file f = { 0 };
    const char *file = NULL;
    bool check = false, help;
    (void)status;
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &file, .help = "kernels, as those of device/cuda/kernels/" },
        { "--check", NULL, OPTION_SWITCH, &check, .help = "run its operations; default: list them" },
        { "--only", "WORD", OPTION_STRING, &q.only, .help = "operations with this word in their names" },
        { "--count", NULL, OPTION_SWITCH, &q.count,
          .help = "also print sectors and bank conflicts of each line, as ORRERY_JUDGE_COUNT=1" },
        { "--limit", "SECONDS", OPTION_INT, &q.limit, .min = 1, .max = 1e6,
          .help = "processor time of an operation; on the clock it has ten times as long" },
        { 0 }
    };
    enum error_code e = parse_command(
        "kernel", "FILE.cu [options]",
        "A file of CUDA kernels, without a GPU: each operation that it defines runs on this machine's cores\n"
        "in four formats at odd sizes, and is held to the one-device model in fp64. Each access is watched:\n"
        "races, bounds, numbers that nobody wrote, barriers and masks are named with line, block and thread.",
        argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    if (file == NULL) return fail(err, ERR_USAGE, "kernel: needs FILE.cu, a file of kernels");
    if (q.count) setenv("ORRERY_JUDGE_COUNT", "1", 1);
    e = kernel_file_open(&f, file, err);
    if (!e) e = list_operations(&f, &q, check, err);
    if (!e && check) {
        printf("  %-48s %9s  %8s\n", "operation", "", "of bound");
        e = kernel_file_check(&f, &q, err);
        if (!e) say_verdict(stdout, GOOD_NEWS, "OK: within the bounds of fp64, and nothing that the judge sees");
    }
    const struct error said = *err;
    return e ? fail(err, e, "%s: %s", printable_path(file).text, said.text) : OK;
}
