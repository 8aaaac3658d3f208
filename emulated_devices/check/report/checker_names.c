/* checker_names.c -- golden tensors that a program does not have, and its tensors that are not golden.
 * checker.c calls both functions of checker.h once, after all tensors are compared. */
#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/recompute/single.h"
#include "ref/optim/optimizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a name ends with this text. */
static bool checker_names_ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* Only a mixture has these results of its experts. */
static bool has_experts(const struct check_result *result)
{
    for (int i = 0; i < result->count; i++)
        if (checker_names_ends(result->all[i].name, ".experts.out")) return true;
    return false;
}

/* Whether two names are of one kind.  A program that dumps one tensor of a kind must dump all of them.  Kinds are
 * "act", "grad" of activations, "grad" of weights, "adamw/weight", and so on.  experts: rows of experts are kinds of
 * their own, since programs that compute all experts at once do not show them. */
static bool same_kind(const char *a, const char *b, bool experts)
{
    if (experts && single_is_of_experts(a) != single_is_of_experts(b)) return false;
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    const size_t n = slash_a ? (size_t)(slash_a - a) : 0, m = slash_b ? (size_t)(slash_b - b) : 0;
    const bool weight_a = checker_names_ends(a, ".weight") || checker_names_ends(a, ".bias"),
        weight_b = checker_names_ends(b, ".weight") || checker_names_ends(b, ".bias");
    if (n == 0 || m == 0) return strcmp(a, b) == 0;
    return n == m && strncmp(a, b, n) == 0 && weight_a == weight_b;
}

/* A missing tensor is left out if ACTUAL has no tensor of its kind. */
void checker_forgive_left_out(struct check_result *result)
{
    const bool experts = has_experts(result);
    for (int i = 0; i < result->count; i++) {
        bool given = false;
        if (result->all[i].finding != MISSING) continue;
        for (int j = 0; j < result->count && !given; j++)
            given = result->all[j].finding != MISSING && result->all[j].finding != LEFT_OUT &&
                    same_kind(result->all[i].name, result->all[j].name, experts);
        if (!given) result->all[i].finding = LEFT_OUT;
    }
}

/* Whether a name of ACTUAL is known: it is in the golden file, or a map gives it to a golden tensor.  Inputs such
 * as ids are in the file, but not computed. */
static bool is_expected(const struct golden *golden, const struct actual *actual, const struct check_result *result,
                        const char *theirs)
{
    char name[256];
    if (safetensors_find(&golden->file, theirs) != NULL) return true;
    for (int i = 0; actual->map && i < result->count; i++)
        if (strcmp(actual_name(actual, result->all[i].name, name, sizeof name), theirs) == 0) return true;
    return false;
}

/* Add a name once; pieces and ranks repeat it. */
static enum error_code add_extra(struct check_result *result, const char *name, struct error *err)
{
    for (int k = 0; k < result->extras; k++)
        if (strcmp(result->extra[k], name) == 0) return OK;
    void *grown = realloc(result->extra, (size_t)(result->extras + 1) * sizeof *result->extra);
    if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the names of extra tensors");
    result->extra = grown;
    memcpy(result->extra[result->extras++], name, sizeof *result->extra);
    return OK;
}

/* Whether a name such as "adamw/2/weight/NAME" begins with an optimizer of ours.  out: its first part. */
static bool is_of_optimizer(const char *name, char out[32])
{
    const size_t n = strcspn(name, "/");
    snprintf(out, 32, "%.*s", n < 31 ? (int)n : 31, name);
    for (int i = 0; optimizers[i]; i++)
        if (name[n] == '/' && strcmp(optimizers[i]->name, out) == 0) return true;
    return false;
}

/* Whether the golden file has steps of this optimizer. */
static bool has_optimizer(const struct golden *golden, const char *optimizer)
{
    char one[32];
    for (const char *at = golden_next_optimizer(golden, NULL, one); at; at = golden_next_optimizer(golden, at, one))
        if (strcmp(one, optimizer) == 0) return true;
    return false;
}

/* Whether an extra tensor is of a golden kind of which ACTUAL has no golden name: its names are others.  Then
 * nothing is known of the tensor.  Where ACTUAL has all of a kind, more of that kind are its own. */
static bool is_unjudged(const struct golden *golden, const struct check_result *result, const char *name)
{
    char optimizer[32];
    const size_t prefix = strrchr(name, '/') ? (size_t)(strrchr(name, '/') - name) : 0;
    const bool stepped = is_of_optimizer(name, optimizer);
    if (strncmp(name, "micro/", 6) == 0 || (stepped && !has_optimizer(golden, optimizer))) return true;
    if (!stepped && strncmp(name, "act/", 4) != 0 && strncmp(name, "grad/", 5) != 0) return false;
    for (int i = 0; i < result->count; i++)
        if (result->all[i].finding == LEFT_OUT && strncmp(result->all[i].name, name, prefix + 1) == 0 &&
            strchr(result->all[i].name + prefix + 1, '/') == NULL)
            return true;
    return false;
}

/* Refuse a step that the golden file does not have, as in "adamw/7/weight/NAME": the number is wrong.  After the
 * last step names have no number, and the gradients of the first step are those of the pass. */
static enum error_code check_step(const struct golden *golden, const struct actual_file *file, const char *name,
                                  struct error *err)
{
    char optimizer[32];
    for (const char *at = golden_next_optimizer(golden, NULL, optimizer); at;
         at = golden_next_optimizer(golden, at, optimizer)) {
        const size_t n = strlen(optimizer);
        if (strncmp(name, optimizer, n) != 0 || name[n] != '/') continue;
        char *end;
        const long long step = strtoll(name + n + 1, &end, 10);
        /* A name without a number is of the last step, which is never refused here. */
        if (end == name + n + 1 || *end != '/') return OK;
        /* Gradients of step 1 and weights of the last step have no number, so the ranges differ. */
        const bool gradient = strncmp(end, "/grad/", 6) == 0;
        const long long first = gradient ? 2 : 1, last = gradient ? (long long)golden->steps
            : (long long)golden->steps - 1;
        if (step >= first && step <= last) return OK;
        return fail(err, ERR_FORMAT, "%s: \"%s\" is of step %lld; the golden file has steps 1 to %lld, %s",
                    printable_path(file->st.path).text, printable(name).text, step, (long long)golden->steps,
                    gradient ? "and the gradients of step 1 as \"grad/NAME\""
                             : "and what is there after the last without a number");
    }
    return OK;
}

enum error_code checker_list_extras(const struct golden *golden, const struct actual *actual,
                                    struct check_result *result, struct error *err)
{
    enum error_code e = OK;
    for (int f = 0; f < actual->files; f++)
        for (int i = 0; i < actual->file[f].st.count && !e; i++) {
            const char *key = actual->file[f].st.entry[i].name;
            char name[256], shown[sizeof *result->extra];
            /* A dump's key may have #PIECE behind its name. */
            snprintf(name, sizeof name, "%.*s", actual->dump ? (int)strcspn(key, "#") : 255, key);
            if (is_expected(golden, actual, result, name)) continue;
            e = check_step(golden, &actual->file[f], name, err);
            if (e) break;
            snprintf(shown, sizeof shown, "%.95s", printable(name).text);
            /* Names that cannot be judged are counted; all names are listed. */
            if (is_unjudged(golden, result, name) && result->unknown++ == 0)
                memcpy(result->first_unknown, shown, sizeof shown);
            e = add_extra(result, shown, err);
        }
    return e;
}
