/* checker_names.c -- golden tensors that a program does not have, and its tensors that are not golden.
 * checker.c calls the three functions of checker.h once, after all tensors are compared. */
#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/recompute/single.h"
#include "ref/golden/golden.h"
#include "ref/optim/optimizer.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a tensor has the rows that experts of a mixture compute: "act/h.0.mlp.up" of a layer with experts. */
static bool has_expert_rows(const struct golden *golden, const char *name)
{
    static const char *const rows[] = { "mlp.up", "mlp.act", "experts.out" };
    long long layer;
    int at = 0;
    if (sscanf(name, "act/h.%lld.%n", &layer, &at) != 1 && sscanf(name, "grad/h.%lld.%n", &layer, &at) != 1)
        return false;
    if (at == 0 || layer >= golden->config.L || layer_mlp(&golden->config, layer) != MLP_MIXTURE) return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(name + at, rows[i]) == 0) return true;
    return false;
}

/* Whether two names are of one kind.  A program that dumps one tensor of a kind must dump all of them.  Kinds are
 * "act", "grad" of activations, "grad" of weights, "adamw/weight", and so on.  Rows of experts are kinds of their own,
 * since programs that compute all experts at once do not show them. */
static bool same_kind(const struct golden *golden, const char *a, const char *b)
{
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    const size_t n = slash_a ? (size_t)(slash_a - a) : 0, m = slash_b ? (size_t)(slash_b - b) : 0;
    if (n == 0 || m == 0) return strcmp(a, b) == 0;
    return n == m && strncmp(a, b, n) == 0 && param_is_name(a) == param_is_name(b)
           && has_expert_rows(golden, a) == has_expert_rows(golden, b);
}

enum error_code checker_check_declared(const struct golden *golden, const struct actual *actual,
                                       const struct golden_list *list, struct error *err)
{
    char pattern[ACTUAL_OUR_NAME];
    for (int k = 0; actual_declared(actual, k, pattern); k++) {
        bool found = false;
        for (int i = 0; i < list->count && !found; i++) found = actual_pattern_is_of(pattern, list->all[i].name);
        for (int i = 0; i < golden->file.count && !found; i++)
            found = actual_pattern_is_of(pattern, golden->file.entry[i].name);
        if (!found)
            return fail(err, ERR_FORMAT, "declared as not recorded: no tensor of the golden file is called \"%.200s\"",
                        printable(pattern).text);
    }
    return OK;
}

/* Say how a tensor that is missing can be declared.  The number of a layer becomes a star. */
static void say_how_to_declare(struct checked *checked)
{
    char pattern[ACTUAL_OUR_NAME];
    size_t used = 0;
    for (const char *c = checked->name; *c && used + 1 < sizeof pattern; c++) {
        const bool digit = *c >= '0' && *c <= '9', starts = c > checked->name && c[-1] == '.';
        const size_t length = starts && digit ? strspn(c, "0123456789") : 0;
        if (length > 0 && c[length] == '.') pattern[used++] = '*', c += length - 1;
        else pattern[used++] = *c;
    }
    pattern[used] = 0;
    snprintf(checked->why, sizeof checked->why, "record it, or say that it is not: --not-recorded '%.180s', or "
             "not_recorded= of the recorder", pattern);
}

/* A missing tensor is left out if ACTUAL has no tensor of its kind, or says that its program cannot show this one. */
void checker_forgive_left_out(const struct golden *golden, const struct actual *actual, struct check_result *result)
{
    for (int i = 0; i < result->count; i++) {
        if (result->all[i].finding != MISSING) continue;
        bool given = false;
        if (actual_declares(actual, result->all[i].name)) {
            result->all[i].finding = DECLARED;
            continue;
        }
        const bool hidden = actual_leaves_out(actual, result->all[i].name);
        for (int j = 0; j < result->list.count && !given && !hidden; j++)
            given = same_kind(golden, result->all[i].name, result->list.all[j].name) &&
                    actual_has(actual, result->list.all[j].name);
        if (!given) result->all[i].finding = LEFT_OUT;
        else if (result->all[i].why[0] == 0) say_how_to_declare(&result->all[i]);
    }
}

/* The step in a name of one of the file's optimizers: 2 of "adamw/2/act/h.0.ln_1"; 0: the name has none.  rest: where
 * the name goes on, at the slash; empty: there is no number. */
