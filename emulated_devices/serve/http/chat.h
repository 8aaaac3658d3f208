/* chat.h -- the text of a chat: a model's own chat template, in a stated part of Jinja.
 *
 * Statements   for .. in, if, elif, else, set, also of a namespace; comments.  White space as transformers sets it:
 *              trim_blocks and lstrip_blocks, and the signs - and +.
 * Values       texts, numbers, lists, true, false, none; messages, add_generation_prompt, bos_token, eos_token, loop
 * Operators    . [] [a:b] + - * // % ~ == != < > <= >= in, is, and, or, not, a if b else c
 * Filters      trim, upper, lower, length, count, first, last, join, default, string, tojson
 * Tests        defined, undefined, none, string, mapping, iterable, sequence, number, boolean, true, false
 * Functions    raise_exception, namespace, range; of texts: strip, lstrip, rstrip, startswith, endswith, split, upper,
 *              lower; of messages: get
 *
 * Whatever else a template has is refused by its name when it is opened.
 *
 * openai.c renders with it; cli/train/ opens it.
 *
 * Source  Jinja's "Template Designer Documentation", and apply_chat_template of transformers
 */
#ifndef ORRERY_CHAT_H
#define ORRERY_CHAT_H

#include "ref/error.h"
#include <cjson/cJSON.h>
#include <stddef.h>

enum { CHAT_TEMPLATE_BYTES = 1 << 18, CHAT_TEXT_BYTES = 1 << 22, CHAT_STEPS = 1 << 21, CHAT_DEPTH = 64 };

struct chat_template;

/** Open a template.
 *  @param text   of it.  @param where  names it in errors.
 *  @param bos, eos  texts of the tokens that begin and end a text; NULL: empty.
 *  @return OK; ERR_FORMAT naming what is not supported, and its line; ERR_MEMORY. */
enum error_code chat_template_open(struct chat_template **, const char *text, const char *where, const char *bos,
                                   const char *eos, struct error *);
void chat_template_close(struct chat_template *);

/** Find the template of a model's folder: chat_template.jinja, or chat_template of tokenizer_config.json.
 *  @param[out] template  NULL: the folder has none.  @return OK, or as chat_template_open; ERR_FILE. */
enum error_code chat_template_find(struct chat_template **template, const char *dir, struct error *);

/** The text of a chat, up to where its answer begins.
 *  @param messages  an array of objects with role and content; a content may be a list of parts of text.
 *  @param[out] text  [bytes] for free(), with a NUL behind it.
 *  @return OK; ERR_FORMAT: a message is wrong, or the template refuses the chat; ERR_MEMORY. */
enum error_code chat_render(const struct chat_template *, const cJSON *messages, char **text, size_t *bytes,
                            struct error *);

#endif
