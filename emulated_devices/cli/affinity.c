/* affinity.c -- `orrery affinity`: groups experts and tokens of a mixture for speculative dispatch.  main.c calls
 * command_affinity().  Errors: ERR_USAGE of the words, and those of model/group_experts.c, which writes the model. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/group_experts.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "ref/io/output.h"
#include "ref/io/text.h"
#include "ref/model/config.h"
#include <stdio.h>

struct asked { const char *model, *data; struct grouping how; };

static enum error_code affinity_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "OUT", NULL, OPTION_STRING, &asked->how.out, .required = true, .help = "the folder to write" },
        { "--ep", "N", OPTION_INT, &asked->how.ep, .required = true, .min = 1, .max = 4096,
         .help = "parts of the experts" },
        { "--model", "NAME|DIR", OPTION_STRING, &asked->model,
          .help = "a mixture: a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--data", "FILE", OPTION_STRING, &asked->data,
          .help = "text, or a folder of sources and documents; default: two plays of Shakespeare" },
        { "--batches", "N", OPTION_INT, &asked->how.batches, .min = 1, .max = 1e6,
          .help = "how many batches to look at; a quarter as many, of the text for validation, are for the check" },
        { "--batch", "N", OPTION_INT, &asked->how.batch, .min = 1, .max = 1e6, .help = "sequences of a batch" },
        { "--seq", "N", OPTION_INT, &asked->how.seq, .min = 0, .max = 1e6,
          .help = "tokens of a sequence; 0: the model's" },
        { "--seed", "N", OPTION_UINT64, &asked->how.seed, .help = "seed of the batches, and of a preset's weights" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command("affinity", "OUT --ep N [options]",
                         "Find which experts the tokens of a text choose, and group both into N parts, so that most\n"
                         "choices are inside a part. Write a folder with the same model, its experts in the order of\n"
                         "the parts, and affinity.json, the part of each token and of pairs of tokens that need\n"
                         "another part, for orrery train --model OUT\n"
                         "--dispatch speculative --affinity OUT/affinity.json.", argc - 2, argv + 2, table, help, err);
}

static void print_result(const struct model_config *config, const struct grouping *how)
{
    const double nothing = 1.0 / how->parts;
    printf("model   %s: %lld layers of %lld experts, %lld for each token; %d parts\n"
           "text    %d batches of %d sequences of %d tokens\n\n"
           "choices inside a part                  of this text   of other text   sent less\n"
           "  nothing known: 1 / %-4d                   %6.1f %%        %6.1f %%\n"
           "  experts and tokens grouped               %6.1f %%        %6.1f %%     %6.1f %%\n"
           "  and %-8lld pairs of tokens                           %6.1f %%     %6.1f %%\n"
           "experts of the part with most choices, over the mean: %.2f\n\n"
           "wrote   %s: config.json, model.safetensors, affinity.json\n",
           config->name, (long long)config->L, (long long)config->mixture.E, (long long)config->mixture.k,
           how->parts, how->batches, how->batch, how->seq, how->parts, 100 * nothing, 100 * nothing,
           100 * how->local, 100 * how->checked,
           how->parts > 1 ? 100 * (1 - (1 - how->checked) / (1 - nothing)) : 0, (long long)how->pairs,
           100 * how->checked_pairs, how->parts > 1 ? 100 * (1 - (1 - how->checked_pairs) / (1 - nothing)) : 0,
           how->imbalance,
           printable_path(how->out).text);
    if (config->mixture.balance_coefficient > 0)
        printf("note    the balance loss counts an expert's number over all layers, so it changes with the numbers\n");
}

enum error_code command_affinity(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .model = "mixtral-tiny", .how = { .batch = 8, .batches = 32, .seed = 42 } };
    struct model_config config;
    struct text text = { 0 };
    const char *dir;
    bool help;
    (void)status;
    enum error_code e = affinity_parse(&a, argc, argv, &help, err);
    if (e || help) return e;
    e = find_model(&config, a.model, &dir, err);
    if (!e) e = group_check(&config, &a.how, err);
    if (!e) e = text_load_named(&text, a.data, err);
    if (!e) e = fail_about(err, text_check_length(&text, a.how.seq, err), "--data");
    const struct kept kept = { "--out", a.how.out, true };
    if (!e) origin_name_run(), e = keeping_take(&kept, 1, stdout, err);
    if (!e) e = group_experts(&config, dir, &text, &a.how, err);
    keeping_release();
    if (!e) print_result(&config, &a.how);
    text_free(&text);
    return e;
}
