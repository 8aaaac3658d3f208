/* Files of tokens of every width: as Megatron Core and NumPy have written them (golden/token_files/), with an index
 * that is wrong in one place, and drawn ones: numbers of 16 bits are never taken for wider ones, wider ones always are.
 * tier: check
 */
#include "ref/numeric/philox.h"
#include "ref/text/token_index.h"
#include "tests/ref/scratch.h"
#include "tests/tier.h"
#include <stdbool.h>

enum { COUNT = 500, STEP = 7919, NARROW = 50257, WIDE = 128256, DOCUMENTS = 18 };

static void expect_stored(const char *name, int bytes, int64_t documents, int64_t vocabulary)
{
    struct token_file f;
    struct error err;
    char path[100];
    snprintf(path, sizeof path, "golden/token_files/%s", name);
    if (token_file_open(&f, path, TOKENS_AS_FOUND, &err) != OK) fail_msg("%s", err.text);
    if (f.bytes != bytes || f.count != COUNT || f.documents != documents)
        fail_msg("%s: %lld tokens of %d bytes in %lld documents; it has %d of %d in %lld", name, (long long)f.count,
                 f.bytes, (long long)f.documents, COUNT, bytes, (long long)documents);
    for (int64_t i = 0; i < COUNT; i++)
        if (token_file_get(&f, i) != i * STEP % vocabulary)
            fail_msg("%s: token %lld is %d, not %d", name, (long long)i, (int)token_file_get(&f, i),
                     (int)(i * STEP % vocabulary));
    token_file_close(&f);
}

static void refused_as(const char *path, enum token_width width, const char *says)
{
    struct token_file f;
    struct error err;
    if (token_file_open(&f, path, width, &err) != ERR_FORMAT) fail_msg("%s: is not refused with: %s", path, says);
    if (strstr(err.text, says) == NULL) fail_msg("%s: says %s, not: %s", path, err.text, says);
    assert_null(f.map);
}

static void reads_what_others_write(void **state)
{
    (void)state;
    expect_stored("megatron16.bin", 2, DOCUMENTS, NARROW);
    expect_stored("megatron32.bin", 4, DOCUMENTS, WIDE);
    expect_stored("u16.npy", 2, 0, NARROW);
    expect_stored("i32.npy", 4, 0, WIDE);
    expect_stored("u32.npy", 4, 0, WIDE);
    refused_as("golden/token_files/multimodal.bin", TOKENS_AS_FOUND, "multimodal.idx: has a mode for each sequence");
    refused_as("golden/token_files/i64.npy", TOKENS_AS_FOUND, "is a NumPy array of '<i8'; tokens are");
    refused_as("golden/token_files/matrix.npy", TOKENS_AS_FOUND, "shape (20, 25); tokens have one dimension");
    refused_as("golden/token_files/megatron16.idx", TOKENS_AS_FOUND, "give the file with the tokens, NAME.bin");
    refused_as("golden/token_files/megatron32.bin", TOKENS_U16, ":u16: its index says numbers of 32 bits");
    refused_as("golden/token_files/u16.npy", TOKENS_I32, ":i32: its NumPy head says numbers of 16 bits");
}

/* ---- an index that is wrong -------------------------------------------------------------------------------------- */

enum { CODE_AT = 17, SEQUENCES_AT = 18, BOUNDS_AT = 26, COUNTS_AT = 34 };

/* Write the stored pair again, with a number of the index, of `bytes` bytes, increased, and bytes cut off its end. */
static void put_index(size_t at, int bytes, int64_t add, size_t cut)
{
    size_t n, m;
    char *const tokens = get_file("golden/token_files/megatron32.bin", &n);
    uint8_t *const index = (uint8_t *)get_file("golden/token_files/megatron32.idx", &m);
    int64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (int64_t)index[at + (size_t)i] << 8 * i;
    for (int i = 0; i < bytes; i++) index[at + (size_t)i] = (uint8_t)((uint64_t)(x + add) >> 8 * i);
    put_file(scratch("x.bin"), tokens, n), put_file(scratch("x.idx"), index, m - cut);
    free(tokens), free(index);
}

static int64_t sequences_of_stored(size_t *size)
{
    uint8_t *const index = (uint8_t *)get_file("golden/token_files/megatron32.idx", size);
    const int64_t n = index[SEQUENCES_AT] | index[SEQUENCES_AT + 1] << 8;
    free(index);
    return n;
}

