/* digests.c -- `orrery verify --digests FILE`: a line for each case that trains, to compare two builds by `diff`.
 * cli/verify.c calls verify_write_digests().  Errors: ERR_FILE if the file cannot be written; ERR_MEMORY. */
#include "emulated_devices/verify/jobs/job.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>

static const char *digest_text(const cJSON *digest, const char *name)
{
    const char *const text = cJSON_GetStringValue(cJSON_GetObjectItem(digest, name));
    return text ? text : "-";
}

static void digest_print_names(FILE *file, const cJSON *object)
{
    for (const cJSON *one = object ? object->child : NULL; one; one = one->next) {
        if (cJSON_IsNumber(one) && (int)one->valuedouble == 1) continue;        /* an axis that is not split */
        fputc(' ', file);
        if (cJSON_IsNumber(one)) fprintf(file, "%s=%d", one->string, (int)one->valuedouble);
        else fprintf(file, "%s=%s", one->string, one->valuestring);
    }
}

/* numbers, counters, memory, time; family, scheme, devices, axes, microbatches, chunks, values that are not defaults */
static void digest_print(FILE *file, const cJSON *one, const cJSON *digest)
{
    fprintf(file, "%s %s %s %s  ", digest_text(digest, "numbers"), digest_text(digest, "counters"),
            digest_text(digest, "memory"), digest_text(digest, "time"));
    fprintf(file, "%s %s devices=%d", digest_text(one, "family"), digest_text(one, "scheme"),
            (int)cJSON_GetNumberValue(cJSON_GetObjectItem(one, "devices")));
    digest_print_names(file, cJSON_GetObjectItem(one, "mesh"));
    fprintf(file, " micro=%d chunks=%d", (int)cJSON_GetNumberValue(cJSON_GetObjectItem(one, "micro")),
            (int)cJSON_GetNumberValue(cJSON_GetObjectItem(one, "chunks")));
    digest_print_names(file, cJSON_GetObjectItem(one, "with"));
    fputc('\n', file);
}

enum error_code verify_write_digests(const char *path, const cJSON *cases, struct error *err)
{
    const cJSON *one;
    char *text = NULL;
    size_t length = 0;
    FILE *const file = open_memstream(&text, &length);
    if (file == NULL) return fail(err, ERR_MEMORY, "no memory for the digests");
    fprintf(file, "# numbers counters memory time  case\n");
    cJSON_ArrayForEach(one, cases)
    {
        const cJSON *const digest = cJSON_GetObjectItem(one, "digest");
        if (digest) digest_print(file, one, digest);
    }
    const bool whole = fclose(file) == 0;
    const enum error_code e = whole ? fail_about(err, file_write_all(path, text, length, err), "--digests")
                                    : fail(err, ERR_MEMORY, "no memory for the digests");
    free(text);
    return e;
}
