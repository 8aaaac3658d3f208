/* words.c -- reads a C text as words, and puts in the macros that it defines (words.h).  Errors: none; a text that is
 * too long or for which there is no memory is said by a flag. */
#include "emulated_devices/course/lint/words.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A reader is at a place of a text. */
struct text_reader {
    struct words *words;
    const char *at, *end;
    int line, off;                      /* off: this many #if around `at` leave it out */
    int nested[64], depth;              /* of each #if: 0: a branch was taken; 1: none yet; 2: this one is */
};

static struct word *words_append(struct word **list, int *count, int *room)
{
    if (*count >= *room) {
        const int more = *room ? 2 * *room : 1024;
        struct word *grown = more > 4 * WORDS_MOST ? NULL : realloc(*list, (size_t)more * sizeof *grown);
        if (grown == NULL) return NULL;
        *list = grown, *room = more;
    }
    return &(*list)[(*count)++];
}

/* Skip blanks, comments and lines that a backslash continues.  @return whether the line goes on. */
static bool skip_blanks(struct text_reader *reader)
{
    while (reader->at < reader->end) {
        const char *const at = reader->at;
        const size_t left = (size_t)(reader->end - at);
        if (*at == '\n') return false;
        if (*at == '\\' && left > 1 && (at[1] == '\n' || (left > 2 && at[1] == '\r' && at[2] == '\n')))
            reader->at += at[1] == '\n' ? 2 : 3, reader->line++;
        else if (left > 1 && at[0] == '/' && at[1] == '/')
            while (reader->at < reader->end && *reader->at != '\n') reader->at++;
        else if (left > 1 && at[0] == '/' && at[1] == '*') {
            for (reader->at += 2; reader->at < reader->end; reader->at++) {
                reader->line += *reader->at == '\n';
                if (reader->at + 1 < reader->end && reader->at[0] == '*' && reader->at[1] == '/') break;
            }
            reader->at = reader->at + 2 <= reader->end ? reader->at + 2 : reader->end;
        } else if (isspace((unsigned char)*at)) reader->at++;
        else return true;
    }
    return false;
}

static void skip_line(struct text_reader *reader)
{
    while (skip_blanks(reader)) reader->at++;
}

/* A number is one of int64_t, or a fraction.  A number that is too large is a fraction, too: nothing is known of it. */
static void word_number(struct text_reader *reader, struct word *word)
{
    const char *const from = reader->at;
    bool fraction = false;
    uint64_t value = 0;
    const bool hex = reader->end - from > 1 && from[0] == '0' && (from[1] == 'x' || from[1] == 'X');
    if (hex) reader->at += 2;
    const unsigned base = hex ? 16 : from[0] == '0' ? 8 : 10;
    for (; reader->at < reader->end && (isalnum((unsigned char)*reader->at) || *reader->at == '.'); reader->at++) {
        const int c = tolower((unsigned char)*reader->at);
        if (c == 'u' || c == 'l') continue;
        const unsigned digit = isdigit(c) ? (unsigned)(c - '0') : c >= 'a' ? (unsigned)(c - 'a' + 10) : 99;
        if (digit >= base || value > INT64_MAX / 16) fraction = true;
        else value = value * base + digit;
        if (c == 'e' && !hex && reader->at + 1 < reader->end && strchr("+-", reader->at[1])) reader->at++;
    }
    word->kind = fraction ? WORD_FRACTION : WORD_NUMBER;
    word->number = fraction ? 0 : (int64_t)value;
}

static void read_quoted(struct text_reader *reader, struct word *word)
{
    const char quote = *reader->at++;
    int letters = 0;
    for (; reader->at < reader->end && *reader->at != quote && *reader->at != '\n'; reader->at++, letters++) {
        if (*reader->at == '\\' && reader->at + 1 < reader->end && reader->at[1] != '\n') reader->at++;
        word->number = (unsigned char)*reader->at;
    }
    if (reader->at < reader->end && *reader->at == quote) reader->at++;
    word->kind = quote == '"' ? WORD_TEXT : letters == 1 ? WORD_NUMBER : WORD_FRACTION;
}

static void read_mark(struct text_reader *reader, struct word *word)
{
    static const char *const marks[] = { "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=",
                                         "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", NULL };
    const size_t left = (size_t)(reader->end - reader->at);
    word->kind = WORD_MARK, word->name = (unsigned char)*reader->at;
    for (int i = 0; marks[i]; i++) {
        const size_t n = strlen(marks[i]);
        if (n > left || memcmp(marks[i], reader->at, n) != 0) continue;
        word->name = MARK(marks[i][0], marks[i][1], n == 3 ? marks[i][2] : 0);
        reader->at += n;
        return;
    }
    reader->at++;
}

