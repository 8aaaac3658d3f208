/* tokenizer.c -- sends a text through the steps of a tokenizer.json, and tokens back.
 *
 * cli/tokenize.c, run/speaker.c, train/data/data.c and generate.c call this file.
 *
 * Errors     tokenizer_open returns ERR_FILE, ERR_FORMAT or ERR_MEMORY.  tokenizer_encode returns ERR_FORMAT if an
 *            expression takes too many steps or a word has no tokens.  tokenizer_decode returns ERR_USAGE for an id
 *            that is no token.  Both return ERR_MEMORY, too.
 */
#include "ref/text/tokenizer.h"
#include "ref/text/added_tokens.h"
#include "ref/text/decoders/decoder.h"
#include "ref/text/limits.h"
#include "ref/text/models/model.h"
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/processors/processor.h"
#include "ref/text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A place of the pipeline that takes pieces. */
struct tokenizer_taker { struct piece_taker taker; struct tokenizer *tokenizer; };

struct tokenizer {
    struct steps normalizers, splitters, processors, decoders;
    struct step model;
    struct added_tokens added;
    struct split_chain *chain;                  /* the splitters, linked */
    struct tokenizer_taker plain, normalized, word;     /* text between added tokens; normalized text; words */
    struct text_buffer repaired, normal, spare; /* texts at hand */
    struct token_ids ids, ids_spare;            /* tokens of the text at hand */
    struct text_limits limits;                  /* lengths of texts */
    bool obeys;                                 /* these limits hold */
    bool decodes;                               /* the file has a decoder */
    int32_t vocabulary;                         /* one more than the largest token */
};

static const struct model_kind *model_kind_of(const struct tokenizer *tokenizer)
{
    return (const struct model_kind *)tokenizer->model.kind;
}

/* ---- texts to tokens --------------------------------------------------------------------------------------------- */

static struct tokenizer *tokenizer_of(struct piece_taker *piece_taker)
{
    return ((struct tokenizer_taker *)piece_taker)->tokenizer;
}

/* The splitters pass on words of the model. */
static enum error_code take_word(struct piece_taker *piece_taker, struct piece piece, struct error *err)
{
    struct tokenizer *t = tokenizer_of(piece_taker);
    return model_kind_of(t)->apply(t->model.state, piece.text, piece.bytes, &t->ids, err);
}

/* Text between added tokens goes through the splitters. */
static enum error_code take_normalized(struct piece_taker *piece_taker, struct piece piece, struct error *err)
{
    return split_chain_take(tokenizer_of(piece_taker)->chain, piece, err);
}

/* Text between added tokens is normalized, and searched for added tokens with `normalized`. */
static enum error_code take_plain(struct piece_taker *piece_taker, struct piece piece, struct error *err)
{
    struct tokenizer *t = tokenizer_of(piece_taker);
    enum error_code e = OK;
    if (t->normalizers.count) {
        t->normal.bytes = 0;
        e = text_buffer_add(&t->normal, piece.text, piece.bytes, err);
        if (!e) e = normalizers_apply(&t->normalizers, &t->normal, &t->spare, &piece.first, err);
        piece.text = t->normal.text, piece.bytes = t->normal.bytes;
    }
    return e ? e : added_tokens_find(&t->added, piece, true, &t->normalized.taker, &t->ids, err);
}

/* The tokens go to the end of the caller's list.  An empty list is exchanged for ours, which saves a copy. */
static bool give_ids(struct token_ids *to, struct token_ids *ids)
{
    const struct token_ids old = *to;
    if (to->count > 0) return token_ids_append(to, ids->id, ids->count);
    *to = *ids, *ids = old;
    return true;
}

