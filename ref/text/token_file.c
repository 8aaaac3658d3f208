/* token_file.c -- writes files of tokens for nanoGPT, llm.c or Megatron.
 *
 * cli/tokenize.c calls this file.  Errors are ERR_USAGE for a layout that cannot hold the tokens, ERR_FILE and
 * ERR_MEMORY; the previous file stays then.
 */
#include "ref/text/token_file.h"
#include "ref/io/output.h"
#include "ref/text/token_index.h"
#include <stdlib.h>
#include <string.h>

const char *const token_layouts[] = { "nanogpt", "llmc", "i32", "u32", "megatron", NULL };

/* Megatron takes 32 bits from this vocabulary on (DType.optimal_dtype). */
enum { HEAD = 256 * 4, NARROW = 1 << 16, MEGATRON_NARROW = 65500 };

static void token_file_put(uint8_t *to, uint32_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(x >> 8 * i);
}

/* 2 or 4. */
static int bytes_of(const char *layout, int32_t vocabulary)
{
    if (token_width_named(layout) != TOKENS_AS_FOUND) return 4;
    return vocabulary > NARROW || (strcmp(layout, "megatron") == 0 && vocabulary >= MEGATRON_NARROW) ? 4 : 2;
}

/* An index that is there already would be taken for that of the new file. */
static enum error_code check_index(const char *path, const char *layout, const char *index, struct error *err)
{
    if (strcmp(layout, "megatron") == 0)
        return index ? OK : fail(err, ERR_USAGE, "--layout megatron: %s: the name must end with .bin; the index is "
                                                 "beside it, NAME.idx", printable_path(path).text);
    return index && token_index_is(index)
               ? fail(err, ERR_USAGE, "%s: there is an index beside it, %s, which would be read as this file's; remove "
                                      "the index", printable_path(path).text, printable_path(index).text)
               : OK;
}

/* The whole file is made in memory and written at once. */
static enum error_code write_numbers(const char *path, const struct token_ids *ids, bool head, int each,
                                     struct error *err)
{
    const size_t before = head ? HEAD : 0, bytes = before + (size_t)ids->count * (size_t)each;
    uint8_t *all = calloc(bytes + 1, 1);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)ids->count);
    /* The head has the magic number, the version and the count; its other words are 0. */
    if (head) {
        token_file_put(all, each == 4 ? 20240801 : 20240520, 4), token_file_put(all + 4, each == 4 ? 7 : 1, 4);
        token_file_put(all + 8, (uint32_t)ids->count, 4);
    }
    for (int64_t i = 0; i < ids->count; i++)
        token_file_put(all + before + (size_t)(i * each), (uint32_t)ids->id[i], each);
    const enum error_code e = file_write_all(path, all, bytes, err);
    free(all);
    return e;
}

/* Numbers are written before their index, so that an index never is of numbers that are not there. */
enum error_code token_file_write(const char *path, const char *layout, const struct token_ids *ids, int32_t vocabulary,
                                 struct error *err)
{
    const bool head = strcmp(layout, "llmc") == 0, indexed = strcmp(layout, "megatron") == 0;
    const int each = bytes_of(layout, vocabulary);
    if (strcmp(layout, "nanogpt") == 0 && each > 2)
        return fail(err, ERR_USAGE, "--layout %s: has 16 bits for a token, and this tokenizer has %d tokens; llmc, i32 "
                                    "and megatron take 32 bits", layout, (int)vocabulary);
    if ((head || indexed) && ids->count > INT32_MAX)
        return fail(err, ERR_USAGE, "--layout %s: counts up to %d tokens, and there are %lld", layout, INT32_MAX,
                    (long long)ids->count);
    char *const index = token_index_path(path);
    enum error_code e = check_index(path, layout, index, err);
    if (!e && indexed) e = output_probe(index, err);
    if (!e) e = write_numbers(path, ids, head, each, err);
    if (!e && indexed) e = token_index_write(index, ids->count, each, err);
    free(index);
    return e;
}
