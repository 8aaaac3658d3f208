/* warmup_progress.c -- what a student's folder remembers of warm-ups, beside the points of lessons.  cli/course/
 * calls these functions.  An entry that is not valid counts as new; a file that cannot be written is ERR_FILE. */
#include "emulated_devices/course/warmups/warmup.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <string.h>

static const char KEY[] = "warm-ups";           /* no lesson's folder has this name */
static const char *const states[] = { "new", "tried", "skipped", "shown", "done" };

struct warmup_key { char text[140]; };

static struct warmup_key key_of(const struct warmup *warmup)
{
    struct warmup_key key;
    snprintf(key.text, sizeof key.text, "%s/%s", warmup->lesson->folder, warmup->name);
    return key;
}

struct warmup_progress warmup_recall(const struct folder *folder, const struct warmup *warmup)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(folder->progress, KEY),
                *of = cJSON_GetObjectItemCaseSensitive(all, key_of(warmup).text);
    struct warmup_progress p = { WARMUP_NEW, 0, 0 };
    int64_t tries = 0, hints = 0;
    const char *state = "";
    if (!cJSON_IsObject(of) || json_int(of, "", "tries", 0, INT32_MAX, &tries, NULL) != OK ||
        json_int(of, "", "hints", 0, WARMUP_HINTS, &hints, NULL) != OK ||
        json_string(of, "", "state", &state, NULL) != OK) return p;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i], state) == 0)
            p = (struct warmup_progress){ (enum warmup_state)i, (int)tries, (int)hints };
    return p;
}

enum error_code warmup_remember(struct folder *folder, const struct warmup *warmup, struct warmup_progress progress,
                                struct error *err)
{
    char path[PATH_MAX];
    cJSON *all = cJSON_GetObjectItemCaseSensitive(folder->progress, KEY);
    if (!cJSON_IsObject(all)) {
        cJSON_DeleteItemFromObjectCaseSensitive(folder->progress, KEY);
        all = cJSON_AddObjectToObject(folder->progress, KEY);
    }
    cJSON *of = json_add(cJSON_CreateObject(), "state %s tries %d hints %d", states[progress.state], progress.tries,
                         progress.hints);
    cJSON_DeleteItemFromObjectCaseSensitive(all, key_of(warmup).text);
    cJSON_AddItemToObject(all, key_of(warmup).text, of);
    snprintf(path, sizeof path, "%s/%s", folder->path, PROGRESS_FILE);
    return json_write(path, folder->progress, err);
}
