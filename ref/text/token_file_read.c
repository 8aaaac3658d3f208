/* token_file_read.c -- reads files of tokens.  They are mapped, not copied: what is not used is not read.
 *
 * corpus.c reads tokens through this file, train/data/ opens the files.  Errors are ERR_FILE and ERR_FORMAT;
 * after a failure there is nothing to close.
 */
#include "ref/io/output.h"
#include "ref/text/token_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD = 256 * 4, NARROW_MAGIC = 20240520, NARROW_VERSION = 1, WIDE_MAGIC = 20240801, WIDE_VERSION = 7 };

bool token_file_is(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

/* The file is mapped read-only; the mapping stays when the file is closed. */
static enum error_code token_file_read_map(struct token_file *file, const char *path, struct error *err)
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

/* Without a head a file has tokens of 16 bits. */
enum error_code token_file_open(struct token_file *file, const char *path, struct error *err)
{
    enum error_code e = token_file_read_map(file, path, err);
    if (e) return e;
    if (has_head(file)) e = read_head(file, err);
    else if (file->mapped % 2)
        e = fail(err, ERR_FORMAT, "%s: has %zu bytes, an odd number; tokens are numbers of 16 bits, or of 32 behind a "
                                  "head", file->name, file->mapped);
    else file->bytes = 2, file->count = (int64_t)(file->mapped / 2);
    if (e) token_file_close(file);
    return e;
}

enum error_code token_file_open_text(struct token_file *file, const char *path, struct error *err)
{
    const enum error_code e = token_file_read_map(file, path, err);
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