static void refuses_an_index_that_is_wrong(void **state)
{
    (void)state;
    size_t size;
    const int64_t n = sequences_of_stored(&size);
    const size_t places = COUNTS_AT + 4 * (size_t)n, bounds = places + 8 * (size_t)n;
    const struct { size_t at; int bytes; int64_t add; size_t cut; const char *says; } wrong[] = {
        { 0, 1, 1, 0, "x.bin: there is" }, { 9, 8, 1, 0, "x.idx: has version 2; 1 is known" },
        { CODE_AT, 1, 4, 0, "sequence 1 begins at byte 4, and those before it end at 2" },
        { CODE_AT, 1, 1, 0, "of the type int64" },
        { CODE_AT, 1, 3, 0, "of the type float32" }, { CODE_AT, 1, 5, 0, "has the code 9 for the type" },
        { CODE_AT, 1, -4, 0, "has the code 0 for the type" },
        { SEQUENCES_AT, 8, 1, 0, "and has only" }, { SEQUENCES_AT, 8, -1, 0, "bytes more" },
        { SEQUENCES_AT, 8, INT64_MAX / 2, 0, "and has only" }, { BOUNDS_AT, 8, INT64_MIN, 0, "and has only" },
        { BOUNDS_AT, 8, 1, 0, "and has only" }, { BOUNDS_AT, 8, -1, 0, "8 bytes more" },
        { COUNTS_AT, 4, 1, 0, "sequence 1 begins at byte 4, and those before it end at 8" },
        { COUNTS_AT, 4, -2, 0, "sequence 0 has -1 tokens" },
        { places - 4, 4, 1, 0, "x.bin: has 2000 bytes, and its index" },
        { places - 4, 4, -1, 0, "x.bin: has 2000 bytes, and its index" },
        { places, 8, 4, 0, "sequence 0 begins at byte 4, and those before it end at 0" },
        { places + 8, 8, 1, 0, "sequence 1 begins at byte 5" },
        { bounds - 8, 8, INT64_MIN, 0, "begins at byte" },
        { bounds, 8, 1, 0, "document bound 0 is sequence 1; it must be 0" },
        { bounds + 8, 8, 100, 0, "document bound 1 is sequence 101; it must be from 0 to" },
        { size - 8, 8, -1, 0, "its documents have" }, { size - 8, 8, 1, 0, "it must be from" },
        { 0, 0, 0, 1, "and has only" }, { 0, 0, 0, 40, "and has only" }, { 0, 0, 0, size - 33, "in its head of 34" },
        { 0, 0, 0, size - 34, "and has only" }, { 0, 0, 0, size - 3, "which is no index of Megatron" },
    };
    put_index(0, 0, 0, 0);
    struct token_file f;
    struct error err;
    if (token_file_open(&f, scratch("x.bin"), TOKENS_I32, &err) != OK) fail_msg("%s", err.text);
    token_file_close(&f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_index(wrong[i].at, wrong[i].bytes, wrong[i].add, wrong[i].cut);
        refused_as(scratch("x.bin"), TOKENS_AS_FOUND, wrong[i].says);
    }
}

