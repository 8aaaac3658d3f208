/* checker_names.c -- golden tensors that a program does not have, and its tensors that are not golden. */
#include "emulated_devices/check/report/checker.h"
#include "ref/optim/optimizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* A program that dumps one tensor of a kind must dump all of them.  Kinds: "act", "grad" of activations, "grad" of
 * weights, "adamw/weight", ... */
static bool same_kind(const char *a, const char *b)
{
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    const size_t n = slash_a ? (size_t)(slash_a - a) : 0, m = slash_b ? (size_t)(slash_b - b) : 0;
    const bool weight_a = ends(a, ".weight") || ends(a, ".bias"), weight_b = ends(b, ".weight") || ends(b, ".bias");
    if (n == 0 || m == 0) return strcmp(a, b) == 0;
    return n == m && strncmp(a, b, n) == 0 && weight_a == weight_b;
}

void checker_forgive_left_out(struct check_result *r)
{
    for (int i = 0; i < r->count; i++) {
        bool given = false;
        if (r->all[i].finding != MISSING) continue;
        for (int j = 0; j < r->count && !given; j++)
            given = r->all[j].finding != MISSING && r->all[j].finding != LEFT_OUT &&
                    same_kind(r->all[i].name, r->all[j].name);
        if (!given) r->all[i].finding = LEFT_OUT;
    }
}

/* An input, such as ids, is in the file, but not computed.  Only a map has other names than ours. */
static bool is_expected(const struct golden *g, const struct actual *a, const struct check_result *r,
                        const char *theirs)
{
    char name[256];
    if (safetensors_find(&g->file, theirs) != NULL) return true;
    for (int i = 0; a->map && i < r->count; i++)
        if (strcmp(actual_name(a, r->all[i].name, name, sizeof name), theirs) == 0) return true;
    return false;
}

static enum error_code add_extra(struct check_result *r, const char *name, struct error *err)
{
    for (int k = 0; k < r->extras; k++)
        if (strcmp(r->extra[k], name) == 0) return OK;
    void *grown = realloc(r->extra, (size_t)(r->extras + 1) * sizeof *r->extra);
    if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the names of extra tensors");
    r->extra = grown;
    memcpy(r->extra[r->extras++], name, sizeof *r->extra);
    return OK;
}

/* The optimizer of "adamw/2/weight/NAME", or that no program of ours has. */
static bool is_of_optimizer(const char *name, char out[32])
{
    const size_t n = strcspn(name, "/");
    snprintf(out, 32, "%.*s", n < 31 ? (int)n : 31, name);
    for (int i = 0; optimizers[i]; i++)
        if (name[n] == '/' && strcmp(optimizers[i]->name, out) == 0) return true;
    return false;
}

static bool has_optimizer(const struct golden *g, const char *optimizer)
{
    char one[32];
    for (const char *at = golden_next_optimizer(g, NULL, one); at; at = golden_next_optimizer(g, at, one))
        if (strcmp(one, optimizer) == 0) return true;
    return false;
}

/* Whether an extra tensor is of a kind that golden tensors are of, none of which ACTUAL has: its names are others.
 * Then nothing is known of what it is.  Where ACTUAL has all of a kind, more of that kind are its own. */
static bool is_unjudged(const struct golden *g, const struct check_result *r, const char *name)
{
    char optimizer[32];
    const size_t prefix = strrchr(name, '/') ? (size_t)(strrchr(name, '/') - name) : 0;
    const bool stepped = is_of_optimizer(name, optimizer);
    if (strncmp(name, "micro/", 6) == 0 || (stepped && !has_optimizer(g, optimizer))) return true;
    if (!stepped && strncmp(name, "act/", 4) != 0 && strncmp(name, "grad/", 5) != 0) return false;
    for (int i = 0; i < r->count; i++)
        if (r->all[i].finding == LEFT_OUT && strncmp(r->all[i].name, name, prefix + 1) == 0 &&
            strchr(r->all[i].name + prefix + 1, '/') == NULL)
            return true;
    return false;
}

/* "adamw/7/weight/NAME": a step that the golden file does not have is no tensor of one's own, but a wrong number.
 * After the last step names have none, and the gradients of the first are those of the pass. */
static enum error_code check_step(const struct golden *g, const struct actual_file *file, const char *name,
                                  struct error *err)
{
    char optimizer[32];
    for (const char *at = golden_next_optimizer(g, NULL, optimizer); at; at = golden_next_optimizer(g, at, optimizer)) {
        const size_t n = strlen(optimizer);
        if (strncmp(name, optimizer, n) != 0 || name[n] != '/') continue;
        char *end;
        const long long step = strtoll(name + n + 1, &end, 10);
        if (end == name + n + 1 || *end != '/') return OK;
        const bool gradient = strncmp(end, "/grad/", 6) == 0;
        const long long first = gradient ? 2 : 1, last = gradient ? (long long)g->steps : (long long)g->steps - 1;
        if (step >= first && step <= last) return OK;
        return fail(err, ERR_FORMAT, "%s: \"%s\" is of step %lld; the golden file has steps 1 to %lld, %s",
                    printable_path(file->st.path).text, printable(name).text, step, (long long)g->steps,
                    gradient ? "and the gradients of step 1 as \"grad/NAME\""
                             : "and what is there after the last without a number");
    }
    return OK;
}

enum error_code checker_list_extras(const struct golden *g, const struct actual *a, struct check_result *r,
                                    struct error *err)
{
    enum error_code e = OK;
    for (int f = 0; f < a->files; f++)
        for (int i = 0; i < a->file[f].st.count && !e; i++) {
            const char *key = a->file[f].st.entry[i].name;
            char name[256], shown[sizeof *r->extra];
            snprintf(name, sizeof name, "%.*s", a->dump ? (int)strcspn(key, "#") : 255, key);
            if (is_expected(g, a, r, name)) continue;
            e = check_step(g, &a->file[f], name, err);
            if (e) break;
            snprintf(shown, sizeof shown, "%.95s", printable(name).text);
            if (is_unjudged(g, r, name) && r->unknown++ == 0) memcpy(r->first_unknown, shown, sizeof shown);
            e = add_extra(r, shown, err);
        }
    return e;
}
