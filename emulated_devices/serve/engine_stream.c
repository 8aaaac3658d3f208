/* engine_stream.c -- prints tokens of answers as they come.  engine.c calls.  Errors: ERR_MEMORY; ERR_USAGE of a token
 * that the tokenizer lacks. */
#include "emulated_devices/serve/engine_parts.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last tokens of the prompt are before the answer: they decide how its first one is written. */
static enum error_code stream_begin(struct text_stream *text, const struct engine *engine,
                                    const struct sequence *sequence, struct error *err)
{
    enum { BEFORE = 8 };
    enum error_code e = OK;
    *text = (struct text_stream){ .tokenizer = engine->job->tokenizer };
    for (int64_t i = sequence->prompt > BEFORE ? sequence->prompt - BEFORE : 0; i < sequence->prompt && !e; i++)
        e = text_stream_add(text, sequence->token[i], err);
    return e;
}

enum error_code engine_say(struct engine *engine, const struct sequence *sequence, int64_t place, struct error *err)
{
    static const char *const ends[] = { [NOT_FINISHED] = NULL, [FINISH_LENGTH] = "length", [FINISH_STOP] = "stop" };
    struct text_stream *const text = &engine->spoken[sequence->number];
    const int64_t number = place - sequence->prompt;
    /* A stop token ends the answer also where the plan learns of its end later. */
    const enum finish finish = place < sequence->count - 1 ? NOT_FINISHED
                               : sequence->ending ? FINISH_STOP : sequence->finish;
    enum error_code e = number == 0 ? stream_begin(text, engine, sequence, err) : OK;
    if (!e) e = text_stream_add(text, sequence->token[place], err);
    if (e) return e;
    size_t from = text->before;
    if (finish != NOT_FINISHED) text_stream_end(text);
    char *const piece = strndup(text->text + from, text->shown - from);
    cJSON *const row = cJSON_CreateObject();
    json_add(row, "id %s index %g token %d text %s time %g", engine->job->requests->at[sequence->number].name,
             (double)number, (int)sequence->token[place], piece ? piece : "",
             (double)engine->now / 1e12);
    if (ends[finish]) json_add(row, "finish %s", ends[finish]);
    else cJSON_AddNullToObject(row, "finish");
    char *const line = json_text(row, false);
    const size_t length = line ? strlen(line) : 0;
    /* Several devices print: a line and its end are one write, so that no other line comes between them. */
    if (line) line[length] = '\n', fwrite(line, 1, length + 1, stdout), fflush(stdout);
    else e = fail(err, ERR_MEMORY, "no memory for the text of a token");
    cJSON_free(line), cJSON_Delete(row);
    free(piece);
    if (finish != NOT_FINISHED) text_stream_free(text);
    return e;
}
