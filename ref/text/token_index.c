/* token_index.c -- reads and writes Megatron's index of a file of tokens, and refuses one that is not whole.
 *
 * token_file_read.c and token_file.c call this file.  Errors are ERR_FILE, ERR_FORMAT, ERR_USAGE and ERR_MEMORY.
 */
#include "ref/text/token_index.h"
#include "ref/io/output.h"
#include "ref/text/token_parts.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[9] = "MMIDIDX\0";
enum { VERSION_AT = sizeof magic, CODE_AT = VERSION_AT + 8, SEQUENCES_AT = CODE_AT + 1, BOUNDS_AT = SEQUENCES_AT + 8,
       HEAD = BOUNDS_AT + 8, VERSION = 1, COUNT = 4, PLACE = 8 };

/* NumPy's names of numbers, by code; bytes 0: numbers of this type are no tokens. */
static const struct { const char *type; int bytes; } types[] = {
    [1] = { "uint8", 0 }, [2] = { "int8", 0 }, [3] = { "int16", 0 }, [4] = { "int32", 4 }, [5] = { "int64", 0 },
    [6] = { "float64", 0 }, [7] = { "float32", 0 }, [8] = { "uint16", 2 },
};
enum { TYPES = sizeof types / sizeof *types };

char *token_index_path(const char *path)
{
    const size_t n = strlen(path);
    if (n <= 4 || strcmp(path + n - 4, ".bin") != 0) return NULL;
    char *const index = strdup(path);
    if (index) memcpy(index + n - 4, ".idx", 4);
    return index;
}

