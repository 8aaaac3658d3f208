/* chat.c -- statements of chat templates, and where a model keeps its template.  openai.c and cli/train/serve.c call.
 * Errors: ERR_FORMAT of what is not supported, or of messages that a template refuses; ERR_FILE; ERR_MEMORY. */
#include "emulated_devices/serve/http/chat_parts.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Text between tags, or a tag's inside. */
enum piece_kind { PIECE_TEXT, PIECE_VALUE, PIECE_STATEMENT };
struct piece {
    enum piece_kind kind;
    char *text;                         /* with a NUL at its end; owned */
    int line;                           /* where it begins */
    int64_t next, end;                  /* of for, if, elif and else: the next branch, or its end; the end */
};

struct chat_template {
    char *where, *bos, *eos;            /* its name; texts of two tokens */
    struct piece *piece;                /* [pieces] */
    int64_t pieces, room;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool piece_add(struct chat_template *chat, enum piece_kind kind, const char *text, size_t bytes, int line)
{
    if (chat->pieces == chat->room) {
        const int64_t room = chat->room > 0 ? 2 * chat->room : 32;
        struct piece *const more = realloc(chat->piece, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        chat->piece = more, chat->room = room;
    }
    char *const copy = malloc(bytes + 1);
    if (copy == NULL) return false;
    memcpy(copy, text, bytes), copy[bytes] = '\0';
    chat->piece[chat->pieces++] = (struct piece){ kind, copy, line, 0, 0 };
    return true;
}

/* The end of a tag: texts in it may have the same signs. */
static const char *tag_end(const char *from, const char *sign, bool texts)
{
    char quote = '\0';
    for (; *from; from++) {
        if (texts && quote && *from == '\\' && from[1]) { from++; continue; }
        if (texts && quote) { if (*from == quote) quote = '\0'; continue; }
        if (texts && (*from == '\'' || *from == '"')) quote = *from;
        else if (strncmp(from, sign, 2) == 0) return from;
    }
    return NULL;
}

static int lines_of(const char *from, const char *to)
{
    int lines = 0;
    while (from < to) lines += *from++ == '\n';
    return lines;
}

/* The end of a text before a tag: lstrip_blocks takes blanks of a line that a statement or a comment begins. */
static const char *text_end(const char *begin, const char *tag, bool begins_text)
{
    const char *end = tag;
    if (tag[2] == '-') {
        while (end > begin && isspace((unsigned char)end[-1])) end--;
        return end;
    }
    if (tag[1] == '{' || tag[2] == '+') return end;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return end == begin ? (begins_text ? end : tag) : end[-1] == '\n' ? end : tag;
}

/* Behind a tag: - takes blanks, and trim_blocks the end of the line of a statement or a comment. */
static const char *behind_tag(const char *end, bool minus, bool plus, bool block)
{
    if (minus) while (isspace((unsigned char)*end)) end++;
    else if (block && !plus && *end == '\n') end++;
    return end;
}

static enum error_code read_pieces(struct chat_template *chat, const char *text, struct error *err)
{
    int line = 1;
    bool fresh = true;                          /* a line begins here */
    for (const char *at = text; *at;) {
        const char *tag = at;
        while (*tag && !(*tag == '{' && strchr("{%#", tag[1]) && tag[1])) tag++;
        const char *const end = *tag ? text_end(at, tag, fresh) : tag;
        if (end > at && !piece_add(chat, PIECE_TEXT, at, (size_t)(end - at), line)) goto no_memory;
        line += lines_of(at, tag);
        if (*tag == '\0') break;
        const char sign[3] = { tag[1] == '{' ? '}' : tag[1], '}', '\0' };
        const char *const inside = tag + 2 + (tag[2] == '-' || tag[2] == '+');
        const char *const close = tag_end(inside, sign, tag[1] != '#');
        if (close == NULL) return fail(err, ERR_FORMAT, "%s:%d: {%c has no end", chat->where, line, tag[1]);
        const bool minus = close > inside && close[-1] == '-', plus = close > inside && close[-1] == '+';
        if (tag[1] != '#' && !piece_add(chat, tag[1] == '{' ? PIECE_VALUE : PIECE_STATEMENT, inside,
                                        (size_t)(close - minus - plus - inside), line))
            goto no_memory;
        at = behind_tag(close + 2, minus, plus, tag[1] != '{');
        line += lines_of(tag, at);
        fresh = at > text && at[-1] == '\n';
    }
    return OK;
no_memory:
    return fail(err, ERR_MEMORY, "no memory for a chat template");
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool begins_with(const struct piece *p, const char *word)
{
    const char *at = p->text;
    return p->kind == PIECE_STATEMENT && chat_takes(&at, word);
}

/* Each branch knows the next one, and the last one its end. */
static enum error_code link_blocks(struct chat_template *chat, struct error *err)
{
    int64_t open[CHAT_DEPTH], last[CHAT_DEPTH];
    int depth = 0;
    for (int64_t i = 0; i < chat->pieces; i++) {
        struct piece *const p = &chat->piece[i];
        const bool branch = begins_with(p, "elif") || begins_with(p, "else");
        const bool ends = begins_with(p, "endif") || begins_with(p, "endfor");
        if (begins_with(p, "if") || begins_with(p, "for")) {
            if (depth == CHAT_DEPTH) return fail(err, ERR_FORMAT, "%s:%d: too deep", chat->where, p->line);
            open[depth] = last[depth] = i, depth++;
        } else if (branch || ends) {
            const char *const of = depth > 0 && begins_with(&chat->piece[open[depth - 1]], "if") ? "if" : "for";
            const bool fits = depth > 0 && (branch ? strcmp(of, "if") == 0
                                            : begins_with(p, strcmp(of, "if") == 0 ? "endif" : "endfor"));
            if (!fits) return fail(err, ERR_FORMAT, "%s:%d: {%%%.60s%%} has no beginning, or is not supported here",
                                   chat->where, p->line, p->text);
            chat->piece[last[depth - 1]].next = i;
            last[depth - 1] = i;
            if (!ends) continue;
            for (int64_t k = open[depth - 1]; k != i; k = chat->piece[k].next) chat->piece[k].end = i;
            depth--;
        } else if (p->kind == PIECE_STATEMENT && !begins_with(p, "set"))
            return fail(err, ERR_FORMAT, "%s:%d: {%%%.60s%%} is not supported", chat->where, p->line, p->text);
    }
    return depth == 0 ? OK : fail(err, ERR_FORMAT, "%s:%d: has no end", chat->where, chat->piece[open[depth - 1]].line);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct chat_output { FILE *to; size_t bytes; };

static void run_pieces(struct chat_run *, const struct chat_template *, int64_t from, int64_t to, int64_t scope,
                       struct chat_output *);

static void at_end(struct chat_run *run, const char *at)
{
    if (run->code == OK && *chat_blanks(at) != '\0') chat_fail(run, "%.20s is not supported here", chat_blanks(at));
}

static void chat_put(struct chat_run *run, struct chat_output *out, const char *text)
{
    out->bytes += strlen(text);
    if (out->bytes > CHAT_TEXT_BYTES) chat_fail(run, "the text of the chat is longer than %d bytes", CHAT_TEXT_BYTES);
    else if (out->to && !run->dry) fputs(text, out->to);
}

static void run_value(struct chat_run *run, const struct piece *p, struct chat_output *out)
{
    const char *at = p->text;
    const cJSON *const x = chat_value(run, &at);
    char number[32];
    at_end(run, at);
    if (run->code || run->dry || x == NULL) return;
    if (cJSON_IsArray(x) || cJSON_IsObject(x)) { chat_fail(run, "a list has no text"); return; }
    if (cJSON_IsString(x)) { chat_put(run, out, x->valuestring); return; }
    snprintf(number, sizeof number, "%.15g", x->valuedouble);
    chat_put(run, out, cJSON_IsNumber(x) ? number : cJSON_IsTrue(x) ? "True" : cJSON_IsFalse(x) ? "False" : "None");
}

static void run_set(struct chat_run *run, const struct piece *p, int64_t scope)
{
    const char *at = p->text;
    char name[48], key[48] = "";
    chat_takes(&at, "set");
    if (!chat_name(run, &at, name) || (chat_takes(&at, ".") && !chat_name(run, &at, key))) return;
    if (!chat_takes(&at, "=")) { chat_fail(run, "{%%%.60s%%} is not supported", p->text); return; }
    cJSON *const x = chat_value(run, &at);
    at_end(run, at);
    if (run->code || run->dry) return;
    if (key[0] == '\0') { chat_set(run, scope, name, x); return; }
    for (int64_t i = run->variables - 1; i >= 0; i--) {
        if (strcmp(run->variable[i].name, name) != 0 || !cJSON_IsObject(run->variable[i].value)) continue;
        cJSON *const space = run->variable[i].value;
        /* Another name may still have its former value. */
        cJSON *const was = cJSON_DetachItemFromObjectCaseSensitive(space, key);
        if (was) chat_made(run, was);
        cJSON_AddItemToObject(space, key, x ? cJSON_Duplicate(x, true) : cJSON_CreateNull());
        return;
    }
    chat_fail(run, "%s is no namespace", name);
}

static void run_if(struct chat_run *run, const struct chat_template *chat, int64_t i, int64_t scope,
                   struct chat_output *out)
{
    const int64_t end = chat->piece[i].end;
    for (bool done = false; i != end && run->code == OK; i = chat->piece[i].next) {
        const struct piece *const p = &chat->piece[i];
        const char *at = p->text;
        bool holds = true;
        run->line = p->line;
        if (chat_takes(&at, "if") || chat_takes(&at, "elif")) {
            if (done && !run->dry) continue;
            holds = chat_is_true(chat_value(run, &at));
        } else chat_takes(&at, "else");
        at_end(run, at);
        if (!run->dry && (done || !holds)) continue;
        run_pieces(run, chat, i + 1, p->next, scope, out);
        done = true;
    }
}

static cJSON *loop_object(struct chat_run *run, const cJSON *one, int i, int n)
{
    cJSON *const loop = chat_made(run, cJSON_CreateObject());
    json_add(loop, "index %d index0 %d first %hhd last %hhd length %d revindex %d revindex0 %d", i + 1, i,
             (bool)(i == 0), (bool)(i == n - 1), n, n - i, n - i - 1);
    if (loop && i > 0) cJSON_AddItemToObject(loop, "previtem", cJSON_Duplicate(one->prev, true));
    if (loop && one->next) cJSON_AddItemToObject(loop, "nextitem", cJSON_Duplicate(one->next, true));
    return loop;
}

static void run_for(struct chat_run *run, const struct chat_template *chat, int64_t i, struct chat_output *out)
{
    const struct piece *const p = &chat->piece[i];
    const char *at = p->text;
    char name[48];
    chat_takes(&at, "for");
    if (!chat_name(run, &at, name)) return;
    if (!chat_takes(&at, "in")) { chat_fail(run, "{%%%.60s%%} is not supported", p->text); return; }
    const cJSON *const list = chat_value(run, &at);
    at_end(run, at);
    if (run->code) return;
    if (run->dry) { run_pieces(run, chat, i + 1, p->next, run->variables, out); return; }
    if (!cJSON_IsArray(list)) { chat_fail(run, "for goes over a list"); return; }
    const int entries = cJSON_GetArraySize(list);
    int at_entry = 0;
    for (cJSON *one = list->child; one && run->code == OK; one = one->next, at_entry++) {
        const int64_t scope = run->variables;
        chat_set(run, scope, name, one);
        chat_set(run, scope, "loop", loop_object(run, one, at_entry, entries));
        run_pieces(run, chat, i + 1, p->next, scope, out);
        run->variables = scope;
    }
}

static void run_pieces(struct chat_run *run, const struct chat_template *chat, int64_t from, int64_t to, int64_t scope,
                       struct chat_output *out)
{
    for (int64_t i = from; i < to && run->code == OK; i++) {
        const struct piece *const p = &chat->piece[i];
        run->line = p->line;
        if (p->kind == PIECE_TEXT) chat_put(run, out, p->text);
        else if (p->kind == PIECE_VALUE) run_value(run, p, out);
        else if (begins_with(p, "set")) run_set(run, p, scope);
        else if (begins_with(p, "if")) run_if(run, chat, i, scope, out), i = p->end;
        else if (begins_with(p, "for")) run_for(run, chat, i, out), i = p->end;
    }
}

static void run_close(struct chat_run *run)
{
    for (int64_t i = 0; i < run->values; i++) cJSON_Delete(run->made[i]);
    free(run->made), free(run->variable);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The texts of a content that is a list of parts, one after another. */
static enum error_code join_parts(const cJSON *parts, int64_t number, cJSON **to, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    const cJSON *part;
    FILE *const out = open_memstream(&text, &bytes);
    enum error_code e = out ? OK : fail(err, ERR_MEMORY, "no memory for a message");
    cJSON_ArrayForEach(part, parts) {
        const cJSON *const type = cJSON_GetObjectItemCaseSensitive(part, "type"),
                    *const own = cJSON_GetObjectItemCaseSensitive(part, "text");
        if (!e && (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0 || !cJSON_IsString(own)))
            e = fail(err, ERR_FORMAT, "message %lld: a part of type %s is not served, only text", (long long)number,
                     cJSON_IsString(type) ? printable(type->valuestring).text : "that is no text");
        if (!e) fputs(own->valuestring, out);
    }
    if (out && fclose(out) == 0 && !e) *to = cJSON_CreateString(text);
    free(text);
    return e;
}

static enum error_code take_message(const cJSON *message, int64_t number, cJSON *to, struct error *err)
{
    static const char *const roles[] = { "system", "user", "assistant", "developer" };
    const cJSON *const role = cJSON_GetObjectItemCaseSensitive(message, "role"),
                *const content = cJSON_GetObjectItemCaseSensitive(message, "content"), *one;
    bool known = false;
    cJSON_ArrayForEach(one, message)
        if (strcmp(one->string, "role") != 0 && strcmp(one->string, "content") != 0 && !cJSON_IsNull(one) &&
            !(cJSON_IsArray(one) && cJSON_GetArraySize(one) == 0))
            return fail(err, ERR_FORMAT, "message %lld: %s is not served", (long long)number,
                        printable(one->string).text);
    for (size_t i = 0; i < sizeof roles / sizeof *roles && cJSON_IsString(role); i++)
        known = known || strcmp(role->valuestring, roles[i]) == 0;
    if (!known)
        return fail(err, ERR_FORMAT, "message %lld: its role must be system, developer, user or assistant",
                    (long long)number);
    if (!cJSON_IsString(content) && !cJSON_IsArray(content))
        return fail(err, ERR_FORMAT, "message %lld: its content must be a text", (long long)number);
    cJSON *text = NULL;
    const enum error_code e = cJSON_IsArray(content) ? join_parts(content, number, &text, err) : OK;
    if (e) return e;
    if (text == NULL) text = cJSON_Duplicate(content, false);
    cJSON *const o = json_row(to);
    json_add(o, "role %s", strcmp(role->valuestring, "developer") == 0 ? "system" : role->valuestring);
    if (text && o && cJSON_AddItemToObject(o, "content", text)) return OK;
    cJSON_Delete(text);
    return fail(err, ERR_MEMORY, "no memory for a message");
}

static enum error_code take_messages(struct chat_run *run, const cJSON *messages, struct error *err)
{
    cJSON *const to = chat_made(run, cJSON_CreateArray());
    const cJSON *one;
    int64_t number = 0;
    enum error_code e = to ? OK : fail(err, ERR_MEMORY, "no memory for messages");
    cJSON_ArrayForEach(one, messages) if (!e) e = take_message(one, number++, to, err);
    if (!e) chat_set(run, 0, "messages", to);
    return e;
}

enum error_code chat_render(const struct chat_template *chat, const cJSON *messages, char **text, size_t *bytes,
                            struct error *err)
{
    struct chat_run run = { .where = chat->where, .err = err };
    *text = NULL, *bytes = 0;
    struct chat_output out = { open_memstream(text, bytes), 0 };
    enum error_code e = out.to ? take_messages(&run, messages, err) : fail(err, ERR_MEMORY, "no memory for a chat");
    if (!e) {
        chat_set(&run, 0, "add_generation_prompt", chat_made(&run, cJSON_CreateTrue()));
        chat_set(&run, 0, "bos_token", chat_made(&run, cJSON_CreateString(chat->bos)));
        chat_set(&run, 0, "eos_token", chat_made(&run, cJSON_CreateString(chat->eos)));
        run_pieces(&run, chat, 0, chat->pieces, 0, &out);
        e = run.code;
    }
    run_close(&run);
    if (out.to && fclose(out.to) != 0 && !e) e = fail(err, ERR_MEMORY, "no memory for a chat");
    if (e) free(*text), *text = NULL;
    return e;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void chat_template_close(struct chat_template *chat)
{
    if (chat == NULL) return;
    for (int64_t i = 0; i < chat->pieces; i++) free(chat->piece[i].text);
    free(chat->piece), free(chat->where), free(chat->bos), free(chat->eos), free(chat);
}

/* All statements and expressions are read once, without values: this finds what is not supported. */
static enum error_code look_through(const struct chat_template *chat, struct error *err)
{
    struct chat_run run = { .where = chat->where, .err = err, .dry = true };
    struct chat_output out = { NULL, 0 };
    run_pieces(&run, chat, 0, chat->pieces, 0, &out);
    const enum error_code e = run.code;
    run_close(&run);
    return e;
}

enum error_code chat_template_open(struct chat_template **template, const char *text, const char *where,
                                   const char *bos, const char *eos, struct error *err)
{
    struct chat_template *const chat = calloc(1, sizeof *chat);
    const size_t bytes = strlen(text);
    *template = NULL;
    /* Jinja drops one end of a line at the end. */
    const bool ends_line = bytes > 0 && text[bytes - 1] == '\n';
    char *const own = bytes <= CHAT_TEMPLATE_BYTES ? strndup(text, bytes - ends_line) : NULL;
    enum error_code e = bytes > CHAT_TEMPLATE_BYTES ? fail(err, ERR_FORMAT, "%s: has more than %d bytes", where,
                                                           CHAT_TEMPLATE_BYTES) : OK;
    if (!e && chat) chat->where = strdup(where), chat->bos = strdup(bos ? bos : ""), chat->eos = strdup(eos ? eos : "");
    if (!e && !(chat && own && chat->where && chat->bos && chat->eos))
        e = fail(err, ERR_MEMORY, "no memory for a chat template");
    if (!e) e = read_pieces(chat, own, err);
    if (!e) e = link_blocks(chat, err);
    if (!e) e = look_through(chat, err);
    free(own);
    if (e) chat_template_close(chat);
    else *template = chat;
    return e;
}

/* A token of tokenizer_config.json is a text, or an object that has it. */
static const char *token_text(const cJSON *root, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(root, key);
    if (cJSON_IsObject(x)) x = cJSON_GetObjectItemCaseSensitive(x, "content");
    return cJSON_IsString(x) ? x->valuestring : NULL;
}

/* A file may have several templates: chats take the one that is called default. */
static const char *template_text(const cJSON *root)
{
    const cJSON *const x = cJSON_GetObjectItemCaseSensitive(root, "chat_template"), *one;
    if (cJSON_IsString(x)) return x->valuestring;
    cJSON_ArrayForEach(one, x) {
        const cJSON *const name = cJSON_GetObjectItemCaseSensitive(one, "name"),
                    *const text = cJSON_GetObjectItemCaseSensitive(one, "template");
        if (cJSON_IsString(name) && cJSON_IsString(text) && strcmp(name->valuestring, "default") == 0)
            return text->valuestring;
    }
    return NULL;
}

enum error_code chat_template_find(struct chat_template **template, const char *dir, struct error *err)
{
    char path[1200], own[1200];
    char *text = NULL;
    size_t bytes;
    cJSON *root = NULL;
    *template = NULL;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    snprintf(own, sizeof own, "%s/chat_template.jinja", dir);
    enum error_code e = access(path, F_OK) == 0 ? json_read(path, &root, err) : OK;
    if (!e && access(own, F_OK) == 0) e = file_read_all(own, CHAT_TEMPLATE_BYTES, &text, &bytes, err);
    const char *const found = text ? text : template_text(root);
    if (!e && found)
        e = chat_template_open(template, found, text ? "chat_template.jinja" : "chat_template",
                               token_text(root, "bos_token"), token_text(root, "eos_token"), err);
    free(text);
    cJSON_Delete(root);
    return e;
}