/* Numbers that nobody indexes are read beside another program's .idx only when the user says their width. */
static void a_width_replaces_an_index_of_another_kind(void **state)
{
    (void)state;
    struct token_file f;
    struct error err;
    put_index(0, 1, 1, 0);
    refused_as(scratch("x.bin"), TOKENS_AS_FOUND, "give FILE:u16, FILE:i32 or FILE:u32 to read without it");
    if (token_file_open(&f, scratch("x.bin"), TOKENS_I32, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(f.count, COUNT), assert_int_equal(token_file_get(&f, 1), STEP);
    token_file_close(&f);
}

/* ---- a NumPy head that is wrong ---------------------------------------------------------------------------------- */

static void put_npy(const char *version, const char *dictionary, size_t length, size_t body)
{
    char all[300] = "\x93NUMPY";
    memcpy(all + 6, version, 2);
    all[8] = (char)length, all[9] = (char)(length >> 8);
    snprintf(all + 10, 200, "%s", dictionary);
    put_file(scratch("x.npy"), all, 10 + strlen(dictionary) + body);
}

static void refuses_a_numpy_head_that_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *version, *dictionary; int more; size_t body; const char *says; } wrong[] = {
        { "\1", "{'descr': '<u2', 'shape': (3,), }\n", 0, 5, "says 3 tokens of 2 bytes, and 5" },
        { "\1", "{'descr': '<u2', 'shape': (3,), }\n", 0, 8, "says 3 tokens of 2 bytes, and 8" },
        { "\1", "{'descr': '<u2', 'shape': (0,), }\n", 0, 0, "says 0 tokens" },
        { "\1", "{'descr': '>u2', 'shape': (3,), }\n", 0, 6, "is a NumPy array of '>u2'" },
        { "\1", "{'descr': '<i2', 'shape': (3,), }\n", 0, 6, "is a NumPy array of '<i2'" },
        { "\1", "{'descr': [('a', '<u2')], 'shape': (3,), }\n", 0, 6, "is a NumPy array of [('a'" },
        { "\1", "{'descr': '<u2', 'shape': (), }\n", 0, 2, "shape ()" },
        { "\1", "{'descr': '<u2', 'shape': (-3,), }\n", 0, 6, "shape (-3,)" },
        { "\1", "{'descr': '<u2', 'shape': (3, 1), }\n", 0, 6, "shape (3, 1)" },
        { "\1", "{'descr': '<u2', 'shape': (99999999999999999999,), }\n", 0, 6, "NumPy head says" },
        { "\1", "{'descr': '<u2', }\n", 0, 6, "has no descr or no shape" },
        { "\1", "{'descr': '<u2', 'shape': (3,), }\n", 60000, 6, "ends in its NumPy head, of " },
        { "\4", "{'descr': '<u2', 'shape': (3,), }\n", 0, 6, "has version 4" },
        { "\2", "{'descr': '<u2', 'shape': (3,), }\n", 0, 6, "ends in its NumPy head, of " },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_npy(wrong[i].version, wrong[i].dictionary, strlen(wrong[i].dictionary) + (size_t)wrong[i].more,
                wrong[i].body);
        refused_as(scratch("x.npy"), TOKENS_AS_FOUND, wrong[i].says);
    }
    put_file(scratch("x.npy"), "\1\0\2\0", 4);
    refused_as(scratch("x.npy"), TOKENS_AS_FOUND, "does not begin as");
    put_file(scratch("x.npy"), "\x93NUMPY\1", 7), refused_as(scratch("x.npy"), TOKENS_AS_FOUND, "ends in its NumPy");
}

/* ---- what looks wider -------------------------------------------------------------------------------------------- */

enum { DRAWN_MOST = 1024, STREAM = 5 };

/* Token i of drawn file k: even below its vocabulary, or small ones often, as in texts, where token n comes about half
 * as often as token n / 2. */
static uint32_t drawn_token(uint64_t k, uint64_t i, uint32_t vocabulary, bool skewed)
{
    const double x = random_uniform(k, STREAM, i);
    const double y = skewed ? x * x * x * x : x;
    const uint32_t token = (uint32_t)(y * vocabulary);
    return token < vocabulary ? token : vocabulary - 1;
}

static int64_t put_drawn(uint64_t k, int count, uint32_t vocabulary, bool skewed, int bytes, bool big)
{
    static uint8_t b[DRAWN_MOST * 8];
    int64_t others = 0;
    memset(b, 0, sizeof b);
    for (int i = 0; i < count; i++) {
        const uint32_t token = drawn_token(k, (uint64_t)i, vocabulary, skewed);
        others += token > 0;
        for (int j = 0; j < bytes && j < 4; j++) b[i * bytes + (big ? bytes - 1 - j : j)] = (uint8_t)(token >> 8 * j);
    }
    put_file(scratch("drawn.bin"), b, (size_t)(count * bytes));
    return others;
}

/* With n tokens above 0 a file is refused with the probability 2^-n; those with fewer than 32 are left out. */
static void numbers_of_16_bits_are_never_refused(void **state)
{
    (void)state;
    static const uint32_t vocabulary[] = { 2, 3, 4, 10, 16, 17, 65, 256, 300, 1000, 5000, 32000, 50257, 65500, 65536 };
    enum { KINDS = sizeof vocabulary / sizeof *vocabulary, EACH = 400 };
    for (int k = 0; k < KINDS * EACH * 2; k++) {
        const uint32_t V = vocabulary[k / 2 % KINDS];
        if (!tier_takes(k / 2 / KINDS, 16)) continue;
        const int count = 100 + k % 7 * 130;
        struct token_file f;
        struct error err;
        if (put_drawn((uint64_t)k, count, V, k % 2, 2, false) < 32) continue;
        if (token_file_open(&f, scratch("drawn.bin"), TOKENS_AS_FOUND, &err) != OK)
            fail_msg("file %d, %d tokens of %u, is refused: %s", k, count, V, err.text);
        assert_int_equal(f.count, count);
        token_file_close(&f);
    }
}

