/* An answer to a warm-up from anybody, and a formula: told in plain lines, and nothing is read outside of either.
 * Tabs, line ends and NULs are no text; a formula that is refused leaves its result alone.
 * tier: check
 */
#include "emulated_devices/course/warmups/warmup.h"
#include "tests/fuzz/fuzz.h"
#include <math.h>

static const struct lesson lesson = { .folder = "99_some", .title = "some", .file = "some.c" };

static const struct warmup asked[] = {
    { .lesson = &lesson, .name = "number", .kind = ASKS_NUMBER, .unit = "bytes", .wrong = { { "n", "{n token}" } } },
    { .lesson = &lesson, .name = "part", .kind = ASKS_NUMBER, .unit = "percent" },
    { .lesson = &lesson, .name = "alone", .kind = ASKS_NUMBER },
    { .lesson = &lesson, .name = "word", .kind = ASKS_WORD, .wrong = { { "{n}", "it is not {word}" } } },
};

static void answer(const char *text)
{
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct question p = { .warmup = &asked[i], .right = 48, .word = "012" };
        struct error err = { OK, "" };
        struct reply reply;
        must(formula_set(&p.scope, "n", 12, true, &err) == OK, "n is not set");
        must(formula_set(&p.scope, "W", 3, true, &err) == OK, "W is not set");
        must(warmup_answer(&p, text, &reply, &err) == OK, "an answer is an error: %s", err.text);
        must((reply.kind == REPLY_RIGHT) == (reply.text[0] == '\0'), "told: %s", reply.text);
        must(strpbrk(reply.text, "\n\r\t\033") == NULL, "told with characters of control: %s", reply.text);
    }
}

static void compute(const char *text)
{
    for (int like_c = 0; like_c < 2; like_c++) {
        struct formula_scope s = { .like_c = like_c == 1, .arrays = 1 };
        struct formula_number n = { 42, true };
        struct error err = { OK, "" };
        snprintf(s.array[0].name, FORMULA_NAME, "x");
        s.array[0].count = 3;
        formula_set(&s, "n", 12, true, NULL);
        if (formula_compute(&s, text, &n, &err) == OK) {
            must(isfinite(n.value), "no number: %s", text);
            continue;
        }
        must(n.value == 42 && n.whole, "a refused formula has a value");
        must(err.code == ERR_FORMAT && err.text[0] && strpbrk(err.text, "\n\r\033") == NULL, "refused: %s", err.text);
    }
}

static void try(const uint8_t *data, size_t size)
{
    char *text = as_text(data, size);
    answer(text);
    /* Sums in sums take as long as they say. */
    const char *sum = strstr(text, "sum");
    if (sum == NULL || strstr(sum + 3, "sum") == NULL) compute(text);
    free(text);
}

FUZZ_TARGET("warmup")
