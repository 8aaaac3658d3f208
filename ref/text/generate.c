/* generate.c -- draws tokens after a prompt, and shows them as text.
 *
 * run/speaker.c and run/sample.c call this file.  Errors are those of the model, ERR_DIVERGED of sampling, ERR_USAGE
 * of the tokenizer, and ERR_MEMORY.
 */
#include "ref/text/generate.h"
#include "ref/io/plain.h"
#include "ref/model/past.h"
#include "ref/numeric/philox.h"
#include "ref/text/utf8.h"
#include <stdlib.h>
#include <string.h>

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* past: what the model keeps of the first ids, which are not computed again; NULL: nothing. */
static enum error_code next_token(struct transformer *model, struct past *past, const int32_t *ids, int64_t length,
                                  const struct sampling *sampling, int64_t number, double *p, int32_t *token,
                                  struct error *err)
{
    double loss;
    /* With keys and values of earlier tokens only the new ones are computed. */
    const int64_t first = past ? past->count : 0, more = length - first;
    enum error_code e = past ? transformer_continue(model, past, ids + first, more, err)
                             : transformer_forward(model, ids, ids, 1, length, &loss, err);
    const struct tensor logits = model->config.logit_cap > 0 ? model->capped : model->logits;
    if (!e) e = sampling_distribution(sampling, logits, more - 1, p, err);
    if (!e) *token = sampling_draw(p, model->config.V,
                                   random_uniform(sampling->seed, random_stream("sample"), (uint64_t)number));
    return e;
}

static bool generate_is_one_of(int32_t token, const int32_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == token) return true;
    return false;
}

/* Where the window begins: it slides by half of its length. */
static int64_t window_start(int64_t start, int64_t length, int64_t S)
{
    while (length - start > S) start += S / 2 ? S / 2 : 1;
    return start;
}

/* The loop draws a token, adds it, tells it, and ends early at one of the stop tokens. */
enum error_code generate(struct transformer *model, struct token_ids *ids, int64_t tokens,
                         const struct sampling *sampling,
                         const int32_t *stop, int stops, void (*tell)(void *context, int32_t token), void *context,
                         struct error *err)
{
    double *const p = malloc((size_t)model->config.V * sizeof *p);
    enum error_code e = p ? OK : fail(err, ERR_MEMORY, "no memory for %lld probabilities", (long long)model->config.V);
    const int64_t all = ids->count + tokens, room = all < model->config.S ? all : model->config.S;
    const bool keeps = past_serves(model, room);
    struct past past = { 0 };
    int64_t start = 0;
    if (!e && keeps) e = past_open(&past, model, room, err);
    for (int64_t i = 0; i < tokens && !e; i++) {
        int32_t token = 0;
        const int64_t from = window_start(start, ids->count, model->config.S);
        if (from != start) past.count = 0;              /* other positions */
        start = from;
        e = next_token(model, keeps ? &past : NULL, ids->id + start, ids->count - start, sampling, i, p, &token, err);
        if (!e && !token_ids_add(ids, token)) e = fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)tokens);
        if (!e && tell) tell(context, token);
        if (!e && generate_is_one_of(token, stop, stops)) break;
    }
    past_close(&past);
    free(p);
    return e;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Tokens that are bytes, or none. */
static char *text_of_bytes(const struct token_ids *ids, size_t *bytes)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, bytes);
    for (int64_t i = 0; i < ids->count && f; i++)
        if (ids->id[i] < 256) fputc(ids->id[i], f);
        else fprintf(f, "<%d>", (int)ids->id[i]);
    if (f && fclose(f) == 0) return text;
    free(text);
    return NULL;
}

/* Control characters become "?", lines are indented, and no character is cut in two. */
static void generate_show(FILE *out, const char *indent, const char *text, size_t bytes)
{
    char line[256];
    while (bytes > 0) {
        size_t n = bytes < sizeof line ? bytes : sizeof line - 1;
        while (n > 1 && n < bytes && (text[n] & 0xC0) == 0x80) n--;     /* no character is cut */
        for (size_t i = 0; i < n; i++)
            if (text[i] == '\n' || text[i] == '\t') n = i ? i : 1;
        memcpy(line, text, n);
        line[n] = '\0';
        if (line[0] != '\n' && line[0] != '\t') plain_text(line);
        fputs(line, out);
        if (line[0] == '\n' && indent) fputs(indent, out);
        text += n, bytes -= n;
    }
    fflush(out);
}

/* All tokens are decoded again each time, because a tokenizer may join a token with those before it. */
static enum error_code decode_all(struct text_stream *stream, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t wrong;
    enum error_code e = stream->tokenizer
        ? tokenizer_decode_begun(stream->tokenizer, stream->ids.id, stream->ids.count, true, &text, &bytes, err) : OK;
    if (!stream->tokenizer) text = text_of_bytes(&stream->ids, &bytes);
    if (e) return e;
    char *repaired = text ? malloc(3 * bytes + 1) : NULL;
    if (repaired) {
        /* The repaired text has whole characters first, then what the next token may still change. */
        const size_t rest = utf8_unfinished(text, bytes), whole = utf8_repair(repaired, text, bytes - rest, &wrong);
        free(stream->text);
        stream->text = repaired;
        stream->whole = whole;
        stream->bytes = whole + utf8_repair(repaired + whole, text + bytes - rest, rest, &wrong);
        repaired[stream->bytes] = '\0';
    }
    free(text);
    return repaired ? OK : fail(err, ERR_MEMORY, "no memory for the text of %lld tokens", (long long)stream->ids.count);
}

static void show_until(struct text_stream *stream, size_t end)
{
    if (end <= stream->shown) return;
    if (stream->out) generate_show(stream->out, stream->indent, stream->text + stream->shown, end - stream->shown);
    stream->shown = end;
}

/* A few tokens are enough to tell what a new one adds: a tokenizer may drop a blank at the beginning. */
static enum error_code generate_forget(struct text_stream *stream, struct error *err)
{
    enum { MOST = 64, KEPT = 8 };
    if (stream->ids.count < MOST || stream->shown < stream->bytes) return OK;
    memmove(stream->ids.id, stream->ids.id + stream->ids.count - KEPT, KEPT * sizeof *stream->ids.id);
    stream->ids.count = KEPT;
    const enum error_code e = decode_all(stream, err);
    stream->shown = stream->bytes;
    return e;
}

/* Only whole characters are shown; the rest waits for the next token. */
enum error_code text_stream_add(struct text_stream *stream, int32_t token, struct error *err)
{
    enum error_code e = generate_forget(stream, err);
    if (!e && !token_ids_add(&stream->ids, token)) e = fail(err, ERR_MEMORY, "no memory for a token");
    if (!e) e = decode_all(stream, err);
    stream->before = stream->shown;
    if (!e) show_until(stream, stream->whole);
    return e;
}

void text_stream_show(struct text_stream *stream, FILE *out) { stream->out = out; }

void text_stream_end(struct text_stream *stream)
{
    stream->before = stream->shown;
    show_until(stream, stream->bytes);
}

void text_stream_free(struct text_stream *stream)
{
    token_ids_free(&stream->ids);
    free(stream->text);
    *stream = (struct text_stream){ 0 };
}
