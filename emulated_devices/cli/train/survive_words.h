/* survive_words.h -- what does not go with --survive: another launcher, and outputs of one process.  train.c calls. */
#ifndef ORRERY_SURVIVE_WORDS_H
#define ORRERY_SURVIVE_WORDS_H

#include "emulated_devices/cli/train/train.h"

/** Whether the run can be started again if one of its processes is killed.  @return OK, or ERR_USAGE with the reason;
 *  OK also without --survive. */
enum error_code survive_check(const struct train_options *, struct error *);

#endif
