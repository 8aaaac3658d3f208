/* utf8.c -- reads, writes and repairs characters of UTF-8.  The files of ref/text/ call this file.  The only error is
 * ERR_MEMORY, of utf8_add_repaired. */
#include "ref/text/utf8.h"
#include <string.h>

/* Bytes of a character that begins with this one, and the range of the second; 0: none begins with it. */
struct lead { int bytes; uint8_t low, high; };

static struct lead lead_of(uint8_t b)
{
    if (b < 0x80) return (struct lead){ 1, 0, 0 };
    if (b < 0xC2 || b > 0xF4) return (struct lead){ 0, 0, 0 };
    if (b < 0xE0) return (struct lead){ 2, 0x80, 0xBF };
    if (b < 0xF0) return (struct lead){ 3, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF };
    return (struct lead){ 4, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF };
}

/* The second byte has a narrower range after some first bytes, which excludes overlong forms and surrogates. */
int utf8_first(const char *text, size_t bytes, uint32_t *c)
{
    const uint8_t *p = (const uint8_t *)text;
    if (bytes == 0) return 0;
    const struct lead l = lead_of(p[0]);
    *c = p[0];
    if (l.bytes == 1) return 1;
    *c = 0xFFFD;
    if (l.bytes == 0) return -1;
    uint32_t code = p[0] & (0x7Fu >> l.bytes);
    for (int i = 1; i < l.bytes; i++) {
        const bool goes_on = (size_t)i < bytes && (i == 1 ? p[1] >= l.low && p[1] <= l.high : (p[i] & 0xC0) == 0x80);
        if (!goes_on) return -i;
        code = code << 6 | (p[i] & 0x3F);
    }
    *c = code;
    return l.bytes;
}

int utf8_put(char *to, uint32_t c)
{
    if (c < 0x80) return to[0] = (char)c, 1;
    const int bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)((0xF00 >> bytes & 0xFF) | c);
    return bytes;
}

/* How many bytes of ASCII the text begins with, in steps of 8. */
static size_t utf8_ascii(const char *text, size_t bytes)
{
    size_t n = 0;
    for (uint64_t eight; n + sizeof eight <= bytes; n += sizeof eight) {
        memcpy(&eight, text + n, sizeof eight);
        if (eight & UINT64_C(0x8080808080808080)) break;
    }
    return n;
}

/* Each wrong part becomes one U+FFFD, which has 3 bytes; so the copy is at most 3 times as long. */
size_t utf8_repair(char *to, const char *text, size_t bytes, int64_t *wrong)
{
    size_t made = 0;
    *wrong = 0;
    for (size_t i = 0; i < bytes;) {
        uint32_t c;
        const size_t plain = utf8_ascii(text + i, bytes - i);
        memcpy(to + made, text + i, plain);
        made += plain, i += plain;
        const int n = i < bytes ? utf8_first(text + i, bytes - i, &c) : 0;
        if (n > 0) memcpy(to + made, text + i, (size_t)n), made += (size_t)n, i += (size_t)n;
        else if (n < 0) made += (size_t)utf8_put(to + made, 0xFFFD), i += (size_t)-n, ++*wrong;
    }
    return made;
}

bool utf8_is_valid(const char *text, size_t bytes)
{
    uint32_t c;
    int n;
    for (size_t at = 0; at < bytes; at += (size_t)n)
        if ((n = utf8_first(text + at, bytes - at, &c)) <= 0) return false;
    return true;
}

/* The last bytes decide: going back, the first byte that is no continuation begins the character. */
size_t utf8_unfinished(const char *text, size_t bytes)
{
    for (size_t n = 1; n < UTF8_MOST && n <= bytes; n++) {
        const uint8_t byte = (uint8_t)text[bytes - n];
        uint32_t c;
        if (byte < 0x80) return 0;
        if (byte >= 0xC0)
            return (size_t)lead_of(byte).bytes > n && utf8_first(text + bytes - n, n, &c) == -(int)n ? n : 0;
    }
    return 0;
}

enum error_code utf8_add_repaired(struct text_buffer *text_buffer, const char *text, size_t bytes, bool unfinished,
                                  struct error *err)
{
    int64_t wrong;
    const size_t rest = unfinished ? utf8_unfinished(text, bytes) : 0;
    const enum error_code e = text_buffer_reserve(text_buffer, 3 * bytes, err);
    if (e || bytes == 0) return e;
    text_buffer->bytes += utf8_repair(text_buffer->text + text_buffer->bytes, text, bytes - rest, &wrong);
    return text_buffer_add(text_buffer, text + bytes - rest, rest, err);
}
