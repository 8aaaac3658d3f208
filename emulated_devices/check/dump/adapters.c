/* adapters.c -- reads the list of adapters in a dump's metadata, and answers what is frozen.
 * actual_dump.c calls adapters_read for each file.  Errors are ERR_FORMAT with the name of the file, or ERR_MEMORY. */
#include "emulated_devices/check/dump/adapters.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char KEY[] = "adapters", TRAINED[] = "trained";

static enum error_code adapters_bad(const struct safetensors *st, const char *key, const char *name, const char *what,
                                    struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: metadata \"%s\": \"%s\" %s", printable_path(st->path).text, key,
                printable(name).text, what);
}

/* Read a text of an adapter.  @return false: there is none, or one that is too long. */
static bool adapter_text(const cJSON *of, const char *key, char *out, size_t size)
{
    const char *const text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(of, key));
    if (text == NULL || text[0] == '\0' || strlen(text) >= size) return false;
    snprintf(out, size, "%s", text);
    return true;
}

/* No matrix has more rows, and no adapter a higher rank: sizes cannot overflow. */
enum { MOST_ROWS = 1 << 28, MOST_RANK = 1 << 20 };

/* Read one adapter.  @return NULL; or what would be right. */
static const char *adapter_read(const cJSON *of, struct adapter *adapter)
{
    const cJSON *const rows = cJSON_GetObjectItemCaseSensitive(of, "rows"),
                *const alpha = cJSON_GetObjectItemCaseSensitive(of, "alpha"),
                *const rslora = cJSON_GetObjectItemCaseSensitive(of, "rslora");
    if (strlen(of->string) == 0 || strlen(of->string) >= sizeof adapter->name) return "is no name of a module";
    snprintf(adapter->name, sizeof adapter->name, "%s", of->string);
    if (!cJSON_IsObject(of) || !adapter_text(of, "of", adapter->of, sizeof adapter->of) || !param_is_name(adapter->of))
        return "needs \"of\", the weight whose adapter it is";
    if (!json_whole(cJSON_GetArrayItem(rows, 0), &adapter->rows.first) || adapter->rows.first < 0 ||
        adapter->rows.first > MOST_ROWS || !json_whole(cJSON_GetArrayItem(rows, 1), &adapter->rows.count) ||
        adapter->rows.count < 1 || adapter->rows.count > MOST_ROWS)
        return "needs \"rows\", the first row of the weight and how many";
    if (!json_whole(cJSON_GetObjectItemCaseSensitive(of, "rank"), &adapter->rank) || adapter->rank < 1 ||
        adapter->rank > MOST_RANK)
        return "needs \"rank\", a whole number above 0, up to 1048576";
    if (!cJSON_IsNumber(alpha) || !isfinite(alpha->valuedouble)) return "needs \"alpha\", a number";
    if (rslora && !cJSON_IsBool(rslora)) return "has an \"rslora\" that is neither true nor false";
    adapter->alpha = alpha->valuedouble, adapter->rslora = cJSON_IsTrue(rslora);
    adapter->scaling = adapter->alpha / (adapter->rslora ? sqrt((double)adapter->rank) : (double)adapter->rank);
    return NULL;
}

/* Two adapters of the same rows would be added: only one is computed with. */
static bool adapters_overlap(const struct adapters *adapters)
{
    const struct adapter *const last = &adapters->all[adapters->count - 1];
    for (int i = 0; i + 1 < adapters->count; i++) {
        const struct adapter *const a = &adapters->all[i];
        if (strcmp(a->of, last->of) == 0 && a->rows.first < interval_end(last->rows) &&
            last->rows.first < interval_end(a->rows))
            return true;
    }
    return false;
}

static enum error_code adapters_read_list(struct adapters *adapters, const struct safetensors *st, const cJSON *list,
                                          struct error *err)
{
    const cJSON *one;
    adapters->all = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *adapters->all);
    if (adapters->all == NULL) return fail(err, ERR_MEMORY, "no memory for a list of adapters");
    cJSON_ArrayForEach(one, list) {
        const char *const wrong = adapter_read(one, &adapters->all[adapters->count++]);
        if (wrong) return adapters_bad(st, KEY, one->string, wrong, err);
        if (adapters_overlap(adapters))
            return adapters_bad(st, KEY, one->string, "is a second adapter of the same rows: record one at a time",
                                err);
    }
    return OK;
}

