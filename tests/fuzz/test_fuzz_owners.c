/* Owners of experts from anybody: what is accepted has only parts that there are, for whole layers.
 * tier: check
 */
#include "emulated_devices/schemes/experts/owners.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct expert_owners o;
    if (expert_owners_read(&o, as_file(data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        must(o.member == NULL, "refused, with memory");
        return;
    }
    must(o.E > 0 && o.L >= 0, "%lld layers of %lld experts", (long long)o.L, (long long)o.E);
    for (int64_t i = 0; i < o.L * o.E; i++) must(o.member[i] >= 0 && o.member[i] < o.parts, "part %d", o.member[i]);
    expert_owners_free(&o);
}

FUZZ_TARGET("owners")
