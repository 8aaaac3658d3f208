/* source.c -- words of a student's text that a lesson does not need.
 *
 * The text is read as a compiler reads it: lines that a backslash continues are one, comments are blanks, also those of
 * several lines, and what stands in quotes is no comment.  So a directive that begins behind a comment is seen.  Where
 * two compilers could read it in two ways it says so.
 * build.c asks it for words that help a student; the text decides nothing.  A word of a comment or of quotes is not
 * looked at.  No function returns an error code.
 */
#include "emulated_devices/course/compile/source.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 4096 };

/* These are the headers that a student's file may include; the lesson's own header is the contract. */
static const char *const headers[] = { "math.h", "string.h", "stddef.h", "stdint.h", "stdbool.h", "float.h", "limits.h",
                                       "course.h", NULL };
static const char *const directives[] = { "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error",
                                          "pragma", "include", "", NULL };
/* A student's file may not use these names.  gcc writes names of attributes (section, weakref, symver) into the
 * assembly as they are, line ends too: an .incbin in one reads any file.  [[gnu::..]] is an attribute as well. */
static const char *const never[] = { "asm", "__asm", "__asm__", "__has_include", "__has_include_next", "__has_embed",
                                     "_Pragma", "__pragma", "__attribute", "__attribute__", "__declspec", "gnu",
                                     "__gnu__", "clang", "_Clang", NULL };

struct reader { const char *at; int number; };          /* number: of the line that `at` is in */

/* Read the next character, with lines that a backslash continues joined; 0: the end. */
static char next_char(struct reader *reader)
{
    for (;;) {
        if (*reader->at == '\r') {
            reader->at++;
            continue;
        }
        const char *end = reader->at;
        if (*end == '\\')
            for (end++; *end == ' ' || *end == '\t' || *end == '\v' || *end == '\f' || *end == '\r';) end++;
        if (end == reader->at || *end != '\n') break;
        reader->at = end + 1, reader->number++;                   /* blanks before the end of the line do not matter */
    }
    const char c = *reader->at;
    if (c) reader->at++;
    reader->number += c == '\n';
    return c;
}

/* Look at the next character without taking it. */
static char peek_char(const struct reader *reader)
{
    struct reader copy = *reader;
    return next_char(&copy);
}

/* A name of C has letters, digits and underscores. */
static bool continues_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Read the next line, as a compiler sees it.  @return NULL, or what is wrong with it. */
static const char *source_read_line(struct reader *reader, char line[LINE])
{
    enum { CODE, COMMENT, LINE_COMMENT } in = CODE;
    char quote = 0;
    size_t n = 0;
    for (char c; (c = next_char(reader)) != 0;) {
        if (c == '\n' && in != COMMENT) break;
        if (in == COMMENT && c == '*' && peek_char(reader) == '/') next_char(reader), in = CODE, c = ' ';
        else if (in != CODE) continue;
        else if (quote) {
            /* Inside quotes no comment can begin; a backslash takes the next character with it. */
            if (c == quote) quote = 0;
            else if (c == '\\' && peek_char(reader) != '\n') {
                if (n < LINE - 2) line[n++] = c;
                c = next_char(reader);
            }
        } else if (c == '/' && peek_char(reader) == '*') next_char(reader), in = COMMENT, c = ' ';
        else if (c == '/' && peek_char(reader) == '/') in = LINE_COMMENT, c = ' ';
        else if (c == '"' && n > 0 && line[n - 1] == 'R') return "there can be no R\"..\"";
        else if (c == '\'' && n > 0 && continues_name(line[n - 1]))
            return "there can be no ' in or behind a name or a number";
        else if (c == '"' || c == '\'') quote = c;
        else if (c == '\\' && (peek_char(reader) == 'u' || peek_char(reader) == 'U'))
            return "there can be no \\u or \\U, letters that are written as numbers";
        if (c == 0) break;
        if (n >= LINE - 2) return "it is longer than 4094 characters";
        line[n++] = c;
    }
    line[n] = 0;
    return NULL;
}

