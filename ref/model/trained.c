/* trained.c -- the classes of parameters that can train alone.  plan/features.c, schemes/data/ and adapters.c ask for
 * them; run/words/take.c reads lists.  ERR_USAGE names a class that there is not. */
#include "ref/model/trained.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

static const char *const names[TRAINED_COUNT] = {
#define X(id, name, what) name,
    TRAINED_CLASSES(X)
#undef X
};

enum trained_class param_class(const struct param_spec *spec)
{
    if (strncmp(spec->name, "encoders.", strlen("encoders.")) == 0) return CLASS_ENCODERS;
    switch (spec->role) {
    case ROLE_LOW_IN: case ROLE_LOW_OUT: return CLASS_ADAPTERS;
    case ROLE_TOKENS: case ROLE_POSITIONS: return CLASS_EMBEDDINGS;
    case ROLE_NORM: case ROLE_HEAD_NORM: case ROLE_LATENT_NORM: return CLASS_NORMS;
    case ROLE_ROUTER: case ROLE_SHARED_GATE: return CLASS_ROUTERS;
    case ROLE_HEAD: case ROLE_STREAMS_UP: case ROLE_STREAMS_DOWN: return CLASS_HEAD;
    case ROLE_UP: case ROLE_DOWN: return spec->expert >= 0 ? CLASS_EXPERTS : CLASS_FEED;
    case ROLE_DENSE_UP: case ROLE_DENSE_DOWN: case ROLE_SHARED_UP: case ROLE_SHARED_DOWN: return CLASS_FEED;
    default: return CLASS_ATTENTION;
    }
}

bool param_trains(const struct model_config *config, const struct param_spec *spec)
{
    return config->trains == 0 || config->trains >> param_class(spec) & 1;
}

enum error_code trained_read(unsigned *classes, const char *list, struct error *err)
{
    *classes = 0;
    for (const char *at = list, *end;; at = end + 1) {
        const size_t n = strcspn(at, ",");
        int found = -1;
        end = at + n;
        for (int c = 0; c < TRAINED_COUNT; c++)
            if (strlen(names[c]) == n && strncmp(names[c], at, n) == 0) found = c;
        if (found < 0)
            return fail(err, ERR_USAGE, "%s: there are %s", printable(list).text,
                        trained_text((1u << TRAINED_COUNT) - 1).text);
        *classes |= 1u << found;
        if (*end == '\0') return OK;
    }
}

struct trained_text trained_text(unsigned classes)
{
    struct trained_text t = { "all" };
    size_t used = 0;
    for (int c = 0; c < TRAINED_COUNT; c++)
        if (classes >> c & 1)
            used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%s", used > 0 ? "," : "", names[c]);
    return t;
}
