/* winnow.c -- reads texts in C or Python as tokens, and chooses fingerprints of them (winnow.h).
 * similar.c calls winnow for each file.  Texts come from students: any bytes are read, and nothing but memory can be
 * missing. */
#include "emulated_devices/course/class/winnow.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

enum { NAME = 1, NUMBER, QUOTED };      /* kinds that are all alike; other tokens are their own characters */

/* Words that a language gives a meaning: another name cannot take their place. */
static const char *const words[][26] = {
    [WINNOW_C] = { "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "float",
                   "for", "goto", "if", "int", "long", "return", "short", "signed", "sizeof", "static", "struct",
                   "switch", "unsigned", "void", "while" },
    [WINNOW_PYTHON] = { "and", "assert", "break", "continue", "def", "elif", "else", "for", "from", "if", "import",
                        "in", "is", "lambda", "not", "or", "pass", "return", "while", "yield" },
};

static bool is_word(enum winnow_language language, const char *at, size_t length)
{
    for (size_t i = 0; i < sizeof words[0] / sizeof *words[0] && words[language][i]; i++)
        if (strlen(words[language][i]) == length && memcmp(words[language][i], at, length) == 0) return true;
    return false;
}

static uint64_t add_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* These are the tokens that have been read: a hash each, and a line. */
struct tokens { uint64_t *hash; int32_t *line; int count; };

static void take_token(struct tokens *tokens, uint64_t hash, int32_t line)
{
    tokens->hash[tokens->count] = hash, tokens->line[tokens->count++] = line;
}

/* Skip to a character behind `at`, over escapes, and count lines.  @return behind it, or the end. */
static const char *skip_quoted(const char *at, const char *end, char quote, int32_t *line)
{
    for (; at < end && *at != quote; at++) {
        *line += *at == '\n';
        if (*at == '\\' && at + 1 < end) at++, *line += *at == '\n';
    }
    return at < end ? at + 1 : end;
}

/* Skip a comment, or a line of the preprocessor with those that continue it.  @return behind it; `at`: it is none. */
static const char *skip_unread(const char *at, const char *end, enum winnow_language language, bool begins_line,
                               int32_t *line)
{
    if (language == WINNOW_PYTHON) {
        const char *stop = *at == '#' ? memchr(at, '\n', (size_t)(end - at)) : at;
        return stop ? stop : end;
    }
    if (at + 1 < end && at[0] == '/' && at[1] == '*') {
        for (at += 2; at < end && !(at[0] == '*' && at + 1 < end && at[1] == '/'); at++) *line += *at == '\n';
        return at + 2 < end ? at + 2 : end;
    }
    if ((at + 1 < end && at[0] == '/' && at[1] == '/') || (*at == '#' && begins_line)) {
        for (; at < end && *at != '\n'; at++)
            if (*at == '\\' && at + 1 < end && at[1] == '\n') at++, ++*line;
        return at;
    }
    return at;
}

static void read_tokens(struct tokens *tokens, enum winnow_language language, const char *at, const char *end)
{
    int32_t line = 1;
    bool begins_line = true;
    while (at < end) {
        const unsigned char c = (unsigned char)*at;
        const char *const behind = skip_unread(at, end, language, begins_line, &line);
        if (behind > at) {
            at = behind;
            continue;
        }
        if (c == '\n') line++, begins_line = true;
        if (isspace(c) || c == '\0') {
            at++;
            continue;
        }
        begins_line = false;
        const char *begin = at;
        const int32_t first = line;
        uint64_t kind;
        if (isalpha(c) || c == '_') {
            while (at < end && (isalnum((unsigned char)*at) || *at == '_')) at++;
            kind = is_word(language, begin, (size_t)(at - begin)) ? add_bytes(0, begin, (size_t)(at - begin)) : NAME;
        } else if (isdigit(c)) {
            while (at < end && (isalnum((unsigned char)*at) || *at == '.')) at++;
            kind = NUMBER;
        } else if (c == '"' || c == '\'') {
            at = skip_quoted(at + 1, end, (char)c, &line);
            kind = QUOTED;
        } else kind = 256u + (unsigned char)*at++;
        take_token(tokens, kind, first);
    }
}

