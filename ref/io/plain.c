/* plain.c -- replaces what a terminal would not print as it stands, in a text from outside.
 *
 * printable() and others call this file for names and texts from outside.  The function changes the text in place,
 * never its length.  ref/error.c, output.c and ref/text/generate.c call plain_text().  No function returns an error
 * code.
 */
#include "ref/io/plain.h"
#include <stdbool.h>
#include <stdint.h>

/* Bytes of the character at `s`; 0 if it is invalid or must not be shown. */
static int character(const unsigned char *s)
{
    if (s[0] < 0x80) return s[0] >= ' ' && s[0] != 0x7f;
    const int n = s[0] >= 0xf0 && s[0] < 0xf5   ? 4
                  : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                  : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                                                : 0;
    if (n == 0) return 0;
    uint32_t code = s[0] & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;                            /* a NUL ends here too */
        code = code << 6 | (s[i] & 0x3fu);
    }
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };     /* overlong forms are not UTF-8 */
    if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    const bool obeyed = code < 0xa0                                     /* C1 controls */
        || code == 0x2028 || code == 0x2029                             /* line and paragraph separators */
        || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);    /* directions of writing */
    return obeyed ? 0 : n;
}

void plain_text(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s != '\0';) {
        const int n = character(s);
        if (n == 0) *s = '?';
        s += n == 0 ? 1 : n;
    }
}
