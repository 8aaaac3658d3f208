/* sizes.h -- the words for --model that give a preset other sizes: "llama3-8b:L=16,D=2048".  config.c reads and makes
 * them; emulated_devices/run/from asks for the word that is nearest to the model of another framework's file. */
#ifndef ORRERY_MODEL_SIZES_H
#define ORRERY_MODEL_SIZES_H

#include <stddef.h>
#include <stdint.h>

enum { MODEL_SIZES = 10 };              /* so many letters MODEL_SIZE_LETTERS (config.h) has, which config.c asserts */

/**
 * Say some sizes as a word for --model: a preset of the family, and the sizes that it has not.
 * @param wanted  in the order of the letters; 0: any.
 * @param[out] word  empty if the family has no preset.
 */
void model_preset_word(const char *family, const int64_t wanted[MODEL_SIZES], char *word, size_t size);

/** Layers of a preset's word; 0: the word is of no preset. */
int64_t model_preset_layers(const char *word);

#endif
