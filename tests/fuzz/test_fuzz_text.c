/* A text from anybody: batches of what is long enough are its bytes, each label the byte after its input.
 * tier: check
 */
#include "ref/io/text.h"
#include "tests/fuzz/fuzz.h"

enum { SEQUENCES = 3 };

static void check_batch(const struct text *t, enum text_split split, const uint8_t *data, int64_t S)
{
    int32_t *inputs = malloc((size_t)(SEQUENCES * S) * sizeof *inputs),
            *labels = malloc((size_t)(SEQUENCES * S) * sizeof *labels);
    must(inputs != NULL && labels != NULL, "no memory");
    text_batch(t, split, 7, 3, S, 0, SEQUENCES, inputs, labels);
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const int64_t o = text_offset(t, split, 7, 3, b, S), first = split == TEXT_TRAIN ? 0 : t->train,
                      end = split == TEXT_TRAIN ? t->train : t->count;
        must(o >= first && o + S + 1 <= end, "a sequence from %lld, of a part from %lld to %lld", (long long)o,
             (long long)first, (long long)end);
        for (int64_t s = 0; s < S; s++)
            must(inputs[b * S + s] == data[o + s] && labels[b * S + s] == data[o + s + 1],
                 "other bytes than the text's");
    }
    free(inputs), free(labels);
}

static void try(const uint8_t *data, size_t size)
{
    const char *path = as_file(data, size);
    struct text t;
    struct error err = { 0 };
    if (text_load(&t, &path, 1, &err) != OK) {
        must(err.text[0] != '\0' && size == 0, "%zu bytes are refused: %s", size, err.text);
        return;
    }
    must(t.count == (int64_t)size && memcmp(t.bytes, data, size) == 0 && t.train >= 0 && t.train <= t.count,
         "another text");
    for (int64_t S = 1; S <= 64; S *= 2) {
        if (text_check_length(&t, S, &err) != OK) continue;
        check_batch(&t, TEXT_TRAIN, data, S);
        check_batch(&t, TEXT_VALIDATION, data, S);
    }
    text_free(&t);
}

FUZZ_TARGET("text")
