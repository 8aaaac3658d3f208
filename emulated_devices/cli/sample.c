/* sample.c -- `orrery sample`: a model goes on with a text, on one device.  main.c calls command_sample().  Errors:
 * ERR_USAGE of the words, and those of run/speaker.c. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/run/speaker.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdio.h>

static enum error_code sample_parse(struct speaker_request *options, int *top_k, int argc, char **argv,
                                    bool *help, struct error *err)
{
    const struct option table[] = {
        { "--model", "DIR|NAME", OPTION_STRING, &options->model, .required = true,
          .help = "a Hugging Face folder with weights, a checkpoint, or a folder of --save-every, of which the newest "
                  "is taken; or a preset, which has learned nothing" },
        { "--prompt", "TEXT", OPTION_STRING, &options->prompt, .required = true, .help = "the text that the model "
                                                                                   "goes on with" },
        { "--tokens", "N", OPTION_INT, &options->tokens, .min = 1, .max = 1e6, .help = "the most tokens to write" },
        { "--temperature", "T", OPTION_DOUBLE, &options->how.temperature, .min = 0, .max = 1e6,
          .help = "divides the logits; 0 always takes the most probable token" },
        { "--top-k", "K", OPTION_INT, top_k, .min = 0, .max = 1e9,
          .help = "draw among the K most probable tokens; 0: among all" },
        { "--top-p", "P", OPTION_DOUBLE, &options->how.top_p, .min = 1e-6, .max = 1,
          .help = "draw among the fewest tokens that have the probability P together" },
        { "--seed", "N", OPTION_UINT64, &options->how.seed, .help = "seed of the draws, and of a preset's weights" },
        { "--tokenizer", "PATH", OPTION_STRING, &options->tokenizer,
          .help = "a tokenizer.json, or a folder that has one; default: the model's own, or that of its training; "
                  "without one tokens are bytes" },
        { "--endless", NULL, OPTION_SWITCH, &options->endless,
          .help = "go on after a token that ends a text (eos_token_id in the model's files)" },
        { "--dtype", "NAME", OPTION_CHOICE, &options->dtype, .choices = number_formats, .help = "number format" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command("sample", "--model DIR|NAME --prompt TEXT [options]",
                         "Let a model go on with a text, token by token, on one device. Keys and values of the\n"
                         "tokens so far are kept; not of parallel streams, of experts with a capacity, of LongRoPE\n"
                         "beyond its first length: there each token takes a forward pass over all before it.",
                         argc - 2, argv + 2, table, help, err);
}

static void add_summary(const struct speaker_request *asked, const struct spoken *spoken)
{
    cJSON *data = document_data();
    const struct sampling *how = &asked->how;
    const int64_t written = spoken->ids.count - spoken->prompt;
    char seed[24];
    if (data == NULL) return;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)how->seed);
    json_add(data, "model %s prompt %s", spoken->model, asked->prompt);
    cJSON_AddItemToObject(data, "prompt_ids", cJSON_CreateIntArray(spoken->ids.id, (int)spoken->prompt));
    cJSON_AddItemToObject(data, "ids", cJSON_CreateIntArray(spoken->ids.id + spoken->prompt, (int)written));
    json_add(data, "continuation %s temperature %g top_k %g top_p %g seed %s ended %hhd seconds %g"
             " tokens_per_second %g",
             spoken->text ? spoken->text : "", how->temperature, (double)how->top_k, how->top_p, seed,
             written < asked->tokens, spoken->seconds, (double)written / spoken->seconds);
}

enum error_code command_sample(int argc, char **argv, int *status, struct error *err)
{
    struct speaker_request o = { .tokens = 100, .dtype = "fp32", .how = { .temperature = 1, .top_p = 1, .seed = 42 } };
    struct spoken s;
    int top_k = 0;
    bool help;
    (void)status;
    enum error_code e = sample_parse(&o, &top_k, argc, argv, &help, err);
    if (e || help) return e;
    o.how.top_k = top_k;
    e = speak(&o, stdout, &s, err);
    const int64_t written = s.ids.count - s.prompt;
    if (!e) add_summary(&o, &s);
    if (!e && terminal_columns(stdout) > 0)
        say(stdout, 0, "\n%lld tokens in %.1f s: %.1f a second", (long long)written, s.seconds,
            (double)written / s.seconds);
    spoken_free(&s);
    return e;
}
