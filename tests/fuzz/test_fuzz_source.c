/* A text of C from anybody: nothing is found in it, or one line with its number says what.
 * tier: check
 */
#include "emulated_devices/course/compile/source.h"
#include "tests/fuzz/fuzz.h"
#include <ctype.h>

static void try(const uint8_t *data, size_t size)
{
    char why[600] = "";
    char *text = as_text(data, size);
    const bool fine = source_is_fine(text, "ring.h", why, sizeof why);
    must(fine == (why[0] == '\0'), "%s: %s", fine ? "fine" : "refused", why);
    for (const char *at = why; *at; at++) must(*at == '\n' || !iscntrl((unsigned char)*at), "it says byte %d", *at);
    must(fine || strncmp(why, "line ", 5) == 0, "refused without its line: %s", why);
    must(!fine || strstr(text, "#include <stdio.h>") != text, "stdio.h may be included");
    free(text);
}

FUZZ_TARGET("source")
