/* pipeline_strings.h -- the strings that golden/make_pipelines.py hashed the tokens of, made again by its rule.
 *
 * String s of a configuration is pieces.  How many, and which, a counter decides: a number of 64 bits from the
 * configuration's name, s and the piece's place.  The rule stands at `Strings` in golden/make_pipelines.py.  Tests in
 * tests/ref/ call these functions.  No function returns an error code.
 */
#ifndef TESTS_REF_PIPELINE_STRINGS_H
#define TESTS_REF_PIPELINE_STRINGS_H

#include "ref/io/json.h"
#include "ref/text/utf8.h"
#include "tests/ref/scratch.h"

enum { CLASSES_MOST = 24, LETTER_BYTES = 3 };

/* Texts of one class. */
struct pieces { const char **text; size_t count; };

struct pipeline_strings {
    uint64_t seed;
    struct pieces class[CLASSES_MOST];  /* of pieces.txt; then tokens of the model, added tokens, letters of bytes */
    size_t classes;
    cJSON *table;                       /* owns the texts of pieces.txt */
    char letter[256][LETTER_BYTES + 1];
    char *made;                         /* the string at hand */
    size_t bytes, room;
};

/* The finalizer of SplitMix64, after a sum with two odd factors. */
static inline uint64_t mix(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = seed + 0x9E3779B97F4A7C15u * (a + 1) + 0xD1B54A32D192ED03u * (b + 1);
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline uint64_t fnv1a(const void *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3u;
    return h;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static inline struct pieces pieces_room(size_t count)
{
    struct pieces p = { calloc(count + 1, sizeof *p.text), 0 };
    assert_non_null(p.text);
    return p;
}

/* The texts of a list, the first texts of a list of lists, or the keys of an object; of objects their `content`. */
static inline struct pieces pieces_of(const cJSON *list)
{
    struct pieces p = pieces_room((size_t)cJSON_GetArraySize(list));
    const cJSON *one;
    cJSON_ArrayForEach(one, list) {
        const char *text = cJSON_IsString(one)   ? one->valuestring
                           : cJSON_IsArray(one)  ? cJSON_GetStringValue(cJSON_GetArrayItem(one, 0))
                           : cJSON_IsObject(one) ? cJSON_GetStringValue(cJSON_GetObjectItem(one, "content"))
                                                 : one->string;
        assert_non_null(text);
        p.text[p.count++] = text;
    }
    return p;
}

/* Printable bytes of Latin-1 are letters themselves; the others are U+0100 and so on. */
static inline struct pieces pieces_of_bytes(char letter[256][LETTER_BYTES + 1])
{
    struct pieces p = pieces_room(256);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        const bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        letter[b][utf8_put(letter[b], prints ? b : next++)] = '\0';
        p.text[p.count++] = letter[b];
    }
    return p;
}

static inline void pipeline_strings_open(struct pipeline_strings *strings, const char *name, const cJSON *document)
{
    size_t n;
    char *table = get_file("golden/pipelines/pieces.txt", &n);
    *strings = (struct pipeline_strings){ .seed = fnv1a(name, strlen(name)), .table = cJSON_CreateArray() };
    for (char *line = strtok(table, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        cJSON *row = cJSON_Parse(line);
        assert_true(row != NULL && strings->classes + 3 < CLASSES_MOST);
        strings->class[strings->classes++] = pieces_of(row);
        cJSON_AddItemToArray(strings->table, row);
    }
    free(table);
    struct pieces added = pieces_of(cJSON_GetObjectItem(document, "added_tokens"));
    if (added.count == 0) added.text[added.count++] = " ";
    strings->class[strings->classes++] =
        pieces_of(cJSON_GetObjectItem(cJSON_GetObjectItem(document, "model"), "vocab"));
    strings->class[strings->classes++] = added;
    strings->class[strings->classes++] = pieces_of_bytes(strings->letter);
}

static inline void pipeline_strings_close(struct pipeline_strings *strings)
{
    for (size_t i = 0; i < strings->classes; i++) free(strings->class[i].text);
    cJSON_Delete(strings->table);
    free(strings->made);
}

/* ---- a string ---------------------------------------------------------------------------------------------------- */

static inline void add_piece(struct pipeline_strings *strings, const char *text, size_t n)
{
    if (n == 0) return;
    if (strings->bytes + n > strings->room) {
        strings->room = 2 * (strings->bytes + n);
        strings->made = realloc(strings->made, strings->room);
        assert_non_null(strings->made);
    }
    memcpy(strings->made + strings->bytes, text, n);
    strings->bytes += n;
}

/* Small code points come as often as all; a surrogate is U+FFFD. */
static inline void add_code_point(struct pipeline_strings *strings, uint64_t r)
{
    char text[UTF8_MOST];
    const uint32_t c = (uint32_t)((r >> 1) % (r & 1 ? 0x800 : 0x110000));
    add_piece(strings, text, (size_t)utf8_put(text, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c));
}

/* The string is in `made` until the next call. */
static inline void pipeline_string(struct pipeline_strings *strings, uint64_t s)
{
    const uint64_t count = mix(strings->seed, s, 0) % 16 * (s % 64 == 63 ? 8 : 1);
    strings->bytes = 0;
    add_piece(strings, "", 0);
    for (uint64_t p = 1; p <= count; p++) {
        const uint64_t r = mix(strings->seed, s, p), place = r >> 8;
        const size_t kind = (size_t)(r % (strings->classes + 1));
        if (kind == strings->classes) add_code_point(strings, place);
        else {
            const struct pieces *const of = &strings->class[kind];
            const char *text = of->text[place % of->count];
            add_piece(strings, text, strlen(text));
        }
        if (r >> 61 < 2) add_piece(strings, " ", 1);
    }
}

/* A text as Python's ascii() shows one, so that a line can be copied into a program.  @return for free(). */
static inline char *escaped_text(const char *text, size_t bytes)
{
    char *out = malloc(10 * bytes + 3), *to = out;
    uint32_t c;
    assert_non_null(out);
    *to++ = '"';
    for (size_t i = 0; i < bytes;) {
        const int n = utf8_first(text + i, bytes - i, &c);
        if (n <= 0) c = (uint8_t)text[i];
        i += n > 0 ? (size_t)n : 1;
        if (n <= 0 || (c < 0x100 && (c < ' ' || c > '~'))) to += sprintf(to, "\\x%02x", (unsigned)c);
        else if (c == '"' || c == '\\') *to++ = '\\', *to++ = (char)c;
        else if (c < 0x80) *to++ = (char)c;
        else to += sprintf(to, c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    }
    *to++ = '"', *to = '\0';
    return out;
}

#endif
