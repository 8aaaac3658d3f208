/* kernel_set.c -- reads sets of kernels, and finds them by name.
 *
 * cluster.c and run/words/ find sets; kernel.c asks what an operation costs.  kernel_set.h states the errors.
 */
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/device/description.h"
#include "emulated_devices/device/kernel_table.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

enum { MOST_SETS = 32 };
static const int64_t MOST_PERCENT = 100000, MOST_STARTS = 1000;

/* A cost is [percent, kernels]. */
static enum error_code read_set_cost(struct set_cost *cost, const cJSON *list, const char *where, const char *key,
                                     struct error *err)
{
    int64_t x[2] = { 0 };
    if (cJSON_IsArray(list) && cJSON_GetArraySize(list) == 2 && json_whole(cJSON_GetArrayItem(list, 0), &x[0])
        && json_whole(cJSON_GetArrayItem(list, 1), &x[1]) && x[0] >= 0 && x[0] <= MOST_PERCENT && x[1] >= 0
        && x[1] <= MOST_STARTS)
        return *cost = (struct set_cost){ x[0], x[1] }, OK;
    return fail(err, ERR_FORMAT, "%s: \"%s\" must be [percent, kernels]: 0 to %lld, 0 to %lld", where,
                printable(key).text, (long long)MOST_PERCENT, (long long)MOST_STARTS);
}

static enum error_code read_set_costs(struct set_costs *costs, const cJSON *root, const char *where, const char *key,
                                      struct error *err)
{
    const cJSON *named;
    char inside[200];
    enum error_code e = json_object(root, where, key, &named, err);
    if (e) return e;
    snprintf(inside, sizeof inside, "%s: %s", where, key);
    for (const cJSON *c = named->child; c != NULL && !e; c = c->next) {
        if (costs->count == SET_MOST_OPERATIONS)
            return fail(err, ERR_FORMAT, "%s: at most %d can be named", inside, SET_MOST_OPERATIONS);
        if (strlen(c->string) >= sizeof costs->entry->name)
            return fail(err, ERR_FORMAT, "%s: \"%s\" has more than %zu bytes", inside, printable(c->string).text,
                        sizeof costs->entry->name - 1);
        const int i = costs->count++;
        snprintf(costs->entry[i].name, sizeof costs->entry[i].name, "%s", c->string);
        e = read_set_cost(&costs->entry[i].cost, c, inside, c->string, err);
    }
    return e;
}

/* Kernels of attention, in the order in which they are preferred. */
static enum error_code read_set_attention(struct kernel_set *set, const cJSON *root, const char *where,
                                          struct error *err)
{
    const cJSON *list;
    const enum error_code e = json_array(root, where, "attention", &list, err);
    if (e) return e;
    set->attentions = cJSON_GetArraySize(list);
    for (int i = 0; i < set->attentions && i < SET_MOST_ATTENTION; i++) {
        const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(list, i));
        if (name == NULL || *name == '\0' || strlen(name) >= sizeof *set->attention)
            return fail(err, ERR_FORMAT, "%s: attention[%d] must be a name of 1 to %zu bytes", where, i,
                        sizeof *set->attention - 1);
        snprintf(set->attention[i], sizeof *set->attention, "%s", name);
    }
    if (set->attentions >= 1 && set->attentions <= SET_MOST_ATTENTION) return OK;
    return fail(err, ERR_FORMAT, "%s: \"attention\" has %d names; it must have 1 to %d", where, set->attentions,
                SET_MOST_ATTENTION);
}

/* Unfused attention needs what its scores cost; other kernels have none. */
static enum error_code read_set_scores(struct kernel_set *set, const cJSON *root, const char *where, struct error *err)
{
    static const char *const keys[] = { "scores_forward", "scores_backward" };
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        const bool wanted = kernel_set_is_unfused(set);
        if (json_has(root, keys[i]) != wanted)
            return fail(err, ERR_FORMAT, "%s: \"%s\" %s with attention %s", where, keys[i],
                        wanted ? "is needed" : "cannot stand", printable(set->attention[0]).text);
        if (wanted) e = read_set_cost(&set->scores[i], cJSON_GetObjectItemCaseSensitive(root, keys[i]), where, keys[i],
                                      err);
    }
    return e;
}

const char *const issue_kind_names[ISSUE_KINDS] = { "eager", "compiled", "graph" };
static const char *const wait_names[HOST_WAITS] = { "receives", "plain receives", "passes", "norm", "step" };

/* The place of a word in a list; -1: the list does not have the word. */
static int place_of(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count && word; i++)
        if (strcmp(names[i], word) == 0) return i;
    return -1;
}

static enum error_code read_set_waits(struct kernel_set *set, const cJSON *root, const char *where, struct error *err)
{
    const cJSON *list;
    if (!json_has(root, "host_waits")) return OK;
    const enum error_code e = json_array(root, where, "host_waits", &list, err);
    for (int i = 0; !e && i < cJSON_GetArraySize(list); i++) {
        const int wait = place_of(cJSON_GetStringValue(cJSON_GetArrayItem(list, i)), wait_names, HOST_WAITS);
        if (wait < 0)
            return fail(err, ERR_FORMAT, "%s: host_waits[%d] must be receives, plain receives, passes, norm or step",
                        where, i);
        set->waits[wait] = true;
    }
    return e;
}

