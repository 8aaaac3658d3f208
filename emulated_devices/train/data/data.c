/* data.c -- reads the texts and token files of a run, and fills batches from them.  run/session.c loads and fills;
 * run/words/take.c asks for the vocabulary, run/sample.c for prompts.  Flags that do not go together are ERR_USAGE,
 * an empty file is ERR_FORMAT.  A model with too small a vocabulary is ERR_PLAN.  After an error of train_data_load
 * there is nothing to free.  Without memory the code is ERR_MEMORY. */
#include "emulated_devices/train/data/data.h"
#include "emulated_devices/train/data/data_words.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "ref/io/output.h"
#include "ref/io/samples.h"
#include <stdlib.h>
#include <string.h>

/* ---- one text of bytes ------------------------------------------------------------------------------------------- */

static enum error_code check_padding(const struct model_config *config, const struct text *text, struct error *err)
{
    const uint8_t *at = config->padding && config->padding <= TEXT_VOCABULARY
                            ? memchr(text->bytes, (int)config->padding - 1, (size_t)text->count)
                            : NULL;
    const int32_t token = at ? *at : 0;
    return at ? model_config_check_inputs(config, &token, 1, text->name, err) : OK;
}

static enum error_code load_text(struct train_data *data, const struct train_data_source *source, struct error *err)
{
    struct text *text = &data->text;
    enum error_code e = text_load_named(text, source->data, err);
    if (!e && source->eval_data) text->whole = true, text->train = text->count;
    if (!e) e = text_check_length(text, source->plan->S, err);
    if (!e) e = check_padding(&source->plan->model, text, err);
    e = fail_about(err, e, source->data ? "--data" : "--data is not given, and");
    if (!e && source->pack)
        e = fail_about(err, samples_pack(text, source->pack, source->plan->S, source->plan->seed, err), "--pack");
    if (!e && source->pack)
        e = fail_about(err, samples_check_clips(&text->packing, source->plan->encoders.kinds, err), "--pack:");
    return e;
}

/* ---- files of tokens --------------------------------------------------------------------------------------------- */

/* A text as the tokens of --tokenizer. */
static enum error_code read_text(struct train_data *data, struct token_file *file, const char *path, struct error *err)
{
    enum { TEXT_MOST = 1 << 30 };
    struct token_ids ids = { 0 };
    char *text;
    size_t bytes;
    enum error_code e = file_read_all(path, TEXT_MOST, &text, &bytes, err);
    if (e) return e;
    e = tokenizer_encode(data->tokenizer, text, bytes, false, &ids, NULL, err);
    free(text);
    if (!e && ids.count == 0) e = fail(err, ERR_FORMAT, "%s: is empty", printable_path(path).text);
    if (!e) token_file_take(file, path, &ids);
    token_ids_free(&ids);
    return e;
}

/* A model that does not learn from its padding must not meet it. */
static enum error_code check_tokens(const struct model_config *config, const struct token_file *file, struct error *err)
{
    struct error found;
    if (token_file_check(file, config->V, &found))
        return fail(err, found.code, "%s (a preset takes more with --vocabulary N or --tokenizer PATH)", found.text);
    if (config->padding == 0) return OK;
    const int32_t token = (int32_t)config->padding - 1;
    return token_file_find(file, token) < 0 ? OK : model_config_check_inputs(config, &token, 1, file->name, err);
}

static enum error_code data_open_file(struct train_data *data, struct token_file *file, const struct data_word *word,
                                      const struct model_config *config, struct error *err)
{
    const enum error_code e = data_word_is_tokens(word) ? token_file_open(file, word->path, word->width, err)
                              : data->tokenizer         ? read_text(data, file, word->path, err)
                                                        : token_file_open_text(file, word->path, err);
    return e ? e : check_tokens(config, file, err);
}