/* Read the next word of this line.  @return false: the line is over. */
static bool read_word(struct text_reader *reader, struct word *word)
{
    if (!skip_blanks(reader)) return false;
    *word = (struct word){ .line = reader->line };
    const unsigned char c = (unsigned char)*reader->at;
    if (isalpha(c) || c == '_') {
        const char *const from = reader->at;
        while (reader->at < reader->end && (isalnum((unsigned char)*reader->at) || *reader->at == '_')) reader->at++;
        word->kind = WORD_NAME;
        word->name = names_number(reader->words->names, from, (size_t)(reader->at - from));
    } else if (isdigit(c) || (c == '.' && reader->at + 1 < reader->end && isdigit((unsigned char)reader->at[1])))
        word_number(reader, word);
    else if (c == '"' || c == '\'') read_quoted(reader, word);
    else read_mark(reader, word);
    return true;
}

static struct macro *macro_find(struct words *words, int name)
{
    for (int i = words->macros - 1; i >= 0; i--)
        if (words->macro[i].name == name) return &words->macro[i];
    return NULL;
}

/* `#define NAME words` or `#define NAME(a, b) words`; one with too many parameters stays a name. */
static void read_define(struct text_reader *reader)
{
    struct words *const words = reader->words;
    struct word word;
    if (words->macros >= WORDS_MACROS || !read_word(reader, &word) || word.kind != WORD_NAME) return;
    struct macro macro = { .name = word.name, .parameters = -1, .first = words->bodies };
    if (reader->at < reader->end && *reader->at == '(') {
        reader->at++, macro.parameters = 0;
        while (read_word(reader, &word) && word.name != ')') {
            if (word.kind == WORD_MARK && word.name == ',') continue;
            if (word.kind != WORD_NAME || macro.parameters >= WORDS_PARAMETERS) return;
            macro.parameter[macro.parameters++] = word.name;
        }
    }
    while (read_word(reader, &word)) {
        struct word *const to = words_append(&words->body, &words->bodies, &words->body_room);
        if (to == NULL) return;
        *to = word, macro.count++;
    }
    words->macro[words->macros++] = macro;
}

static void directive_if(struct text_reader *reader, bool taken)
{
    if (reader->depth >= 64) return;
    reader->nested[reader->depth++] = taken ? 2 : 1;
    reader->off += !taken;
}

static void next_branch(struct text_reader *reader, bool taken)
{
    if (reader->depth == 0) return;
    int *const state = &reader->nested[reader->depth - 1];
    const bool was_off = *state != 2;
    *state = *state == 1 ? taken ? 2 : 1 : 0;
    reader->off += (*state != 2) - was_off;
}

static void directive_end(struct text_reader *reader)
{
    if (reader->depth == 0) return;
    reader->off -= reader->nested[--reader->depth] != 2;
}

/* A condition that is no literal 0 and no name that is defined nowhere here is taken for true. */
static void read_directive(struct text_reader *reader)
{
    struct words *const words = reader->words;
    struct word word, what = { 0 };
    if (!read_word(reader, &word) || word.kind != WORD_NAME) return;
    const char *const name = names_text(words->names, word.name);
    const bool is_define = strcmp(name, "define") == 0;
    if (is_define && reader->off == 0) read_define(reader);
    else if (strncmp(name, "if", 2) == 0 || strncmp(name, "el", 2) == 0 || strcmp(name, "undef") == 0)
        read_word(reader, &what);
    const bool has = what.kind == WORD_NAME && macro_find(words, what.name) != NULL;
    const bool holds = what.kind != WORD_NUMBER || what.number != 0;
    if (strcmp(name, "ifdef") == 0) directive_if(reader, has);
    else if (strcmp(name, "ifndef") == 0) directive_if(reader, !has);
    else if (strcmp(name, "if") == 0) directive_if(reader, holds);
    else if (strcmp(name, "elif") == 0) next_branch(reader, holds);
    else if (strcmp(name, "else") == 0) next_branch(reader, true);
    else if (strcmp(name, "endif") == 0) directive_end(reader);
    else if (strcmp(name, "undef") == 0 && has && reader->off == 0) macro_find(words, what.name)->name = -1;
}

/* ---- macros ------------------------------------------------------------------------------------------------------ */

enum { MACRO_DEPTH = 12 };

static bool put_words(struct words *words, const struct word *list, int count, int line, int depth);