/* How the host starts kernels.  Without these keys Python starts each of them, and never waits for the device. */
static enum error_code read_set_host(struct kernel_set *set, const cJSON *root, const char *where, struct error *err)
{
    const char *word;
    enum error_code e = OK;
    set->collective_kernels = 1, set->host_percent = 100;
    if (json_has(root, "issued")) {
        e = json_string(root, where, "issued", &word, err);
        const int kind = e ? 0 : place_of(word, issue_kind_names, ISSUE_KINDS);
        if (kind < 0)
            return fail(err, ERR_FORMAT, "%s: \"issued\" is '%s'; it must be eager, compiled or graph", where,
                        printable(word).text);
        set->issued = (enum issue_kind)kind;
    }
    if (!e && json_has(root, "host_percent"))
        e = json_int(root, where, "host_percent", 1, MOST_PERCENT, &set->host_percent, err);
    if (!e && json_has(root, "collective_kernels"))
        e = json_int(root, where, "collective_kernels", 0, MOST_STARTS, &set->collective_kernels, err);
    return e ? e : read_set_waits(set, root, where, err);
}

static enum error_code read_set(struct kernel_set *set, const cJSON *root, const char *where, struct error *err)
{
    static const char *const known[] = { "name", "description", "attention", "graphs", "issued",
                                         "host_percent", "collective_kernels", "host_waits", "scores_forward",
                                         "scores_backward", "other", "operations", "products", "source", "assumed",
                                         NULL };
    *set = (struct kernel_set){ .attentions = 0 };
    enum error_code e = refuse_unknown(root, where, known, err);
    if (!e) e = read_name(root, where, "name", set->name, sizeof set->name, err);
    if (!e) e = read_text(root, where, "description", set->description, sizeof set->description, err);
    if (!e) e = read_set_attention(set, root, where, err);
    if (!e) e = json_bool(root, where, "graphs", &set->graphs, err);
    if (!e) e = read_set_host(set, root, where, err);
    if (!e) e = read_set_scores(set, root, where, err);
    if (!e) e = read_set_cost(&set->other, cJSON_GetObjectItemCaseSensitive(root, "other"), where, "other", err);
    if (!e) e = read_set_costs(&set->operations, root, where, "operations", err);
    if (!e && json_has(root, "products")) e = read_set_costs(&set->products, root, where, "products", err);
    if (!e) e = read_text(root, where, "source", set->source, sizeof set->source, err);
    return e ? e : read_text(root, where, "assumed", set->assumed, sizeof set->assumed, err);
}

/* The tree is freed also after an error; a failed json_parse has set it to NULL. */
enum error_code kernel_set_parse(struct kernel_set *set, const char *text, const char *where, struct error *err)
{
    cJSON *root;
    enum error_code e = json_parse(text, strlen(text), where, &root, err);
    if (!e) e = read_set(set, root, where, err);
    cJSON_Delete(root);
    return e;
}

/* A shipped set is read when it is first asked for. */
static enum error_code shipped_set(int i, const struct kernel_set **set, struct error *err)
{
    static struct kernel_set read[MOST_SETS];
    enum error_code e = OK;
    if (read[i].name[0] == '\0') e = kernel_set_parse(&read[i], kernel_set_texts[i], "a shipped set of kernels", err);
    if (e) read[i].name[0] = '\0';
    *set = &read[i];
    return e;
}

const struct kernel_set *kernel_set_at(int i)
{
    const struct kernel_set *set;
    for (int before = 0; before <= i; before++)
        if (before == MOST_SETS || kernel_set_texts[before] == NULL) return NULL;
    return shipped_set(i, &set, NULL) == OK ? set : NULL;
}

enum error_code kernel_set_find(const struct kernel_set **set, const char *flag, const char *name, struct error *err)
{
    const char *names[MOST_SETS];
    int n = 0;
    for (; n < MOST_SETS && kernel_set_texts[n] != NULL; n++) {
        const enum error_code e = shipped_set(n, set, err);
        if (e) return e;
        names[n] = (*set)->name;
        if (strcmp(names[n], name) == 0) return OK;
    }
    return fail_unknown_name(err, flag, name, names, (size_t)n);
}

enum error_code kernel_set_check(const struct kernel_set *set, const struct kernel_table *table, const char *flag,
                                 struct error *err)
{
    for (int i = 0; i < set->attentions; i++)
        if (kernel_set_is_unfused(set) || table_attention_share(table, set->attention[i], false, 128, 4096, .5) > 0)
            return OK;
    return fail(err, ERR_USAGE, "%s %s: its attention is %s, which the table %s does not have", flag, set->name,
                set->attention[0], table->name);
}

enum error_code kernel_set_choose(struct cluster *cluster, const char *name, struct error *err)
{
    const struct kernel_set *set;
    enum error_code e = kernel_set_find(&set, "--kernels-of", name, err);
    if (e) return e;
    if (cluster->kernels.table == NULL)
        return fail(err, ERR_USAGE, "--kernels-of %s: cluster %s has no table of measured kernels", name,
                    cluster->name);
    e = kernel_set_check(set, cluster->kernels.table, "--kernels-of", err);
    if (!e) cluster->kernels.set = set;
    return e;
}

static struct set_cost set_cost_named(const struct set_costs *costs, const char *what, struct set_cost otherwise)
{
    for (int i = 0; i < costs->count; i++)
        if (strcmp(costs->entry[i].name, what) == 0) return costs->entry[i].cost;
    return otherwise;
}

struct set_cost kernel_set_cost(const struct kernel_set *set, const char *what)
{
    return set_cost_named(&set->operations, what, set->other);
}

struct set_cost kernel_set_beside(const struct kernel_set *set, const char *what)
{
    return set_cost_named(&set->products, what, (struct set_cost){ 0, 1 });
}

picoseconds kernel_set_pace(const struct kernel_set *set, const struct cluster *cluster)
{
    return set == NULL ? 0 : cluster->host.issue.kernel[set->issued] * set->host_percent / 100;
}
