/* token_file_read.c -- reads files of tokens.  They are mapped, not copied: what is not used is not read.
 *
 * corpus.c reads tokens through this file, train/data/ opens the files.  Errors are ERR_FILE and ERR_FORMAT;
 * after a failure there is nothing to close.
 */
#include "ref/io/output.h"
#include "ref/text/token_index.h"
#include "ref/text/token_parts.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD = 256 * 4, NARROW_MAGIC = 20240520, NARROW_VERSION = 1, WIDE_MAGIC = 20240801, WIDE_VERSION = 7 };

const char *const token_width_names[TOKEN_WIDTHS] = { "", "u16", "i32", "u32" };
static const int width_bytes[TOKEN_WIDTHS] = { 0, 2, 4, 4 };

enum token_width token_width_named(const char *name)
{
    int i = TOKEN_WIDTHS - 1;
    while (i > 0 && strcmp(token_width_names[i], name) != 0) i--;
    return (enum token_width)i;
}

static bool has_ending(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

bool token_file_is(const char *path)
{
    return has_ending(path, ".bin") || has_ending(path, ".npy") || has_ending(path, ".idx");
}

/* The file is mapped read-only; the mapping stays when the file is closed. */
enum error_code token_file_map(struct token_file *file, const char *path, struct error *err)
{
    int fd;
    int64_t size;
    *file = (struct token_file){ 0 };
    snprintf(file->name, sizeof file->name, "%s", printable_path(path).text);
    enum error_code e = file_open(path, &fd, &size, err);
    if (e) return e;
    if (size == 0) e = fail(err, ERR_FORMAT, "%s: is empty", file->name);
    void *at = e ? MAP_FAILED : mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!e && at == MAP_FAILED) e = fail(err, ERR_FILE, "%s: cannot be mapped: %s", file->name, strerror(errno));
    close(fd);
    if (e) return e;
    file->map = at, file->mapped = (size_t)size;
    file->at = at;
    return OK;
}

/* Number i of the head, of 4 bytes. */
static int32_t word(const uint8_t *head, int i)
{
    return token_file_get(&(struct token_file){ .at = head, .bytes = 4 }, i);
}

/* Tokens are not 253 zeros: a file with these after three numbers has a head, whatever its magic number. */
static bool has_head(const struct token_file *file)
{
    static const uint8_t zeros[HEAD - 12];
    if (file->mapped >= 4 && (word(file->at, 0) == NARROW_MAGIC || word(file->at, 0) == WIDE_MAGIC)) return true;
    return file->mapped >= HEAD && memcmp(file->at + 12, zeros, sizeof zeros) == 0 && word(file->at, 0) != 0;
}

/* The head has to be complete, of a known version, and its count has to be that of the file. */
static enum error_code read_head(struct token_file *file, struct error *err)
{
    const bool wide = word(file->at, 0) == WIDE_MAGIC;
    const int version = wide ? WIDE_VERSION : NARROW_VERSION;
    if (word(file->at, 0) != NARROW_MAGIC && !wide)
        return fail(err, ERR_FORMAT, "%s: has a head with the magic number %d; llm.c writes %d or %d", file->name,
                    (int)word(file->at, 0), NARROW_MAGIC, WIDE_MAGIC);
    if (file->mapped < HEAD)
        return fail(err, ERR_FORMAT, "%s: ends after %zu bytes, in its head of %d", file->name, file->mapped, HEAD);
    if (word(file->at, 1) != version)
        return fail(err, ERR_FORMAT, "%s: its head has version %d; with %d it must be %d", file->name,
                    (int)word(file->at, 1), (int)word(file->at, 0), version);
    const size_t body = file->mapped - HEAD;
    file->bytes = wide ? 4 : 2;
    file->count = word(file->at, 2);
    if (file->count < 1 || body != (size_t)file->count * (size_t)file->bytes)
        return fail(err, ERR_FORMAT, "%s: its head says %lld tokens of %d bytes, and %zu bytes follow", file->name,
                    (long long)file->count, file->bytes, body);
    file->at += HEAD;
    return OK;
}

/* ---- numbers alone ----------------------------------------------------------------------------------------------- */

/* Numbers of 16 bits at even and at odd places. */
struct halves { int64_t large[2], other[2]; };

