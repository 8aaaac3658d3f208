/* actual_declared.c -- tensors that a dump, or the user, declares as not recorded: patterns of their names.
 * actual_dump.c reads the list of each file.  check/report/checker_names.c asks for each tensor that is missing.
 * Errors are ERR_FORMAT with the name of the file, or ERR_MEMORY. */
#include "emulated_devices/check/dump/actual_open.h"
#include "ref/model/param.h"
#include <stdio.h>
#include <string.h>

enum error_code actual_read_declared(struct actual_file *file, struct error *err)
{
    const char *const text = safetensors_metadata(&file->st, "not_recorded");
    char where[256];
    const cJSON *one;
    if (text == NULL) return OK;
    /* The path is cut to 180 characters, so that the key fits behind it. */
    snprintf(where, sizeof where, "%.180s: metadata \"not_recorded\"", printable_path(file->st.path).text);
    enum error_code e = json_parse(text, strlen(text), where, &file->not_recorded, err);
    bool fits = !e && cJSON_IsArray(file->not_recorded);
    cJSON_ArrayForEach(one, file->not_recorded)
        fits = fits && cJSON_IsString(one) && one->valuestring[0] && strlen(one->valuestring) < ACTUAL_OUR_NAME;
    if (!e && !fits)
        e = fail(err, ERR_FORMAT, "%s is no list of patterns, as [\"act/h.*.attn.rotated\"], each below %d characters",
                 where, ACTUAL_OUR_NAME);
    if (e) cJSON_Delete(file->not_recorded), file->not_recorded = NULL;
    return e;
}

/* The list of the user comes first; then those of the files follow in order of rank. */
const char *actual_declared(const struct actual *actual, int which, char out[ACTUAL_OUR_NAME])
{
    for (const char *at = actual->not_recorded; at && *at; which--) {
        const size_t n = strcspn(at, ",");
        snprintf(out, ACTUAL_OUR_NAME, "%.*s", (int)(n < ACTUAL_OUR_NAME ? n : ACTUAL_OUR_NAME - 1), at);
        if (which == 0) return out;
        at += n + (at[n] == ',');
    }
    for (int f = 0; f < actual->files; f++) {
        const int n = cJSON_GetArraySize(actual->file[f].not_recorded);
        if (which < n) {
            snprintf(out, ACTUAL_OUR_NAME, "%s", cJSON_GetArrayItem(actual->file[f].not_recorded, which)->valuestring);
            return out;
        }
        which -= n;
    }
    return NULL;
}

bool actual_pattern_is_of(const char *pattern, const char *ours)
{
    const size_t kind = strncmp(ours, "act/", 4) == 0 ? 4 : strncmp(ours, "grad/", 5) == 0 ? 5 : 0;
    return pattern_match(pattern, ours, NULL, NULL, 0) ||
           (kind > 0 && !param_is_name(ours) && pattern_match(pattern, ours + kind, NULL, NULL, 0));
}

bool actual_declares(const struct actual *actual, const char *ours)
{
    char pattern[ACTUAL_OUR_NAME];
    for (int i = 0; actual_declared(actual, i, pattern); i++)
        if (actual_pattern_is_of(pattern, ours)) return true;
    return false;
}
