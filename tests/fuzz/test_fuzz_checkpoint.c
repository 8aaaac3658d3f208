/* A checkpoint's small files from anybody: its list of checksums as it is, and a training.json that has the right
 * checksum.
 * tier: check
 */
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

/* Its files, and the list that they need; without the flushing of a real save. */
static void save(const void *training, size_t n)
{
    const struct { const char *name; const void *bytes; size_t n; } file[] = {
        { CONFIG_FILE, "{}", 2 }, { WEIGHTS_FILE, "w", 1 }, { STATES_FILE, "s", 1 }, { TRAINING_FILE, training, n },
        { ORIGIN_FILE, "dp: 2\n", 6 },
    };
    char list[1000];
    int used = snprintf(list, sizeof list, "# %s; `sha256sum -c %s` checks it\n", checkpoint_files.title,
                        checkpoint_files.list);
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        as_file_named(file[i].name, file[i].bytes, file[i].n);
        used += snprintf(list + used, sizeof list - (size_t)used, "%s  %s\n", sha256_of(file[i].bytes, file[i].n).text,
                         file[i].name);
    }
    used += snprintf(list + used, sizeof list - (size_t)used, "# %s of the lines above\n",
                     sha256_of(list, (size_t)used).text);
    as_file_named(CHECKPOINT_LIST, (const uint8_t *)list, (size_t)used);
}

static bool opens(void)
{
    struct checkpoint c;
    struct error err = { 0 };
    if (checkpoint_open(&c, fuzz_place(), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return false;
    }
    must(c.there && c.step >= 0 && cJSON_IsObject(c.run), "accepted without what it must have");
    must(bundle_check(&c.files, CONFIG_FILE, &err) == OK, "%s", err.text);
    checkpoint_close(&c);
    return true;
}

static void try(const uint8_t *data, size_t size)
{
    static const char sound[] = "{ \"step\": 3, \"run\": { \"--lr\": \"0.001\" } }";
    save(data, size);
    opens();
    save(sound, sizeof sound - 1);
    must(opens(), "what is sound is refused");
    as_file_named(CHECKPOINT_LIST, data, size);
    must(!opens(), "a list that is not its files' is accepted");
}

FUZZ_TARGET("checkpoint")
