/* safetensors files that are cut, damaged or forged: each is refused in one line that names the file and the fault. */
#include "ref/numeric/philox.h"
#include "tests/ref/safetensors_model.h"

/* A file of this header, with its length before and `data` zeros after. */
static void put_header(const char *path, const char *header, size_t length, size_t data)
{
    char *bytes = calloc(1, 8 + length + data);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)((uint64_t)length >> (8 * i) & 255);
    memcpy(bytes + 8, header, length);
    put_file(path, bytes, 8 + length + data);
    free(bytes);
}

#define ONE(shape, offsets) "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second) "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" first "}," \
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" second "}}"
#define TEXT(s) s, sizeof s - 1

static const struct { const char *name, *header; size_t length, data; const char *words; } hostile[] = {
    { "not JSON", TEXT("{hello}"), 0, "is not JSON at line 1" },
    { "a list", TEXT("[]"), 0, "the header must begin with {" },
    { "space first", TEXT(" {}"), 0, "the header must begin with {" },
    { "garbage after", TEXT("{} x"), 0, "has something after its end" },
    { "entry is no object", TEXT("{\"a\":3}"), 0, "tensor \"a\" must be an object" },
    { "no dtype", TEXT("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}"), 8, "tensor \"a\" has no \"dtype\"" },
    { "no shape", TEXT("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}"), 8, "tensor \"a\" has no \"shape\"" },
    { "no offsets", TEXT("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}"), 8, "tensor \"a\" has no \"data_offsets\"" },
    { "unknown key", TEXT("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"Shape\":1}}"), 8,
      "tensor \"a\" has an unknown key \"Shape\"" },
    { "dtype is a number", TEXT("{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}"), 8,
      "tensor \"a\" has a \"dtype\" that is not a string" },
    { "unknown dtype", TEXT("{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8,
      "tensor \"a\" has dtype \"f32\", which the format does not know" },
    { "shape is a number", TEXT(ONE("2", "[0,8]")), 8, "tensor \"a\" has a \"shape\" that is not a list" },
    { "negative dimension", TEXT(ONE("[-2]", "[0,8]")), 8, "tensor \"a\" has a \"shape\"|>= 0" },
    { "fractional dimension", TEXT(ONE("[2.5]", "[0,10]")), 10, "tensor \"a\" has a \"shape\"|whole numbers" },
    { "string dimension", TEXT(ONE("[\"2\"]", "[0,8]")), 8, "tensor \"a\" has a \"shape\"" },
    { "dimension above 2^53", TEXT(ONE("[9007199254740993]", "[0,8]")), 8, "tensor \"a\" has a \"shape\"" },
    { "nine dimensions", TEXT(ONE("[1,1,1,1,1,1,1,1,2]", "[0,8]")), 8, "tensor \"a\" has a \"shape\"|at most 8" },
    { "overflowing shape", TEXT(ONE("[4294967296,4294967296]", "[0,0]")), 0,
      "tensor \"a\" has a shape whose size overflows" },
    { "overflowing bytes", TEXT(ONE("[4503599627370496,1024]", "[0,0]")), 0,
      "tensor \"a\" has a shape whose size overflows" },
    { "one offset", TEXT(ONE("[2]", "[8]")), 8, "tensor \"a\" has \"data_offsets\" that are not two" },
    { "three offsets", TEXT(ONE("[2]", "[0,8,8]")), 8, "tensor \"a\" has \"data_offsets\" that are not two" },
    { "negative offset", TEXT(ONE("[2]", "[-8,0]")), 8, "tensor \"a\" has \"data_offsets\"|>= 0" },
    { "fractional offset", TEXT(ONE("[2]", "[0.5,8.5]")), 9, "tensor \"a\" has \"data_offsets\"|whole" },
    { "offset above 2^53", TEXT(ONE("[2]", "[9007199254740992,9007199254741000]")), 8,
      "tensor \"a\" has \"data_offsets\"" },
    { "infinite offset", TEXT(ONE("[2]", "[0,1e999]")), 8, "tensor \"a\" has \"data_offsets\"" },
    { "end before begin", TEXT(ONE("[2]", "[8,0]")), 8, "tensor \"a\" has data_offsets [8,0], outside the 8 bytes" },
    { "past the end", TEXT(ONE("[2]", "[8,16]")), 8, "tensor \"a\" has data_offsets [8,16], outside the 8 bytes" },
    { "too few bytes", TEXT(ONE("[2]", "[0,4]")), 4, "tensor \"a\" has 4 bytes by data_offsets, 8 by dtype and shape" },
    { "too many bytes", TEXT(ONE("[2]", "[0,12]")), 12, "tensor \"a\" has 12 bytes by data_offsets, 8 by" },
    { "half a byte", TEXT("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}"), 1,
      "tensor \"a\" does not fill whole bytes" },
    { "the same bytes", TEXT(TWO("[0,8]", "[0,8]")), 8, "tensor \"b\" overlaps tensor \"a\"" },
    { "overlap", TEXT(TWO("[0,8]", "[4,12]")), 12, "tensor \"b\" overlaps tensor \"a\"" },
    { "hole between", TEXT(TWO("[0,8]", "[12,20]")), 20, "4 bytes before tensor \"b\" belong to no tensor" },
    { "hole before", TEXT(ONE("[2]", "[4,12]")), 12, "4 bytes before tensor \"a\" belong to no tensor" },
    { "hole after", TEXT(ONE("[2]", "[0,8]")), 11, "the last 3 bytes belong to no tensor" },
    { "data without tensors", TEXT("{}"), 1, "the last 1 bytes belong to no tensor" },
    { "empty tensor inside another", TEXT("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}"), 8, "tensor \"z\" overlaps tensor \"a\"" },
    { "name twice", TEXT("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8, "\"a\" is there twice" },
    { "key twice", TEXT("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8,
      "\"dtype\" is there twice" },
    { "NUL in name", TEXT("{\"a\0b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8,
      "control character" },
    { "escaped NUL in name", TEXT("{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8,
      "has a NUL inside a string" },
    { "not UTF-8", TEXT("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), 8, "is not UTF-8" },
    { "newline in name", TEXT("{\"a\\n[  OK  ]\":3}"), 0, "tensor \"a?[  OK  ]\" must be an object" },
    { "metadata is a list", TEXT("{\"__metadata__\":[]}"), 0, "\"__metadata__\" must be an object" },
    { "metadata of numbers", TEXT("{\"__metadata__\":{\"k\":1}}"), 0, "\"__metadata__\": \"k\" must be a string" },
    { "metadata twice", TEXT("{\"__metadata__\":{},\"__metadata__\":{}}"), 0, "\"__metadata__\" is there twice" },
};

static void assert_refused(const char *name, const char *path, const char *words)
{
    struct safetensors st;
    struct error err = { OK, "" };
    if (safetensors_open(&st, path, &err) != ERR_FORMAT) fail_msg("%s: not refused", name);
    assert_says(name, err.text, "/hostile: ");
    assert_says(name, err.text, words);
    assert_true(st.fd == -1 && st.entry == NULL);
}

static void refuses_hostile_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        put_header(scratch("hostile"), hostile[i].header, hostile[i].length, hostile[i].data);
        assert_refused(hostile[i].name, scratch("hostile"), hostile[i].words);
    }
}

static void refuses_hostile_lengths(void **state)
{
    (void)state;
    static const struct { const char *name, *bytes; size_t length; const char *words; } cases[] = {
        { "empty file", TEXT(""), "has 0 bytes; a safetensors file has at least 10" },
        { "seven bytes", TEXT("\2\0\0\0\0\0\0"), "has 7 bytes" },
        { "no header", TEXT("\0\0\0\0\0\0\0\0{}"), "says its header has 0 bytes; it must be 2 to 100000000" },
        { "past the file", TEXT("\3\0\0\0\0\0\0\0{}"), "says its header has 3 bytes; only 2 follow" },
        { "2^63", TEXT("\0\0\0\0\0\0\0\200{}"), "says its header has 9223372036854775808 bytes" },
        { "2^64 - 1", TEXT("\377\377\377\377\377\377\377\377{}"), "says its header has 18446744073709551615 bytes" },
        { "100 MB and one", TEXT("\001\341\365\005\0\0\0\0{}"), "says its header has 100000001 bytes" },
        { "a PyTorch file", TEXT("PK\003\004\0\0\010\010\0\0"), "not a safetensors file?" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file(scratch("hostile"), cases[i].bytes, cases[i].length);
        assert_refused(cases[i].name, scratch("hostile"), cases[i].words);
    }
}

static void refuses_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    static char header[DEPTH + 8];
    memset(header, '[', sizeof header);
    memcpy(header, "{\"a\":", 5);
    put_header(scratch("hostile"), header, sizeof header, 0);
    assert_refused("deep", scratch("hostile"), "is nested too deeply");
}

static void refuses_every_truncation(void **state)
{
    (void)state;
    size_t n;
    write_model(scratch("model"));
    char *bytes = get_file(scratch("model"), &n);
    for (size_t cut = 0; cut < n; cut++) {
        char name[80];
        snprintf(name, sizeof name, "cut at %zu of %zu", cut, n);
        put_file(scratch("hostile"), bytes, cut);
        assert_refused(name, scratch("hostile"), "");
    }
    free(bytes);
}

static void takes_the_smallest_file(void **state)
{
    (void)state;
    put_header(scratch("small"), TEXT("{}"), 0);
    struct safetensors st = open_good(scratch("small"));
    assert_int_equal(st.count, 0);
    assert_null(safetensors_find(&st, "a"));
    safetensors_close(&st);
}

/* Read all that a file lists.  What is opened must be readable, whatever it is. */
static void read_everything(struct safetensors *st)
{
    struct error err;
    for (int i = 0; i < st->count; i++) {
        const struct safetensors_entry *t = &st->entry[i];
        assert_ptr_equal(safetensors_find(st, t->name), t);
        void *out = malloc((size_t)t->count * sizeof(double) + 1);
        assert_non_null(out);
        if (safetensors_read(st, t, F64, out, &err) != OK) safetensors_read(st, t, I64, out, &err);
        free(out);
    }
}

/* Thousands of damaged copies of a good file, the same ones every time: none may crash, and a refusal is one line that
 * names the file.  Most damage is in the header, a third of it in characters that mean something there. */
static void survives_damage(void **state)
{
    (void)state;
    enum { TRIES = 6000 };
    static const char signs[] = "{}[]\",:0123456789-.eE\\u";
    size_t n;
    int opened = 0;
    write_model(scratch("model"));
    char *good = get_file(scratch("model"), &n);
    struct safetensors st = open_good(scratch("model"));
    const size_t header = (size_t)st.entry[0].offset;
    safetensors_close(&st);
    for (uint32_t i = 0; i < TRIES; i++) {
        char *bytes = malloc(n);
        struct error err = { OK, "" };
        assert_non_null(bytes);
        memcpy(bytes, good, n);
        for (uint32_t flip = 0; flip <= i % 4; flip++) {
            const uint32_t counter[4] = { i, flip, 0, 0 }, key[2] = { 2025, 0 };
            uint32_t w[4];
            philox4x32(counter, key, w);
            const size_t at = w[0] % (w[1] % 8 == 0 ? n : header);
            bytes[at] = w[2] % 3 == 0 ? signs[w[3] % (sizeof signs - 1)] : (char)(bytes[at] ^ (1 << w[3] % 8));
        }
        put_file(scratch("hostile"), bytes, n);
        free(bytes);
        if (safetensors_open(&st, scratch("hostile"), &err) == OK) {
            opened++;
            read_everything(&st);
            safetensors_close(&st);
        } else assert_says("damaged", err.text, "/hostile: ");
    }
    free(good);
    assert_in_range(opened, TRIES / 20, TRIES * 19 / 20);       /* the damage is neither harmless nor always fatal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_hostile_headers),
        cmocka_unit_test(refuses_hostile_lengths),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(takes_the_smallest_file),
        cmocka_unit_test(survives_damage),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