/* A number is large above `most`.  Counting ends where both kinds of places have a large one. */
static struct halves count_halves(const struct token_file *file, uint32_t most)
{
    struct halves h = { { 0 }, { 0 } };
    for (size_t i = 0; i + 1 < file->mapped && (h.large[0] == 0 || h.large[1] == 0); i += 2) {
        const bool odd = i / 2 % 2;
        if (token_number(file->at + i, 2) > most) h.large[odd]++;
        else h.other[odd]++;
    }
    return h;
}

static const char of_32_bits[] = "numbers of 32 bits";

/* Wider numbers have their low half at even places and a small high half, mostly 0, at odd ones; big-endian ones have
 * the halves exchanged.  In a file of 16 bits a large number is as often at an even place as at an odd one: that all n
 * large numbers are at even places has the probability 2^-n.  Only files with a period of two tokens have that
 * otherwise, or of a few tokens, and a user can say :u16 of these.  Where the file has whole numbers of 32 bits and all
 * high halves are 0, one token above 0 is enough to ask the user; a file that was cut off takes more. */
static const char *looks_wider(const struct token_file *file)
{
    enum { LARGE_BESIDE_ZEROS = 8, LARGE_BESIDE_SMALL = 32, HIGH_HALF_MOST = 15 };
    const int64_t enough = file->mapped % 4 == 0 ? 1 : LARGE_BESIDE_ZEROS;
    const struct halves zeros = count_halves(file, 0), small = count_halves(file, HIGH_HALF_MOST);
    if (zeros.large[0] == 0 && zeros.large[1] >= LARGE_BESIDE_ZEROS) return "big-endian numbers of 32 bits";
    if (zeros.large[1] == 0 && zeros.large[0] >= enough) {
        /* Numbers of 64 bits have zeros in every second number of 32 bits, too. */
        int64_t second = 0;
        for (size_t i = 4; i + 4 <= file->mapped && second == 0; i += 8) second += token_number(file->at + i, 4) != 0;
        return second == 0 && file->mapped % 8 == 0 ? "numbers of 64 bits" : of_32_bits;
    }
    return small.large[1] == 0 && small.large[0] >= LARGE_BESIDE_SMALL ? of_32_bits : NULL;
}

static enum error_code read_alone(struct token_file *file, enum token_width width, struct error *err)
{
    const int bytes = width == TOKENS_AS_FOUND ? 2 : width_bytes[width];
    if (file->mapped % (size_t)bytes)
        return fail(err, ERR_FORMAT, "%s: has %zu bytes, %s; tokens are numbers of 16 bits, or of 32 behind a head, "
                    "beside an index or with :i32", file->name, file->mapped,
                    file->mapped % 2 ? "an odd number" : "no multiple of 4");
    const char *const looks = width == TOKENS_AS_FOUND ? looks_wider(file) : NULL;
    if (looks)
        return fail(err, ERR_FORMAT, "%s: looks like %s, not like tokens of 16 bits: %s; for 16 bits give FILE:u16",
                    file->name, looks, looks == of_32_bits ? "give FILE:i32 or FILE:u32"
                                                         : "save them with x.astype('<i4'), and give FILE:i32");
    file->bytes = bytes, file->count = (int64_t)(file->mapped / (size_t)bytes);
    return OK;
}

/* ---- an index beside --------------------------------------------------------------------------------------------- */

static enum error_code read_index(struct token_file *file, const char *path, struct error *err)
{
    struct token_index index;
    if (!token_index_is(path))
        return fail(err, ERR_FORMAT, "%s: there is %s beside it, which is no index of Megatron; give FILE:u16, "
                    "FILE:i32 or FILE:u32 to read without it", file->name, printable_path(path).text);
    const enum error_code e = token_index_read(&index, path, err);
    if (e) return e;
    if (index.tokens < 1 || file->mapped != (uint64_t)index.tokens * (uint64_t)index.bytes)
        return fail(err, ERR_FORMAT, "%s: has %zu bytes, and its index %s says %lld tokens of %d bytes", file->name,
                    file->mapped, printable_path(path).text, (long long)index.tokens, index.bytes);
    file->bytes = index.bytes, file->count = index.tokens, file->documents = index.documents;
    return OK;
}

/* A width that a user says replaces an index of another program, and no index of Megatron. */
static bool goes_by_index(const char *index, enum token_width width)
{
    return index && access(index, F_OK) == 0 && (width == TOKENS_AS_FOUND || token_index_is(index));
}

