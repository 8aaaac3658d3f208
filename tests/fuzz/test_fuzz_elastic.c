/* The file of --elastic from anybody: one that is accepted has steps that ascend within the run, and a plan for each.
 * tier: check
 */
#include "emulated_devices/cli/train/elastic_words.h"
#include "emulated_devices/run/elastic/elastic.h"
#include "tests/fuzz/fuzz.h"

enum { STEPS = 6 };

static void look(const struct train_options *options)
{
    int64_t before = 0;
    must(options->elastic->count > 0, "accepted without a line");
    for (int i = 0; i < options->elastic->count; i++) {
        const struct elastic_change *const change = &options->elastic->change[i];
        must(change->step > before && change->step < STEPS, "step %lld after step %lld", (long long)change->step,
             (long long)before);
        must(change->options != NULL && change->options->plan.mesh.devices >= 1, "line %d has no plan", change->line);
        before = change->step;
    }
}

static void try(const uint8_t *data, size_t size)
{
    char file[4400];
    snprintf(file, sizeof file, "%s", as_file(data, size));
    char *const words[] = { "--model", "tiny", "--steps", "6", "--batch", "8", "--elastic", file };
    struct train_options o;
    struct error err = { 0 };
    must(train_parse(&o, &run_train, (int)(sizeof words / sizeof *words), (char **)(uintptr_t)words, &err) == OK, "%s",
         err.text);
    if (elastic_read(&o, &run_train, &err) == OK) look(&o);
    else must(err.text[0] != '\0', "refused without a word");
    elastic_free(&o);
    train_options_free(&o);
}

FUZZ_TARGET("elastic")
