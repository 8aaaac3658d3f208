/* deepspeed.h -- the part of DeepSpeed's JSON that accelerate's files have, too: shared by deepspeed.c and
 * accelerate.c. */
#ifndef ORRERY_RUN_DEEPSPEED_H
#define ORRERY_RUN_DEEPSPEED_H

#include "emulated_devices/run/from/from.h"

/* The keys of a stage of ZeRO and of what lies on the host, as a framework names them. */
struct deepspeed_keys { const char *stage, *optimizer_to, *weights_to, *optimizer_path, *weights_path; };

/** Say the stage of ZeRO, and what is offloaded where.  @return the stage. */
int deepspeed_say_zero(struct from *, const struct deepspeed_keys *);

#endif
