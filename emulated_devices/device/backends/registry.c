/* The registry of backends: one line each. */
#include "emulated_devices/device/backend.h"
#include "ref/io/options.h"
#include <string.h>

#define BACKENDS(X)                                                                                                    \
    X(cpu)                                                                                                             \
    X(discrete)                                                                                                        \
    X(count)                                                                                                           \

#define X(name) extern const struct backend backend_##name;
BACKENDS(X)
#undef X

const struct backend *const backends[] = {
#define X(name) &backend_##name,
    BACKENDS(X)
#undef X
    NULL
};

enum { BACKENDS_MOST = (int)(sizeof backends / sizeof *backends) };

const struct backend *backend_find(const char *name)
{
    for (int i = 0; backends[i] != NULL; i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}

enum error_code backend_check(const char *flag, const char *name, struct error *err)
{
    const char *known[BACKENDS_MOST];
    size_t n = 0;
    if (backend_find(name) != NULL) return OK;
    for (; backends[n] != NULL; n++) known[n] = backends[n]->name;
    return fail_unknown_name(err, flag, name, known, n);
}