static enum error_code adapters_read_trained(struct adapters *adapters, const struct safetensors *st,
                                             const cJSON *list, struct error *err)
{
    const cJSON *one;
    adapters->whole = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *adapters->whole);
    if (adapters->whole == NULL) return fail(err, ERR_MEMORY, "no memory for a list of trained parameters");
    cJSON_ArrayForEach(one, list) {
        if (!cJSON_IsString(one) || !param_is_name(one->valuestring) || strlen(one->valuestring) >= PARAM_NAME)
            return fail(err, ERR_FORMAT, "%s: metadata \"%s\" has what is no name of a parameter",
                        printable_path(st->path).text, TRAINED);
        snprintf(adapters->whole[adapters->trained++], PARAM_NAME, "%s", one->valuestring);
    }
    return OK;
}

/* Parse a key of the metadata.  @param[out] root  for cJSON_Delete; NULL: there is no such key. */
static enum error_code adapters_parse(const struct safetensors *st, const char *key, cJSON **root, struct error *err)
{
    const char *const text = safetensors_metadata(st, key);
    char where[256];
    *root = NULL;
    if (text == NULL) return OK;
    snprintf(where, sizeof where, "%.180s: metadata \"%s\"", printable_path(st->path).text, key);
    return json_parse(text, strlen(text), where, root, err);
}

/* All ranks of a dump have the same adapters, so the first list serves. */
enum error_code adapters_read(struct adapters *adapters, const struct safetensors *st, struct error *err)
{
    cJSON *list, *trained = NULL;
    if (adapters->count > 0) return OK;
    enum error_code e = adapters_parse(st, KEY, &list, err);
    if (!e) e = adapters_parse(st, TRAINED, &trained, err);
    if (!e && list && (!cJSON_IsObject(list) || list->child == NULL))
        e = fail(err, ERR_FORMAT, "%s: metadata \"%s\" is no object with an entry for each adapter",
                 printable_path(st->path).text, KEY);
    if (!e && trained && (list == NULL || !cJSON_IsArray(trained)))
        e = fail(err, ERR_FORMAT, "%s: metadata \"%s\" is a list of parameters, beside \"%s\"",
                 printable_path(st->path).text, TRAINED, KEY);
    if (!e && list) e = adapters_read_list(adapters, st, list, err);
    if (!e && trained) e = adapters_read_trained(adapters, st, trained, err);
    cJSON_Delete(list), cJSON_Delete(trained);
    if (e) adapters_free(adapters);
    return e;
}

void adapters_free(struct adapters *adapters)
{
    free(adapters->all), free(adapters->whole);
    *adapters = (struct adapters){ 0 };
}

struct adapter_name adapter_name(const struct adapter *adapter, char which)
{
    struct adapter_name name;
    snprintf(name.text, sizeof name.text, "%s.lora_%c.weight", adapter->name, which);
    return name;
}

void adapter_gradient(const struct adapter *adapter, char which, const double *other, const double *dW, int64_t in,
                      double *out)
{
    const int64_t rank = adapter->rank, rows = adapter->rows.count;
    const double *const of = dW + adapter->rows.first * in;
    memset(out, 0, (size_t)(rank * (which == 'A' ? in : rows)) * sizeof *out);
    for (int64_t o = 0; o < rows; o++)
        for (int64_t r = 0; r < rank; r++)
            for (int64_t i = 0; i < in; i++)
                if (which == 'A') out[r * in + i] += adapter->scaling * other[o * rank + r] * of[o * in + i];
                else out[o * rank + r] += adapter->scaling * of[o * in + i] * other[r * in + i];
}

const struct adapter *adapters_find(const struct adapters *adapters, const char *name, char *which)
{
    const char *const slash = strrchr(name, '/'), *const last = slash ? slash + 1 : name;
    for (int i = 0; i < 2 * adapters->count; i++) {
        *which = i % 2 ? 'B' : 'A';
        if (strcmp(adapter_name(&adapters->all[i / 2], *which).text, last) == 0) return &adapters->all[i / 2];
    }
    return NULL;
}

bool adapter_is_name(const char *name)
{
    return name_ends(name, ".lora_A.weight") || name_ends(name, ".lora_B.weight");
}

bool adapters_freeze(const struct adapters *adapters, const char *param)
{
    for (int i = 0; i < adapters->trained; i++)
        if (strcmp(adapters->whole[i], param) == 0) return false;
    return adapters->count > 0 && !adapter_is_name(param);
}

const char *adapters_param(const char *name)
{
    if (!param_is_name(name)) return NULL;
    if (strncmp(name, "start/", 6) == 0) return name + 6;
    const char *const weight = strstr(name, "/weight/");
    return weight ? weight + strlen("/weight/") : NULL;
}
