/* speaker.c -- opens a model, or a checkpoint of training, with what it needs to go on with a text: its tokenizer, and
 * the tokens that end a text (speech.h).  cli/sample.c calls.  Errors: ERR_FILE without the model's folder, ERR_USAGE
 * for a prompt without tokens of the model, ERR_MEMORY, and those of reading files. */
#include "emulated_devices/run/speaker.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/run/speech.h"
#include "ref/io/output.h"
#include "ref/machine/measure.h"
#include "ref/text/generate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A model with what is needed to talk to it. */
struct speaker {
    const struct speaker_request *request;      /* the caller's */
    char dir[BUNDLE_PATH];              /* of the model; empty: a preset */
    struct checkpoint saved;            /* in that folder */
    struct transformer model;           /* with its weights */
    struct tokenizer *tokenizer;        /* NULL: tokens are bytes */
    int32_t stop[SPEECH_STOPS];         /* tokens that end a text */
    int stops;                          /* entries of `stop` */
    struct text_stream text;            /* to `out` */
    enum error_code failed;             /* of showing */
    struct error error;                 /* likewise */
};

/* ---- the model --------------------------------------------------------------------------------------------------- */

static enum error_code open_model(struct speaker *speaker, struct error *err)
{
    const struct speaker_request *o = speaker->request;
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
    const cJSON *const mask = folder && speaker->saved.there
        ? cJSON_GetObjectItemCaseSensitive(speaker->saved.run, "--mask") : NULL;
    /* Most masks depend on the length of the whole text, which is not known while the text is being made. */
    if (cJSON_IsString(mask))
        return fail(err, ERR_USAGE, "--model %s: was trained with --mask %s; text is made with causal attention alone",
                    printable_path(o->model).text, printable(mask->valuestring).text);
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
    e = transformer_open(&speaker->model, &config, dtype_by_name(o->dtype), o->how.seed, err);
    return !e && folder ? fail_about(err, checkpoint_load_serial(&speaker->model, &speaker->saved, err), "--model") : e;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static enum error_code read_prompt(const struct speaker *speaker, struct token_ids *ids, struct error *err)
{
    const char *prompt = speaker->request->prompt;
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

/* The text of the tokens from `first` on, for free(); NULL: no memory. */
static char *speaker_text(const struct speaker *speaker, const struct token_ids *ids, int64_t first)
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

static void hear_token(void *context, int32_t token)
{
    struct speaker *s = context;
    if (!s->failed) s->failed = text_stream_add(&s->text, token, &s->error);
}

static enum error_code speak_on(struct speaker *speaker, FILE *out, struct spoken *spoken, struct error *err)
{
    const struct speaker_request *o = speaker->request;
    struct token_ids *const ids = &spoken->ids;
    spoken->prompt = ids->count;
    speaker->text = (struct text_stream){ .tokenizer = speaker->tokenizer, .out = out };
    for (int64_t i = 0; i < spoken->prompt; i++) hear_token(speaker, ids->id[i]);
    const double began = measure_now();
    enum error_code e = generate(&speaker->model, ids, o->tokens, &o->how, speaker->stop,
                                 o->endless ? 0 : speaker->stops, hear_token, speaker, err);
    spoken->seconds = measure_now() - began;
    text_stream_end(&speaker->text);
    fputc('\n', out);
    spoken->text = e ? NULL : speaker_text(speaker, ids, spoken->prompt);
    snprintf(spoken->model, sizeof spoken->model, "%s", speaker->model.config.name);
    return !e && speaker->failed ? fail(err, speaker->failed, "%s", speaker->error.text) : e;
}

enum error_code speak(const struct speaker_request *request, FILE *out, struct spoken *spoken, struct error *err)
{
    struct speaker s = { .request = request };
    *spoken = (struct spoken){ .prompt = 0 };
    enum error_code e = open_model(&s, err);
    if (!e) e = speech_tokenizer(&s.tokenizer, request->tokenizer, s.dir, &s.saved, err);
    if (!e) s.stops = speech_stops(s.dir, s.stop);
    if (!e) e = read_prompt(&s, &spoken->ids, err);
    if (!e) e = speak_on(&s, out, spoken, err);
    text_stream_free(&s.text);
    if (s.tokenizer) tokenizer_close(s.tokenizer);
    if (s.model.params) transformer_close(&s.model);
    checkpoint_close(&s.saved);
    return e;
}

void spoken_free(struct spoken *spoken)
{
    token_ids_free(&spoken->ids);
    free(spoken->text);
}
