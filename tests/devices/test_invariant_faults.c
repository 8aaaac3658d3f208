/* Every invariant of what plans or adapts has a row in docs/checking/checking.md, and a fault that breaks it.
 *
 *     | `zeppelin` | .. | remap: its sentence | `zeppelin-remainder-to-the-first` |
 *
 * The fault says `breaks: zeppelin remap`, and a check that runs invariants notices it.
 * tier: check
 */
#include "emulated_devices/schemes/scheme.h"
#include "emulated_devices/verify/reference/model_invariants.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] = "docs/checking/checking.md";

static char *read_whole(const char *path)
{
    FILE *const f = fopen(path, "rb");
    if (f == NULL) return NULL;
    size_t room = 1 << 20, n;
    char *const text = malloc(room);
    assert_non_null(text);
    n = fread(text, 1, room - 1, f), text[n] = '\0';
    assert_true(n < room - 1);
    fclose(f);
    return text;
}

/* Whether a line that begins with `key` names the words among those that commas separate. */
static bool says(const char *text, const char *key, const char *words)
{
    for (const char *at = text; (at = strstr(at, key)) != NULL; at++) {
        const char *word = at + strlen(key);
        const size_t end = strcspn(word, "\n");
        for (size_t from = 0; from < end; from += strcspn(word + from, ",\n") + 2)
            if (strcspn(word + from, ",\n") == strlen(words) && strncmp(word + from, words, strlen(words)) == 0)
                return at == text || at[-1] == '\n';
    }
    return false;
}

/* Checks that hold runs and drawn inputs to invariants. */
static bool runs_invariants(const char *fault)
{
    return strstr(fault, "test_adaptation\n") || strstr(fault, "caught by: orrery verify ");
}

/* The row of an invariant, and the fault at its end.  @return whether both are there. */
static bool has_row(const char *text, const struct scheme *scheme, const struct invariant *invariant)
{
    char begin[200], middle[300], fault[200], words[200], path[300];
    snprintf(begin, sizeof begin, "| `%s` |", scheme->name);
    snprintf(middle, sizeof middle, "| %s: %s | `", invariant->name, invariant->sentence);
    snprintf(words, sizeof words, "%s %s", scheme->name, invariant->name);
    for (const char *row = text; (row = strstr(row, begin)) != NULL; row++) {
        const char *const is = strstr(row, middle);
        if (is == NULL || is > row + strcspn(row, "\n")) continue;
        const char *const name = is + strlen(middle);
        snprintf(fault, sizeof fault, "%.*s", (int)strcspn(name, "`\n"), name);
        snprintf(path, sizeof path, "tests/faults/%s.fault", fault);
        char *const file = read_whole(path);
        if (file == NULL) return print_error("%s: there is no %s\n", words, path), false;
        const bool breaks = says(file, "breaks: ", words), runs = runs_invariants(file);
        free(file);
        if (!breaks) print_error("%s: does not say `breaks: %s`\n", path, words);
        if (!runs) print_error("%s: neither test_adaptation nor orrery verify notices it\n", path);
        return breaks && runs;
    }
    print_error("%s has no row `%s` with \"%s: %s\" and a fault\n", page, scheme->name, invariant->name,
                invariant->sentence);
    return false;
}

static int missing_of(const char *text, const struct scheme *scheme)
{
    int missing = 0;
    for (const struct invariant *v = scheme->invariants; v && v->name; v++) missing += !has_row(text, scheme, v);
    return missing;
}

static void test_every_invariant_has_a_fault(void **state)
{
    char *const text = read_whole(page);
    const struct scheme *const others[] = { &placement_by_speed, &router_biases }, *s;
    int missing = 0;
    (void)state;
    assert_non_null(text);
    for (int k = 0; k < SCHEME_KINDS; k++)
        for (int i = 0; (s = scheme_at((enum scheme_kind)k, i)) != NULL; i++) missing += missing_of(text, s);
    for (int i = 0; i < 2; i++) missing += missing_of(text, others[i]);
    free(text);
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_invariant_has_a_fault) };
    return cmocka_run_group_tests_name("invariant faults", tests, NULL, NULL);
}