/* The order is: repair UTF-8, find added tokens, normalize, find others, split, make tokens, process them. */
enum error_code tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes, bool special,
                                 struct token_ids *to, int64_t *wrong, struct error *err)
{
    int64_t replaced = 0;
    uint32_t c;
    tokenizer->ids.count = tokenizer->repaired.bytes = 0;
    enum error_code e = text_buffer_reserve(&tokenizer->repaired, 3 * bytes + 1, err);
    if (e) return e;
    struct piece all = { tokenizer->repaired.text, utf8_repair(tokenizer->repaired.text, text, bytes, &replaced), 0 };
    all.first = (size_t)utf8_first(all.text, all.bytes, &c);
    e = added_tokens_find(&tokenizer->added, all, false, &tokenizer->plain.taker, &tokenizer->ids, err);
    if (wrong) *wrong = replaced;
    if (!e && tokenizer->obeys) e = text_limits_cut(&tokenizer->limits, &tokenizer->ids, special ?
                                                    processors_added(&tokenizer->processors) : 0, err);
    if (e) return e;
    const bool ok = processors_apply(&tokenizer->processors, special, &tokenizer->ids, &tokenizer->ids_spare)
        && (!tokenizer->obeys || text_limits_pad(&tokenizer->limits, &tokenizer->ids))
        && give_ids(to, &tokenizer->ids);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the tokens of %zu bytes", bytes);
}

/* ---- tokens to texts --------------------------------------------------------------------------------------------- */

/* The name of a token; NULL: there is no such token. */
static const char *tokenizer_name(const struct tokenizer *tokenizer, int32_t id, size_t *bytes, bool *hidden)
{
    const struct added_token *added = added_tokens_by_id(&tokenizer->added, id);
    *hidden = added && added->hidden;
    if (added == NULL)
        return vocabulary_name(model_kind_of(tokenizer)->vocabulary(tokenizer->model.state), id, bytes);
    *bytes = added->bytes;
    return added->bytes ? added->pattern : "";
}

static enum error_code token_names(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count, bool special,
                                   struct token_texts *names, struct error *err)
{
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < count; i++) {
        size_t bytes;
        bool hidden;
        const char *name = tokenizer_name(tokenizer, ids[i], &bytes, &hidden);
        if (name == NULL)
            return fail(err, ERR_USAGE, "%d: is no token; there are %d, from 0", (int)ids[i],
                        (int)tokenizer->vocabulary);
        if (!hidden || special) e = token_texts_add(names, name, bytes, err);
    }
    return e;
}

/* Without a decoder the library joins names by blanks. */
static enum error_code join_names(struct token_texts *names, struct text_buffer *all, struct error *err)
{
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < names->count; i++) {
        size_t bytes;
        const char *name = token_texts_at(names, i, &bytes);
        if (i) e = text_buffer_add(all, " ", 1, err);
        if (!e) e = text_buffer_add(all, name, bytes, err);
    }
    return e;
}

static enum error_code decode(const struct tokenizer *tokenizer, struct token_texts *texts, const int32_t *ids,
                              int64_t count, bool special, char **text, size_t *bytes, struct error *err)
{
    struct text_buffer all = { 0 };
    enum error_code e = token_names(tokenizer, ids, count, special, texts, err);
    if (!e) e = decoders_apply(&tokenizer->decoders, texts, err);
    if (!e) e = tokenizer->decodes ? text_buffer_add(&all, texts->text.text, texts->text.bytes, err)
                                   : join_names(texts, &all, err);
    if (!e) e = text_buffer_add(&all, "", 1, err);
    token_texts_free(texts);
    if (e) return text_buffer_free(&all), e;
    *text = all.text, *bytes = all.bytes - 1;
    return OK;
}

enum error_code tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count, bool special,
                                 char **text, size_t *bytes, struct error *err)
{
    struct token_texts texts = { 0 };
    return decode(tokenizer, &texts, ids, count, special, text, bytes, err);
}

