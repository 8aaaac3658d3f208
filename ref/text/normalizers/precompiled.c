/* precompiled.c -- the normalizer Precompiled: sentencepiece's table of replacements, as T5 and XLM-R have.
 *
 * The table is base64 of: the bytes of a trie in 32 bits, the trie as a double array of darts-clone, and texts that end
 * with a byte 0.  A unit of the trie has the byte that leads to it, where its children are, and whether a key ends
 * there; then its child 0 has the place of the text.  kinds.def lists the kind.
 *
 * Source: src/builder.cc of google/sentencepiece writes the table.  The library `tokenizers` asks it in a way of its
 * own, which is done here.  A group of characters that is seen as one, and has fewer than 6 bytes, becomes the text of
 * its shortest beginning that the table has; else each character does.
 *
 * Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { GROUP_BYTES_MOST = 5 };

struct precompiled {
    uint32_t *unit;                     /* the trie */
    size_t units;                       /* entries of `unit` */
    char *texts;                        /* ends with a byte 0 more than the file has */
    size_t text_bytes;                  /* without that byte */
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* The value of a sign of base64; -1: another sign. */
static int base64_value(char sign)
{
    static const char signs[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = sign ? strchr(signs, sign) : NULL;
    return at ? (int)(at - signs) : -1;
}

/* @return how many bytes; -1: the text is no base64. */
static int64_t base64_decode(uint8_t *to, const char *text)
{
    const size_t n = strlen(text), signs = strcspn(text, "=");
    uint32_t bits = 0;
    int64_t bytes = 0;
    if (n % 4 || n - signs > 2 || strspn(text + signs, "=") != n - signs) return -1;
    for (size_t i = 0; i < signs; i++) {
        const int value = base64_value(text[i]);
        if (value < 0) return -1;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4) to[bytes++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return bytes;
}

static uint32_t little(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static enum error_code precompiled_set(struct precompiled *precompiled, const struct step_reading *reading,
                                       const uint8_t *table, int64_t bytes)
{
    const uint32_t trie = bytes >= 4 ? little(table) : 0;
    if (bytes < 8 || trie == 0 || trie % 4 || trie > (uint64_t)bytes - 4)
        return step_wrong(reading, "precompiled_charsmap: is no table of sentencepiece");
    precompiled->units = trie / 4;
    precompiled->text_bytes = (size_t)bytes - 4 - trie;
    precompiled->unit = malloc(trie);
    precompiled->texts = calloc(1, precompiled->text_bytes + 1);
    if (precompiled->unit == NULL || precompiled->texts == NULL) return step_no_memory(reading);
    for (size_t i = 0; i < precompiled->units; i++) precompiled->unit[i] = little(table + 4 + 4 * i);
    memcpy(precompiled->texts, table + 4 + trie, precompiled->text_bytes);
    return OK;
}

static enum error_code precompiled_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *text;
    enum error_code e = step_state(state, sizeof(struct precompiled), reading);
    if (!e) e = step_keys(reading, object, "precompiled_charsmap");
    if (!e) e = step_text(reading, object, "precompiled_charsmap", NULL, &text);
    if (e) return e;
    uint8_t *table = malloc(strlen(text) + 4);
    if (table == NULL) return step_no_memory(reading);
    const int64_t bytes = base64_decode(table, text);
    e = precompiled_set(*state, reading, table, bytes);
    free(table);
    return e;
}

static void precompiled_close(void *state)
{
    struct precompiled *precompiled = state;
    free(precompiled->unit), free(precompiled->texts);
    free(precompiled);
}

/* ---- the trie ---------------------------------------------------------------------------------------------------- */

static size_t unit_children(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

/* The text of the shortest key that `text` begins with; NULL: there is none. */
static const char *precompiled_find(const struct precompiled *precompiled, const char *text, size_t bytes)
{
    const uint32_t *unit = precompiled->unit;
    size_t at = unit_children(unit[0]);
    for (size_t i = 0; i < bytes && text[i]; i++) {
        const uint32_t byte = (uint8_t)text[i];
        at ^= byte;
        /* The label of a unit that only holds a value has its highest bit set. */
        if (at >= precompiled->units || (unit[at] & (1u << 31 | 0xFFu)) != byte) return NULL;
        const bool ends = unit[at] >> 8 & 1;
        at ^= unit_children(unit[at]);
        if (!ends) continue;
        const size_t place = at < precompiled->units ? unit[at] & ~(1u << 31) : precompiled->text_bytes;
        return precompiled->texts + (place < precompiled->text_bytes ? place : precompiled->text_bytes);
    }
    return NULL;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Each character by itself, if the group has no text of its own. */
static enum error_code precompiled_add_group(const struct precompiled *precompiled, const char *group, size_t bytes,
                                             struct text_buffer *out, struct error *err)
{
    const char *text = bytes <= GROUP_BYTES_MOST ? precompiled_find(precompiled, group, bytes) : NULL;
    enum error_code e = OK;
    uint32_t c;
    if (text) return text_buffer_add(out, text, strlen(text), err);
    for (size_t at = 0, n; !e && at < bytes; at += n) {
        n = (size_t)utf8_first(group + at, bytes - at, &c);
        text = precompiled_find(precompiled, group + at, n);
        e = text ? text_buffer_add(out, text, strlen(text), err) : text_buffer_add(out, group + at, n, err);
    }
    return e;
}

/* Whether a group ends between two characters.  utf8proc decides, but for characters that extend others: these are the
 * library's, whose Unicode may be newer or older. */
static bool group_ends(uint32_t before, uint32_t c, utf8proc_int32_t *breaks)
{
    const bool ends = utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, breaks);
    const int kind = (int)utf8proc_get_property((utf8proc_int32_t)c)->boundclass;
    const int last = (int)utf8proc_get_property((utf8proc_int32_t)before)->boundclass;
    const bool extends = class_has(class_named("extends"), c);
    if (!extends && kind != UTF8PROC_BOUNDCLASS_EXTEND && kind != UTF8PROC_BOUNDCLASS_SPACINGMARK &&
        kind != UTF8PROC_BOUNDCLASS_ZWJ) return ends;
    return !extends || last == UTF8PROC_BOUNDCLASS_CR || last == UTF8PROC_BOUNDCLASS_LF ||
           last == UTF8PROC_BOUNDCLASS_CONTROL;
}

static enum error_code precompiled_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                         struct error *err)
{
    size_t begin = 0;
    uint32_t c, before = 0;
    utf8proc_int32_t breaks = 0;
    enum error_code e = OK;
    for (size_t at = 0; !e && at < bytes; before = c) {
        const size_t n = (size_t)utf8_first(text + at, bytes - at, &c);
        if (at > 0 && group_ends(before, c, &breaks)) {
            e = precompiled_add_group(state, text + begin, at - begin, out, err);
            begin = at;
        }
        at += n;
    }
    return e ? e : precompiled_add_group(state, text + begin, bytes - begin, out, err);
}

const struct normalizer_kind normalizer_precompiled = { { "Precompiled", precompiled_read, precompiled_close },
                                                        precompiled_apply, NULL };
