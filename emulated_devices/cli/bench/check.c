/* check.c -- `orrery bench check`: how fast `orrery check` reads a dump, and how much memory it takes.  bench.c calls
 * bench_check_topic().  Errors: ERR_USAGE of the words, and those of bench/check_speed.c. */
#include "emulated_devices/bench/check_speed.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <string.h>

struct asked { struct check_speed measures; const char *json; bool help; };

static enum error_code check_parse(struct asked *asked, int argc, char **argv, struct error *err)
{
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &asked->measures.model, .help = "a preset of `orrery list`" },
        { "--sequences", "N", OPTION_INT, &asked->measures.sequences, .min = 1, .max = 1 << 20,
          .help = "sequences in the batch" },
        { "--repeat", "N", OPTION_INT, &asked->measures.repeat, .min = 1, .max = 1 << 10,
          .help = "how often the batch has them: a large dump is made with the time and memory of a small one" },
        { "--wrong", "TENSOR", OPTION_STRING, &asked->measures.wrong,
          .help = "the dump has a wrong number in this tensor, such as act/h.3.mlp.up; the right dump is measured, "
                  "too" },
        { "--tokens", "N", OPTION_INT, &asked->measures.tokens, .min = 1, .max = 1 << 20,
         .help = "tokens in a sequence" },
        { "--ranks", "N", OPTION_INT, &asked->measures.ranks, .min = 1, .max = CHECK_SPEED_MOST_RANKS,
          .help = "ranks that write the dump" },
        THREADS_OPTION,
        { "--json", "FILE", OPTION_STRING, &asked->json, .help = "also write the numbers as JSON" },
        { 0 }
    };
    *asked = (struct asked){ .measures = { .model = "11m", .sequences = 4, .repeat = 1, .tokens = 128, .ranks = 2 } };
    return parse_command("bench check", "[options]",
                         "Measure `orrery check`: make a golden file of a model and a dump of several ranks in fp32\n"
                         "(weights, activations, gradients, a step of adamw), check it, and print seconds, MB/s\n"
                         "and the most memory. The files are temporary, three times as large as the dump.",
                         argc - 3, argv + 3, table, &asked->help, err);
}

static enum error_code check_write_json(const struct asked *asked, const struct check_speed_found *found,
                                        struct error *err)
{
    cJSON *root = json_add(document_start("orrery bench check"), "model %s tokens %g ranks %d dump_mb %g golden_mb %g"
                           " seconds %g processor_seconds %g memory_mb %g", asked->measures.model,
                           (double)asked->measures.sequences * asked->measures.repeat * asked->measures.tokens,
                           asked->measures.ranks,
                           found->dump, found->golden, found->run.seconds, found->run.processor, found->run.memory);
    if (asked->measures.wrong)
        root = json_add(root, "right_seconds %g right_processor_seconds %g right_memory_mb %g", found->right.seconds,
                        found->right.processor, found->right.memory);
    return fail_about(err, json_finish(asked->json, root, err), "--json");
}

static void print(const struct check_speed *measures, const struct check_speed_found *found)
{
    printf("`orrery check` of model %s, %d sequences of %d tokens, a dump of %d rank%s in fp32\n", measures->model,
           measures->sequences * measures->repeat, measures->tokens, measures->ranks, plural(measures->ranks));
    if (measures->wrong) printf("  wrong       %s\n", measures->wrong);
    putchar('\n');
    printf("  dump        %8.0f MB\n  golden file %8.0f MB\n  time        %8.2f s, %.2f s of processors\n"
           "  dump read   %8.0f MB/s\n  memory      %8.0f MB at most\n",
           found->dump, found->golden, found->run.seconds, found->run.processor, found->dump / found->run.seconds,
           found->run.memory);
    if (measures->wrong)
        printf("  right dump  %8.2f s, %.2f s of processors; %.0f MB at most\n", found->right.seconds,
               found->right.processor, found->right.memory);
}

enum error_code bench_check_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a;
    struct check_speed_found m;
    (void)status;
    enum error_code e = check_parse(&a, argc, argv, err);
    if (e || a.help) return e;
    e = check_speed_measure(&a.measures, &m, err);
    if (e) return e;
    if (a.json == NULL || strcmp(a.json, "-") != 0) print(&a.measures, &m);
    return a.json ? check_write_json(&a, &m, err) : OK;
}
