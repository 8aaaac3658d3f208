/* Words of --mask from anybody: what is accepted shows every token a key and no later token, and its text is read as
 * the same mask; what is refused is refused in one line.
 * tier: check
 */
#include "ref/model/attention_mask.h"
#include "ref/model/config.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_SAMPLE = 23, RANGE = 2 * ATTENTION_MASK_RANGES };

/* The ranges of every token of a sample: ascending, apart, and none behind the token. */
static void check_ranges(const struct attention_mask *mask, int n)
{
    int32_t sees[MOST_SAMPLE * RANGE];
    double pairs = 0;
    const int ranges = attention_mask_ranges(mask);
    attention_mask_fill(mask, 0, n, sees);
    for (int at = 0; at < n; at++) {
        int keys = 0, end = 0;
        for (int r = 0; r < ranges; r++) {
            const int32_t *const range = sees + (at * ranges + r) * 2;
            must(range[0] >= end && range[1] >= range[0], "token %d of %d sees [%d, %d)", at, n, range[0], range[1]);
            must(range[1] <= at + 1, "token %d of %d sees a later one", at, n);
            keys += range[1] - range[0], end = range[1];
        }
        must(keys > 0, "token %d of %d sees no key", at, n);
        pairs += keys;
    }
    must(pairs == attention_mask_pairs(mask, n), "%g pairs of %d tokens, counted are %g",
         attention_mask_pairs(mask, n), n, pairs);
}

static void check_text(const struct attention_mask *mask)
{
    struct attention_mask again;
    struct error err = { 0 };
    const struct attention_mask_text text = attention_mask_text(mask);
    must(strlen(text.text) + 1 < sizeof text.text, "no room for %s", text.text);
    must(attention_mask_parse(&again, text.text, &err) == OK, "%s is written, and not read: %s", text.text, err.text);
    must(again.kind == mask->kind && again.value[0] == mask->value[0] && again.value[1] == mask->value[1],
         "%s is read as another mask", text.text);
}

static void try(const uint8_t *data, size_t size)
{
    struct attention_mask mask;
    struct error err = { 0 };
    char *const word = as_text(data, size);
    const enum error_code e = attention_mask_parse(&mask, word, &err);
    if (e) must(e == ERR_USAGE && err.text[0] && !strpbrk(err.text, "\n\r\033"), "not refused in one line");
    for (int n = 1; n <= MOST_SAMPLE && !e; n++) check_ranges(&mask, n);
    if (!e) check_text(&mask);
    free(word);
}

FUZZ_TARGET("masks")
