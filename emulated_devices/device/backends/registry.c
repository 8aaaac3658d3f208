/* The registry of backends: one line each.
 *
 * device_open and the options call backend_find and backend_check; plug-ins and cuda/backend.c call backend_add.
 * Errors are ERR_FORMAT, ERR_MEMORY (the list is full) and ERR_USAGE (an unknown name).
 */
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

const struct backend *backends[BACKENDS_MOST] = {
#define X(name) &backend_##name,
    BACKENDS(X)
#undef X
};

/* A backend joins the end of the list, so that the first ones keep their places. */
enum error_code backend_add(const struct backend *backend, struct error *err)
{
    int count = 0;
    if (!backend->name || !backend->name[0] || !backend->description)
        return fail(err, ERR_FORMAT, "a backend %s: needs a name and a description",
                    backend->name ? backend->name : "");
    if (!backend->allocate || !backend->release || !backend->copy || !backend->host_read || !backend->host_write
        || !backend->host_done || !backend->ops)
        return fail(err, ERR_FORMAT, "backend %s: needs all functions that are REQUIRED in backend.h", backend->name);
    if (backend_find(backend->name)) return fail(err, ERR_FORMAT, "%s: there is a backend of this name", backend->name);
    /* The last place stays NULL, which ends the list. */
    while (backends[count]) count++;
    if (count + 1 >= BACKENDS_MOST)
        return fail(err, ERR_MEMORY, "%s: there are %d backends, the most that there can be", backend->name, count);
    backends[count] = backend;
    return OK;
}

const struct backend *backend_find(const char *name)
{
    for (int i = 0; backends[i] != NULL; i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}

/* An unknown name is answered with the nearest known one. */
enum error_code backend_check(const char *flag, const char *name, struct error *err)
{
    const char *known[BACKENDS_MOST];
    size_t n = 0;
    if (backend_find(name) != NULL) return OK;
    for (; backends[n] != NULL; n++) known[n] = backends[n]->name;
    return fail_unknown_name(err, flag, name, known, n);
}
