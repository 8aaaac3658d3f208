/* owners.c -- owners in memory and in a JSON file, which is not trusted.  run/words/take.c reads, run/session.c
 * writes.  ERR_FORMAT says which number of the file is wrong; ERR_MEMORY, ERR_FILE. */
#include "emulated_devices/schemes/experts/owners.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdlib.h>

enum { MOST_PARTS = 4096, MOST_EXPERTS = 1 << 20 };
static const char key_parts[] = "parts", key_experts[] = "experts", key_owners[] = "owners";

enum error_code expert_owners_make(struct expert_owners *owners, int64_t L, int64_t E, int parts, struct error *err)
{
    /* The sizes are set also without memory; expert_owners_free takes both. */
    *owners = (struct expert_owners){ .L = L, .E = E, .parts = parts };
    owners->member = calloc((size_t)(L * E) + 1, sizeof *owners->member);
    return owners->member ? OK : fail(err, ERR_MEMORY, "no memory for owners of %lld experts", (long long)(L * E));
}

/* Read all numbers; the caller frees the owners if an entry is wrong. */
static enum error_code read_owners(struct expert_owners *owners, const cJSON *root, const char *path, struct error *err)
{
    const cJSON *all = NULL, *one;
    int64_t parts, E = 1, n = 0;
    enum error_code e = json_int(root, path, key_parts, 1, MOST_PARTS, &parts, err);
    if (!e) e = json_int(root, path, key_experts, 1, MOST_EXPERTS, &E, err);
    if (!e) e = json_array(root, path, key_owners, &all, err);
    if (e) return e;
    /* The number of layers follows from the length of the list. */
    if (cJSON_GetArraySize(all) % E != 0)
        return fail(err, ERR_FORMAT, "%s: %s: %d numbers are not %lld for each layer", printable_path(path).text,
                    key_owners, cJSON_GetArraySize(all), (long long)E);
    e = expert_owners_make(owners, cJSON_GetArraySize(all) / E, E, (int)parts, err);
    if (e) return e;
    cJSON_ArrayForEach(one, all) {
        int64_t member;
        if (!json_whole(one, &member) || member < 0 || member >= parts)
            return fail(err, ERR_FORMAT, "%s: %s[%lld]: must be a part, 0 to %lld", printable_path(path).text,
                        key_owners, (long long)n, (long long)parts - 1);
        owners->member[n++] = (int32_t)member;
    }
    return OK;
}

enum error_code expert_owners_read(struct expert_owners *owners, const char *path, struct error *err)
{
    cJSON *root;
    *owners = (struct expert_owners){ 0 };
    enum error_code e = json_read(path, &root, err);
    if (!e) e = read_owners(owners, root, path, err);
    cJSON_Delete(root);
    if (e) expert_owners_free(owners);
    return e;
}

enum error_code expert_owners_write(const struct expert_owners *owners, const char *path, struct error *err)
{
    cJSON *const root = cJSON_CreateObject();
    cJSON *const all = cJSON_CreateIntArray(owners->member, (int)(owners->L * owners->E));
    const bool ok = root && all && cJSON_AddNumberToObject(root, key_parts, owners->parts) &&
                    cJSON_AddNumberToObject(root, key_experts, (double)owners->E) &&
                    cJSON_AddItemToObject(root, key_owners, all);
    /* The array belongs to the root only after it was added. */
    if (!ok) cJSON_Delete(all);
    const enum error_code e = ok ? json_write(path, root, err)
                                 : fail(err, ERR_MEMORY, "no memory to write the owners of %lld experts",
                                        (long long)(owners->L * owners->E));
    cJSON_Delete(root);
    return e;
}

void expert_owners_free(struct expert_owners *owners)
{
    free(owners->member);
    *owners = (struct expert_owners){ 0 };
}