static enum error_code read_as_found(struct token_file *file, const char *index, enum token_width width,
                                     struct error *err)
{
    const char *says = "its index";
    enum error_code e;
    if (token_npy_begins(file)) says = "its NumPy head", e = token_npy_read(file, err);
    else if (goes_by_index(index, width)) e = read_index(file, index, err);
    else if (has_head(file)) says = "its head", e = read_head(file, err);
    else if (has_ending(file->name, ".npy") && width == TOKENS_AS_FOUND)
        return fail(err, ERR_FORMAT, "%s: does not begin as NumPy's files do; give FILE:u16, FILE:i32 or FILE:u32 for "
                    "numbers alone", file->name);
    else return read_alone(file, width, err);
    return e || width == TOKENS_AS_FOUND || file->bytes == width_bytes[width]
               ? e
               : fail(err, ERR_FORMAT, "%s:%s: %s says numbers of %d bits; leave the :%s away", file->name,
                      token_width_names[width], says, 8 * file->bytes, token_width_names[width]);
}

enum error_code token_file_open(struct token_file *file, const char *path, enum token_width width, struct error *err)
{
    *file = (struct token_file){ 0 };
    if (has_ending(path, ".idx"))
        return fail(err, ERR_FORMAT, "%s: is an index by its name; give the file with the tokens, NAME.bin",
                    printable_path(path).text);
    enum error_code e = token_file_map(file, path, err);
    if (e) return e;
    char *const index = token_index_path(path);
    e = read_as_found(file, index, width, err);
    free(index);
    if (e) token_file_close(file);
    return e;
}

enum error_code token_file_open_text(struct token_file *file, const char *path, struct error *err)
{
    const enum error_code e = token_file_map(file, path, err);
    if (e) return e;
    file->bytes = 1, file->count = (int64_t)file->mapped;
    return OK;
}

/* The array gets the byte order of files, so that token_file_get reads both alike. */
void token_file_take(struct token_file *file, const char *path, struct token_ids *ids)
{
    *file = (struct token_file){ .bytes = 4, .count = ids->count };
    snprintf(file->name, sizeof file->name, "%s", printable_path(path).text);
    for (int64_t i = 0; i < ids->count; i++) {          /* as in a file: little-endian */
        uint8_t *to = (uint8_t *)&ids->id[i];
        const uint32_t x = (uint32_t)ids->id[i];
        for (int b = 0; b < 4; b++) to[b] = (uint8_t)(x >> 8 * b);
    }
    file->at = (const uint8_t *)ids->id;
    *ids = (struct token_ids){ 0 };
}

void token_file_close(struct token_file *file)
{
    if (file->map) munmap(file->map, file->mapped);
    else free((void *)(uintptr_t)file->at);
    *file = (struct token_file){ 0 };
}

/* Every token is looked at once, before training, so that none is outside the model's table. */
enum error_code token_file_check(const struct token_file *file, int64_t vocabulary, struct error *err)
{
    if (file->bytes == 1 && vocabulary > UINT8_MAX) return OK;
    for (int64_t i = 0; i < file->count; i++) {
        const int32_t token = token_file_get(file, i);
        if (token < 0 || token >= vocabulary)
            return fail(err, ERR_FORMAT, "%s: token %lld is %lld; the model's are 0 to %lld", file->name, (long long)i,
                        (long long)(uint32_t)token, (long long)vocabulary - 1);
    }
    return OK;
}

int64_t token_file_find(const struct token_file *file, int32_t token)
{
    for (int64_t i = 0; i < file->count; i++)
        if (token_file_get(file, i) == token) return i;
    return -1;
}

/* A large file is hashed in blocks spread over it, which takes a moment instead of minutes. */
void token_file_digest(const struct token_file *file, struct sha256 *to)
{
    const int64_t bytes = file->count * file->bytes, all = (bytes + TOKEN_BLOCK - 1) / TOKEN_BLOCK;
    const int64_t blocks = all < TOKEN_BLOCKS ? all : TOKEN_BLOCKS;
    char head[64];
    sha256_add(to, head, (size_t)snprintf(head, sizeof head, "%d x %lld;", file->bytes, (long long)file->count));
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t from = (blocks > 1 ? b * (all - 1) / (blocks - 1) : 0) * TOKEN_BLOCK, left = bytes - from;
        sha256_add(to, file->at + from, (size_t)(left < TOKEN_BLOCK ? left : TOKEN_BLOCK));
    }
}
