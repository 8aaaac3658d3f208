/* Files of tokens: what a head must say, which window is sequence n, and that every window comes once.
 * tier: check
 */
#include "ref/numeric/permutation.h"
#include "ref/text/corpus.h"
#include "tests/ref/scratch.h"

enum { S = 7, SEED = 11 };

static void put_tokens(const char *name, int head, int version, int bytes, int count, int said)
{
    const size_t before = head ? 1024 : 0, all = before + (size_t)(count * bytes);
    uint8_t *b = calloc(all + 1, 1);
    assert_non_null(b);
    const int32_t word[3] = { head, version, said };
    for (int i = 0; i < 12 && head; i++) b[i] = (uint8_t)((uint32_t)word[i / 4] >> 8 * (i % 4));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < bytes; k++) b[before + (size_t)(i * bytes + k)] = (uint8_t)((unsigned)(i + 1) >> 8 * k);
    put_file(scratch(name), b, all);
    free(b);
}

static void reads_each_layout(void **state)
{
    (void)state;
    static const struct { int head, version, bytes; } layout[] = {
        { 0, 0, 2 }, { 20240520, 1, 2 }, { 20240801, 7, 4 },
    };
    for (size_t l = 0; l < sizeof layout / sizeof *layout; l++) {
        struct token_file f;
        struct error err;
        put_tokens("a.bin", layout[l].head, layout[l].version, layout[l].bytes, 1000, 1000);
        assert_int_equal(token_file_open(&f, scratch("a.bin"), TOKENS_AS_FOUND, &err), OK);
        assert_int_equal(f.count, 1000);
        assert_int_equal(f.bytes, layout[l].bytes);
        for (int i = 0; i < 1000; i++) assert_int_equal(token_file_get(&f, i), i + 1);
        assert_int_equal(token_file_check(&f, 1001, &err), OK);
        assert_int_equal(token_file_check(&f, 1000, &err), ERR_FORMAT);
        assert_says("vocabulary", err.text, "/a.bin: token 999 is 1000; the model's are 0 to 999");
        assert_int_equal(token_file_find(&f, 500), 499);
        assert_int_equal(token_file_find(&f, 5000), -1);
        token_file_close(&f);
    }
}

/* What our own writer writes. */
static void reads_what_is_written(void **state)
{
    (void)state;
    struct error err;
    struct token_ids ids = { 0 };
    for (int i = 0; i < 300; i++) assert_true(token_ids_add(&ids, i * 200));
    for (int wide = 0; wide < 2; wide++)
        for (const char *const *layout = token_layouts; *layout; layout++) {
            if (wide && strcmp(*layout, "nanogpt") == 0) continue;
            struct token_file f;
            char name[32];
            snprintf(name, sizeof name, "%s.bin", *layout);
            assert_int_equal(token_file_write(scratch(name), *layout, &ids, wide ? 100000 : 60000, &err), OK);
            assert_int_equal(token_file_open(&f, scratch(name), token_width_named(*layout), &err), OK);
            assert_int_equal(f.count, 300);
            for (int i = 0; i < 300; i++) assert_int_equal(token_file_get(&f, i), i * 200);
            token_file_close(&f);
        }
    token_ids_free(&ids);
}

static void refused(const char *name, const char *says)
{
    struct token_file f;
    struct error err;
    assert_int_equal(token_file_open(&f, scratch(name), TOKENS_AS_FOUND, &err), ERR_FORMAT);
    assert_says(name, err.text, says);
    assert_null(f.map);
}

