/* Text data: loading, splitting, and batches that depend only on (seed, step, sequence).
 * tier: check
 */
#include "ref/io/text.h"
#include "tests/ref/scratch.h"

static void put_numbers(const char *path, int n)        /* byte i is i mod 251 */
{
    unsigned char *bytes = malloc((size_t)n + 1);
    assert_non_null(bytes);
    for (int i = 0; i < n; i++) bytes[i] = (unsigned char)(i % 251);
    put_file(path, bytes, (size_t)n);
    free(bytes);
}

static struct text load_numbers(int n)
{
    struct text t;
    struct error err;
    const char *path = scratch("numbers");
    put_numbers(path, n);
    assert_int_equal(text_load(&t, &path, 1, &err), OK);
    return t;
}

static void splits_the_last_tenth(void **state)
{
    (void)state;
    static const struct { int count, train; } cases[] = { { 1, 1 }, { 9, 9 }, { 10, 9 }, { 1000, 900 }, { 1009, 909 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text t = load_numbers(cases[i].count);
        assert_int_equal(t.count, cases[i].count);
        assert_int_equal(t.train, cases[i].train);
        text_free(&t);
    }
}

static void joins_files(void **state)
{
    (void)state;
    struct text t;
    struct error err;
    const char *paths[3] = { scratch("one"), scratch("empty"), scratch("two") };
    put_text(paths[0], "hello ");
    put_text(paths[1], "");
    put_text(paths[2], "world");
    assert_int_equal(text_load(&t, paths, 3, &err), OK);
    assert_int_equal(t.count, 11);
    assert_int_equal(t.files, 3);
    assert_memory_equal(t.bytes, "hello world", 11);
    assert_says("name", t.name, "one and 2 more");
    text_free(&t);
}

static void labels_follow_inputs(void **state)
{
    (void)state;
    enum { S = 16, B = 64 };
    struct text t = load_numbers(5000);
    for (int split = TEXT_TRAIN; split <= TEXT_VALIDATION; split++) {
        int32_t in[B * S], out[B * S];
        const int64_t first = split == TEXT_TRAIN ? 0 : t.train, end = split == TEXT_TRAIN ? t.train : t.count;
        text_batch(&t, (enum text_split)split, 7, 3, S, 0, B, in, out);
        for (int b = 0; b < B; b++) {
            const int64_t o = text_offset(&t, (enum text_split)split, 7, 3, b, S);
            assert_true(o >= first && o + S + 1 <= end);
            for (int s = 0; s < S; s++) {
                assert_int_equal(in[b * S + s], t.bytes[o + s]);
                assert_int_equal(out[b * S + s], t.bytes[o + s + 1]);
            }
        }
    }
    text_free(&t);
}

/* However the batch is cut, sequence b is sequence b. */
static void any_part_is_a_part_of_the_whole(void **state)
{
    (void)state;
    enum { S = 8, B = 12 };
    struct text t = load_numbers(3000);
    int32_t in[B * S], out[B * S], part_in[B * S], part_out[B * S];
    text_batch(&t, TEXT_TRAIN, 1, 5, S, 0, B, in, out);
    for (int b0 = 0; b0 < B; b0++)
        for (int n = 0; b0 + n <= B; n++) {
            memset(part_in, 0xee, sizeof part_in);
            text_batch(&t, TEXT_TRAIN, 1, 5, S, b0, n, part_in, part_out);
            assert_memory_equal(part_in, in + b0 * S, (size_t)(n * S) * sizeof *in);
            assert_memory_equal(part_out, out + b0 * S, (size_t)(n * S) * sizeof *out);
            if (n < B) assert_int_equal(part_in[n * S], (int32_t)0xeeeeeeee);
        }
    text_free(&t);
}

/* Offsets from a second implementation of the rule, in Python.  Another rule would change every published loss. */
static void offsets_stay_what_they_are(void **state)
{
    (void)state;
    static const struct { uint64_t seed; int64_t step, b, train, validation; } golden[] = {
        { UINT64_C(0), 0, 0, 6978, 95712 },
        { UINT64_C(1), 0, 0, 55607, 92036 },
        { UINT64_C(1), 0, 1, 43109, 93617 },
        { UINT64_C(1), 1, 0, 45494, 92431 },
        { UINT64_C(1234), 99, 7, 33164, 95502 },
        { UINT64_C(18446744073709551615), 1000000, 4095, 52094, 93685 },
    };
    struct text t = load_numbers(100000);
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        assert_int_equal(text_offset(&t, TEXT_TRAIN, golden[i].seed, golden[i].step, golden[i].b, 32), golden[i].train);
        assert_int_equal(text_offset(&t, TEXT_VALIDATION, golden[i].seed, golden[i].step, golden[i].b, 32),
                         golden[i].validation);
    }
    text_free(&t);
}

/* The shortest text there may be has two places in the validation split; both are drawn, and so are all of training. */
static void reaches_every_place(void **state)
{
    (void)state;
    enum { S = 8, N = 100 };                            /* 90 and 10 tokens: 82 and 2 places */
    struct text t = load_numbers(N);
    int seen[N] = { 0 };
    assert_int_equal(text_check_length(&t, S, NULL), OK);
    for (int i = 0; i < 2000; i++) {
        seen[text_offset(&t, TEXT_TRAIN, 1, i / 10, i % 10, S)]++;
        seen[text_offset(&t, TEXT_VALIDATION, 1, i / 10, i % 10, S)]++;
    }
    for (int o = 0; o < N; o++) assert_int_equal(seen[o] > 0, o < 82 || o == 90 || o == 91);
    text_free(&t);
}