/* ---- fingerprints ------------------------------------------------------------------------------------------------ */

static int by_hash(const void *a, const void *b)
{
    const struct fingerprint *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : x->token - y->token;
}

/* Find the first fingerprint of a hash, by halves.  @return its index, or the number of prints. */
static int find_print(const struct winnowed *winnowed, uint64_t hash)
{
    int low = 0, high = winnowed->prints;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (winnowed->print[middle].hash < hash) low = middle + 1;
        else high = middle;
    }
    return low < winnowed->prints && winnowed->print[low].hash == hash ? low : winnowed->prints;
}

static bool is_known(const struct winnowed *known, uint64_t hash)
{
    return known && find_print(known, hash) < known->prints;
}

/* Choose the least hash of each window, the last of equal ones; a hash that was chosen already is not chosen again. */
static void choose(struct winnowed *winnowed, const uint64_t *hash, int hashes, const struct winnowed *known,
                   bool every)
{
    int last = -1;
    const int window = every ? 1 : hashes < WINNOW_WINDOW ? hashes : WINNOW_WINDOW;
    for (int begin = 0; hashes > 0 && begin + window <= hashes; begin++) {
        int least = begin;
        for (int i = begin; i < begin + window; i++)
            if (hash[i] <= hash[least]) least = i;
        if (least == last) continue;
        last = least;
        if (is_known(known, hash[least])) continue;
        winnowed->print[winnowed->prints++] = (struct fingerprint){ hash[least], least };
    }
    qsort(winnowed->print, (size_t)winnowed->prints, sizeof *winnowed->print, by_hash);
}

enum error_code winnow(struct winnowed *winnowed, enum winnow_language language, const char *text, size_t size,
                       const struct winnowed *known, bool every, struct error *err)
{
    struct tokens tokens = { malloc((size + 1) * sizeof(uint64_t)), malloc((size + 1) * sizeof(int32_t)), 0 };
    *winnowed = (struct winnowed){ .line = tokens.line, .print = malloc((size + 1) * sizeof *winnowed->print) };
    if (tokens.hash == NULL || tokens.line == NULL || winnowed->print == NULL) {
        free(tokens.hash);
        return fail(err, ERR_MEMORY, "no memory to compare texts");
    }
    read_tokens(&tokens, language, text, text + size);
    winnowed->tokens = tokens.count;
    const int hashes = tokens.count - WINNOW_TOKENS + 1;
    /* A sequence's hash takes the place of that of its first token, which no later sequence has. */
    for (int i = 0; i < hashes; i++)
        tokens.hash[i] = add_bytes(1469598103934665603u, &tokens.hash[i], WINNOW_TOKENS * sizeof *tokens.hash);
    choose(winnowed, tokens.hash, hashes > 0 ? hashes : 0, known, every);
    free(tokens.hash);
    return OK;
}

void winnow_free(struct winnowed *winnowed)
{
    free(winnowed->line), free(winnowed->print);
    *winnowed = (struct winnowed){ 0 };
}

int winnow_common(const struct winnowed *a, const struct winnowed *b, bool *mark)
{
    int marked = 0;
    memset(mark, 0, sizeof *mark * (size_t)a->tokens);
    for (int i = 0, k = 0; i < a->prints && k < b->prints;) {
        const uint64_t x = a->print[i].hash, y = b->print[k].hash;
        if (x == y)
            for (int t = 0; t < WINNOW_TOKENS; t++) {
                const int token = a->print[i].token + t;
                marked += !mark[token], mark[token] = true;
            }
        if (x <= y) i++;
        if (x > y) k++;
    }
    return marked;
}
