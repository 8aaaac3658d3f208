/* byte_letters.h -- letters that stand for bytes.
 *
 * GPT-2 writes every byte as one printable character, so that a vocabulary of texts can have any bytes (A. Radford et
 * al., "Language models are unsupervised multitask learners", 2019).  Printable bytes of Latin-1 stand for themselves,
 * the others are U+0100 and so on, in their order.
 *
 * byte_level.c of each room calls this file.
 */
#ifndef ORRERY_BYTE_LETTERS_H
#define ORRERY_BYTE_LETTERS_H

#include "ref/text/step.h"
#include <stdint.h>

/** The letter of a byte. */
uint32_t byte_letter(uint8_t byte);

/** The byte that a letter stands for; -1: none. */
int letter_byte(uint32_t letter);

/** Add the letters of a text's bytes.  @return OK or ERR_MEMORY. */
enum error_code byte_letters_add(struct text_buffer *, const char *text, size_t bytes, struct error *);

/** The `read` of a ByteLevel step whose flags change nothing, as in decoders and processors. */
enum error_code byte_letters_read(void **state, const struct step_reading *, const cJSON *object);

#endif
