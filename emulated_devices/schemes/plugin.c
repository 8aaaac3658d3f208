/* plugin.c -- loads a shared object, and adds its variants to the registries.
 *
 * course/compile/ compiles a plug-in and calls plugin_load.  Errors are ERR_FILE and ERR_FORMAT.  After an error the
 * variants before the faulty variant stay in the registries.
 */
#include "emulated_devices/schemes/plugin.h"
#include <dlfcn.h>

/* plugin_lacks checks what the kind of a scheme cannot do without. @return NULL, or what is missing. */
static const char *plugin_lacks(const struct scheme *scheme)
{
    /* Only the pointer of the scheme's own kind is read; the other two are never followed. */
    const struct tensor_scheme *t = (const struct tensor_scheme *)scheme;
    const struct attention_scheme *a = (const struct attention_scheme *)scheme;
    const struct expert_scheme *x = (const struct expert_scheme *)scheme;
    switch (scheme->kind) {
    case TENSOR_SCHEME:
        if (!t->mesh || !t->weight || !t->matrix_cost) return "the functions mesh, weight and matrix_cost";
        if (!t->linear_forward || !t->linear_backward_input || !t->linear_backward_weight)
            return "linear_forward, linear_backward_input and linear_backward_weight";
        return t->embedding_forward && t->embedding_backward_weight ? NULL
                                                                    : "embedding_forward and embedding_backward_weight";
    case ATTENTION_SCHEME:
        if (!a->forward || !a->backward_input) return "the functions forward and backward_input";
        /* The trivial scheme of this tree sends nothing; a scheme that cuts sequences must state what it sends. */
        if (!a->refuses || !a->cost) return "the functions refuses and cost";
        /* A scheme cuts tokens by a fixed rule or plans each microbatch, never both. */
        if (!a->cut == !a->plan) return "one of cut and plan";
        if (a->slots < 0 || a->slots > ATTENTION_SLOTS || (a->slots > 0 && !a->kept))
            return "at most 4 slots, and the function kept if it has any";
        return a->exchanged > 0 && !a->exchange ? "the function exchange" : NULL;
    case EXPERT_SCHEME:
        if (!x->forward || !x->input || !x->weight) return "the functions forward, input and weight";
        return x->hops > 0 && !x->hop ? "the function hop" : NULL;
    case DATA_SCHEME: return ((const struct data_scheme *)scheme)->share ? NULL : "the function share";
    case PIPELINE_SCHEME: return ((const struct schedule_generator *)scheme)->make ? NULL : "the function make";
    default: return "a kind whose schemes a plan chooses: tensor, attention, expert, data, pipeline";
    }
}

/* The kind's functions are checked first, because the model calls these without a test. */
static enum error_code add_scheme(const struct scheme *scheme, struct error *err)
{
    const char *missing = plugin_lacks(scheme);
    if (missing) return fail(err, ERR_FORMAT, "scheme %s: needs %s", scheme->name ? scheme->name : "", missing);
    return scheme_add(scheme, err);
}

bool plugin_is_item(const struct plugin_item *item)
{
    return item->algorithm || item->scheme || item->optimizer || item->backend;
}

enum error_code plugin_add(const struct plugin_item *item, struct error *err)
{
    if (item->algorithm) return algorithm_add(item->algorithm, err);
    if (item->scheme) return add_scheme(item->scheme, err);
    if (item->optimizer) return optimizer_add(item->optimizer, err);
    return backend_add(item->backend, err);
}

enum error_code plugin_open(const struct plugin **plugin, const char *path, struct error *err)
{
    /* RTLD_NOW finds missing symbols here, not in the middle of a run. */
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) return fail(err, ERR_FILE, "cannot be loaded: %s", dlerror());
    const struct plugin *p = dlsym(object, "orrery_plugin");
    if (p == NULL) return fail(err, ERR_FORMAT, "it has no PLUGIN(...) at its end (docs/authors/plugins.md)");
    /* Structures of other headers have other fields at the same places, so such an object must not be read. */
    if (p->interface != PLUGIN_INTERFACE)
        return fail(err, ERR_FORMAT, "it was compiled with the headers of another version; compile it again");
    *plugin = p;
    return OK;
}

enum error_code plugin_load(const char *path, struct error *err)
{
    const struct plugin *p = NULL;
    enum error_code e = plugin_open(&p, path, err);
    for (const struct plugin_item *i = p ? p->item : NULL; i && plugin_is_item(i) && !e; i++) e = plugin_add(i, err);
    return e;
}