bool token_index_is(const char *path)
{
    char begins[sizeof magic];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const bool is = pread(fd, begins, sizeof begins, 0) == sizeof begins && memcmp(begins, magic, sizeof magic) == 0;
    close(fd);
    return is;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Sequences lie one behind another, from the first byte on. */
static enum error_code read_sequences(struct token_index *index, const struct token_file *file, struct error *err)
{
    const uint8_t *const counts = file->at + HEAD, *const places = counts + COUNT * index->sequences;
    uint64_t place = 0;
    for (int64_t i = 0; i < index->sequences; i++) {
        const int32_t count = (int32_t)token_number(counts + COUNT * i, COUNT);
        const uint64_t begins = token_number(places + PLACE * i, PLACE);
        if (count < 0)
            return fail(err, ERR_FORMAT, "%s: sequence %lld has %d tokens", file->name, (long long)i, (int)count);
        if (begins != place)
            return fail(err, ERR_FORMAT, "%s: sequence %lld begins at byte %llu, and those before it end at %llu",
                        file->name, (long long)i, (unsigned long long)begins, (unsigned long long)place);
        place += (uint64_t)count * (uint64_t)index->bytes;
        index->tokens += count;
    }
    return OK;
}

/* A bound is the first sequence of a document; the last bound is the number of sequences. */
static enum error_code read_documents(const struct token_index *index, const struct token_file *file, struct error *err)
{
    const uint8_t *const bounds = file->at + HEAD + (COUNT + PLACE) * index->sequences;
    uint64_t before = 0;
    for (int64_t i = 0; i <= index->documents; i++) {
        const uint64_t bound = token_number(bounds + PLACE * i, PLACE);
        if (i == 0 && bound != 0)
            return fail(err, ERR_FORMAT, "%s: document bound 0 is sequence %llu; it must be 0", file->name,
                        (unsigned long long)bound);
        if (bound < before || bound > (uint64_t)index->sequences)
            return fail(err, ERR_FORMAT, "%s: document bound %lld is sequence %llu; it must be from %llu to %lld",
                        file->name, (long long)i, (unsigned long long)bound, (unsigned long long)before,
                        (long long)index->sequences);
        before = bound;
    }
    if (before != (uint64_t)index->sequences)
        return fail(err, ERR_FORMAT, "%s: its documents have %llu sequences, and there are %lld", file->name,
                    (unsigned long long)before, (long long)index->sequences);
    return OK;
}

/* The counts must be those of the file's size, with a mode for each sequence or without. */
static enum error_code check_size(const struct token_file *file, uint64_t sequences, uint64_t bounds, struct error *err)
{
    const uint64_t size = file->mapped;
    if (sequences > size / (COUNT + PLACE) || bounds > size / PLACE || bounds < 1
        || HEAD + sequences * (COUNT + PLACE) + bounds * PLACE > size)
        return fail(err, ERR_FORMAT, "%s: says %llu sequences and %llu document bounds, and has only %llu bytes",
                    file->name, (unsigned long long)sequences, (unsigned long long)bounds, (unsigned long long)size);
    const uint64_t more = size - (HEAD + sequences * (COUNT + PLACE) + bounds * PLACE);
    if (more > 0 && more == sequences)
        return fail(err, ERR_FORMAT, "%s: has a mode for each sequence, as multimodal data have; only text is read",
                    file->name);
    if (more > 0)
        return fail(err, ERR_FORMAT, "%s: says %llu sequences and %llu document bounds, and has %llu bytes more",
                    file->name, (unsigned long long)sequences, (unsigned long long)bounds, (unsigned long long)more);
    return OK;
}

static enum error_code read_head(struct token_index *index, const struct token_file *file, struct error *err)
{
    if (file->mapped < HEAD)
        return fail(err, ERR_FORMAT, "%s: ends after %zu bytes, in its head of %d", file->name, file->mapped, HEAD);
    if (memcmp(file->at, magic, sizeof magic) != 0)
        return fail(err, ERR_FORMAT, "%s: is no index of Megatron: those begin with MMIDIDX", file->name);
    const uint64_t version = token_number(file->at + VERSION_AT, 8);
    if (version != VERSION)
        return fail(err, ERR_FORMAT, "%s: has version %llu; %d is known", file->name, (unsigned long long)version,
                    VERSION);
    const int code = file->at[CODE_AT];
    if (code >= TYPES || types[code].type == NULL)
        return fail(err, ERR_FORMAT, "%s: has the code %d for the type of its numbers; 1 to 8 are known", file->name,
                    code);
    if (types[code].bytes == 0)
        return fail(err, ERR_FORMAT, "%s: has numbers of the type %s; tokens of uint16 and int32 are read", file->name,
                    types[code].type);
    const uint64_t sequences = token_number(file->at + SEQUENCES_AT, 8), bounds = token_number(file->at + BOUNDS_AT, 8);
    const enum error_code e = check_size(file, sequences, bounds, err);
    *index = (struct token_index){ .bytes = types[code].bytes, .type = types[code].type };
    if (!e) index->sequences = (int64_t)sequences, index->documents = (int64_t)bounds - 1;
    return e;
}

enum error_code token_index_read(struct token_index *index, const char *path, struct error *err)
{
    struct token_file file;
    *index = (struct token_index){ 0 };
    enum error_code e = token_file_map(&file, path, err);
    if (e) return e;
    e = read_head(index, &file, err);
    if (!e) e = read_sequences(index, &file, err);
    if (!e) e = read_documents(index, &file, err);
    token_file_close(&file);
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* An index is little-endian. */
static void token_index_put(uint8_t *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(x >> 8 * i);
}

enum error_code token_index_write(const char *path, int64_t tokens, int bytes, struct error *err)
{
    enum { SEQUENCES = 1, BOUNDS = 2 };
    uint8_t all[HEAD + SEQUENCES * (COUNT + PLACE) + BOUNDS * PLACE] = { 0 };
    int code = 0;
    if (tokens > INT32_MAX)
        return fail(err, ERR_USAGE, "%s: a sequence of an index has at most %d tokens, and there are %lld",
                    printable_path(path).text, INT32_MAX, (long long)tokens);
    while (types[code].bytes != bytes) code++;
    /* One sequence from byte 0 on; one document, from sequence 0 to 1. */
    memcpy(all, magic, sizeof magic);
    token_index_put(all + VERSION_AT, VERSION, 8), all[CODE_AT] = (uint8_t)code;
    token_index_put(all + SEQUENCES_AT, SEQUENCES, 8), token_index_put(all + BOUNDS_AT, BOUNDS, 8);
    token_index_put(all + HEAD, (uint64_t)tokens, COUNT);
    token_index_put(all + HEAD + COUNT + PLACE + PLACE, SEQUENCES, PLACE);
    return file_write_all(path, all, sizeof all, err);
}
