/* byte_letters.c -- writes bytes as letters, and letters as bytes.  The files byte_level.c of four rooms call it.
 * Errors: ERR_MEMORY, and ERR_FORMAT of flags. */
#include "ref/text/byte_letters.h"
#include <stdbool.h>

/* These bytes have a letter of their own in Latin-1. */
static bool printable_byte(int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

uint32_t byte_letter(uint8_t byte)
{
    uint32_t next = 0x100;
    if (printable_byte(byte)) return byte;
    /* Bytes without a printable letter get the code points from 256 on, in their order. */
    for (int b = 0; b < byte; b++) next += !printable_byte(b);
    return next;
}

/* The inverse of byte_letter. */
int letter_byte(uint32_t letter)
{
    uint32_t next = 0x100;
    if (letter < 0x100) return printable_byte((int)letter) ? (int)letter : -1;
    for (int b = 0; b < 0x100; b++)
        if (!printable_byte(b) && next++ == letter) return b;
    return -1;
}

/* The loop computes each letter by comparisons, so that it needs no table. */
enum error_code byte_letters_add(struct text_buffer *text_buffer, const char *text, size_t bytes, struct error *err)
{
    const bool fits = 2 * bytes <= text_buffer->room - text_buffer->bytes;
    const enum error_code e = fits ? OK : text_buffer_reserve(text_buffer, 2 * bytes, err);
    if (e) return e;
    char *to = text_buffer->text + text_buffer->bytes;
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t b = (uint8_t)text[i];
        if (b > ' ' && b <= '~') { *to++ = (char)b; continue; }
        /* The others are letters of two bytes in UTF-8: U+0100 to U+0120, U+0121 to U+0142, U+0143, or Latin-1. */
        const uint32_t letter = b <= ' ' ? 0x100u + b : b < 0xA1 ? 0x121u + (b - 0x7Fu) : b == 0xAD ? 0x143u : b;
        *to++ = (char)(0xC0 | letter >> 6), *to++ = (char)(0x80 | (letter & 0x3F));
    }
    text_buffer->bytes = (size_t)(to - text_buffer->text);
    return OK;
}

enum error_code byte_letters_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    static const char *const flags[] = { "add_prefix_space", "trim_offsets", "use_regex" };
    bool flag;
    (void)state;
    enum error_code e = step_keys(reading, object, "add_prefix_space trim_offsets use_regex");
    for (int i = 0; !e && i < 3; i++) e = step_flag(reading, object, flags[i], true, &flag);
    return e;
}
