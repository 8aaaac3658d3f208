/* options.h -- a table of options that is put together from the tables options_*.c, for options.c.  options_data.c,
 * options_output.c, options_schemes.c and options_training.c call these functions.  No function returns an error
 * code. */
#ifndef ORRERY_TRAIN_OPTIONS_H
#define ORRERY_TRAIN_OPTIONS_H

#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/words/words.h"

/* A table of options that is put together from parts. */
struct option_list { struct option of[OPTIONS_MOST + 1]; size_t count; };

/** Append options; those of the four parts below write to the two structs. */
void option_list_add(struct option_list *, const struct option *, size_t n);
void scheme_options(struct option_list *, struct train_options *, struct train_words *);
void data_options(struct option_list *, struct train_options *, struct train_words *);
void training_options(struct option_list *, struct train_options *, struct train_words *);
void output_options(struct option_list *, struct train_options *, struct train_words *);

#endif
