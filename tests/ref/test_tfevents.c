/* Files of events for TensorBoard: the sums of RFC 3720, and each record taken apart again.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "ref/io/output.h"
#include "ref/io/tfevents.h"

static void sums_are_those_of_the_standard(void **state)
{
    uint8_t b[32];
    (void)state;
    memset(b, 0, sizeof b);
    assert_int_equal(crc32c(b, sizeof b), 0x8a9136aau);
    memset(b, 0xff, sizeof b);
    assert_int_equal(crc32c(b, sizeof b), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) b[i] = (uint8_t)i;
    assert_int_equal(crc32c(b, sizeof b), 0x46dd794eu);
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c("", 0), 0);
}

static uint64_t little(const uint8_t *b, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)b[i] << 8 * i;
    return x;
}

/* As TensorFlow's crc32c.h takes the mask away. */
static uint32_t unmasked(uint32_t m) { return (m - 0xa282ead8u) >> 17 | (m - 0xa282ead8u) << 15; }

/* The record at a place, whose sums must be right.  @return the place of the next. */
static size_t take_record(const uint8_t *file, size_t at, const uint8_t **event, size_t *n)
{
    *n = (size_t)little(file + at, 8);
    *event = file + at + 12;
    assert_int_equal(unmasked((uint32_t)little(file + at + 8, 4)), crc32c(file + at, 8));
    assert_int_equal(unmasked((uint32_t)little(*event + *n, 4)), crc32c(*event, *n));
    return at + 12 + *n + 4;
}

static bool has(const uint8_t *event, size_t n, const void *bytes, size_t count)
{
    for (size_t i = 0; i + count <= n; i++)
        if (memcmp(event + i, bytes, count) == 0) return true;
    return false;
}

static void records_have_what_was_written(void **state)
{
    char place[600];
    struct tfevents t;
    struct error err = { 0 };
    uint8_t file[1000];
    const uint8_t *event;
    size_t n;
    /* loss 1.5 as a float; step 300 as a varint in field 2 */
    static const uint8_t value[] = { 0x0a, 4, 'l', 'o', 's', 's', 0x15, 0, 0, 0xc0, 0x3f }, step[] = { 0x10, 0xac, 2 };
    (void)state;
    snprintf(place, sizeof place, "%s/orrery-test-XXXXXX", temporary_folder());
    assert_non_null(mkdtemp(place));
    assert_int_equal(tfevents_open(&t, place, 7, &err), OK);
    const struct tfscalar s[] = { { "loss", 1.5 }, { "norm", 2 } };
    assert_int_equal(tfevents_write(&t, 300, s, 2, &err), OK);
    tfevents_close(&t);
    FILE *f = fopen(t.path, "rb");
    assert_non_null(f);
    const size_t size = fread(file, 1, sizeof file, f);
    fclose(f);
    size_t at = take_record(file, 0, &event, &n);
    assert_true(has(event, n, "\x1a\x0d" "brain.Event:2", 15));
    at = take_record(file, at, &event, &n);
    assert_true(has(event, n, "\x10\x07", 2) && has(event, n, "\x3a\x02\x08\x01", 4));     /* begins at step 7 */
    at = take_record(file, at, &event, &n);
    assert_true(has(event, n, step, sizeof step) && has(event, n, value, sizeof value));
    assert_int_equal(at, size);
    unlink(t.path), rmdir(place);
}

static void folders_that_cannot_be(void **state)
{
    struct tfevents t;
    struct error err = { 0 };
    (void)state;
    assert_int_equal(tfevents_open(&t, "no/such/folder", 0, &err), ERR_FILE);
    assert_non_null(strstr(err.text, "this folder cannot be made"));
    tfevents_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sums_are_those_of_the_standard),
                                        cmocka_unit_test(records_have_what_was_written),
                                        cmocka_unit_test(folders_that_cannot_be) };
    return cmocka_run_group_tests_name("tfevents", tests, NULL, NULL);
}
