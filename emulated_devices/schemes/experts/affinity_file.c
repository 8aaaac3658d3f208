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
static const char key_parts[] = "parts", key_tokens[] = "part_of_token";

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

enum error_code affinity_read(struct affinity *affinity, const char *path, struct error *err)
{
    cJSON *root;
    *affinity = (struct affinity){ 0 };
    enum error_code e = json_read(path, &root, err);
    if (!e) e = read_table(affinity, root, path, err);
    cJSON_Delete(root);
    if (e) affinity_free(affinity);
    return e;
}

enum error_code affinity_write(const struct affinity *affinity, const char *path, struct error *err)
{
    cJSON *const root = cJSON_CreateObject();
    cJSON *const all = cJSON_CreateIntArray(affinity->part, (int)affinity->V);
    const bool ok = root && all && cJSON_AddNumberToObject(root, key_parts, affinity->parts) &&
                    cJSON_AddItemToObject(root, key_tokens, all);
    /* The array belongs to the root only after it was added. */
    if (!ok) cJSON_Delete(all);
    const enum error_code e = ok ? json_write(path, root, err)
                                 : fail(err, ERR_MEMORY, "no memory to write %lld tokens", (long long)affinity->V);
    cJSON_Delete(root);
    return e;
}

void affinity_free(struct affinity *affinity)
{
    free(affinity->part);
    *affinity = (struct affinity){ 0 };
}
