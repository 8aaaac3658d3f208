/* families.h -- each family by its name: for whoever makes a model_config by hand, and for no `if`.  Files of bench/,
 * ref/model/, cli/, draw/ and other rooms use the names.  No function returns an error code. */
#ifndef ORRERY_FAMILIES_H
#define ORRERY_FAMILIES_H

#include "ref/model/family.h"

#define FAMILY(name) extern const struct family family_##name;
#include "ref/model/families/families.def"
#undef FAMILY

#endif
