#include "emulated_devices/cli/train/data/data.h"
#include "emulated_devices/cli/train/data/data_words.h"
#include "emulated_devices/cli/train/train.h"
#include "ref/io/samples.h"
#include <stdlib.h>
#include <string.h>

/* ---- one text of bytes ------------------------------------------------------------------------------------------- */

static enum error_code check_padding(const struct model_config *c, const struct text *text, struct error *err)
{
    const uint8_t *at = c->padding && c->padding <= TEXT_VOCABULARY
                            ? memchr(text->bytes, (int)c->padding - 1, (size_t)text->count)
                            : NULL;
    const int32_t token = at ? *at : 0;
    return at ? model_config_check_inputs(c, &token, 1, text->name, err) : OK;
}

static enum error_code load_text(struct train_data *d, const struct train_options *o, struct error *err)
{
    struct text *text = &d->text;
    enum error_code e = text_load_named(text, o->data, err);
    if (!e && o->eval_data) text->whole = true, text->train = text->count;
    if (!e) e = text_check_length(text, o->plan.S, err);
    if (!e) e = check_padding(&o->plan.model, text, err);
    e = fail_about(err, e, o->data ? "--data" : "--data is not given, and");
    if (!e && o->pack) e = fail_about(err, samples_pack(text, o->pack, o->plan.S, o->plan.seed, err), "--pack");
    return e;
}

/* ---- files of tokens --------------------------------------------------------------------------------------------- */

/* A text as the tokens of --tokenizer. */
static enum error_code read_text(struct train_data *d, struct token_file *f, const char *path, struct error *err)
{
    enum { TEXT_MOST = 1 << 30 };
    struct token_ids ids = { 0 };
    char *text;
    size_t bytes;
    enum error_code e = file_read_all(path, TEXT_MOST, &text, &bytes, err);
    if (e) return e;
    e = tokenizer_encode(d->tokenizer, text, bytes, false, &ids, NULL, err);
    free(text);
    if (!e && ids.count == 0) e = fail(err, ERR_FORMAT, "%s: is empty", printable_path(path).text);
    if (!e) token_file_take(f, path, &ids);
    token_ids_free(&ids);
    return e;
}

/* A model that does not learn from its padding must not meet it. */
static enum error_code check_tokens(const struct model_config *c, const struct token_file *f, struct error *err)
{
    struct error found;
    if (token_file_check(f, c->V, &found))
        return fail(err, found.code, "%s (a preset takes more with --vocabulary N or --tokenizer PATH)", found.text);
    if (c->padding == 0) return OK;
    const int32_t token = (int32_t)c->padding - 1;
    return token_file_find(f, token) < 0 ? OK : model_config_check_inputs(c, &token, 1, f->name, err);
}

static enum error_code open_file(struct train_data *d, struct token_file *f, const char *path,
                                 const struct model_config *c, struct error *err)
{
    const enum error_code e = token_file_is(path) ? token_file_open(f, path, err)
                              : d->tokenizer      ? read_text(d, f, path, err)
                                                  : token_file_open_text(f, path, err);
    return e ? e : check_tokens(c, f, err);
}

/* Bytes and tokens have nothing to do with each other. */
static enum error_code check_mixed(const struct data_words *l, bool tokenizer, struct error *err)
{
    const char *text = NULL, *tokens = NULL;
    for (int i = 0; i < l->count; i++)
        if (token_file_is(l->word[i].path)) tokens = l->word[i].path;
        else text = l->word[i].path;
    return text && tokens && !tokenizer
               ? fail(err, ERR_USAGE, "%s: has tokens, and %s is a text; --tokenizer PATH makes tokens of it",
                      printable_path(tokens).text, printable_path(text).text)
               : OK;
}

/* count: d->files or d->held_files. */
static enum error_code open_files(struct train_data *d, const struct data_words *l, const struct model_config *c,
                                  int *count, struct error *err)
{
    enum error_code e = check_mixed(l, d->tokenizer != NULL, err);
    for (int i = 0; i < l->count && !e; i++) {
        struct token_file *f = &d->file[d->files + d->held_files];
        ++*count;
        e = open_file(d, f, l->word[i].path, c, err);
    }
    return e;
}

/* Parts of files: all of each, or its first nine tenths, or the rest. */
enum taken { ALL, NINE_TENTHS, LAST_TENTH };

