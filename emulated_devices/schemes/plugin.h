/* plugin.h -- variants in files of their own: a collective algorithm, a scheme of any kind, an optimizer, a backend.
 *
 * A plug-in is one C file.  It includes this header, defines variants as the files of this tree do, and ends with
 *
 *     PLUGIN(PLUGIN_ALGORITHM(allreduce_mine), PLUGIN_SCHEME(attention_scheme_mine));
 *
 * `orrery COMMAND --plugin FILE.c` compiles and loads it (course/compile/).  From then on its variants are in the
 * registries: listed, chosen by name, verified, held to their costs and measured like all others.
 * See docs/authors/plugins.md.
 *
 * tutorials/plugins/ has examples, which tests/cli/test_plugin.sh loads and runs.
 */
#ifndef ORRERY_PLUGIN_H
#define ORRERY_PLUGIN_H

#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/schemes/attention/attention.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/experts/experts.h"
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include "emulated_devices/schemes/plugin_fields.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/optim/optimizer.h"
#include <stddef.h>

/* An item is a variant: one of the pointers is set. */
struct plugin_item {
    const struct algorithm *algorithm;          /**< Collective algorithm; NULL: another kind. */
    const struct scheme *scheme;                /**< Scheme of any kind; NULL: another kind. */
    const struct optimizer *optimizer;          /**< Optimizer; NULL: another kind. */
    const struct backend *backend;              /**< Backend; NULL: another kind. */
};

/* A plug-in's file defines this struct, under the name orrery_plugin. */
struct plugin {
    uint64_t interface;                         /* PLUGIN_INTERFACE of the headers that it was compiled with */
    const struct plugin_item *item;             /* ends with an empty one */
};

#define PLUGIN_ALGORITHM(x) { .algorithm = &(x) }
#define PLUGIN_SCHEME(x)    { .scheme = &(x).head }
#define PLUGIN_OPTIMIZER(x) { .optimizer = &(x) }
#define PLUGIN_BACKEND(x)   { .backend = &(x) }
#define PLUGIN(...)                                                                                                    \
    extern const struct plugin orrery_plugin;                                                                          \
    const struct plugin orrery_plugin = { PLUGIN_INTERFACE, (const struct plugin_item[]){ __VA_ARGS__, { 0 } } }

/* The fingerprint of the headers: where each field is, how large it is, and what each value is.  A field that moved, or
 * two that changed places, make another number, and so does a structure that grew.  Each term has its own factor. */
#define PLUGIN_FIELD_PLACE(type, field) PLUGIN_AT_##type##_##field,
#define PLUGIN_VALUE_PLACE(value) PLUGIN_AT_##value,
enum plugin_place { PLUGIN_FIELDS(PLUGIN_FIELD_PLACE) PLUGIN_VALUES(PLUGIN_VALUE_PLACE) PLUGIN_PLACES };
#define PLUGIN_FACTOR(place)                                                                                           \
    (((uint64_t)(place) * (place) + 2 * (uint64_t)(place) + 1) * UINT64_C(11400714819323198485))
#define PLUGIN_FIELD_TERM(type, field)                                                                                 \
    + PLUGIN_FACTOR(PLUGIN_AT_##type##_##field)                                                                        \
        * (4099 * offsetof(struct type, field) + 64 * sizeof(((struct type *)0)->field) + sizeof(struct type))
#define PLUGIN_VALUE_TERM(value) + PLUGIN_FACTOR(PLUGIN_AT_##value) * ((uint64_t)(value) + 1)
#define PLUGIN_INTERFACE                                                                                               \
    (UINT64_C(2) * PLUGIN_PLACES PLUGIN_FIELDS(PLUGIN_FIELD_TERM) PLUGIN_VALUES(PLUGIN_VALUE_TERM))

/**
 * Load a shared object and find its list of variants.  Local.  No variant is in a registry yet.
 * @param path  with a slash in it.  The object stays loaded.
 * @return OK; ERR_FILE if it cannot be loaded; ERR_FORMAT if it is no plug-in, or was compiled with other headers.
 */
enum error_code plugin_open(const struct plugin **, const char *path, struct error *);

/** Whether this is a variant: an item without any pointer ends the list. */
bool plugin_is_item(const struct plugin_item *);

/** Add a variant to its registry.  Local.
 *  @return OK; ERR_FORMAT: it lacks something, or its name is taken; ERR_MEMORY: the registry is full. */
enum error_code plugin_add(const struct plugin_item *, struct error *);

/**
 * Add the variants of a shared object to the registries.  Local: every device loads the same ones in the same order,
 * before it connects with the others.
 * @param path  with a slash in it.  The object stays loaded.
 * @return OK; ERR_FILE if it cannot be loaded; ERR_FORMAT if it is no plug-in, was compiled with other headers, or a
 *         variant lacks something or has a name that is taken.  Variants before that one have been added.
 */
enum error_code plugin_load(const char *path, struct error *);

#endif
