/* json_words.c -- reads and writes the texts of json_tree.c's trees, as cJSON 1.7 does, to the byte.
 *
 * ref/io/json.c calls these functions, and checks before what cJSON does not.  NULL: the text is no JSON, or there is
 * no memory.
 */
#include "ref/io/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reading { const char *at, *end; int depth; };

static cJSON *read_value(struct reading *reading);

static void skip_blanks(struct reading *reading)
{
    while (reading->at < reading->end && (unsigned char)*reading->at <= ' ') reading->at++;
}

static bool take_letter(struct reading *reading, char letter)
{
    if (reading->at >= reading->end || *reading->at != letter) return false;
    reading->at++;
    return true;
}

static bool json_take_word(struct reading *reading, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(reading->end - reading->at) < length || memcmp(reading->at, word, length) != 0) return false;
    reading->at += length;
    return true;
}

/* Four hexadecimal digits; -1: there are none. */
static long read_digits(struct reading *reading)
{
    long code = 0;
    if (reading->end - reading->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char c = reading->at[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        code = 16 * code + digit;
    }
    reading->at += 4;
    return code;
}

/* A character by its number, of which those above U+FFFF are written as two. */
static bool read_numbered(struct reading *reading, char **to)
{
    long code = read_digits(reading);
    if (code >= 0xD800 && code < 0xDC00) {
        if (!json_take_word(reading, "\\u")) return false;
        const long low = read_digits(reading);
        if (low < 0xDC00 || low > 0xDFFF) return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF)) return false;
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int first[] = { 0, 0xC0, 0xE0, 0xF0 };
    *(*to)++ = (char)(first[more] | code >> 6 * more);
    for (int i = more - 1; i >= 0; i--) *(*to)++ = (char)(0x80 | (code >> 6 * i & 0x3F));
    return true;
}

static bool read_escape(struct reading *reading, char **to)
{
    static const char letters[] = "bfnrt\"\\/", meant[] = "\b\f\n\r\t\"\\/";
    if (reading->at >= reading->end) return false;
    const char letter = *reading->at++;
    if (letter == 'u') return read_numbered(reading, to);
    const char *const found = letter ? strchr(letters, letter) : NULL;
    if (found) *(*to)++ = meant[found - letters];
    return found != NULL;
}

/* A text behind its first quote.  What is written takes no more bytes than its spelling. */
static char *read_text(struct reading *reading)
{
    const char *last = reading->at;
    while (last < reading->end && *last != '"') last += *last == '\\' ? 2 : 1;
    if (last >= reading->end) return NULL;
    char *const text = malloc((size_t)(last - reading->at) + 1), *to = text;
    bool good = text != NULL;
    while (good && reading->at < last) {
        if (*reading->at != '\\') *to++ = *reading->at++;
        else reading->at++, good = read_escape(reading, &to);
    }
    if (good) { *to = '\0', reading->at = last + 1; return text; }
    free(text);
    return NULL;
}

static cJSON *read_number(struct reading *reading)
{
    char digits[64], *end;
    size_t n = strspn(reading->at, "0123456789+-eE.");
    if (n > (size_t)(reading->end - reading->at)) n = (size_t)(reading->end - reading->at);
    if (n >= sizeof digits) n = sizeof digits - 1;
    memcpy(digits, reading->at, n), digits[n] = '\0';
    const double number = strtod(digits, &end);
    if (end == digits) return NULL;
    reading->at += end - digits;
    return cJSON_CreateNumber(number);
}

/* A member of an object, or an element: false if there is none. */
static bool read_member(struct reading *reading, cJSON *to)
{
    char *name = NULL;
    skip_blanks(reading);
    if (cJSON_IsObject(to)) {
        if (!take_letter(reading, '"') || (name = read_text(reading)) == NULL) return false;
        skip_blanks(reading);
        if (!take_letter(reading, ':')) return free(name), false;
        skip_blanks(reading);
    }
    cJSON *const value = read_value(reading);
    if (value) value->string = name;
    else free(name);
    skip_blanks(reading);
    return cJSON_AddItemToArray(to, value);
}

/* An object or an array behind its first bracket. */
static cJSON *read_members(struct reading *reading, cJSON *to, char last)
{
    bool good = to != NULL && ++reading->depth <= CJSON_NESTING_LIMIT;
    skip_blanks(reading);
    if (good && take_letter(reading, last)) return reading->depth--, to;
    do good = good && read_member(reading, to);
    while (good && take_letter(reading, ','));
    reading->depth--;
    if (good && take_letter(reading, last)) return to;
    cJSON_Delete(to);
    return NULL;
}

