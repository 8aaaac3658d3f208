/* An index of tokens from anybody: what is accepted is that of a file with exactly so many bytes, and of no other.
 * tier: check
 */
#include "ref/text/token_index.h"
#include "tests/fuzz/fuzz.h"

enum { BYTES_MOST = 1 << 16 };

/* The file beside the index is read if it has this many bytes. */
static bool reads_beside(size_t bytes, const struct token_index *index)
{
    static const uint8_t zeros[BYTES_MOST + 1];
    struct token_file f;
    struct error err = { 0 };
    const enum error_code e = token_file_open(&f, as_file_named("input.bin", zeros, bytes), TOKENS_AS_FOUND, &err);
    if (e) {
        must(err.text[0] != '\0' && f.map == NULL, "refused without a word, or it is still mapped");
        return false;
    }
    must(f.count == index->tokens && f.bytes == index->bytes && f.documents == index->documents,
         "the file has other numbers than its index");
    token_file_close(&f);
    return true;
}

static void try(const uint8_t *data, size_t size)
{
    struct token_index index;
    struct error err = { 0 };
    const char *const path = as_file_named("input.idx", data, size);
    if (token_index_read(&index, path, &err)) {
        must(err.text[0] != '\0', "refused without a word");
        must(!reads_beside(8, &index), "a file is read by an index that is refused");
        return;
    }
    must(token_index_is(path), "is read, but is none");
    must(index.tokens >= 0 && index.sequences >= 0 && index.documents >= 0, "counts below 0");
    must((index.bytes == 2 || index.bytes == 4) && index.type, "tokens of %d bytes", index.bytes);
    if (index.tokens < 1 || index.tokens * index.bytes > BYTES_MOST) return;
    const size_t bytes = (size_t)(index.tokens * index.bytes);
    must(reads_beside(bytes, &index), "the file of an index that is right is refused");
    must(!reads_beside(bytes + 1, &index) && !reads_beside(bytes - 1, &index), "a file of another size is read");
}

FUZZ_TARGET("token_index")
