/* speech.c -- finds a model's tokenizer, and the tokens that end a text.  speaker.c and cli/train/serve.c call.  Errors
 * are those of tokenizer_open. */
#include "emulated_devices/run/speech.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <unistd.h>

static bool is_folder_of(const char *dir) { return dir != NULL && dir[0] != '\0'; }

enum error_code speech_tokenizer(struct tokenizer **tokenizer, const char *word, const char *dir,
                                 const struct checkpoint *saved, struct error *err)
{
    char own[BUNDLE_PATH + 20];
    const cJSON *of_run = saved->there ? cJSON_GetObjectItemCaseSensitive(saved->run, "--tokenizer") : NULL;
    snprintf(own, sizeof own, "%s/tokenizer.json", is_folder_of(dir) ? dir : "");
    const char *path = word                                          ? word
                       : is_folder_of(dir) && access(own, F_OK) == 0 ? own
                       : cJSON_IsString(of_run)                      ? of_run->valuestring : NULL;
    *tokenizer = NULL;
    return path ? fail_about(err, tokenizer_open(tokenizer, path, err), "--tokenizer") : OK;
}

int speech_stops(const char *dir, int32_t stop[SPEECH_STOPS])
{
    static const char *const file[] = { "generation_config.json", CONFIG_FILE };
    char path[BUNDLE_PATH + 40];
    struct error unread;
    int stops = 0;
    for (int i = 0; i < 2 && is_folder_of(dir) && stops == 0; i++) {
        cJSON *root;
        snprintf(path, sizeof path, "%s/%s", dir, file[i]);
        if (access(path, R_OK) != 0 || json_read(path, &root, &unread)) continue;
        const cJSON *eos = cJSON_GetObjectItemCaseSensitive(root, "eos_token_id");
        const cJSON *one = cJSON_IsArray(eos) ? eos->child : eos;
        for (int64_t id; one && stops < SPEECH_STOPS; one = cJSON_IsArray(eos) ? one->next : NULL)
            if (json_whole(one, &id) && id >= 0 && id <= INT32_MAX) stop[stops++] = (int32_t)id;
        cJSON_Delete(root);
    }
    return stops;
}
