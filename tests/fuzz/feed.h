/* feed.h -- a fuzzer's corpus as an ordinary test: what fuzz.h includes where there is no fuzzer. */
#ifndef ORRERY_FEED_H
#define ORRERY_FEED_H

#include <dirent.h>

enum { FEED_INPUT_LIMIT = 1 << 16, FEED_CUTS = 64, FEED_CHANGES = 128 };

static void (*feed_try)(const uint8_t *, size_t);
static const char *feed_folder;

static size_t feed_read(const char *name, uint8_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", feed_folder, name);
    FILE *f = fopen(path, "rb");
    must(f != NULL, "%s: cannot be read", path);
    const size_t n = fread(bytes, 1, FEED_INPUT_LIMIT, f);
    must(fgetc(f) == EOF, "%s: longer than %d bytes", path, FEED_INPUT_LIMIT);
    fclose(f);
    return n;
}

/* Bytes of its own on the heap, so that a sanitizer sees one byte too far. */
static void feed_copy(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    must(copy != NULL, "no memory for %zu bytes", n);
    memcpy(copy, bytes, n);
    feed_try(copy, n);
    free(copy);
}

static void feed_whole(uint8_t *bytes, size_t n) { feed_copy(bytes, n); }

static void feed_cut(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < FEED_CUTS && i < n; i++) feed_copy(bytes, n < FEED_CUTS ? i : i * n / FEED_CUTS);
}

/* One byte at a time, all over the input, to what stands somewhere else in it or to its complement. */
static void feed_changed(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < FEED_CHANGES && n > 0; i++) {
        const size_t at = i * 7919 % n;
        const uint8_t was = bytes[at];
        bytes[at] = i % 2 ? (uint8_t)~was : bytes[i * 104729 % n];
        feed_copy(bytes, n);
        bytes[at] = was;
    }
}

static void feed_all(void (*f)(uint8_t *, size_t))
{
    static uint8_t bytes[FEED_INPUT_LIMIT];
    char path[512];
    int inputs = 0;
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s", feed_folder);
    DIR *d = opendir(path);
    must(d != NULL, "%s: no such folder", path);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        f(bytes, feed_read(e->d_name, bytes));
        inputs++;
    }
    closedir(d);
    assert_true(inputs >= 3);
}

static void test_corpus(void **state) { (void)state; feed_all(feed_whole); }
static void test_corpus_cut_short(void **state) { (void)state; feed_all(feed_cut); }
static void test_corpus_changed(void **state) { (void)state; feed_all(feed_changed); }

static int feed(const char *folder, void (*try)(const uint8_t *, size_t))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus), cmocka_unit_test(test_corpus_cut_short), cmocka_unit_test(test_corpus_changed),
    };
    feed_folder = folder, feed_try = try;
    return cmocka_run_group_tests_name(folder, tests, NULL, NULL);
}

#endif
