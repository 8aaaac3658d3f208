/* options.h -- the options of a model: a name for each row of options.def.  Files of ref/model/, cli/, model/ and
 * ref/golden/ call these functions. */
#ifndef ORRERY_MODEL_OPTIONS_H
#define ORRERY_MODEL_OPTIONS_H

#include "ref/error.h"
#include <stdbool.h>

struct model_config;            /* config.h */
struct family;                  /* family.h */

/* HAS_NOTHING ends lists of options, and stands for none. */
enum model_option {
    HAS_NOTHING,
#define OPTION(name, words, condition) HAS_##name,
#include "ref/model/options.def"
#undef OPTION
    MODEL_OPTIONS
};

/** Whether a model has an option; HAS_NOTHING every model has. */
bool model_has(const struct model_config *, enum model_option);

/** Whether models of a family may have an option, or always have it. */
bool family_allows(const struct family *, enum model_option);

/** Check that a model has the options of its family.  @return OK, or ERR_PLAN with the first that contradicts. */
enum error_code model_options_check(const struct model_config *, struct error *);

#endif
