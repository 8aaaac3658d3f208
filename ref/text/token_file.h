/* token_file.h -- files of tokens, as other programs for training read and write them.
 *
 * cli/tokenize.c writes such files, train/data/ reads them.
 */
#ifndef ORRERY_TOKEN_FILE_H
#define ORRERY_TOKEN_FILE_H

#include "ref/io/sha256.h"
#include "ref/text/token_ids.h"

/* Names of layouts, NULL at the end; little-endian numbers:
 *
 * nanogpt  uint16 alone (data/prepare.py of karpathy/nanoGPT)
 * llmc     256 int32: 20240520, 1, the count, zeros, then uint16; or 20240801, 7, .., then uint32 if a token needs it
 *          (dev/data/data_common.py of karpathy/llm.c) */
extern const char *const token_layouts[];

/**
 * Write tokens, atomically.
 * @param layout      of token_layouts.
 * @param vocabulary  one more than the largest token that the tokenizer has.
 * @return OK; ERR_USAGE if 16 bits are too few for the vocabulary, or there are more tokens than the head can count;
 *         ERR_FILE; ERR_MEMORY.  A failure leaves the previous file.
 */
enum error_code token_file_write(const char *path, const char *layout, const struct token_ids *, int32_t vocabulary,
                                 struct error *);

/* ---- reading (token_file_read.c) --------------------------------------------------------------------------------- */

/* Tokens that are read where they lie: a file that is mapped into memory, or an array. */
struct token_file {
    const uint8_t *at;                  /* the first */
    int bytes;                          /* of each: 1, 2 or 4 */
    int64_t count;                      /* tokens */
    void *map;                          /* the whole file; NULL: an array, which is owned */
    size_t mapped;                      /* bytes of it */
    char name[168];                     /* its path, for messages */
};

static inline int32_t token_file_get(const struct token_file *file, int64_t i)
{
    const uint8_t *b = file->at + i * file->bytes;
    return file->bytes == 1 ? b[0] : file->bytes == 2 ? b[0] | b[1] << 8
           : (int32_t)(b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

/** Whether a file is read as tokens: its name ends with .bin. */
bool token_file_is(const char *path);

/**
 * Map a file of tokens: with a head as llm.c writes it, or without one as nanoGPT does.
 * @return OK; ERR_FILE; ERR_FORMAT if it is empty, has an odd number of bytes, or a head with another magic number,
 *         version or count than it should.  After a failure there is nothing to close.
 */
enum error_code token_file_open(struct token_file *, const char *path, struct error *);

/** Map a text, whose bytes are tokens.  @return as token_file_open. */
enum error_code token_file_open_text(struct token_file *, const char *path, struct error *);

/** Take the tokens of an array, which is empty then.  The path is for messages. */
void token_file_take(struct token_file *, const char *path, struct token_ids *);
void token_file_close(struct token_file *);

/** Look at every token.  @return OK; ERR_FORMAT naming the first that is not below the vocabulary, and where it is. */
enum error_code token_file_check(const struct token_file *, int64_t vocabulary, struct error *);

/** The place of the first token with this number; -1: there is none. */
int64_t token_file_find(const struct token_file *, int32_t token);

enum { TOKEN_BLOCK = 1 << 16, TOKEN_BLOCKS = 256 };

/** Add what a file has to a checksum: width, count and tokens; of one with more than TOKEN_BLOCKS blocks of TOKEN_BLOCK
 *  bytes so many blocks, evenly spaced from the first to the last. */
void token_file_digest(const struct token_file *, struct sha256 *);

#endif
