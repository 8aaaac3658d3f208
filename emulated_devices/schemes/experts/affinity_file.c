/* affinity_file.c -- a table of tokens and parts of experts in a file, which is not trusted.
 *
 * affinity_read takes a file of --affinity (run/words/take.c), affinity_write makes one for `orrery affinity`.
 * ERR_FORMAT names the entry that is wrong.  Without memory the code is ERR_MEMORY.
 */
#include "emulated_devices/schemes/experts/affinity.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdlib.h>

enum { MOST_PARTS = 4096 };
static const char key_parts[] = "parts", key_tokens[] = "part_of_token", key_pairs[] = "pairs";

/* Read the parts and the table; every entry is checked, because rows are counted by it later. */
static enum error_code read_table(struct affinity *affinity, const cJSON *root, const char *path, struct error *err)
{
    const cJSON *all, *one;
    int64_t parts, n = 0;
    enum error_code e = json_int(root, path, key_parts, 1, MOST_PARTS, &parts, err);
    if (!e) e = json_array(root, path, key_tokens, &all, err);
    if (e) return e;
    *affinity = (struct affinity){ .V = cJSON_GetArraySize(all), .parts = (int)parts };
    affinity->part = malloc((size_t)(affinity->V + 1) * sizeof *affinity->part);
    if (affinity->part == NULL)
        return fail(err, ERR_MEMORY, "no memory for a table of %lld tokens", (long long)affinity->V);
    cJSON_ArrayForEach(one, all) {
        int64_t part;
        if (!json_whole(one, &part) || part < -1 || part >= parts)
            return fail(err, ERR_FORMAT, "%s: %s[%lld]: must be a part, 0 to %lld, or -1", printable_path(path).text,
                        key_tokens, (long long)n, (long long)parts - 1);
        affinity->part[n++] = (int32_t)part;
    }
    return OK;
}

/* The three numbers of a pair, which must stand behind the pair before. */
static enum error_code read_pair(struct affinity *affinity, const cJSON *one, const char *path, struct error *err)
{
    const int64_t n = affinity->pairs, limit[] = { affinity->V, affinity->V, affinity->parts };
    const struct affinity_pair *const last = n > 0 ? &affinity->pair[n - 1] : NULL;
    int64_t number[3] = { 0 };
    bool ok = cJSON_IsArray(one) && cJSON_GetArraySize(one) == 3;
    for (int i = 0; i < 3 && ok; i++)
        ok = json_whole(cJSON_GetArrayItem(one, i), &number[i]) && number[i] >= 0 && number[i] < limit[i];
    if (ok && last)
        ok = number[0] > last->before || (number[0] == last->before && number[1] > last->token);
    if (!ok)
        return fail(err, ERR_FORMAT, "%s: %s[%lld]: must be two tokens, 0 to %lld, and a part, and stand in order",
                    printable_path(path).text, key_pairs, (long long)n, (long long)affinity->V - 1);
    affinity->pair[affinity->pairs++] = (struct affinity_pair){ (int32_t)number[0], (int32_t)number[1],
                                                                (int32_t)number[2] };
    return OK;
}

static enum error_code read_pairs(struct affinity *affinity, const cJSON *root, const char *path, struct error *err)
{
    const cJSON *all, *one;
    if (!json_has(root, key_pairs)) return OK;
    enum error_code e = json_array(root, path, key_pairs, &all, err);
    if (e) return e;
    affinity->pair = malloc(((size_t)cJSON_GetArraySize(all) + 1) * sizeof *affinity->pair);
    if (affinity->pair == NULL)
        return fail(err, ERR_MEMORY, "no memory for a table of %d pairs", cJSON_GetArraySize(all));
    cJSON_ArrayForEach(one, all)
        if (!e) e = read_pair(affinity, one, path, err);
    return e;
}

enum error_code affinity_read(struct affinity *affinity, const char *path, struct error *err)
{
    cJSON *root;
    *affinity = (struct affinity){ 0 };
    enum error_code e = json_read(path, &root, err);
    if (!e) e = read_table(affinity, root, path, err);
    if (!e) e = read_pairs(affinity, root, path, err);
    cJSON_Delete(root);
    if (e) affinity_free(affinity);
    return e;
}

enum error_code affinity_write(const struct affinity *affinity, const char *path, struct error *err)
{
    cJSON *const root = cJSON_CreateObject();
    cJSON *const all = cJSON_CreateIntArray(affinity->part, (int)affinity->V);
    bool ok = root && all && cJSON_AddNumberToObject(root, key_parts, affinity->parts) &&
              cJSON_AddItemToObject(root, key_tokens, all);
    /* The array belongs to the root only after it was added. */
    if (!ok) cJSON_Delete(all);
    cJSON *const pairs = ok && affinity->pairs > 0 ? cJSON_AddArrayToObject(root, key_pairs) : NULL;
    for (int64_t i = 0; i < affinity->pairs && ok; i++) {
        const struct affinity_pair *const p = &affinity->pair[i];
        cJSON *const one = cJSON_CreateIntArray((const int[]){ p->before, p->token, p->part }, 3);
        ok = pairs && one && cJSON_AddItemToArray(pairs, one);
    }
    const enum error_code e = ok ? json_write(path, root, err)
                                 : fail(err, ERR_MEMORY, "no memory to write %lld tokens", (long long)affinity->V);
    cJSON_Delete(root);
    return e;
}

void affinity_free(struct affinity *affinity)
{
    free(affinity->part), free(affinity->pair);
    *affinity = (struct affinity){ 0 };
}