static void refuses_what_is_too_short(void **state)
{
    (void)state;
    struct error err;
    struct text t = load_numbers(100);
    assert_int_equal(text_check_length(&t, 9, &err), ERR_USAGE);
    assert_says("S = 9", err.text, "numbers: has 10 tokens for validation (of 100), sequences of 9 need at least 11");
    assert_int_equal(text_check_length(&t, 89, &err), ERR_USAGE);
    assert_says("S = 89", err.text, "has 90 tokens for training (of 100), sequences of 89 need at least 91");
    text_free(&t);
}

static void refuses_what_is_no_text(void **state)
{
    (void)state;
    struct text t;
    struct error err;
    const char *missing = scratch("missing"), *folder = scratch_folder, *empty = scratch("empty"), *null = "/dev/null";
    assert_int_equal(text_load(&t, &missing, 1, &err), ERR_FILE);
    assert_says("missing", err.text, "/missing: cannot be opened: No such file or directory");
    assert_null(t.bytes);
    assert_int_equal(text_load(&t, &folder, 1, &err), ERR_FILE);
    assert_says("folder", err.text, "is a folder, a file was expected");
    put_text(empty, "");
    assert_int_equal(text_load(&t, &empty, 1, &err), ERR_FORMAT);
    assert_says("empty", err.text, "/empty: is empty");
    assert_int_equal(text_load(&t, &null, 1, &err), ERR_FILE);
    assert_says("device", err.text, "/dev/null: is a device, a file was expected");
    const char *two[] = { scratch("numbers"), missing };
    put_numbers(two[0], 10);
    assert_int_equal(text_load(&t, two, 2, &err), ERR_FILE);
    assert_says("second", err.text, "/missing: ");
    assert_int_equal(text_load_tree(&t, missing, 100, &err), ERR_FILE);
    assert_says("no tree", err.text, "/missing: cannot be listed: No such file or directory");
}

static void make_folder(const char *name) { assert_int_equal(mkdir(scratch(name), 0755), 0); }

static void reads_a_tree_in_order(void **state)
{
    (void)state;
    struct text t;
    struct error err;
    static const char *const folders[] = { "tree", "tree/src", "tree/build", "tree/build-san", "tree/golden",
                                           "tree/work", "tree/.git", "tree/none" };
    static const struct { const char *name, *text; } files[] = {
        { "tree/src/b.c", "2" }, { "tree/src/a.h", "1" }, { "tree/README.md", "0" }, { "tree/Makefile", "M" },
        { "tree/z.py", "4" }, { "tree/x.sh", "3" }, { "tree/src/data.bin", "X" }, { "tree/.hidden.c", "X" },
        { "tree/build/x.c", "X" }, { "tree/build-san/x.c", "X" }, { "tree/golden/x.c", "X" }, { "tree/work/x.c", "X" },
        { "tree/.git/x.c", "X" }, { "tree/.c", "X" }, { "tree/notMakefile", "X" },
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) make_folder(folders[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) put_text(scratch(files[i].name), files[i].text);
    assert_int_equal(symlink(scratch("tree"), scratch("tree/src/cycle")), 0);
    assert_int_equal(text_load_tree(&t, scratch("tree"), TEXT_TREE_LIMIT, &err), OK);
    assert_int_equal(t.count, 6);
    assert_memory_equal(t.bytes, "M01234", 6);          /* capitals sort first, as strcmp has it */
    text_free(&t);
    assert_int_equal(text_load_tree(&t, scratch("tree"), 3, &err), OK);
    assert_int_equal(t.count, 3);
    assert_memory_equal(t.bytes, "M01", 3);
    text_free(&t);
    assert_int_equal(text_load_tree(&t, scratch("tree/none"), 3, &err), ERR_FORMAT);
    assert_says("no text", err.text, "tree/none: has no *.c");
}

/* A program without its sources, in any folder, has a text. */
static void has_a_text_of_its_own(void **state)
{
    (void)state;
    struct text t;
    struct error err;
    assert_int_equal(text_load_named(&t, NULL, &err), OK);
    assert_true(t.count > 300000 && t.count < 400000);
    assert_int_equal(t.train, t.count - t.count / 10);
    assert_memory_equal(t.bytes, "First Citizen:\nBefore we proceed", 32);
    assert_memory_equal(t.bytes + t.count - 14, "God say amen!\n", 14);
    for (int64_t i = 0; i < t.count; i++) assert_true(t.bytes[i] == '\n' || (t.bytes[i] >= ' ' && t.bytes[i] <= '~'));
    text_free(&t);
    make_folder("named");
    put_text(scratch("named/a.c"), "x");
    assert_int_equal(text_load_named(&t, scratch("named"), &err), OK);
    assert_memory_equal(t.bytes, "x", 1);
    text_free(&t);
    assert_int_equal(text_load_named(&t, scratch("named/a.c"), &err), OK);
    assert_int_equal(t.count, 1);
    text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_the_last_tenth),
        cmocka_unit_test(joins_files),
        cmocka_unit_test(labels_follow_inputs),
        cmocka_unit_test(any_part_is_a_part_of_the_whole),
        cmocka_unit_test(offsets_stay_what_they_are),
        cmocka_unit_test(reaches_every_place),
        cmocka_unit_test(refuses_what_is_too_short),
        cmocka_unit_test(refuses_what_is_no_text),
        cmocka_unit_test(reads_a_tree_in_order),
        cmocka_unit_test(has_a_text_of_its_own),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
