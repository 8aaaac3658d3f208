/* A table of measured times from anybody: one that is accepted has a time for whatever its columns can be asked.
 * tier: check
 */
#include "emulated_devices/serve/plans/profile.h"
#include "tests/fuzz/fuzz.h"

/* Rows, and places between and beyond them, have times that are not negative. */
static void look(struct time_profile *profile, enum profile_list list)
{
    for (int64_t i = 0; i < profile->list[list].rows && i < 8; i++) {
        double key[PROFILE_KEYS];
        for (int k = 0; k < PROFILE_KEYS; k++) key[k] = profile->list[list].row[i].key[k];
        must(profile_seconds(profile, list, key) >= 0, "a row has no time");
        for (int k = 0; k < profile_kinds[list].keys; k++)
            if (!profile_kinds[list].key[k].exact) key[k] = 1.5 * key[k] + 1;
        must(profile_seconds(profile, list, key) >= -1, "a place beyond a row has no number");
    }
}

static void try(const uint8_t *data, size_t size)
{
    static const enum profile_list lists[] = { PROFILE_ALL_REDUCE, PROFILE_GEMM, PROFILE_ATTENTION, PROFILE_DECODE };
    const char *const path = as_file(data, size);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct time_profile profile = { 0 };
        struct error err = { 0 };
        if (profile_read_file(&profile, lists[i], path, i % 2 ? BF16 : F32, &err) == OK) look(&profile, lists[i]);
        else must(err.text[0] != '\0', "refused without a word");
        profile_free(&profile);
    }
}

FUZZ_TARGET("profile")