static cJSON *read_value(struct reading *reading)
{
    if (json_take_word(reading, "null")) return cJSON_CreateNull();
    if (json_take_word(reading, "true")) return cJSON_CreateBool(true);
    if (json_take_word(reading, "false")) return cJSON_CreateBool(false);
    if (take_letter(reading, '{')) return read_members(reading, cJSON_CreateObject(), '}');
    if (take_letter(reading, '[')) return read_members(reading, cJSON_CreateArray(), ']');
    if (!take_letter(reading, '"'))
        return reading->at < reading->end && (*reading->at == '-' || (*reading->at >= '0' && *reading->at <= '9'))
               ? read_number(reading) : NULL;
    char *const text = read_text(reading);
    cJSON *const value = text ? cJSON_CreateNull() : NULL;
    if (value) value->type = cJSON_String, value->valuestring = text;
    else free(text);
    return value;
}

cJSON *cJSON_ParseWithLengthOpts(const char *text, size_t length, const char **end, cJSON_bool whole)
{
    if (text == NULL) return NULL;
    struct reading reading = { text, text + length, 0 };
    skip_blanks(&reading);
    cJSON *value = read_value(&reading);
    if (value && whole) skip_blanks(&reading);
    if (value && whole && reading.at < reading.end && *reading.at) cJSON_Delete(value), value = NULL;
    if (end) *end = reading.at;
    return value;
}

cJSON *cJSON_Parse(const char *text)
{
    return text ? cJSON_ParseWithLengthOpts(text, strlen(text) + 1, NULL, false) : NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_text(FILE *to, const char *text)
{
    static const char letters[] = "bfnrt\"\\", meant[] = "\b\f\n\r\t\"\\";
    fputc('"', to);
    for (; text && *text; text++) {
        const char *const found = strchr(meant, *text);
        if (found) fprintf(to, "\\%c", letters[found - meant]);
        else if ((unsigned char)*text < 32) fprintf(to, "\\u%04x", (unsigned char)*text);
        else fputc(*text, to);
    }
    fputc('"', to);
}

/* A whole number, or as many digits as are needed that it reads back nearly the same. */
static void write_number(FILE *to, const cJSON *item)
{
    const double x = item->valuedouble;
    char digits[40];
    if (!isfinite(x)) { fputs("null", to); return; }
    if (x == (double)item->valueint) { fprintf(to, "%d", item->valueint); return; }
    snprintf(digits, sizeof digits, "%1.15g", x);
    const double back = strtod(digits, NULL), most = fabs(back) > fabs(x) ? fabs(back) : fabs(x);
    if (fabs(back - x) > most * 0x1p-52) snprintf(digits, sizeof digits, "%1.17g", x);
    fputs(digits, to);
}

static void write_tabs(FILE *to, int depth)
{
    while (depth-- > 0) fputc('\t', to);
}

static void write_value(FILE *to, const cJSON *item, int depth, bool formatted);

static void write_members(FILE *to, const cJSON *item, int depth, bool formatted)
{
    const bool object = cJSON_IsObject(item);
    fputc(object ? '{' : '[', to);
    if (object && formatted) fputc('\n', to);
    for (const cJSON *c = item->child; c; c = c->next) {
        if (object) {
            if (formatted) write_tabs(to, depth + 1);
            write_text(to, c->string);
            fputs(formatted ? ":\t" : ":", to);
        }
        write_value(to, c, depth + 1, formatted);
        if (c->next) fputs(object || !formatted ? "," : ", ", to);
        if (object && formatted) fputc('\n', to);
    }
    if (object && formatted) write_tabs(to, depth);
    fputc(object ? '}' : ']', to);
}

static void write_value(FILE *to, const cJSON *item, int depth, bool formatted)
{
    switch (item->type & 0xff) {
    case cJSON_NULL: fputs("null", to); return;
    case cJSON_True: fputs("true", to); return;
    case cJSON_False: fputs("false", to); return;
    case cJSON_Number: write_number(to, item); return;
    case cJSON_Raw: fputs(item->valuestring, to); return;
    case cJSON_String: write_text(to, item->valuestring); return;
    default: write_members(to, item, depth, formatted);
    }
}

static char *write_all(const cJSON *item, bool formatted)
{
    char *text = NULL;
    size_t bytes;
    FILE *const to = item ? open_memstream(&text, &bytes) : NULL;
    if (to == NULL) return NULL;
    write_value(to, item, 0, formatted);
    return fclose(to) == 0 ? text : NULL;
}

char *cJSON_Print(const cJSON *item) { return write_all(item, true); }
char *cJSON_PrintUnformatted(const cJSON *item) { return write_all(item, false); }
