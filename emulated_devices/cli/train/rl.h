/* rl.h -- the options of `orrery rl` besides those of training, for kinds.c, and the meshes that they say.  rl.c has
 * the table. */
#ifndef ORRERY_TRAIN_RL_H
#define ORRERY_TRAIN_RL_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/comm/mesh.h"

extern const struct option rl_options[];

/**
 * Read the value of --rollout-mesh or --reference-mesh.
 * @param flag  for messages.  @param text  "dp=2,tp=2"; NULL: the flag was not given.
 * @param[out] size  [AXIS_COUNT] of each axis, 1 if it is not said; without a text all 0.
 * @return OK, or ERR_USAGE: an axis that cannot be there, is there twice, or has no size.
 */
enum error_code rl_mesh_read(const char *flag, const char *text, int size[AXIS_COUNT], struct error *);

#endif
