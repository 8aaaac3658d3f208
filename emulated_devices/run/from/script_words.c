/* script_words.c -- reads and expands the words of a shell script: quotes, line continuations, variables, arrays,
 * defaults, sums of numbers.  script.c calls these functions.  What a machine would have to run, "$(command)", stays as
 * it is written.  Errors are ERR_FORMAT with the line, and ERR_MEMORY. */
#include "emulated_devices/run/from/script_words.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of words ---------------------------------------------------------------------------------------------- */

bool script_words_add(struct script_words *words, const char *word)
{
    if (words->count == SCRIPT_MOST_WORDS) return false;
    if (words->count == words->room) {
        const int room = words->room ? 2 * words->room : 16;
        char **const more = realloc(words->of, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        words->of = more, words->room = room;
    }
    words->of[words->count] = strdup(word);
    return words->of[words->count] != NULL && ++words->count > 0;
}

void script_words_free(struct script_words *words)
{
    for (int i = 0; i < words->count; i++) free(words->of[i]);
    free(words->of);
    *words = (struct script_words){ .count = 0 };
}

void script_free(struct script *script)
{
    for (int i = 0; i < script->variables; i++)
        free(script->variable[i].name), script_words_free(&script->variable[i].words);
    script_words_free(&script->start), script_words_free(&script->assumed);
}

enum error_code script_refuse(const struct script *script, struct error *err, const char *format, ...)
{
    char why[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    return fail(err, ERR_FORMAT, "%s: line %d: %s", script->where, script->line, why);
}

enum error_code script_no_memory(const struct script *script, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: line %d: its words need more memory than there is, or are more than %d",
                script->where, script->line, SCRIPT_MOST_WORDS);
}

bool script_assume(struct script *script, const char *format, ...)
{
    char text[200];
    va_list ap;
    const int used = snprintf(text, sizeof text, "line %d: ", script->command_line);
    va_start(ap, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, ap);
    va_end(ap);
    for (int i = 0; i < script->assumed.count; i++)
        if (strcmp(script->assumed.of[i], text) == 0) return true;
    return script_words_add(&script->assumed, text);
}

/* ---- the word that is being put together ------------------------------------------------------------------------- */

struct script_word {
    struct script_words *to;            /* finished words go there */
    char *text;                         /* [SCRIPT_WORD_BYTES] */
    size_t used;
    bool begun;                         /* there is a word, though it may be empty */
};

static enum error_code script_put(struct script *script, struct script_word *word, char c, struct error *err)
{
    if (word->used + 1 >= SCRIPT_WORD_BYTES || ++script->work > SCRIPT_WORK)
        return script_refuse(script, err, "the words expand to too many bytes");
    word->text[word->used++] = c, word->begun = true;
    return OK;
}

static enum error_code script_end_word(struct script *script, struct script_word *word, struct error *err)
{
    if (!word->begun) return OK;
    word->text[word->used] = '\0';
    word->used = 0, word->begun = false;
    return script_words_add(word->to, word->text) ? OK : script_no_memory(script, err);
}

/* A value: outside of quotes its blanks separate words, but not in an assignment or a condition. */
static enum error_code script_put_text(struct script *script, struct script_word *word, const char *text, bool whole,
                                       struct error *err)
{
    enum error_code e = OK;
    for (; *text && !e; text++)
        e = !whole && isspace((unsigned char)*text) ? script_end_word(script, word, err)
                                                    : script_put(script, word, *text, err);
    return e;
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

static struct script_variable *script_find(struct script *script, const char *name, size_t length)
{
    for (int i = 0; i < script->variables; i++)
        if (strncmp(script->variable[i].name, name, length) == 0 && script->variable[i].name[length] == '\0')
            return &script->variable[i];
    return NULL;
}

/* Give a variable new words; appending keeps those that it has, and of a scalar joins the texts. */
static enum error_code script_set(struct script *script, const char *name, size_t length, struct script_words *words,
                                  bool append, bool array, struct error *err)
{
    struct script_variable *v = script_find(script, name, length);
    if (v == NULL) {
        if (script->variables == SCRIPT_VARIABLES) return script_refuse(script, err, "there are too many variables");
        v = &script->variable[script->variables];
        v->name = strndup(name, length);
        if (v->name == NULL) return script_no_memory(script, err);
        script->variables++;
    }
    if (append && !array && v->words.count > 0 && words->count > 0) {
        char *const old = v->words.of[0];
        const size_t bytes = strlen(old) + strlen(words->of[0]) + 1;
        if (bytes > SCRIPT_WORD_BYTES) return script_refuse(script, err, "the words expand to too many bytes");
        char *const joined = malloc(bytes);
        if (joined == NULL) return script_no_memory(script, err);
        memcpy(joined, old, strlen(old));
        memcpy(joined + strlen(old), words->of[0], strlen(words->of[0]) + 1);
        free(old);
        v->words.of[0] = joined;
        return OK;
    }
    if (!append) script_words_free(&v->words);
    for (int i = 0; i < words->count; i++)
        if (!script_words_add(&v->words, words->of[i])) return script_no_memory(script, err);
    return OK;
}

/* ---- expansions -------------------------------------------------------------------------------------------------- */

static enum error_code script_read_word(struct script *script, struct script_word *word, bool whole, struct error *err);

/* The place behind the bracket that closes the one at *at; NULL: none does. */
static const char *script_closing(const char *at, const char *end, char open, char close)
{
    int depth = 0;
    for (; at < end; at++) {
        if (*at == open) depth++;
        else if (*at == close && --depth == 0) return at + 1;
    }
    return NULL;
}

/* Text of the script itself, as it is written. */
static enum error_code script_put_raw(struct script *script, struct script_word *word, const char *from, const char *to,
                                      struct error *err)
{
    enum error_code e = OK;
    for (; from < to && !e; from++) {
        if (*from == '\n') script->line++;
        e = script_put(script, word, *from, err);
    }
    return e;
}

/* Expand a part of the script as a word: a default, or a sum. */
static enum error_code script_put_part(struct script *script, struct script_word *word, const char *from,
                                       const char *to, bool whole, struct error *err)
{
    const char *const at = script->at, *const end = script->end;
    if (script->nested == SCRIPT_DEPTH) return script_refuse(script, err, "expansions are nested too deeply");
    script->nested++;
    script->at = from, script->end = to;
    enum error_code e = OK;
    while (!e && script->at < script->end) {
        const char *const before = script->at;
        e = script_read_word(script, word, whole, err);
        if (!e && script->at == before) e = script_put(script, word, *script->at++, err);
    }
    script->at = at, script->end = end;
    script->nested--;
    return e;
}

/* The words of a variable, or without any its name as it is written; in a condition it is empty then. */
static enum error_code script_put_variable(struct script *script, struct script_word *word, const char *name,
                                           size_t length, const char *from, bool all, bool whole, struct error *err)
{
    const struct script_variable *const v = script_find(script, name, length);
    enum error_code e = OK;
    if (script->quiet) return OK;
    if (v == NULL && script->condition)
        return script_assume(script, "$%.*s is not set", (int)(length > 80 ? 80 : length), name)
                   ? OK : script_no_memory(script, err);
    if (v == NULL) return script_put_raw(script, word, from, script->at, err);
    const int count = all ? v->words.count : v->words.count > 0;
    for (int i = 0; i < count && !e; i++) {
        if (i > 0) e = script_end_word(script, word, err);
        if (!e && whole) word->begun = true;
        if (!e) e = script_put_text(script, word, v->words.of[i], whole, err);
    }
    return e;
}

/* "${NAME}", "${NAME[@]}", "${NAME:-word}" and "${@..}", which is empty: a script gets no arguments. */
static enum error_code script_put_braced(struct script *script, struct script_word *word, const char *from,
                                         bool whole, struct error *err)
{
    const char *const close = script_closing(from + 1, script->end, '{', '}');
    const char *const name = from + 2;
    if (close == NULL) return script_refuse(script, err, "${ is not closed");
    script->at = close;
    if (*name == '@' || *name == '*') return OK;
    size_t length = 0;
    while (name + length < close && name[length] && strchr(SCRIPT_NAME_LETTERS, name[length])) length++;
    const char *const rest = name + length;
    const size_t left = (size_t)(close - 1 - rest);
    if (length > 0 && left == 0) return script_put_variable(script, word, name, length, from, false, whole, err);
    if (length > 0 && left == 3 && (memcmp(rest, "[@]", 3) == 0 || memcmp(rest, "[*]", 3) == 0))
        return script_put_variable(script, word, name, length, from, true, whole, err);
    const size_t sign = left > 0 && rest[0] == ':' ? 1 : 0;
    if (length == 0 || left <= sign || (rest[sign] != '-' && rest[sign] != '='))
        return script_refuse(script, err, "%.80s: only ${NAME}, ${NAME[@]} and ${NAME:-word} are expanded",
                             printable(from).text);
    const struct script_variable *const v = script_find(script, name, length);
    const bool set = v && v->words.count > 0 && (sign == 0 || v->words.of[0][0] != '\0');
    if (set) return script_put_variable(script, word, name, length, from, false, whole, err);
    return script_put_part(script, word, rest + sign + 1, close - 1, whole, err);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

struct script_sum { const char *at; bool wrong; int depth; };

static long script_sum_of(struct script_sum *sum);

static void script_sum_blanks(struct script_sum *sum)
{
    while (*sum->at == ' ' || *sum->at == '\t') sum->at++;
}

static long script_sum_term(struct script_sum *sum)
{
    script_sum_blanks(sum);
    if (*sum->at == '(' && sum->depth < SCRIPT_DEPTH) {
        sum->at++, sum->depth++;
        const long x = script_sum_of(sum);
        script_sum_blanks(sum);
        sum->wrong = sum->wrong || *sum->at != ')';
        sum->depth--;
        if (!sum->wrong) sum->at++;
        return x;
    }
    char *end;
    const bool digit = isdigit((unsigned char)*sum->at);
    const long x = strtol(sum->at, &end, 10);
    if (!digit || x > INT32_MAX) sum->wrong = true;
    sum->at = digit ? end : sum->at;
    return sum->wrong ? 0 : x;
}

static long script_sum_product(struct script_sum *sum)
{
    long x = script_sum_term(sum);
    for (script_sum_blanks(sum); !sum->wrong && strchr("*/%", *sum->at) && *sum->at; script_sum_blanks(sum)) {
        const char sign = *sum->at++;
        const long y = script_sum_term(sum);
        if (sum->wrong || (sign != '*' && y == 0)) sum->wrong = true;
        else if (__builtin_mul_overflow(x, sign == '*' ? y : 1, &x)) sum->wrong = true;
        else if (sign == '/') x /= y;
        else if (sign == '%') x %= y;
        if (x > INT32_MAX || x < INT32_MIN) sum->wrong = true;
    }
    return sum->wrong ? 0 : x;
}

static long script_sum_of(struct script_sum *sum)
{
    long x = script_sum_product(sum);
    for (script_sum_blanks(sum); !sum->wrong && (*sum->at == '+' || *sum->at == '-'); script_sum_blanks(sum)) {
        const char sign = *sum->at++;
        const long y = script_sum_product(sum);
        x = sign == '+' ? x + y : x - y;
        if (x > INT32_MAX || x < INT32_MIN) sum->wrong = true;
    }
    return sum->wrong ? 0 : x;
}

/* Names in a sum need no "$": they get one.  @return the text of the sum with values; NULL: no memory. */
static enum error_code script_sum_text(struct script *script, struct script_word *inner, const char *from,
                                       const char *to, struct error *err)
{
    enum error_code e = OK;
    while (from < to && !e) {
        size_t length = 0;
        while (from + length < to && strchr(SCRIPT_NAME_LETTERS, from[length])) length++;
        const bool name = length > 0 && !isdigit((unsigned char)*from);
        const struct script_variable *const v = name ? script_find(script, from, length) : NULL;
        if (v && v->words.count > 0) e = script_put_text(script, inner, v->words.of[0], true, err);
        else if (length > 0) e = script_put_raw(script, inner, from, from + length, err);
        else if (*from != '$' && *from != '{' && *from != '}') e = script_put(script, inner, *from, err);
        from += length > 0 ? length : 1;
    }
    return e;
}

/* "$((sum))" as a number; a sum with something unknown stays as it is written. */
static enum error_code script_put_sum(struct script *script, struct script_word *word, const char *from,
                                      const char *close, struct error *err)
{
    struct script_words none = { .count = 0 };
    struct script_word inner = { .to = &none, .text = malloc(SCRIPT_WORD_BYTES) };
    if (inner.text == NULL) return script_no_memory(script, err);
    enum error_code e = script_sum_text(script, &inner, from + 3, close - 2, err);
    inner.text[inner.used] = '\0';
    struct script_sum sum = { .at = inner.text };
    const long x = script_sum_of(&sum);
    char number[32];
    snprintf(number, sizeof number, "%ld", x);
    if (!e && (sum.wrong || *sum.at)) e = script_put_raw(script, word, from, close, err);
    else if (!e) e = script_put_text(script, word, number, true, err);
    free(inner.text);
    return e;
}

/* Expand what follows a "$"; the sign is at the place. */
static enum error_code script_put_dollar(struct script *script, struct script_word *word, bool whole,
                                         struct error *err)
{
    const char *const from = script->at;
    const char next = from + 1 < script->end ? from[1] : '\0';
    if (next == '(') {
        const char *const close = script_closing(from + 1, script->end, '(', ')');
        if (close == NULL) return script_refuse(script, err, "$( is not closed");
        script->at = close;
        const bool sum = close - from >= 5 && from[2] == '(' && close[-2] == ')';
        return sum ? script_put_sum(script, word, from, close, err) : script_put_raw(script, word, from, close, err);
    }
    if (next == '{') return script_put_braced(script, word, from, whole, err);
    if (next == '@' || next == '*') {
        script->at += 2;
        return OK;
    }
    size_t length = 0;
    if (isdigit((unsigned char)next)) length = 1;
    else while (from + 1 + length < script->end && from[1 + length] && strchr(SCRIPT_NAME_LETTERS, from[1 + length]))
        length++;
    script->at += 1 + length;
    return length == 0 ? script_put(script, word, '$', err)
                       : script_put_variable(script, word, from + 1, length, from, false, whole, err);
}

/* ---- quotes ------------------------------------------------------------------------------------------------------ */

static enum error_code script_quoted(struct script *script, struct script_word *word, struct error *err)
{
    const char quote = *script->at++;
    const int line = script->line;
    enum error_code e = OK;
    word->begun = true;
    while (!e && script->at < script->end && *script->at != quote) {
        const char c = *script->at, next = script->at + 1 < script->end ? script->at[1] : '\0';
        if (c == '\n') script->line++;
        if (quote == '"' && c == '$') e = script_put_dollar(script, word, true, err);
        else if (quote == '"' && c == '\\' && next == '\n') script->at += 2, script->line++;
        else if (quote == '"' && c == '\\' && next && strchr("\"\\$`", next)) {
            e = script_put(script, word, next, err);
            script->at += 2;
        } else e = script_put(script, word, c, err), script->at++;
    }
    if (e) return e;
    if (script->at == script->end) {
        script->line = line;
        return script_refuse(script, err, "a quote is not closed: %c", quote);
    }
    script->at++;
    return OK;
}

/* ---- a word ------------------------------------------------------------------------------------------------------ */

static bool script_separates(char c) { return isspace((unsigned char)c) || strchr(";|&()<>", c) != NULL; }

/* Read one word; unquoted expansions may make it several. */
static enum error_code script_read_word(struct script *script, struct script_word *word, bool whole, struct error *err)
{
    enum error_code e = OK;
    const bool inside = script->nested > 0;
    while (!e && script->at < script->end) {
        const char c = *script->at, next = script->at + 1 < script->end ? script->at[1] : '\0';
        if (!inside && script_separates(c)) break;
        if (c == '\\' && next == '\n') script->at += 2, script->line++;
        else if (c == '\\' && next) e = script_put(script, word, next, err), script->at += 2;
        else if (c == '"' || c == '\'') e = script_quoted(script, word, err);
        else if (c == '$') e = script_put_dollar(script, word, whole, err);
        else if (c == '`') {
            const char *const close = memchr(script->at + 1, '`', (size_t)(script->end - script->at - 1));
            if (close == NULL) return script_refuse(script, err, "a quote is not closed: `");
            e = script_put_raw(script, word, script->at, close + 1, err);
            script->at = close + 1;
        } else {
            if (c == '\n') script->line++;
            e = script_put(script, word, c, err), script->at++;
        }
    }
    return e;
}

/* ---- between words ----------------------------------------------------------------------------------------------- */

static void script_comment(struct script *script)
{
    while (script->at < script->end && *script->at != '\n') script->at++;
}

/* Pass blanks, continued lines, and if asked line ends and semicolons. */
static void script_blanks(struct script *script, bool lines)
{
    for (; script->at < script->end; script->at++) {
        const char c = *script->at;
        if (c == '\\' && script->at + 1 < script->end && script->at[1] == '\n') script->at++, script->line++;
        else if (c == '\n' && lines) script->line++;
        else if (c == ';' && lines) continue;
        else if (c == '\n' || !isspace((unsigned char)c)) return;
    }
}

void script_skip(struct script *script)
{
    for (script_blanks(script, true); script->at < script->end && *script->at == '#'; script_blanks(script, true))
        script_comment(script);
}

bool script_peek(const struct script *script, char word[SCRIPT_KEYWORD])
{
    size_t length = 0;
    while (script->at + length < script->end && !script_separates(script->at[length])) length++;
    if (length == 0 || length >= SCRIPT_KEYWORD) return false;
    memcpy(word, script->at, length);
    word[length] = '\0';
    return strpbrk(word, "$'\"\\`=") == NULL;
}

/* The words between "(" and ")" of an array. */
static enum error_code script_array(struct script *script, struct script_words *to, struct error *err)
{
    struct script_word word = { .to = to, .text = malloc(SCRIPT_WORD_BYTES) };
    const int line = script->line;
    enum error_code e = word.text ? OK : script_no_memory(script, err);
    script->at++;
    while (!e) {
        script_skip(script);
        if (script->at == script->end) {
            script->line = line;
            e = script_refuse(script, err, "an array is not closed: (");
        } else if (*script->at == ')') break;
        else if (script_separates(*script->at)) e = script_refuse(script, err, "an array has a sign %c", *script->at);
        else {
            e = script_read_word(script, &word, false, err);
            if (!e) e = script_end_word(script, &word, err);
        }
    }
    if (!e) script->at++;
    free(word.text);
    return e;
}

/* NAME=word, NAME+=word, NAME=(words): at the name. */
static enum error_code script_assign(struct script *script, struct script_word *word, struct error *err)
{
    const char *const name = script->at;
    const size_t length = strspn(name, SCRIPT_NAME_LETTERS);
    const bool append = name[length] == '+';
    struct script_words words = { .count = 0 };
    struct script_words *const to = word->to;
    enum error_code e;
    script->at += length + (append ? 2 : 1);
    const bool array = script->at < script->end && *script->at == '(';
    if (array) e = script_array(script, &words, err);
    else {
        word->to = &words, word->begun = true;
        e = script_read_word(script, word, true, err);
        if (!e) e = script_end_word(script, word, err);
        word->to = to;
    }
    if (!e && !script->quiet) e = script_set(script, name, length, &words, append, array, err);
    script_words_free(&words);
    return e;
}

/* "<", ">" and "2>": the file behind it is no argument. */
static enum error_code script_redirect(struct script *script, struct script_word *word, struct error *err)
{
    struct script_words dropped = { .count = 0 };
    struct script_words *const to = word->to;
    if (script->at + 1 < script->end && script->at[0] == '<' && script->at[1] == '<')
        return script_refuse(script, err, "a text of the script itself (<<) is not read");
    while (script->at < script->end && *script->at && strchr("<>&", *script->at)) script->at++;
    script_blanks(script, false);
    word->to = &dropped;
    enum error_code e = script_read_word(script, word, true, err);
    if (!e) e = script_end_word(script, word, err);
    word->to = to;
    script_words_free(&dropped);
    return e;
}

/* At a sign between words.  @param[out] ends  whether the command ends there. */
static enum error_code script_sign(struct script *script, struct script_word *word, bool *skips, bool *ends,
                                   struct error *err)
{
    const char c = *script->at, next = script->at + 1 < script->end ? script->at[1] : '\0';
    const bool two = c == next && (c == '&' || c == '|');
    if (c == '<' || c == '>' || (c == '&' && next == '>')) return script_redirect(script, word, err);
    if (script->condition && two) {
        script->at += 2;
        return script_words_add(word->to, c == '&' ? "&&" : "||") ? OK : script_no_memory(script, err);
    }
    if (c == '(' || c == ')') return script_refuse(script, err, "a sign %c: functions and subshells are not read", c);
    script->at += two ? 2 : 1;
    if (c == '\n') script->line++;
    /* The command behind "|" gets the output, and that behind "||" runs only if the first fails: both are passed. */
    if (c == '|') *skips = true;
    else *ends = true;
    return OK;
}

/* @return whether the words so far allow that the next one is an assignment. */
static bool script_may_assign(const struct script_words *words)
{
    static const char *const names[] = { "export", "declare", "local", "readonly", "typeset" };
    bool may = words->count == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && words->count > 0; i++)
        may = may || strcmp(words->of[0], names[i]) == 0;
    return may;
}

enum error_code script_line(struct script *script, struct script_words *words, bool (*assigns)(const char *),
                            struct error *err)
{
    struct script_words dropped = { .count = 0 };
    struct script_word word = { .to = words, .text = malloc(SCRIPT_WORD_BYTES) };
    enum error_code e = word.text ? OK : script_no_memory(script, err);
    bool skips = false, ends = false;
    while (!e && !ends) {
        script_blanks(script, script->bare);
        if (script->at == script->end) break;
        word.to = skips ? &dropped : words;
        if (*script->at == '#') script_comment(script);
        else if (script_separates(*script->at)) e = script_sign(script, &word, &skips, &ends, err);
        else if (assigns && !skips && script_may_assign(words) && assigns(script->at))
            e = script_assign(script, &word, err);
        else {
            const bool number = script->at + 1 < script->end && (script->at[0] == '1' || script->at[0] == '2')
                              && script->at[1] == '>';
            if (number) script->at++;   /* 2>&1 */
            else {
                if (script->condition) word.begun = true;
                e = script_read_word(script, &word, script->condition, err);
                if (!e) e = script_end_word(script, &word, err);
            }
        }
    }
    script_words_free(&dropped);
    free(word.text);
    return e;
}
