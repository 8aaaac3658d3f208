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
 * nanogpt   uint16 alone (data/prepare.py of karpathy/nanoGPT)
 * llmc      256 int32: 20240520, 1, the count, zeros, then uint16; or 20240801, 7, .., then uint32 if a token needs it
 *           (dev/data/data_common.py of karpathy/llm.c)
 * i32, u32  numbers of 32 bits alone
 * megatron  uint16, or int32 for a vocabulary of 65500 and more, with an index beside them (token_index.h) */
extern const char *const token_layouts[];

/**
 * Write tokens, atomically.
 * @param layout      of token_layouts.
 * @param vocabulary  one more than the largest token that the tokenizer has.
 * @return OK; ERR_USAGE if 16 bits are too few for the vocabulary, there are more tokens than the head or the index can
 *         count, a file of megatron has no name NAME.bin, or another file has an index beside it already; ERR_FILE;
 *         ERR_MEMORY.  A failure leaves the previous file.
 */
enum error_code token_file_write(const char *path, const char *layout, const struct token_ids *, int32_t vocabulary,
                                 struct error *);

/* ---- reading (token_file_read.c) --------------------------------------------------------------------------------- */

/* How wide the numbers of a file are, as a user says behind its name, such as FILE:i32. */
enum token_width { TOKENS_AS_FOUND, TOKENS_U16, TOKENS_I32, TOKENS_U32, TOKEN_WIDTHS };
extern const char *const token_width_names[TOKEN_WIDTHS];      /* without the colon; the first is empty */

/** Find a width by its name.  @return it; TOKENS_AS_FOUND: there is none of this name. */
enum token_width token_width_named(const char *name);

/* Tokens that are read where they lie: a file that is mapped into memory, or an array. */
struct token_file {
    const uint8_t *at;                  /* the first */
    int bytes;                          /* of each: 1, 2 or 4 */
    int64_t count;                      /* tokens */
    int64_t documents;                  /* of the index beside it; 0: there is none */
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

/** Whether a file is read as tokens: its name ends with .bin, .npy or .idx.  The last is refused by token_file_open. */
bool token_file_is(const char *path);

/**
 * Map a file of tokens.
 *
 * What says the width, the first that there is: NumPy's head, an index beside the file (token_index.h), llm.c's head,
 * `width`.  Without any of them numbers have 16 bits, as nanoGPT writes them.  Such a file is refused if its numbers
 * look wider: large numbers of 16 bits are as often at odd places as at even ones.
 * @param width  what the user says.
 * @return OK; ERR_FILE; ERR_FORMAT if it is empty, has bytes that are no whole number, a head or an index that does not
 *         agree with the file or with `width`, or numbers that look wider.  After a failure there is nothing to close.
 */
enum error_code token_file_open(struct token_file *, const char *path, enum token_width width, struct error *);

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