static void wider_numbers_are_always_refused(void **state)
{
    (void)state;
    static const uint32_t vocabulary[] = { 2, 3, 10, 65, 256, 5000, 50257, 65536, 100000, 128256, 262144, 1000000 };
    static const struct { int bytes; bool big; const char *says; } kinds[] = {
        { 4, false, "looks like numbers of 32 bits" }, { 4, true, "looks like big-endian numbers of 32 bits" },
        { 8, false, "looks like numbers of" },
    };
    enum { VOCABULARIES = sizeof vocabulary / sizeof *vocabulary, EACH = 20 };
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
        for (int k = 0; k < VOCABULARIES * EACH; k++) {
            const uint32_t V = vocabulary[k % VOCABULARIES];
            if (kinds[n].big && V > 65536) continue;            /* their high halves are not all 0 */
            const int count = (V > 65536 ? 100 : 1) + k % 5 * 200, enough = kinds[n].big ? 8 : 1;
            if (put_drawn((uint64_t)k, count, V, k / VOCABULARIES % 2, kinds[n].bytes, kinds[n].big) < enough)
                continue;
            refused_as(scratch("drawn.bin"), TOKENS_AS_FOUND, kinds[n].says);
        }
}

/* Files with a period of two tokens look wider, and are read when the user says the width. */
static void the_user_has_the_last_word(void **state)
{
    (void)state;
    uint8_t b[400] = { 0 };
    struct token_file f;
    struct error err;
    for (int i = 0; i < 400; i += 4) b[i] = 7;
    put_file(scratch("two.bin"), b, sizeof b);
    refused_as(scratch("two.bin"), TOKENS_AS_FOUND, "for 16 bits give FILE:u16");
    assert_int_equal(token_file_open(&f, scratch("two.bin"), TOKENS_U16, &err), OK);
    assert_true(f.count == 200 && token_file_get(&f, 0) == 7 && token_file_get(&f, 1) == 0);
    token_file_close(&f);
    assert_int_equal(token_file_open(&f, scratch("two.bin"), TOKENS_U32, &err), OK);
    assert_true(f.count == 100 && token_file_get(&f, 1) == 7);
    token_file_close(&f);
    put_file(scratch("six.bin"), b, 6);
    refused_as(scratch("six.bin"), TOKENS_I32, "has 6 bytes, no multiple of 4");
    b[4] = 0, b[0] = 9;
    put_file(scratch("one.bin"), b, 8);                         /* one token above 0, and three that are 0 */
    refused_as(scratch("one.bin"), TOKENS_AS_FOUND, "looks like numbers of 64 bits");
    memset(b, 0, sizeof b);                                     /* the same tokens by either width */
    put_file(scratch("zeros.bin"), b, sizeof b);
    assert_int_equal(token_file_open(&f, scratch("zeros.bin"), TOKENS_AS_FOUND, &err), OK);
    token_file_close(&f);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void megatron_gets_its_index(void **state)
{
    (void)state;
    static const struct { int32_t vocabulary; int bytes; } of[] = { { 65499, 2 }, { 65500, 4 }, { 128256, 4 } };
    struct token_ids ids = { 0 };
    struct error err;
    for (int i = 0; i < 300; i++) assert_true(token_ids_add(&ids, i * 200));
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct token_file f;
        const enum error_code e = token_file_write(scratch("m.bin"), "megatron", &ids, of[k].vocabulary, &err);
        if (e) fail_msg("%s", err.text);
        if (token_file_open(&f, scratch("m.bin"), TOKENS_AS_FOUND, &err) != OK) fail_msg("%s", err.text);
        assert_true(f.bytes == of[k].bytes && f.count == 300 && f.documents == 1);
        for (int i = 0; i < 300; i++) assert_int_equal(token_file_get(&f, i), i * 200);
        token_file_close(&f);
    }
    /* An old index would be read as that of new numbers. */
    if (token_file_write(scratch("m.bin"), "nanogpt", &ids, 60000, &err) != ERR_USAGE)
        fail_msg("m.bin: has new numbers beside the index of others");
    assert_non_null(strstr(err.text, "m.idx, which would be read as this file's; remove"));
    assert_int_equal(token_file_write(scratch("m.dat"), "megatron", &ids, 60000, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "must end with .bin"));
    assert_int_equal(scratch_count("m.dat"), 0);
    token_ids_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_others_write), cmocka_unit_test(refuses_an_index_that_is_wrong),
        cmocka_unit_test(a_width_replaces_an_index_of_another_kind),
        cmocka_unit_test(refuses_a_numpy_head_that_is_wrong), cmocka_unit_test(numbers_of_16_bits_are_never_refused),
        cmocka_unit_test(wider_numbers_are_always_refused), cmocka_unit_test(the_user_has_the_last_word),
        cmocka_unit_test(megatron_gets_its_index),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
