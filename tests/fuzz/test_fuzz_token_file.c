/* A file of tokens from anybody: what is accepted has as many tokens as its bytes hold, and windows inside of it.
 * tier: check
 */
#include "ref/text/corpus.h"
#include "tests/fuzz/fuzz.h"

enum { S = 3, SEQUENCES = 5, VOCABULARY = 300 };

static void check_windows(const struct token_file *f)
{
    const struct corpus_part part = { .file = f, .count = f->count };
    struct corpus c;
    int32_t in[SEQUENCES * S], out[SEQUENCES * S];
    struct error err = { 0 };
    if (corpus_open(&c, &part, 1, S, 7, "training", &err)) {
        must(f->count <= S && err.text[0] != '\0', "%lld tokens have no window", (long long)f->count);
        return;
    }
    corpus_fill(&c, 2, SEQUENCES, in, out);
    for (int i = 0; i < SEQUENCES * S; i++)
        must(in[i] >= 0 && in[i] < VOCABULARY && out[i] >= 0 && out[i] < VOCABULARY, "token %d is none", i);
    corpus_close(&c);
}

static void try(const uint8_t *data, size_t size)
{
    struct token_file f;
    struct error err = { 0 };
    if (token_file_open(&f, as_file(data, size), TOKENS_AS_FOUND, &err)) {
        must(err.text[0] != '\0' && f.map == NULL, "refused without a word, or it is still mapped");
        return;
    }
    must(f.count >= 1 && f.at >= (uint8_t *)f.map && f.at + f.count * f.bytes <= (uint8_t *)f.map + size,
         "%lld tokens of %d bytes in %zu bytes", (long long)f.count, f.bytes, size);
    if (token_file_check(&f, VOCABULARY, &err) == OK) check_windows(&f);
    token_file_close(&f);
}

FUZZ_TARGET("token_file")
