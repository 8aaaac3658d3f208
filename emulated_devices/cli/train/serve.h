/* serve.h -- options of `orrery serve` beside those of a run.  kinds.c has them in its list; serve.c reads them. */
#ifndef ORRERY_TRAIN_SERVE_H
#define ORRERY_TRAIN_SERVE_H

#include "ref/io/options.h"

extern const struct option serve_options[];             /* they write to serve.c's words */

#endif
