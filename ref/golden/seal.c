/* seal.c -- hashes of a golden file's tensors, which stand in the file of its bounds.
 *
 * golden.c checks what it reads with these hashes, make.c adds the hashes.  A mismatch is ERR_FORMAT; a golden file
 * without hashes is taken as it is.
 */
#include "ref/golden/seal.h"
#include "ref/golden/bounds.h"
#include "ref/io/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* For given bytes each step is a bijection of the state: two tensors that differ in one word have different hashes. */
static uint64_t seal_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

uint64_t seal_begin(size_t bytes) { return seal_mix(UINT64_C(0xcbf29ce484222325), bytes); }

uint64_t seal_more(uint64_t h, const void *data, size_t words)
{
    const char *at = data;
    uint64_t word;
    for (; words > 0; words--, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        h = seal_mix(h, word);
    }
    return h;
}

uint64_t seal_end(uint64_t h, const void *rest, size_t bytes)
{
    uint64_t word = 0;
    if (bytes > 0) memcpy(&word, rest, bytes);
    return seal_mix(h, word);
}

/* Whole words first, then the rest with zeros behind it; the length is in the first step. */
uint64_t seal_hash(const void *data, size_t bytes)
{
    const size_t words = bytes / sizeof (uint64_t), whole = words * sizeof (uint64_t);
    return seal_end(seal_more(seal_begin(bytes), data, words), (const char *)data + whole, bytes - whole);
}

/* One hash of 16 hexadecimal digits for each tensor, by its name. */
enum error_code seal_add(cJSON *root, const struct record *all, int count, struct error *err)
{
    cJSON *list = cJSON_AddObjectToObject(root, "tensors");
    bool ok = list != NULL;
    for (int i = 0; i < count && ok; i++) {
        char text[17];
        snprintf(text, sizeof text, "%016" PRIx64, seal_hash(all[i].values.data, tensor_bytes(all[i].values)));
        ok = cJSON_AddStringToObject(list, all[i].name, text) != NULL;
    }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the hashes of %d tensors", count);
}

/* The hashes are detached, so that the large list of bounds can go. */
cJSON *seal_read(const char *golden_path)
{
    const struct bounds_path path = bounds_beside(golden_path);
    cJSON *root, *list;
    struct error ignored;                               /* who needs the bounds will say what is wrong with them */
    if (access(path.text, R_OK) != 0 || json_read(path.text, &root, &ignored) != OK) return NULL;
    list = cJSON_DetachItemFromObjectCaseSensitive(root, "tensors");
    cJSON_Delete(root);
    if (list == NULL || cJSON_IsObject(list)) return list;
    cJSON_Delete(list);
    return NULL;
}

enum error_code seal_check(const struct golden *golden, const char *name, const void *data, size_t bytes,
                           struct error *err)
{
    return golden->seal == NULL ? OK : seal_check_hash(golden, name, seal_hash(data, bytes), err);
}

enum error_code seal_check_hash(const struct golden *golden, const char *name, uint64_t hash, struct error *err)
{
    const char *seal = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(golden->seal, name));
    char text[17];
    if (golden->seal == NULL) return OK;
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (seal && strcmp(seal, text) == 0) return OK;
    return fail(err, ERR_FORMAT, "%s: %s is not what it was when %s was written; `orrery golden make` must make both "
                "anew", printable_path(golden->file.path).text, name,
                printable_path(bounds_beside(golden->file.path).text).text);
}