/* Bytes and tokens have nothing to do with each other. */
static enum error_code check_mixed(const struct data_words *words, bool tokenizer, struct error *err)
{
    const char *text = NULL, *tokens = NULL;
    for (int i = 0; i < words->count; i++)
        if (data_word_is_tokens(&words->word[i])) tokens = words->word[i].path;
        else text = words->word[i].path;
    return text && tokens && !tokenizer
               ? fail(err, ERR_USAGE, "%s: has tokens, and %s is a text; --tokenizer PATH makes tokens of it",
                      printable_path(tokens).text, printable_path(text).text)
               : OK;
}

/* count: data->files or data->held_files. */
static enum error_code open_files(struct train_data *data, const struct data_words *words,
                                  const struct model_config *config, int *count, struct error *err)
{
    enum error_code e = check_mixed(words, data->tokenizer != NULL, err);
    for (int i = 0; i < words->count && !e; i++) {
        struct token_file *f = &data->file[data->files + data->held_files];
        ++*count;
        e = data_open_file(data, f, &words->word[i], config, err);
    }
    return e;
}

/* Parts of files: all of each, or its first nine tenths, or the rest. */
enum taken { ALL, NINE_TENTHS, LAST_TENTH };

static enum error_code data_cut(struct train_data *data, struct corpus *corpus,
                                const struct token_file *file, int files,
                                const struct data_words *words, enum taken taken, const struct plan *plan,
                                struct error *err)
{
    struct corpus_part *part = calloc((size_t)files, sizeof *part);
    if (part == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d files", files);
    for (int i = 0; i < files; i++) {
        const int64_t held = taken == ALL ? 0 : file[i].count / 10, rest = file[i].count - held;
        part[i] = (struct corpus_part){ .file = &file[i], .share = words ? words->word[i].share : 0,
                                        .first = taken == LAST_TENTH ? rest : 0,
                                        .count = taken == LAST_TENTH ? held : rest };
    }
    const char *const use = corpus == &data->held ? "validation" : "training";
    const enum error_code e = corpus_open(corpus, part, files, plan->S, plan->seed, use, err);
    free(part);
    return e;
}

static enum error_code load_tokens(struct train_data *data, const struct train_data_source *source,
                                   const struct data_words *words, struct error *err)
{
    if (source->pack)
        return fail(err, ERR_USAGE, "--pack: cuts one text of bytes into samples; not files of tokens, several files "
                                    "or --tokenizer");
    enum error_code e = open_files(data, words, &source->plan->model, &data->files, err);
    if (!e) e = data_cut(data, &data->train, data->file, data->files, words, source->eval_data ? ALL : NINE_TENTHS,
                         source->plan, err);
    if (!e && !source->eval_data)
        e = data_cut(data, &data->held, data->file, data->files, words, LAST_TENTH, source->plan, err);
    return fail_about(err, e, "--data");
}

static enum error_code load_held(struct train_data *data, const struct train_data_source *source,
                                 const struct data_words *words, struct error *err)
{
    enum error_code e = open_files(data, words, &source->plan->model, &data->held_files, err);
    if (!e) e = data_cut(data, &data->held, data->file + data->files, data->held_files, words, ALL, source->plan, err);
    return fail_about(err, e, "--eval-data");
}

/* Beside a golden file. */
static enum error_code load_held_alone(struct train_data *data, const struct train_data_source *source,
                                       const struct data_words *words, struct error *err)
{
    data->file = calloc((size_t)words->count + 1, sizeof *data->file);
    return data->file ? load_held(data, source, words, err) : fail(err, ERR_MEMORY, "no memory for a list of files");
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

/* A run that goes on takes the sequence after the last that it had taken. */
static enum error_code take_position(struct train_data *data, const struct train_data_source *source, struct error *err)
{
    const cJSON *at = source->resumed ? cJSON_GetObjectItemCaseSensitive(source->resumed->run, SEQUENCES_TAKEN) : NULL;
    data->begun_step = source->resumed ? source->resumed->step : 0;
    if (at == NULL) return OK;
    char *end = NULL;
    const long long n = cJSON_IsString(at) ? strtoll(at->valuestring, &end, 10) : -1;
    if (n < 0 || end == at->valuestring || *end || n > INT64_C(1) << 56)
        return fail(err, ERR_FORMAT, "--resume: %s: %s must be a number of sequences", TRAINING_FILE, SEQUENCES_TAKEN);
    data->begun = n;
    return OK;
}

static bool is_one_text(const struct data_words *words, const struct train_data_source *source)
{
    return source->data == NULL ? !source->tokenizer
                           : words->count == 1 && !source->tokenizer && !words->word[0].share
                               && !data_word_is_tokens(&words->word[0]);
}

/* The words of --data and --eval-data; without the first, the program's own text, which is one of bytes.  The array of
 * files does not move: corpora point into it. */
static enum error_code data_load(struct train_data *data, const struct train_data_source *source,
                                 const struct data_words *words, const struct data_words *held, struct error *err)
{
    enum error_code e = OK;
    const bool bytes = is_one_text(words, source);
    data->file = calloc((size_t)(words->count + held->count) + 1, sizeof *data->file);
    if (data->file == NULL) return fail(err, ERR_MEMORY, "no memory for a list of files");
    if (source->tokenizer && source->data == NULL)
        return fail(err, ERR_USAGE, "--tokenizer: needs --data FILE, a text");
    if (bytes && source->plan->model.V < TEXT_VOCABULARY)
        return fail(err, ERR_PLAN, "model %s has V=%lld tokens; text needs %d, one for each byte",
                    source->plan->model.name, (long long)source->plan->model.V, TEXT_VOCABULARY);
    if (source->tokenizer) e = fail_about(err, tokenizer_open(&data->tokenizer, source->tokenizer, err), "--tokenizer");
    if (!e) e = bytes ? load_text(data, source, err) : load_tokens(data, source, words, err);
    if (!e && source->eval_data) e = load_held(data, source, held, err);
    return e ? e : take_position(data, source, err);
}

enum error_code train_data_load(struct train_data *data, const struct train_data_source *source, struct error *err)
{
    struct data_words l = { 0 }, held = { 0 };
    *data = (struct train_data){ .plan = source->plan };
    if (source->golden && !source->eval_data) return OK;          /* it has its own batches */
    enum error_code e = source->data ? fail_about(err, data_words_read(&l, source->data, err), "--data") : OK;
    if (!e && source->eval_data) e = fail_about(err, data_words_read(&held, source->eval_data, err), "--eval-data");
    if (!e) e = source->golden ? load_held_alone(data, source, &held, err) : data_load(data, source, &l, &held, err);
    data_words_free(&l), data_words_free(&held);
    if (e) train_data_free(data);
    return e;
}

/* Tokens of a plan's samples: of so many batches, but of no more than memory is fair for, and of two sequences. */
enum { PLAN_BATCHES = 16, PLAN_TOKENS = 1 << 26 };

static int64_t plan_tokens(const struct plan *plan)
{
    const int64_t all = PLAN_BATCHES * plan->B * plan->S, most = all < PLAN_TOKENS ? all : PLAN_TOKENS;
    return most > 2 * plan->S ? most : 2 * plan->S;
}

enum error_code train_data_lengths(struct packing *packing, const struct train_data_source *source, struct error *err)
{
    struct train_data data;
    struct text own;
    const struct plan *const p = source->plan;
    const bool given = source->data || source->tokenizer || source->eval_data;
    enum error_code e = given ? train_data_load(&data, source, err) : text_load_own(&own, err);
    *packing = (struct packing){ 0 };
    if (!e && given) {
        *packing = data.text.packing, data.text.packing = (struct packing){ 0 };
        train_data_free(&data);
    } else if (!e) {
        const int64_t tokens = text_check_length(&own, p->S, NULL) == OK ? own.train : plan_tokens(p);
        e = fail_about(err, samples_pack_tokens(packing, source->pack, tokens, p->S, p->seed, err), "--pack");
        text_free(&own);
        if (!e) e = fail_about(err, samples_check_clips(packing, p->encoders.kinds, err), "--pack:");
        if (e) packing_free(packing);
    }
    return e;
}

void train_data_free(struct train_data *data)
{
    text_free(&data->text);
    corpus_close(&data->train), corpus_close(&data->held);
    for (int i = 0; i < data->files + data->held_files; i++) token_file_close(&data->file[i]);
    free(data->file);
    if (data->tokenizer) tokenizer_close(data->tokenizer);
    *data = (struct train_data){ 0 };
}

enum error_code train_data_vocabulary(const char *tokenizer, int32_t *vocabulary, struct error *err)
{
    struct tokenizer *t;
    const enum error_code e = fail_about(err, tokenizer_open(&t, tokenizer, err), "--tokenizer");
    if (e) return e;
    *vocabulary = tokenizer_vocabulary(t);
    tokenizer_close(t);
    return OK;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

int64_t train_data_position(const struct train_data *data, int64_t step)
{
    int64_t n = data->begun;
    if (data->plan->batches == NULL) return n + (step - data->begun_step) * data->plan->B;
    for (int64_t s = data->begun_step; s < step; s++) n += plan_sequences_of(data->plan, s);
    return n;
}

void train_data_fill(const struct train_data *data, int64_t step, int64_t first, int64_t count, int32_t *ids,
                     int32_t *labels, int32_t *within)
{
    const struct plan *p = data->plan;
    if (train_data_has_tokens(data))
        corpus_fill(&data->train, train_data_position(data, step) + first, count, ids, labels);
    else if (within) samples_batch(&data->text, p->seed, step, first, count, ids, labels, within);
    else text_batch(&data->text, TEXT_TRAIN, p->seed, step, p->S, first, count, ids, labels);
}

void train_data_fill_held(const struct train_data *data, int64_t step, int64_t first, int64_t count, int32_t *ids,
                          int32_t *labels)
{
    const struct plan *p = data->plan;
    if (data->held.period > 0) corpus_fill(&data->held, step * plan_most_sequences(p) + first, count, ids, labels);
    else text_batch(&data->text, TEXT_VALIDATION, p->seed, step, p->S, first, count, ids, labels);
}

void train_data_prompt(const struct train_data *data, int64_t count, int32_t *ids)
{
    int part;
    const int64_t from = data->held.period > 0 ? corpus_window(&data->held, 0, &part) : data->text.train;
    for (int64_t i = 0; i < count; i++)
        ids[i] = data->held.period > 0 ? token_file_get(data->held.part[part].file, from + i)
            : data->text.bytes[from + i];
}

/* ---- what it was ------------------------------------------------------------------------------------------------- */

static void data_describe(char *to, size_t size, const struct corpus *corpus)
{
    struct sha256 sum = sha256_begin();
    int64_t tokens = 0;
    for (int i = 0; i < corpus->parts; i++) {
        char line[80];
        sha256_add(&sum, line, (size_t)snprintf(line, sizeof line, "%lld + %lld, %d;", (long long)corpus->part[i].first,
                                                (long long)corpus->part[i].count, corpus->part[i].share));
        token_file_digest(corpus->part[i].file, &sum);
        tokens += corpus->part[i].count;
    }
    snprintf(to, size, "%lld tokens, SHA-256 %s", (long long)tokens, sha256_end(&sum).text);
}

struct data_facts train_data_facts(const struct train_data *data)
{
    struct data_facts f = { "", "" };
    if (train_data_has_tokens(data)) data_describe(f.train, sizeof f.train, &data->train);
    else
        snprintf(f.train, sizeof f.train, "%lld bytes, SHA-256 %s", (long long)data->text.count,
                 sha256_of(data->text.bytes, (size_t)data->text.count).text);
    if (data->held_files) data_describe(f.held, sizeof f.held, &data->held);
    return f;
}