enum error_code tokenizer_decode_begun(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                       bool special, char **text, size_t *bytes, struct error *err)
{
    struct token_texts texts = { .unfinished = true };
    return decode(tokenizer, &texts, ids, count, special, text, bytes, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Added tokens come after the model, whose vocabulary they may enlarge. */
static enum error_code tokenizer_read(struct tokenizer *tokenizer, const cJSON *root, const char *path,
                                      struct error *err)
{
    struct step_reading r = { .path = path, .part = "version", .err = err };
    const char *version;
    enum error_code e = step_text(&r, root, "version", "1.0", &version);
    if (!e && strcmp(version, "1.0") != 0) e = step_refuse(&r, version);
    if (!e) e = steps_read(&tokenizer->normalizers, &normalizer_room, &r, root);
    if (!e) e = steps_read(&tokenizer->splitters, &splitter_room, &r, root);
    if (!e) e = splitters_check(&tokenizer->splitters, &r);
    if (!e) e = model_read(&tokenizer->model, &r, root);
    if (e) return e;
    const struct vocabulary *names = model_kind_of(tokenizer)->vocabulary(tokenizer->model.state);
    r.vocabulary = vocabulary_room(names);
    e = added_tokens_read(&tokenizer->added, &r, root, names, &tokenizer->normalizers);
    if (!e) e = steps_read(&tokenizer->processors, &processor_room, &r, root);
    if (!e) e = processors_check(&tokenizer->processors, &r);
    if (!e) e = text_limits_read(&tokenizer->limits, &r, root, processors_added(&tokenizer->processors));
    if (!e) e = steps_read(&tokenizer->decoders, &decoder_room, &r, root);
    tokenizer->decodes = json_has(root, decoder_room.key);
    tokenizer->vocabulary = r.vocabulary;
    return e;
}

/* Each place of the pipeline knows the tokenizer. */
static enum error_code tokenizer_link(struct tokenizer *tokenizer, struct error *err)
{
    tokenizer->plain = (struct tokenizer_taker){ { take_plain }, tokenizer };
    tokenizer->normalized = (struct tokenizer_taker){ { take_normalized }, tokenizer };
    tokenizer->word = (struct tokenizer_taker){ { take_word }, tokenizer };
    tokenizer->chain = split_chain_open(&tokenizer->splitters, &tokenizer->word.taker);
    return tokenizer->chain ? OK : fail(err, ERR_MEMORY, "no memory for a tokenizer");
}

/* A folder stands for the tokenizer.json in it.  After a failure *out is NULL. */
enum error_code tokenizer_open(struct tokenizer **out, const char *path, struct error *err)
{
    char inside[4096];
    struct stat s;
    cJSON *root = NULL;
    struct tokenizer *t = *out = calloc(1, sizeof *t);
    if (t == NULL) return fail(err, ERR_MEMORY, "no memory for a tokenizer");
    const bool folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    snprintf(inside, sizeof inside, "%s%s", path, folder ? "/tokenizer.json" : "");
    enum error_code e = json_read(inside, &root, err);
    if (!e) e = tokenizer_read(t, root, inside, err);
    if (!e) e = tokenizer_link(t, err);
    cJSON_Delete(root);
    if (e) tokenizer_close(t), *out = NULL;
    return e;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    split_chain_close(tokenizer->chain);
    steps_close(&tokenizer->normalizers), steps_close(&tokenizer->splitters);
    steps_close(&tokenizer->processors), steps_close(&tokenizer->decoders);
    if (tokenizer->model.state) tokenizer->model.kind->close(tokenizer->model.state);
    added_tokens_close(&tokenizer->added);
    text_buffer_free(&tokenizer->repaired), text_buffer_free(&tokenizer->normal), text_buffer_free(&tokenizer->spare);
    token_ids_free(&tokenizer->ids), token_ids_free(&tokenizer->ids_spare);
    free(tokenizer);
}

const char *tokenizer_limits(const struct tokenizer *tokenizer)
{
    const struct text_limits *l = &tokenizer->limits;
    if (l->truncates && l->pads) return "truncation and padding";
    return l->truncates ? "truncation" : l->pads ? "padding" : NULL;
}

void tokenizer_obey_limits(struct tokenizer *tokenizer, bool obeys) { tokenizer->obeys = obeys; }

int32_t tokenizer_vocabulary(const struct tokenizer *tokenizer) { return tokenizer->vocabulary; }
