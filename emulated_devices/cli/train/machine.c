/* machine.c -- gives a search of a large model a cluster whose devices can hold it.
 *
 * search.c and choose.c parse their words here.  They are parsed again with the words of the machine, so lists, reports
 * and commands to repeat all have these.  Errors are those of the words, and ERR_MEMORY.
 */
#include "emulated_devices/cli/train/machine.h"
#include "emulated_devices/run/report/report.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LARGER[] = "h100-infiniband", SHORTER[] = "bf16";

/* A device keeps these bytes of each of its parameters, besides the weight: two moments in fp32. */
enum { MOMENTS_BYTES = 8 };

static bool machine_named(int argc, char **argv, const char *flag)
{
    const size_t length = strlen(flag);
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], flag, length) == 0 && (argv[i][length] == '\0' || argv[i][length] == '=')) return true;
    return false;
}

/* A file of words may name a machine, too, so whoever gives one has chosen. */
static bool machine_is_chosen(int argc, char **argv)
{
    static const char *const flags[] = { "--cluster", "--memory", "--config", "--plan", "--table" };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (machine_named(argc, argv, flags[i])) return true;
    return false;
}

static enum error_code machine_choose(struct machine_words *words, const struct train_options *options, int devices,
                                      int argc, char **argv, struct error *err)
{
    const double state = (double)model_elements(&options->plan.model)
        * (double)(dtype_size(options->plan.dtype) + MOMENTS_BYTES);
    const uint64_t least = devices > 0 ? (uint64_t)(state / devices) : 0, has = report_budget(options);
    *words = (struct machine_words){ .argc = argc };
    if (has == 0 || least <= has || machine_is_chosen(argc, argv)) return OK;
    const bool format = !machine_named(argc, argv, "--dtype");
    words->argv = calloc((size_t)argc + 5, sizeof *words->argv);
    if (words->argv == NULL) return fail(err, ERR_MEMORY, "no memory for %d words", argc + 4);
    for (int i = 0; i < argc; i++) words->argv[i] = argv[i];
    const char *const more[] = { "--cluster", LARGER, "--dtype", SHORTER };
    for (int i = 0; i < (format ? 4 : 2); i++) words->argv[words->argc++] = (char *)(uintptr_t)more[i];
    snprintf(words->why, sizeof words->why, "%s%s: no --cluster is named, and weights and moments are at least %s on "
             "each device, of which %s has %s", LARGER, format ? " in bf16" : "", size_format(least).text,
             options->cluster.name, size_format(has).text);
    return OK;
}

enum error_code machine_parse(struct machine_words *words, struct train_options *options, const struct run_kind *kind,
                              const int *devices, int argc, char **argv, struct error *err)
{
    enum error_code e = train_parse(options, kind, argc, argv, err);
    if (!e && !options->help) e = machine_choose(words, options, *devices, argc, argv, err);
    if (e || words->argv == NULL) return e;
    train_options_free(options);
    e = train_parse(options, kind, words->argc, words->argv, err);
    if (!e && launcher_rank() == 0) say(run_stream(options), 8, "cluster %s\n", words->why);
    return e;
}
