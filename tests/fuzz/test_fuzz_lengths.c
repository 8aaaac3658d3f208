/* Lengths of samples from anybody: what is accepted cuts the text into samples that fit, each in one sequence.
 * tier: check
 */
#include "ref/io/samples.h"
#include "ref/model/sample_mask.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT = 500, S = 40, SEQUENCES = 4 };

static void check_packing(const struct packing *p)
{
    int64_t samples = 0, tokens = 0;
    for (int64_t s = 0; s < p->sequences; s++) {
        int64_t used = 0;
        for (int64_t i = p->first[s]; i < p->first[s + 1]; i++) used += p->length[p->order[i]], samples++;
        must(used > 0 && used <= S, "sequence %lld has %lld tokens", (long long)s, (long long)used);
        tokens += used;
    }
    must(samples == p->samples && tokens == p->tokens && tokens <= TEXT, "%lld samples of %lld tokens",
         (long long)samples, (long long)tokens);
}

static void check_batch(const struct text *t)
{
    int32_t ids[SEQUENCES * S], labels[SEQUENCES * S], within[SEQUENCES * S];
    samples_batch(t, 3, 2, 1, SEQUENCES, ids, labels, within);
    for (int i = 0; i < SEQUENCES * S; i++)
        must(sample_position(within[i]) == 0 ||
             (i % S > 0 && sample_position(within[i]) == sample_position(within[i - 1]) + 1),
             "token %d is number %d of its sample", i, (int)within[i]);
}

static void try(const uint8_t *data, size_t size)
{
    struct text t = { .bytes = malloc(TEXT), .count = TEXT, .train = TEXT };
    struct error err = { 0 };
    must(t.bytes != NULL, "no memory");
    memset(t.bytes, 'x', TEXT);
    const enum error_code e = samples_pack(&t, as_file(data, size), S, 1, &err);
    if (e != OK) must(err.text[0] != '\0' && t.packing.samples == 0, "refused without a word, or something is left");
    else check_packing(&t.packing), check_batch(&t);
    text_free(&t);
}

FUZZ_TARGET("lengths")
