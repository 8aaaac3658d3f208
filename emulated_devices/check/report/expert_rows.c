/* expert_rows.c -- knows the rows of experts by their names, which model/program.h lists.
 * checker_names.c calls expert_rows_has for golden names. */
#include "emulated_devices/check/report/expert_rows.h"
#include "emulated_devices/model/program.h"
#include <string.h>

/* "act/h.3.mlp.up": the own name begins behind the layer. */
bool expert_rows_has(const char *name)
{
    const char *slash = strrchr(name, '/'), *layer = slash ? strchr(slash, '.') : NULL,
               *own = layer ? strchr(layer + 1, '.') : NULL;
    for (int i = 0; own && sorted_by_expert[i]; i++)
        if (strcmp(own + 1, sorted_by_expert[i]) == 0) return true;
    return false;
}
