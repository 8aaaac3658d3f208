/* plugin.c -- loads a shared object, and adds its variants to the registries. */
#include "emulated_devices/schemes/plugin.h"
#include <dlfcn.h>

/* What the kind of a scheme cannot do without.  @return NULL, or what is missing. */
static const char *lacks(const struct scheme *s)
{
    const struct tensor_scheme *t = (const struct tensor_scheme *)s;
    const struct attention_scheme *a = (const struct attention_scheme *)s;
    const struct expert_scheme *x = (const struct expert_scheme *)s;
    switch (s->kind) {
    case TENSOR_SCHEME:
        if (!t->mesh || !t->weight || !t->matrix_cost) return "the functions mesh, weight and matrix_cost";
        if (!t->linear_forward || !t->linear_backward_input || !t->linear_backward_weight)
            return "linear_forward, linear_backward_input and linear_backward_weight";
        return t->embedding_forward && t->embedding_backward_weight ? NULL
                                                                    : "embedding_forward and embedding_backward_weight";
    case ATTENTION_SCHEME:
        if (!a->forward || !a->backward_input) return "the functions forward and backward_input";
        if (!a->cut == !a->plan) return "one of cut and plan";
        if (a->slots < 0 || a->slots > ATTENTION_SLOTS || (a->slots > 0 && !a->kept))
            return "at most 4 slots, and the function kept if it has any";
        return a->exchanged > 0 && !a->exchange ? "the function exchange" : NULL;
    case EXPERT_SCHEME:
        if (!x->forward || !x->input || !x->weight) return "the functions forward, input and weight";
        return x->hops > 0 && !x->hop ? "the function hop" : NULL;
    case DATA_SCHEME: return ((const struct data_scheme *)s)->share ? NULL : "the function share";
    case PIPELINE_SCHEME: return ((const struct schedule_generator *)s)->make ? NULL : "the function make";
    default: return "a kind whose schemes a plan chooses: tensor, attention, expert, data, pipeline";
    }
}

static enum error_code add_scheme(const struct scheme *s, struct error *err)
{
    const char *missing = lacks(s);
    if (missing) return fail(err, ERR_FORMAT, "scheme %s: needs %s", s->name ? s->name : "", missing);
    return scheme_add(s, err);
}

static bool is_item(const struct plugin_item *i) { return i->algorithm || i->scheme || i->optimizer || i->backend; }

static enum error_code add(const struct plugin_item *i, struct error *err)
{
    if (i->algorithm) return algorithm_add(i->algorithm, err);
    if (i->scheme) return add_scheme(i->scheme, err);
    if (i->optimizer) return optimizer_add(i->optimizer, err);
    return backend_add(i->backend, err);
}

enum error_code plugin_load(const char *path, struct error *err)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) return fail(err, ERR_FILE, "cannot be loaded: %s", dlerror());
    const struct plugin *p = dlsym(object, "orrery_plugin");
    if (p == NULL) return fail(err, ERR_FORMAT, "it has no PLUGIN(...) at its end (docs/authors/plugins.md)");
    if (p->interface != PLUGIN_INTERFACE)
        return fail(err, ERR_FORMAT, "it was compiled with the headers of another version; compile it again");
    enum error_code e = OK;
    for (const struct plugin_item *i = p->item; is_item(i) && !e; i++) e = add(i, err);
    return e;
}
