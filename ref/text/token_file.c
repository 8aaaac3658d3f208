/* token_file.c -- writes files of tokens for nanoGPT or llm.c.
 *
 * cli/tokenize.c calls this file.  Errors are ERR_USAGE for a layout that cannot hold the tokens, ERR_FILE and
 * ERR_MEMORY; the previous file stays then.
 */
#include "ref/text/token_file.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

const char *const token_layouts[] = { "nanogpt", "llmc", NULL };

enum { HEAD = 256 * 4, NARROW = 1 << 16 };

static void token_file_put(uint8_t *to, uint32_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(x >> 8 * i);
}

/* The whole file is made in memory and written at once. */
enum error_code token_file_write(const char *path, const char *layout, const struct token_ids *ids, int32_t vocabulary,
                                 struct error *err)
{
    const bool head = strcmp(layout, "llmc") == 0, wide = vocabulary > NARROW;
    const int each = wide ? 4 : 2;
    if (wide && !head)
        return fail(err, ERR_USAGE, "--layout %s: has 16 bits for a token, and this tokenizer has %d tokens; llmc "
                                    "takes 32 bits", layout, (int)vocabulary);
    if (head && ids->count > INT32_MAX)
        return fail(err, ERR_USAGE, "--layout llmc: its head counts up to %d tokens, and there are %lld", INT32_MAX,
                    (long long)ids->count);
    const size_t before = head ? HEAD : 0, bytes = before + (size_t)ids->count * (size_t)each;
    uint8_t *all = calloc(bytes + 1, 1);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)ids->count);
    /* The head has the magic number, the version and the count; its other words are 0. */
    if (head) {
        token_file_put(all, wide ? 20240801 : 20240520, 4), token_file_put(all + 4, wide ? 7 : 1, 4);
        token_file_put(all + 8, (uint32_t)ids->count, 4);
    }
    for (int64_t i = 0; i < ids->count; i++)
        token_file_put(all + before + (size_t)(i * each), (uint32_t)ids->id[i], each);
    const enum error_code e = file_write_all(path, all, bytes, err);
    free(all);
    return e;
}
