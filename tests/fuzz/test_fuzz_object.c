/* An object file from anybody: it is fine, or what must be changed is said in whole lines that a terminal can show.
 * tier: check
 */
#include "emulated_devices/course/compile/object.h"
#include "tests/fuzz/fuzz.h"
#include <ctype.h>

static const char *const may_define[] = { "solve", "solve_twice", NULL };

static void try(const uint8_t *data, size_t size)
{
    char why[1500];
    memset(why, 'x', sizeof why);
    const bool fine = object_is_fine(as_file(data, size), may_define, why, sizeof why);
    must(memchr(why, '\0', sizeof why) != NULL, "what it says has no end");
    must(fine == (why[0] == '\0'), "%s: %s", fine ? "fine" : "refused", why);
    for (const char *at = why; *at; at++) must(*at == '\n' || !iscntrl((unsigned char)*at), "it says byte %d", *at);
}

FUZZ_TARGET("object")