/* Whether a whole word of the line is this one. */
static bool has_identifier(const char *line, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = line; (at = strstr(at, word)) != NULL; at += n) {
        if ((at == line || !continues_name(at[-1])) && !continues_name(at[n])) return true;
    }
    return false;
}

/* Whether a word is in a list that ends with NULL. */
static bool source_is_one_of(const char *const *list, const char *word)
{
    for (; *list; list++)
        if (strcmp(*list, word) == 0) return true;
    return false;
}

/* Whether the line is no directive, or one that is allowed.  name: the file that it includes. */
static bool directive_is_fine(const char *line, const char *contract, char name[80])
{
    char word[20] = "", open, close;
    name[0] = 0;
    while (isspace((unsigned char)*line)) line++;
    if (*line == '#') line++;
    else if (line[0] == '%' && line[1] == ':') line += 2;
    else return true;
    while (isspace((unsigned char)*line)) line++;
    for (size_t n = 0; continues_name(*line) && n + 1 < sizeof word; n++) word[n] = *line++, word[n + 1] = 0;
    if (continues_name(*line) || !source_is_one_of(directives, word)) return false;
    /* Pragmas that read other files are not allowed. */
    if (strcmp(word, "pragma") == 0)
        return !has_identifier(line, "dependency") && !has_identifier(line, "pch_preprocess");
    if (strcmp(word, "include") != 0) return true;
    if (sscanf(line, " %c%79[^>\"]%c", &open, name, &close) != 3) return false;
    if (!(open == '<' && close == '>') && !(open == '"' && close == '"')) return name[0] = 0, false;
    return source_is_one_of(headers, name) || strcmp(name, contract) == 0;
}

/* Find bytes that compilers read in different ways, wherever they stand.  @return their name and their line; NULL:
 * there are none. */
static const char *find_odd_bytes(const char *text, int *number)
{
    *number = 1;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) return "the file begins with a mark of UTF-8 (a BOM), which is no C";
    for (; *text; text++) {
        if (text[0] == '\r' && text[1] != '\n') return "it has a carriage return that is no end of a line";
        if (text[0] == '?' && text[1] == '?' && text[2] && strchr("=/'()!<>-", text[2]))
            return "it has ?" "?, with which a trigraph begins";
        *number += *text == '\n';
    }
    return NULL;
}

/* Read the whole text, line by line.  @return false: it has something that is not allowed, and `why` says what. */
bool source_is_fine(const char *text, const char *contract, char *why, size_t size)
{
    struct reader r = { text, 1 };
    char line[LINE], name[80];
    int at;
    const char *odd = find_odd_bytes(text, &at);
    if (odd) return snprintf(why, size, "line %d: %s\n", at, odd), false;
    while (*r.at) {
        const int number = r.number;
        const char *wrong = source_read_line(&r, line);
        if (wrong) {
            snprintf(why, size, "line %d: %s\n", number, wrong);
            return false;
        }
        if (!directive_is_fine(line, contract, name)) {
            for (char *at = name; *at; at++) if (iscntrl((unsigned char)*at)) *at = '?';
            snprintf(why, size, "line %d: it includes %.70s; only course.h, %.70s and math.h, string.h, float.h, "
                     "limits.h, stdbool.h, stddef.h, stdint.h can be included\n", number, name[0] ? name : "something",
                     contract);
            return false;
        }
        for (int i = 0; never[i]; i++)
            if (has_identifier(line, never[i])) {
                snprintf(why, size, "line %d: %s cannot be used%s\n", number, never[i],
                         strstr(never[i], "asm") ? ": there can be no assembly" : "");
                return false;
            }
        if (strstr(line, "##") || strstr(line, "%:%:") || strstr(line, "??")) {
            snprintf(why, size, "line %d: ##, %%:%%: and ?? cannot be used\n", number);
            return false;
        }
    }
    return true;
}
