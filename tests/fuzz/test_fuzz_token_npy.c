/* The dictionary of a NumPy head from anybody, before 24 bytes of numbers: what is accepted has exactly these.
 * tier: check
 */
#include "ref/text/token_file.h"
#include "tests/fuzz/fuzz.h"

enum { BEFORE = 10, BODY = 24, TEXT_MOST = 4096 };

static void try(const uint8_t *data, size_t size)
{
    static uint8_t all[BEFORE + TEXT_MOST + BODY];
    struct token_file f;
    struct error err = { 0 };
    if (size > TEXT_MOST) return;
    memcpy(all, "\x93NUMPY\1\0", 8);
    all[8] = (uint8_t)size, all[9] = (uint8_t)(size >> 8);
    memcpy(all + BEFORE, data, size);
    for (int i = 0; i < BODY; i++) all[BEFORE + size + (size_t)i] = (uint8_t)(i + 1);
    if (token_file_open(&f, as_file_named("input.npy", all, BEFORE + size + BODY), TOKENS_AS_FOUND, &err)) {
        must(err.text[0] != '\0' && f.map == NULL, "refused without a word, or it is still mapped");
        for (const char *at = err.text; *at; at++) must((unsigned char)*at >= ' ', "a message with the byte %d", *at);
        return;
    }
    must(f.count * f.bytes == BODY, "%lld tokens of %d bytes in %d bytes", (long long)f.count, f.bytes, BODY);
    must(token_file_get(&f, 0) == (f.bytes == 2 ? 0x0201 : 0x04030201), "token 0 is %d", (int)token_file_get(&f, 0));
    token_file_close(&f);
}

FUZZ_TARGET("token_npy")
