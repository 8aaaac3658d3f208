/* The lock of a folder, from anybody: it is somebody's, or void, and what is said of it is one plain line.
 * tier: check
 */
#include "ref/io/lock.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    const enum error_code e = (as_file_named(".orrery.lock", data, size), lock_look(fuzz_place(), true, &err));
    must(e == OK || e == ERR_FILE, "a lock is refused with code %d", (int)e);
    must(e == OK || strstr(err.text, ", writes here: ") != NULL, "refused without saying why: %s", err.text);
    for (const char *c = err.text; *c; c++) must((unsigned char)*c >= ' ', "a control character is printed");
}

FUZZ_TARGET("lock")