static long long step_of_name(const struct golden *golden, const char *name, const char **rest)
{
    char optimizer[32], *end;
    for (const char *at = golden_next_optimizer(golden, NULL, optimizer); at;
         at = golden_next_optimizer(golden, at, optimizer)) {
        const size_t n = strlen(optimizer);
        if (strncmp(name, optimizer, n) != 0 || name[n] != '/') continue;
        const long long step = strtoll(name + n + 1, &end, 10);
        const bool numbered = end > name + n + 1 && *end == '/';
        *rest = numbered ? end : "";
        return numbered ? step : 0;
    }
    *rest = "";
    return 0;
}

bool checker_is_before(const struct golden *golden, const struct actual *actual, const char *name)
{
    const char *rest, *slash = strchr(name, '/');
    if (actual->begins == 0) return false;
    const long long step = step_of_name(golden, name, &rest);
    /* The weights of a step are after it, all else is of its pass. */
    if (*rest == '/') {
        const bool of_pass = strncmp(rest, "/grad/", 6) == 0 || strncmp(rest, "/act/", 5) == 0 || strchr(rest + 1, '/')
                             == NULL;
        return step < actual->begins + of_pass;
    }
    /* Weights after the last step have no number; everything else without one is of the first pass, or its start. */
    if (strncmp(name, "start/", 6) == 0) return true;
    return !golden_is_input(name) && (slash == NULL || strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0
                                      || strncmp(name, "micro/", 6) == 0);
}

enum error_code checker_check_begins(const struct golden *golden, const struct actual *actual, struct error *err)
{
    const long long begins = (long long)actual->begins, steps = (long long)golden->steps;
    if (begins == 0) return OK;
    if (begins >= steps)
        return fail(err, ERR_FORMAT, "ACTUAL begins after step %lld; the golden file has %lld step%s: make one with "
                    "--steps %lld or more", begins, steps, steps == 1 ? "" : "s", begins + 1);
    if (!golden->every_step)
        return fail(err, ERR_FORMAT, "ACTUAL begins after step %lld; the golden file has not what is there after each "
                    "step: `orrery golden make` with --keep all makes one that has", begins);
    for (int f = 0; f < actual->files; f++)
        for (int i = 0; i < actual->file[f].st.count; i++) {
            const char *name = actual->file[f].st.entry[i].name;
            if (checker_is_before(golden, actual, name))
                return fail(err, ERR_FORMAT, "%s: \"%s\" is of a step that is done: ACTUAL begins after step %lld",
                            printable_path(actual->file[f].st.path).text, printable(name).text, begins);
        }
    return OK;
}

int64_t checker_step_of(const struct golden *golden, const char *name)
{
    const char *rest;
    const long long step = step_of_name(golden, name, &rest);
    char optimizer[32];
    if (*rest == '/') return step;
    if (strncmp(name, "start/", 6) == 0) return 0;
    for (const char *at = golden_next_optimizer(golden, NULL, optimizer); at;
         at = golden_next_optimizer(golden, at, optimizer))
        if (strncmp(name, optimizer, strlen(optimizer)) == 0 && name[strlen(optimizer)] == '/') return golden->steps;
    const bool first = strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0 ||
                       strncmp(name, "micro/", 6) == 0 || safetensors_find(&golden->file, name) != NULL;
    return first && strncmp(name, "mask/", 5) != 0 ? 1 : -1;
}

void check_result_keep_step(const struct golden *golden, int64_t begins, struct check_result *result, int64_t step)
{
    int count = 0;
    for (int i = 0; i < result->count; i++) {
        const int64_t its = checker_step_of(golden, result->all[i].name);
        if (its == step || (its == begins && step == begins + 1)) result->all[count++] = result->all[i];
        else free(result->all[i].on);
    }
    result->count = count;
    check_result_count(result);
}

/* The golden name of the first pass's tensor that "adamw/2/act/h.0.ln_1" is in the second; NULL: the name is none of a
 * later pass.  "adamw/2/grad/wte.weight" is golden itself. */
static const char *first_of_later(const struct golden *golden, const char *name)
{
    const char *rest;
    const long long step = step_of_name(golden, name, &rest);
    if (step < 2 || step > golden->steps || safetensors_find(&golden->file, name)) return NULL;
    const bool is_of_pass = strncmp(rest, "/act/", 5) == 0 || strncmp(rest, "/grad/", 6) == 0 ||
                            strcmp(rest, "/loss") == 0 || strcmp(rest, "/balance_loss") == 0 ||
                            strcmp(rest, "/z_loss") == 0 || strcmp(rest, "/norm") == 0;
    return is_of_pass && safetensors_find(&golden->file, rest + 1) ? rest + 1 : NULL;
}

