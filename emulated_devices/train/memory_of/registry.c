/* registry.c -- lists every memory profile, and finds one by its name.  A new one needs one line here.
 *
 * run/plan.c and cli/list/ ask here.  ERR_USAGE names a profile that does not exist, and those that do.
 */
#include "emulated_devices/train/memory_of/profile.h"
#include "ref/io/options.h"
#include <string.h>

#define MEMORY_PROFILES(X)              \
    X(memory_torch)                     \
    X(memory_megatron)                  \
    X(memory_deepspeed)                 \
    X(memory_nanotron)

#define X(symbol) extern const struct memory_profile symbol;
MEMORY_PROFILES(X)
#undef X

static const struct memory_profile *const profiles[] = {
#define X(symbol) &symbol,
    MEMORY_PROFILES(X)
#undef X
    NULL
};
enum { COUNT = sizeof profiles / sizeof *profiles - 1 };

const struct memory_profile *memory_profile_at(int place) { return place < COUNT ? profiles[place] : NULL; }

enum error_code memory_profile_find(const struct memory_profile **found, const char *name, struct error *err)
{
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++) {
        names[i] = profiles[i]->name;
        if (strcmp(names[i], name) == 0) return *found = profiles[i], OK;
    }
    return fail_unknown_name(err, "--memory-of", name, names, COUNT);
}
