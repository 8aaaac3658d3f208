/* A device's record of a run from anybody: one that is accepted can be judged, whatever its numbers are, and each
 * finding is about devices of the run.
 * tier: check
 */
#include "emulated_devices/check/slow/slow.h"
#include "tests/fuzz/fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16 };

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct slow slow;
    struct recorder of[DEVICES];
    struct records records = { 0, of };
    char text[SLOW_SENTENCE];
    void *const bytes = malloc(size + 1);       /* at an address for any integer */
    memcpy(bytes, data, size);
    if (records_check(bytes, size, "record", &err) != OK) must(err.text[0] != '\0', "refused without a word");
    else if (((struct record_head *)bytes)->size <= DEVICES) {
        /* All devices of the run have the same record. */
        records.size = (int)((struct record_head *)bytes)->size;
        for (int d = 0; d < records.size; d++) of[d].head = bytes, record_place(&of[d]);
        must(slow_judge(&slow, &records, true, &err) == OK, "not judged: %s", err.text);
        for (int i = 0; i < slow.count; i++) {
            const struct slow_finding *const f = &slow.of[i];
            must(f->device >= 0 && f->device < records.size && f->other < records.size, "a finding about device %d",
                 f->device);
            must(slow_sentence(text, &slow, f, &records)[0] != '\0', "a finding without words");
        }
    }
    free(bytes);
}

FUZZ_TARGET("records")