/* Copy the name of a tensor of ACTUAL's file: a dump's key may have #PIECE behind the name. */
static void name_of_key(const struct actual *actual, const char *key, char *out, size_t size)
{
    snprintf(out, size, "%.*s", actual->dump ? (int)strcspn(key, "#") : (int)size - 1, key);
}

static int names_compare_later(const void *a, const void *b)
{
    return strcmp(((const struct later_name *)a)->text, ((const struct later_name *)b)->text);
}

/* Fill the names of ACTUAL's tensors of later passes, each once.  @return how many keys have such a name, before that
 * if `names` is NULL. */
static int names_find_later(const struct golden *golden, const struct actual *actual, struct later_name *names)
{
    int count = 0, once = 0;
    for (int f = 0; f < actual->files; f++)
        for (int i = 0; i < actual->file[f].st.count; i++) {
            struct later_name name;
            name_of_key(actual, actual->file[f].st.entry[i].name, name.text, sizeof name.text);
            if (first_of_later(golden, name.text) == NULL) continue;
            if (names) names[count] = name;
            count++;
        }
    if (names == NULL || count == 0) return count;
    qsort(names, (size_t)count, sizeof *names, names_compare_later);
    /* Pieces and ranks repeat a name. */
    for (int i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i].text, names[once - 1].text) != 0) names[once++] = names[i];
    return once;
}

int checker_count(const struct golden *golden, const struct actual *actual, const struct golden_list *list)
{
    const int most = names_find_later(golden, actual, NULL);
    struct later_name *const names = calloc((size_t)most + 1, sizeof *names);
    int count = names ? names_find_later(golden, actual, names) : most;
    free(names);
    for (int i = 0; i < list->count; i++) count += actual_has(actual, list->all[i].name);
    return count;
}

enum error_code checker_list_later(const struct golden *golden, const struct actual *actual,
                                   struct check_result *result, struct error *err)
{
    const int most = names_find_later(golden, actual, NULL);
    if (most == 0) return OK;
    void *more = realloc(result->all, (size_t)(result->count + most) * sizeof *result->all);
    if (more) result->all = more;
    result->later = calloc((size_t)most, sizeof *result->later);
    if (more == NULL || result->later == NULL) return fail(err, ERR_MEMORY, "no memory for %d tensors", most);
    result->laters = names_find_later(golden, actual, result->later);
    enum error_code e = OK;
    for (int i = 0; i < result->laters && !e; i++) {
        struct checked *c = &result->all[result->count++];
        *c = (struct checked){ .name = result->later[i].text, .finding = ALONE, .bound = INFINITY };
        e = checker_fit(golden, actual, first_of_later(golden, c->name), c, err);
    }
    return e;
}

/* Whether a name of ACTUAL is known: it is in the golden file, or a map gives it to a golden tensor.  Inputs such
 * as ids are in the file, but not computed. */
static bool is_expected(const struct golden *golden, const struct actual *actual, const struct check_result *result,
                        const char *theirs)
{
    char name[ACTUAL_NAME];
    if (safetensors_find(&golden->file, theirs) != NULL || adapter_is_name(theirs)) return true;
    for (int i = 0; actual->map && i < result->count; i++)
        if (strcmp(actual_name(actual, result->all[i].name, name), theirs) == 0) return true;
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
    const char *rest;
    const long long step = step_of_name(golden, name, &rest);
    /* "adamw/0/weight/NAME" has a number, too; a name without one is of the last step, which is never refused. */
    if (*rest != '/') return OK;
    /* Gradients of step 1 and weights of the last step have no number, so the ranges differ. */
    const bool gradient = strncmp(rest, "/grad/", 6) == 0 || strncmp(rest, "/act/", 5) == 0;
    const long long first = gradient ? 2 : 1, last = gradient ? (long long)golden->steps
        : (long long)golden->steps - 1;
    if (step >= first && step <= last) return OK;
    return fail(err, ERR_FORMAT, "%s: \"%s\" is of step %lld; the golden file has steps 1 to %lld, %s",
                printable_path(file->st.path).text, printable(name).text, step, (long long)golden->steps,
                gradient ? "and the gradients of step 1 as \"grad/NAME\""
                         : "and what is there after the last without a number");
}

enum error_code checker_list_extras(const struct golden *golden, const struct actual *actual,
                                    struct check_result *result, struct error *err)
{
    enum error_code e = OK;
    for (int f = 0; f < actual->files; f++)
        for (int i = 0; i < actual->file[f].st.count && !e; i++) {
            const char *key = actual->file[f].st.entry[i].name;
            char name[ACTUAL_NAME], shown[sizeof *result->extra];
            name_of_key(actual, key, name, sizeof name);
            if (first_of_later(golden, name)) continue;
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
