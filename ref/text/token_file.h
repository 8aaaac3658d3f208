/* token_file.h -- files of tokens, as other programs for training read them. */
#ifndef ORRERY_TOKEN_FILE_H
#define ORRERY_TOKEN_FILE_H

#include "ref/text/bpe.h"

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

#endif
