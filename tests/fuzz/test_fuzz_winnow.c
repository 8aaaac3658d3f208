/* Students' files as tokens: any bytes are read, and a text has everything in common with itself.
 * tier: check
 *
 * The first byte chooses the language.
 */
#include "emulated_devices/course/class/winnow.h"
#include "tests/fuzz/fuzz.h"

static void hold(const struct winnowed *all)
{
    for (int i = 0; i < all->tokens; i++)
        must(all->line[i] >= 1 && (i == 0 || all->line[i] >= all->line[i - 1]), "token %d is in line %d", i,
             all->line[i]);
    for (int i = 0; i < all->prints; i++) {
        must(all->print[i].token >= 0 && all->print[i].token + WINNOW_TOKENS <= all->tokens, "a sequence past the end");
        must(i == 0 || all->print[i].hash >= all->print[i - 1].hash, "fingerprints are not in order");
    }
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct winnowed text = { 0 }, other = { 0 };
    if (size == 0) return;
    const enum winnow_language language = data[0] & 1 ? WINNOW_PYTHON : WINNOW_C;
    const char *bytes = (const char *)data + 1;
    must(winnow(&text, language, bytes, size - 1, NULL, true, &err) == OK, "refused: %s", err.text);
    hold(&text);
    bool *mark = calloc((size_t)text.tokens + 1, sizeof *mark);
    must(mark != NULL, "no memory");
    const int common = winnow_common(&text, &text, mark);
    must(common == (text.tokens < WINNOW_TOKENS ? 0 : text.tokens), "%d of %d tokens are its own", common, text.tokens);
    must(winnow(&other, language, bytes, size - 1, &text, false, &err) == OK, "refused: %s", err.text);
    must(other.prints == 0, "%d sequences are evidence, though all students had them", other.prints);
    free(mark);
    winnow_free(&text), winnow_free(&other);
}

FUZZ_TARGET("winnow")
