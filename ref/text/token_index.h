/* token_index.h -- Megatron's index of a file of tokens: NAME.idx beside NAME.bin.
 *
 *     9 bytes "MMIDIDX\0\0", version 1 (8 bytes), the code of the numbers' type (1 byte), how many sequences and how
 *     many document bounds (8 bytes each); then for each sequence its tokens (4 bytes), and the byte where it begins
 *     (8 bytes); then for each document bound the sequence where it is (8 bytes), 0 first and the count last
 *
 * A multimodal index has a byte more for each sequence.  token_file_read.c reads an index, token_file.c writes one.
 *
 * Source   megatron/core/datasets/indexed_dataset.py of Megatron-LM, _IndexWriter and _IndexReader
 */
#ifndef ORRERY_TOKEN_INDEX_H
#define ORRERY_TOKEN_INDEX_H

#include "ref/text/token_file.h"

/** This holds what an index says of the file beside it. */
struct token_index {
    int bytes;                          /**< of a token: 2 or 4 */
    const char *type;                   /**< NumPy's name of its numbers */
    int64_t tokens, sequences, documents;       /**< how many of each */
};

/** The path of the index of NAME.bin, for free(); NULL: the name does not end with .bin, or there is no memory. */
char *token_index_path(const char *path);

/** Whether a file begins as an index does.  A file that cannot be read does not. */
bool token_index_is(const char *path);

/**
 * Read an index and check all of it.
 * @return OK; ERR_FILE; ERR_FORMAT: it is cut off, has another version or numbers that are no tokens, is multimodal,
 *         its sequences do not follow one another, or its documents do not have all of them.
 */
enum error_code token_index_read(struct token_index *, const char *path, struct error *);

/**
 * Write the index of one document, atomically.
 * @param tokens  of the document; at most INT32_MAX.
 * @param bytes   of a token: 2 or 4.
 * @return OK; ERR_USAGE for more tokens; ERR_FILE; ERR_MEMORY.
 */
enum error_code token_index_write(const char *path, int64_t tokens, int bytes, struct error *);

#endif