static void refuses_what_is_no_file_of_tokens(void **state)
{
    (void)state;
    static const struct { int head, version, bytes, count, said; const char *says; } bad[] = {
        { 20240521, 1, 2, 100, 100, "has a head with the magic number 20240521; llm.c writes 20240520 or 20240801" },
        { 20240520, 7, 2, 100, 100, "version 7; with 20240520 it must be 1" },
        { 20240801, 1, 4, 100, 100, "version 1; with 20240801 it must be 7" },
        { 20240520, 1, 2, 99, 100, "says 100 tokens of 2 bytes, and 198 bytes follow" },
        { 20240520, 1, 2, 101, 100, "says 100 tokens of 2 bytes, and 202 bytes follow" },
        { 20240801, 7, 4, 0, 0, "says 0 tokens" },
        { 20240520, 1, 2, 2, -1, "says -1 tokens" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_tokens("bad.bin", bad[i].head, bad[i].version, bad[i].bytes, bad[i].count, bad[i].said);
        refused("bad.bin", bad[i].says);
    }
    put_file(scratch("cut.bin"), "\x88\xd8\x34\x01\x01", 5), refused("cut.bin", "ends after 5 bytes, in its head");
    put_file(scratch("odd.bin"), "abc", 3), refused("odd.bin", "has 3 bytes, an odd number");
    put_file(scratch("empty.bin"), "", 0), refused("empty.bin", "is empty");
    put_file(scratch("big.bin"), "\x01\x00\xff\xff", 4);
    struct token_file f;
    struct error err;
    assert_int_equal(token_file_open(&f, scratch("big.bin"), TOKENS_AS_FOUND, &err), OK);
    assert_int_equal(token_file_check(&f, 50257, &err), ERR_FORMAT);
    assert_says("ids", err.text, "token 1 is 65535; the model's are 0 to 50256");
    token_file_close(&f);
}

static void each_item_once(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 3, 4, 5, 16, 17, 100, 1000, 4096, 4097 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int n = sizes[k];
        int *seen = calloc((size_t)n, sizeof *seen), same = 0, still = 0;
        for (int i = 0; i < n; i++) {
            const int64_t x = permutation_item(i, n, 5, 6, 7);
            assert_true(x >= 0 && x < n);
            assert_int_equal(seen[x]++, 0);
            still += x == i, same += x == permutation_item(i, n, 5, 6, 8);
        }
        free(seen);
        if (n >= 100) assert_true(still < 10 && same < 10);      /* of a random order: 1 in the mean */
    }
}

