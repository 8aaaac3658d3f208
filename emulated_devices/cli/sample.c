/* sample.c -- `orrery sample`: a model goes on with a text, on one device. */
#include "emulated_devices/cli/cli.h"
#include "ref/io/json.h"
#include "ref/machine/measure.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "ref/io/document.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/io/text.h"
#include "ref/text/generate.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STOPS_MOST = 16 };

struct sample_options {
    const char *model, *prompt, *tokenizer, *dtype;
    int tokens, top_k;
    bool endless;
    struct sampling how;
};

/* A model with what is needed to talk to it. */
struct speaker {
    const struct sample_options *options;
    char dir[BUNDLE_PATH];              /* of the model; empty: a preset */
    struct checkpoint saved;            /* in that folder */
    struct transformer model;
    struct tokenizer *tokenizer;        /* NULL: tokens are bytes */
    int32_t stop[STOPS_MOST];           /* tokens that end a text */
    int stops;
    struct text_stream text;
    enum error_code failed;             /* of showing */
    struct error error;
};

static enum error_code sample_parse(struct sample_options *options, int argc, char **argv, bool *help,
                                    struct error *err)
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
        { "--top-k", "K", OPTION_INT, &options->top_k, .min = 0, .max = 1e9,
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

/* ---- the model --------------------------------------------------------------------------------------------------- */

static enum error_code open_model(struct speaker *speaker, struct error *err)
{
    const struct sample_options *o = speaker->options;
    struct model_config config;
    struct stat st;
    int64_t batch;
    const bool folder = stat(o->model, &st) == 0 && S_ISDIR(st.st_mode);
    if (folder && !series_newest(speaker->dir, sizeof speaker->dir, o->model))
        snprintf(speaker->dir, sizeof speaker->dir, "%s", o->model);
    if (!folder && strpbrk(o->model, "./"))
        return fail(err, ERR_FILE, "--model %s: there is no such folder", printable_path(o->model).text);
    enum error_code e = folder ? checkpoint_open(&speaker->saved, speaker->dir, err) : OK;
    if (!e) e = folder ? checkpoint_config(&speaker->saved, &config, err)
                       : model_config_preset(&config, &batch, o->model, err);
    if (e) return folder ? fail_about(err, e, "--model") : e;
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
    e = transformer_open(&speaker->model, &config, dtype_by_name(o->dtype), o->how.seed, err);
    return !e && folder ? fail_about(err, checkpoint_load_serial(&speaker->model, &speaker->saved, err), "--model") : e;
}

/* The word of the command line, the model's own file, or what the run was given that has trained it. */
static enum error_code open_tokenizer(struct speaker *speaker, struct error *err)
{
    const struct sample_options *o = speaker->options;
    char own[BUNDLE_PATH + 20];
    const cJSON *of_run =
        speaker->saved.there ? cJSON_GetObjectItemCaseSensitive(speaker->saved.run, "--tokenizer") : NULL;
    snprintf(own, sizeof own, "%s/tokenizer.json", speaker->dir);
    const char *path = o->tokenizer                           ? o->tokenizer
                       : speaker->dir[0] && access(own, F_OK) == 0 ? own
                       : cJSON_IsString(of_run)               ? of_run->valuestring
                                                              : NULL;
    return path ? fail_about(err, tokenizer_open(&speaker->tokenizer, path, err), "--tokenizer") : OK;
}

/* eos_token_id of a folder's files: a number or a list; anything else ends nothing. */
static void find_stops(struct speaker *speaker)
{
    static const char *const file[] = { "generation_config.json", CONFIG_FILE };
    char path[BUNDLE_PATH + 40];
    struct error unread;
    for (int i = 0; i < 2 && speaker->dir[0] && speaker->stops == 0; i++) {
        cJSON *root;
        snprintf(path, sizeof path, "%s/%s", speaker->dir, file[i]);
        if (access(path, R_OK) != 0 || json_read(path, &root, &unread)) continue;
        const cJSON *eos = cJSON_GetObjectItemCaseSensitive(root, "eos_token_id");
        const cJSON *one = cJSON_IsArray(eos) ? eos->child : eos;
        for (int64_t id; one && speaker->stops < STOPS_MOST; one = cJSON_IsArray(eos) ? one->next : NULL)
            if (json_whole(one, &id) && id >= 0 && id <= INT32_MAX) speaker->stop[speaker->stops++] = (int32_t)id;
        cJSON_Delete(root);
    }
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static enum error_code read_prompt(const struct speaker *speaker, struct token_ids *ids, struct error *err)
{
    const char *prompt = speaker->options->prompt;
    const struct model_config *c = &speaker->model.config;
    enum error_code e = OK;
    if (speaker->tokenizer)
        e = fail_about(err, tokenizer_encode(speaker->tokenizer, prompt, strlen(prompt), true, ids, NULL,
                                             err), "--prompt");
    for (const char *at = prompt; *at && !speaker->tokenizer && !e; at++)
        if (!token_ids_add(ids, (uint8_t)*at)) e = fail(err, ERR_MEMORY, "no memory for the prompt");
    if (!e && ids->count == 0) e = fail(err, ERR_USAGE, "--prompt: is no token: there is nothing to go on with");
    for (int64_t i = 0; i < ids->count && !e; i++)
        if (ids->id[i] >= c->V)
            e = fail(err, ERR_USAGE, "--prompt: token %lld is %d; those of model %s are 0 to %lld%s", (long long)i,
                     (int)ids->id[i], c->name, (long long)c->V - 1, speaker->tokenizer ? ""
                         : ", and the prompt is bytes");
    return e;
}

static void sample_hear(void *context, int32_t token)
{
    struct speaker *s = context;
    if (!s->failed) s->failed = text_stream_add(&s->text, token, &s->error);
}

/* The text of the tokens from `first` on, for free(); NULL: no memory. */
static char *sample_text_of(const struct speaker *speaker, const struct token_ids *ids, int64_t first)
{
    struct text_stream all = { .tokenizer = speaker->tokenizer };
    char *text = NULL;
    size_t bytes;
    struct error unread;
    enum error_code e = OK;
    all.out = open_memstream(&text, &bytes);
    if (all.out == NULL) return NULL;
    FILE *const out = all.out;
    for (int64_t i = 0; i < ids->count && !e; i++) {
        text_stream_show(&all, i < first ? NULL : out);
        e = text_stream_add(&all, ids->id[i], &unread);
    }
    text_stream_end(&all);
    text_stream_free(&all);
    if (fclose(out) == 0 && !e) return text;
    free(text);
    return NULL;
}

static void add_list(cJSON *to, const char *name, const int32_t *id, int64_t n)
{
    cJSON *list = cJSON_AddArrayToObject(to, name);
    for (int64_t i = 0; i < n; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber(id[i]));
}

static void add_summary(const struct speaker *speaker, const struct token_ids *ids, int64_t prompt, double seconds)
{
    cJSON *data = document_data();
    const struct sample_options *o = speaker->options;
    char seed[24];
    if (data == NULL) return;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->how.seed);
    char *text = sample_text_of(speaker, ids, prompt);
    json_add(data, "model %s prompt %s", speaker->model.config.name, o->prompt);
    add_list(data, "prompt_ids", ids->id, prompt);
    add_list(data, "ids", ids->id + prompt, ids->count - prompt);
    json_add(data, "continuation %s temperature %g top_k %g top_p %g seed %s ended %hhd seconds %g"
             " tokens_per_second %g", text ? text : "", o->how.temperature, (double)o->how.top_k, o->how.top_p, seed,
             ids->count - prompt < o->tokens, seconds, (double)(ids->count - prompt) / seconds);
    free(text);
}

static enum error_code speak(struct speaker *speaker, struct token_ids *ids, struct error *err)
{
    const struct sample_options *o = speaker->options;
    const int64_t prompt = ids->count;
    speaker->text = (struct text_stream){ .tokenizer = speaker->tokenizer, .out = stdout };
    for (int64_t i = 0; i < prompt; i++) sample_hear(speaker, ids->id[i]);
    const double began = measure_now();
    enum error_code e = generate(&speaker->model, ids, o->tokens, &o->how, speaker->stop,
                                 o->endless ? 0 : speaker->stops, sample_hear, speaker, err);
    const double seconds = measure_now() - began;
    text_stream_end(&speaker->text);
    printf("\n");
    if (!e && speaker->failed) e = fail(err, speaker->failed, "%s", speaker->error.text);
    if (e) return e;
    add_summary(speaker, ids, prompt, seconds);
    if (terminal_columns(stdout) > 0)
        say(stdout, 0, "\n%lld tokens in %.1f s: %.1f a second", (long long)(ids->count - prompt), seconds,
            (double)(ids->count - prompt) / seconds);
    return OK;
}

enum error_code command_sample(int argc, char **argv, int *status, struct error *err)
{
    struct sample_options o = { .tokens = 100, .dtype = "fp32", .how = { .temperature = 1, .top_p = 1, .seed = 42 } };
    struct speaker s = { .options = &o };
    struct token_ids ids = { 0 };
    bool help;
    (void)status;
    enum error_code e = sample_parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    o.how.top_k = o.top_k;
    e = open_model(&s, err);
    if (!e) e = open_tokenizer(&s, err);
    if (!e) find_stops(&s);
    if (!e) e = read_prompt(&s, &ids, err);
    if (!e) e = speak(&s, &ids, err);
    text_stream_free(&s.text);
    token_ids_free(&ids);
    if (s.tokenizer) tokenizer_close(s.tokenizer);
    if (s.model.params) transformer_close(&s.model);
    checkpoint_close(&s.saved);
    return e;
}