/* Where the words of each argument are, in a list that begins behind "(". */
struct arguments { int first[WORDS_PARAMETERS], count[WORDS_PARAMETERS], number, length; };

/* Find the arguments of a macro.  @return false: the parenthesis is not closed, or there are too many. */
static bool find_arguments(const struct word *list, int count, struct arguments *arguments)
{
    int depth = 1;
    *arguments = (struct arguments){ .number = 1 };
    for (int i = 0; i < count; i++) {
        const int mark = list[i].kind == WORD_MARK ? list[i].name : 0;
        depth += (mark == '(' || mark == '[' || mark == '{') - (mark == ')' || mark == ']' || mark == '}');
        if (depth == 0) return arguments->length = i + 1, true;
        if (depth == 1 && mark == ',') {
            if (arguments->number == WORDS_PARAMETERS) return false;
            arguments->first[arguments->number++] = i + 1;
        } else arguments->count[arguments->number - 1]++;
    }
    return false;
}

static bool put_macro(struct words *words, struct macro *macro, const struct word *list,
                      const struct arguments *arguments, int line, int depth)
{
    bool fits = true;
    macro->is_open = true;
    for (int i = 0; i < macro->count && fits; i++) {
        const struct word word = words->body[macro->first + i];
        int which = 0;
        while (which < macro->parameters && (word.kind != WORD_NAME || macro->parameter[which] != word.name)) which++;
        if (which >= macro->parameters || which >= arguments->number) {
            /* A macro of the body may take its arguments from the body: all that is left is put in at once. */
            int run = 1;
            while (i + run < macro->count && macro->parameters <= 0) run++;
            struct word *const copy = malloc((size_t)run * sizeof *copy);
            if (copy == NULL) return false;
            memcpy(copy, &words->body[macro->first + i], (size_t)run * sizeof *copy);
            fits = put_words(words, copy, run, line, depth + 1);
            free(copy);
            i += run - 1;
        } else fits = put_words(words, list + arguments->first[which], arguments->count[which], line, depth + 1);
    }
    macro->is_open = false;
    return fits;
}

/* Add words to the text, with macros put in.  line: of the macro that they come from; 0: their own. */
static bool put_words(struct words *words, const struct word *list, int count, int line, int depth)
{
    for (int i = 0; i < count; i++) {
        struct macro *const macro = list[i].kind == WORD_NAME ? macro_find(words, list[i].name) : NULL;
        struct arguments arguments = { .number = 0 };
        const int at = line ? line : list[i].line;
        if (++words->steps > WORDS_STEPS) return words->too_long = true, false;
        if (macro && !macro->is_open && depth < MACRO_DEPTH) {
            const bool called = macro->parameters >= 0;
            if (!called || (i + 1 < count && list[i + 1].kind == WORD_MARK && list[i + 1].name == '(' &&
                            find_arguments(list + i + 2, count - i - 2, &arguments))) {
                if (!put_macro(words, macro, list + i + 2, &arguments, at, depth)) return false;
                i += called ? 1 + arguments.length : 0;
                continue;
            }
        }
        struct word *const to = words->count < WORDS_MOST
            ? words_append(&words->word, &words->count, &words->room) : NULL;
        if (to == NULL) return words->too_long = true, false;
        *to = list[i], to->line = at;
    }
    return true;
}

bool words_read(struct words *words, struct names *names, const char *text, size_t length)
{
    struct word *raw = NULL, word, *to;
    int count = 0, room = 0;
    memset(words, 0, sizeof *words);
    words->names = names;
    struct text_reader reader = { .words = words, .at = text, .end = text + length, .line = 1 };
    while (reader.at < reader.end && count < WORDS_MOST) {
        if (skip_blanks(&reader) && *reader.at == '#') reader.at++, read_directive(&reader), skip_line(&reader);
        else if (reader.off > 0) skip_line(&reader);
        else
            while (count < WORDS_MOST && read_word(&reader, &word)) {
                if ((to = words_append(&raw, &count, &room)) == NULL) return free(raw), false;
                *to = word;
            }
        if (reader.at < reader.end && *reader.at == '\n') reader.at++, reader.line++;
    }
    words->too_long = count >= WORDS_MOST;
    put_words(words, raw, count, 0, 0);
    free(raw);
    to = words_append(&words->word, &words->count, &words->room);
    if (to) *to = (struct word){ .kind = WORD_END, .line = reader.line };
    return to != NULL;
}

void words_free(struct words *words)
{
    free(words->word), free(words->body);
    memset(words, 0, sizeof *words);
}
