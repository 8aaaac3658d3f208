/* A batch plan from anybody: what is accepted says of every microbatch where its sequences are, one behind the other.
 * tier: check
 */
#include "emulated_devices/plan/batch_plan.h"
#include "tests/fuzz/fuzz.h"

static void check_step(const struct batch_plan *b, int step)
{
    int64_t next = 0;
    for (int copy = 0; copy < b->copies; copy++)
        for (int m = 0; m < b->micros; m++) next += b->sequences[((int64_t)step * b->copies + copy) * b->micros + m];
    const struct interval last = batch_plan_at(b, step, b->copies - 1, b->micros - 1);
    must(interval_end(last) == next && batch_plan_total(b, step) == next, "step %d has %lld sequences", step,
         (long long)next);
    must(next > 0 && next <= b->most, "step %d has %lld sequences, the most is %lld", step, (long long)next,
         (long long)b->most);
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct batch_plan b;
    char *text = as_text(data, size);
    FILE *f = size > 0 ? fmemopen(text, size, "r") : fopen("/dev/null", "r");
    must(f != NULL, "no file of %zu bytes", size);
    const enum error_code e = batch_plan_read(&b, f, "fuzz", &err);
    fclose(f);
    free(text);
    if (e != OK) {
        must(err.text[0] != '\0' && b.sequences == NULL, "refused without a word, or something is left");
        return;
    }
    for (int s = 0; s < b.steps; s++) check_step(&b, s);
    batch_plan_free(&b);
}

FUZZ_TARGET("batches")
