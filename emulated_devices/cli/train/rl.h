/* rl.h -- the options of `orrery rl` besides those of training, for kinds.c.  rl.c has the table. */
#ifndef ORRERY_TRAIN_RL_H
#define ORRERY_TRAIN_RL_H

#include "emulated_devices/cli/cli.h"

extern const struct option rl_options[];

#endif