/* Another order would change every run.  The numbers are those of the same rule in Python, with golden/philox.py. */
static void orders_stay_what_they_are(void **state)
{
    (void)state;
    static const int64_t small[8] = { 549, 981, 116, 8, 361, 717, 426, 254 }, large[3] = {
        632712687214, 788330179053, 860824353366,
    };
    for (int i = 0; i < 8; i++) assert_int_equal(permutation_item(i, 1000, 42, 3, 0), small[i]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(permutation_item(i, 1000000000000, (UINT64_C(1) << 63) + 5, (UINT64_C(1) << 40) + 1,
                                          UINT64_C(1) << 35), large[i]);
}

static struct token_file numbers(int32_t *room, int n, int32_t first)
{
    for (int i = 0; i < n; i++) room[i] = first + i;    /* little-endian machines, and others by the reader */
    struct token_ids ids = { .id = malloc((size_t)n * sizeof *room), .count = n };
    assert_non_null(ids.id);
    memcpy(ids.id, room, (size_t)n * sizeof *room);
    struct token_file f;
    token_file_take(&f, "numbers", &ids);
    return f;
}

static void every_window_comes_once(void **state)
{
    (void)state;
    enum { A = 5 * S + 3, B = 9 * S + 1, WINDOWS = 5 + 9 };
    int32_t room[200], in[S], out[S];
    struct token_file file[2] = { numbers(room, A, 0), numbers(room, B, 1000) };
    const struct corpus_part part[2] = { { .file = &file[0], .count = A }, { .file = &file[1], .count = B } };
    struct corpus c;
    struct error err;
    assert_int_equal(corpus_open(&c, part, 2, S, SEED, "training", &err), OK);
    assert_int_equal(c.windows, WINDOWS);
    assert_int_equal(c.period, 1);
    int seen[2][2000] = { { 0 } }, moved = 0;
    for (int n = 0; n < 2 * WINDOWS; n++) {
        corpus_fill(&c, n, 1, in, out);
        assert_int_equal(in[0] % 1000 % S, 0);
        for (int s = 0; s < S; s++) assert_true(in[s] == in[0] + s && out[s] == in[s] + 1);
        assert_int_equal(seen[n / WINDOWS][in[0]]++, 0);
        int32_t later[S], unread[S];
        corpus_fill(&c, (n + WINDOWS) % (2 * WINDOWS), 1, later, unread);
        moved += later[0] != in[0];
    }
    assert_true(moved > WINDOWS);       /* the second time in another order */
    int32_t many[4 * S], labels[4 * S];
    corpus_fill(&c, 3, 4, many, labels);
    for (int i = 0; i < 4; i++) {       /* any part is a part of the whole */
        corpus_fill(&c, 3 + i, 1, in, out);
        assert_memory_equal(many + i * S, in, sizeof in);
        assert_memory_equal(labels + i * S, out, sizeof out);
    }
    corpus_close(&c);
    token_file_close(&file[0]), token_file_close(&file[1]);
}

/* Groups of weight 3, 1 and 2: in each six sequences so many, evenly spaced, and never more than one behind. */
static void shares_are_kept(void **state)
{
    (void)state;
    int32_t room[300];
    struct token_file file[3] = { numbers(room, 300, 0), numbers(room, 60, 1000), numbers(room, 100, 2000) };
    const int share[3] = { 3, 1, 2 };
    struct corpus_part part[3];
    for (int i = 0; i < 3; i++)
        part[i] = (struct corpus_part){ .file = &file[i], .first = 10, .count = file[i].count - 10, .share = share[i] };
    struct corpus c;
    struct error err;
    assert_int_equal(corpus_open(&c, part, 3, S, SEED, "training", &err), OK);
    assert_int_equal(c.period, 6);
    int taken[3] = { 0 };
    for (int n = 0; n < 600; n++) {
        int at;
        const int64_t from = corpus_window(&c, n, &at);
        assert_true(from >= 10 && from + S + 1 <= file[at].count);
        taken[at]++;
        for (int g = 0; g < 3; g++) {
            const double due = (n + 1) * share[g] / 6.0;
            assert_true(taken[g] > due - 1.01 && taken[g] < due + 1.01);
        }
    }
    for (int g = 0; g < 3; g++) assert_int_equal(taken[g], 100 * share[g]);
    corpus_close(&c);
    part[1].count = S;                  /* no label for the last */
    assert_int_equal(corpus_open(&c, part, 3, S, SEED, "training", &err), ERR_USAGE);
    assert_says("short", err.text, "numbers: has 7 tokens for training (of 60), sequences of 7 need at least 8");
    part[1].count = 50, part[0].share = CORPUS_MOST_PERIOD;
    assert_int_equal(corpus_open(&c, part, 3, S, SEED, "training", &err), ERR_USAGE);
    assert_says("shares", err.text, "weights are shares of 65539 sequences; at most 65536");
    for (int i = 0; i < 3; i++) token_file_close(&file[i]);
}

/* A checksum that says whether it is the same file: any token, the count and the width are in it. */
static void checksums_differ(void **state)
{
    (void)state;
    enum { N = 1000 };
    int32_t room[N];
    struct sha256_text sum[4];
    for (int i = 0; i < 4; i++) {
        struct token_file f = numbers(room, i == 1 ? N - 1 : N, i == 2 ? 1 : 0);
        if (i == 3) f.bytes = 2, f.count *= 2;
        struct sha256 h = sha256_begin();
        token_file_digest(&f, &h);
        sum[i] = sha256_end(&h);
        for (int k = 0; k < i; k++) assert_string_not_equal(sum[k].text, sum[i].text);
        token_file_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_each_layout),        cmocka_unit_test(reads_what_is_written),
        cmocka_unit_test(refuses_what_is_no_file_of_tokens), cmocka_unit_test(each_item_once),
        cmocka_unit_test(orders_stay_what_they_are), cmocka_unit_test(every_window_comes_once),
        cmocka_unit_test(shares_are_kept),          cmocka_unit_test(checksums_differ),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