static enum error_code cut(struct train_data *d, struct corpus *c, const struct token_file *file, int files,
                           const struct data_words *l, enum taken taken, const struct plan *p, struct error *err)
{
    struct corpus_part *part = calloc((size_t)files, sizeof *part);
    if (part == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d files", files);
    for (int i = 0; i < files; i++) {
        const int64_t held = taken == ALL ? 0 : file[i].count / 10, rest = file[i].count - held;
        part[i] = (struct corpus_part){ .file = &file[i], .share = l ? l->word[i].share : 0,
                                        .first = taken == LAST_TENTH ? rest : 0,
                                        .count = taken == LAST_TENTH ? held : rest };
    }
    const char *const use = c == &d->held ? "validation" : "training";
    const enum error_code e = corpus_open(c, part, files, p->S, p->seed, use, err);
    free(part);
    return e;
}

static enum error_code load_tokens(struct train_data *d, const struct train_options *o, const struct data_words *l,
                                   struct error *err)
{
    if (o->pack)
        return fail(err, ERR_USAGE, "--pack: cuts one text of bytes into samples; not files of tokens, several files "
                                    "or --tokenizer");
    enum error_code e = open_files(d, l, &o->plan.model, &d->files, err);
    if (!e) e = cut(d, &d->train, d->file, d->files, l, o->eval_data ? ALL : NINE_TENTHS, &o->plan, err);
    if (!e && !o->eval_data) e = cut(d, &d->held, d->file, d->files, l, LAST_TENTH, &o->plan, err);
    return fail_about(err, e, "--data");
}

static enum error_code load_held(struct train_data *d, const struct train_options *o, const struct data_words *l,
                                 struct error *err)
{
    enum error_code e = open_files(d, l, &o->plan.model, &d->held_files, err);
    if (!e) e = cut(d, &d->held, d->file + d->files, d->held_files, l, ALL, &o->plan, err);
    return fail_about(err, e, "--eval-data");
}

/* Beside a golden file. */
static enum error_code load_held_alone(struct train_data *d, const struct train_options *o,
                                       const struct data_words *l, struct error *err)
{
    d->file = calloc((size_t)l->count + 1, sizeof *d->file);
    return d->file ? load_held(d, o, l, err) : fail(err, ERR_MEMORY, "no memory for a list of files");
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

/* A run that goes on takes the sequence after the last that it had taken. */
static enum error_code take_position(struct train_data *d, const struct train_options *o, struct error *err)
{
    const cJSON *at = o->resume ? cJSON_GetObjectItemCaseSensitive(o->saved.run, SEQUENCES_TAKEN) : NULL;
    d->begun_step = o->resume ? o->saved.step : 0;
    if (at == NULL) return OK;
    char *end = NULL;
    const long long n = cJSON_IsString(at) ? strtoll(at->valuestring, &end, 10) : -1;
    if (n < 0 || end == at->valuestring || *end || n > INT64_C(1) << 56)
        return fail(err, ERR_FORMAT, "--resume: %s: %s must be a number of sequences", TRAINING_FILE, SEQUENCES_TAKEN);
    d->begun = n;
    return OK;
}

static bool is_one_text(const struct data_words *l, const struct train_options *o)
{
    return o->data == NULL ? !o->tokenizer
                           : l->count == 1 && !o->tokenizer && !l->word[0].share && !token_file_is(l->word[0].path);
}

/* The words of --data and --eval-data; without the first, the program's own text, which is one of bytes.  The array of
 * files does not move: corpora point into it. */
static enum error_code load(struct train_data *d, const struct train_options *o, const struct data_words *l,
                            const struct data_words *held, struct error *err)
{
    enum error_code e = OK;
    const bool bytes = is_one_text(l, o);
    d->file = calloc((size_t)(l->count + held->count) + 1, sizeof *d->file);
    if (d->file == NULL) return fail(err, ERR_MEMORY, "no memory for a list of files");
    if (o->tokenizer && o->data == NULL)
        return fail(err, ERR_USAGE, "--tokenizer: needs --data FILE, a text");
    if (bytes && o->plan.model.V < TEXT_VOCABULARY)
        return fail(err, ERR_PLAN, "model %s has V=%lld tokens; text needs %d, one for each byte", o->plan.model.name,
                    (long long)o->plan.model.V, TEXT_VOCABULARY);
    if (o->tokenizer) e = fail_about(err, tokenizer_open(&d->tokenizer, o->tokenizer, err), "--tokenizer");
    if (!e) e = bytes ? load_text(d, o, err) : load_tokens(d, o, l, err);
    if (!e && o->eval_data) e = load_held(d, o, held, err);
    return e ? e : take_position(d, o, err);
}

enum error_code train_data_load(struct train_data *d, const struct train_options *o, struct error *err)
{
    struct data_words l = { 0 }, held = { 0 };
    *d = (struct train_data){ .plan = &o->plan };
    if (o->golden && !o->eval_data) return OK;          /* it has its own batches */
    enum error_code e = o->data ? fail_about(err, data_words_read(&l, o->data, err), "--data") : OK;
    if (!e && o->eval_data) e = fail_about(err, data_words_read(&held, o->eval_data, err), "--eval-data");
    if (!e) e = o->golden ? load_held_alone(d, o, &held, err) : load(d, o, &l, &held, err);
    data_words_free(&l), data_words_free(&held);
    if (e) train_data_free(d);
    return e;
}

void train_data_free(struct train_data *d)
{
    text_free(&d->text);
    corpus_close(&d->train), corpus_close(&d->held);
    for (int i = 0; i < d->files + d->held_files; i++) token_file_close(&d->file[i]);
    free(d->file);
    if (d->tokenizer) tokenizer_close(d->tokenizer);
    *d = (struct train_data){ 0 };
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

int64_t train_data_position(const struct train_data *d, int64_t step)
{
    int64_t n = d->begun;
    if (d->plan->batches == NULL) return n + (step - d->begun_step) * d->plan->B;
    for (int64_t s = d->begun_step; s < step; s++) n += plan_sequences_of(d->plan, s);
    return n;
}

void train_data_fill(const struct train_data *d, int64_t step, int64_t first, int64_t count, int32_t *ids,
                     int32_t *labels, int32_t *within)
{
    const struct plan *p = d->plan;
    if (train_data_has_tokens(d)) corpus_fill(&d->train, train_data_position(d, step) + first, count, ids, labels);
    else if (within) samples_batch(&d->text, p->seed, step, first, count, ids, labels, within);
    else text_batch(&d->text, TEXT_TRAIN, p->seed, step, p->S, first, count, ids, labels);
}

void train_data_fill_held(const struct train_data *d, int64_t step, int64_t first, int64_t count, int32_t *ids,
                          int32_t *labels)
{
    const struct plan *p = d->plan;
    if (d->held.period > 0) corpus_fill(&d->held, step * plan_most_sequences(p) + first, count, ids, labels);
    else text_batch(&d->text, TEXT_VALIDATION, p->seed, step, p->S, first, count, ids, labels);
}

void train_data_prompt(const struct train_data *d, int64_t count, int32_t *ids)
{
    int part;
    const int64_t from = d->held.period > 0 ? corpus_window(&d->held, 0, &part) : d->text.train;
    for (int64_t i = 0; i < count; i++)
        ids[i] = d->held.period > 0 ? token_file_get(d->held.part[part].file, from + i) : d->text.bytes[from + i];
}

/* ---- what it was ------------------------------------------------------------------------------------------------- */

static void describe(char *to, size_t size, const struct corpus *c)
{
    struct sha256 sum = sha256_begin();
    int64_t tokens = 0;
    for (int i = 0; i < c->parts; i++) {
        char line[80];
        sha256_add(&sum, line, (size_t)snprintf(line, sizeof line, "%lld + %lld, %d;", (long long)c->part[i].first,
                                                (long long)c->part[i].count, c->part[i].share));
        token_file_digest(c->part[i].file, &sum);
        tokens += c->part[i].count;
    }
    snprintf(to, size, "%lld tokens, SHA-256 %s", (long long)tokens, sha256_end(&sum).text);
}

struct data_facts train_data_facts(const struct train_data *d)
{
    struct data_facts f = { "", "" };
    if (train_data_has_tokens(d)) describe(f.train, sizeof f.train, &d->train);
    else
        snprintf(f.train, sizeof f.train, "%lld bytes, SHA-256 %s", (long long)d->text.count,
                 sha256_of(d->text.bytes, (size_t)d->text.count).text);
    if (d->held_files) describe(f.held, sizeof f.held, &d->held);
    return f;
}
