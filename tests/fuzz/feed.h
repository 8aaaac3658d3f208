/* feed.h -- a fuzzer's corpus as an ordinary test: what fuzz.h includes where there is no fuzzer.  fuzz.h includes
 * this file where there is no fuzzer.  An input that ends badly or too late fails the test. */
#ifndef ORRERY_FEED_H
#define ORRERY_FEED_H

#include "tests/tier.h"
#include <signal.h>
#include <time.h>

enum { FEED_INPUT_LIMIT = 1 << 16, FEED_CUTS = 64, FEED_CHANGES = 128, FEED_MORE = 32 };
enum { FEED_SECONDS = 5 };              /* of the processor, for one input: what else the machine does is no matter */

static void (*feed_try)(const uint8_t *, size_t);
static const char *feed_folder;
static char feed_input[512];            /* what is being tried */
static timer_t feed_timer;

/* `make verify` has more patience. */
static size_t feed_times(size_t n) { return tier_now() == TIER_VERIFY ? n * FEED_MORE : n; }

static void feed_too_long(int number)
{
    (void)number;
    if (write(STDERR_FILENO, feed_input, strlen(feed_input)) < 0) _exit(1);
    static const char text[] = ", or a change of it: takes more than 5 seconds\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(1);
    abort();
}

static void feed_start_timer(void)
{
    struct sigevent at_end = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
    signal(SIGALRM, feed_too_long);
    must(timer_create(CLOCK_PROCESS_CPUTIME_ID, &at_end, &feed_timer) == 0, "no clock of the processor");
}

static size_t feed_read(const char *name, uint8_t *bytes)
{
    snprintf(feed_input, sizeof feed_input, "tests/fuzz/corpus/%s/%s", feed_folder, name);
    FILE *f = fopen(feed_input, "rb");
    must(f != NULL, "%s: cannot be read", feed_input);
    const size_t n = fread(bytes, 1, FEED_INPUT_LIMIT, f);
    must(fgetc(f) == EOF, "%s: longer than %d bytes", feed_input, FEED_INPUT_LIMIT);
    fclose(f);
    return n;
}

/* Bytes of its own on the heap, so that a sanitizer sees one byte too far. */
static void feed_copy(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    must(copy != NULL, "no memory for %zu bytes", n);
    memcpy(copy, bytes, n);
    const struct itimerspec limit = { .it_value = { .tv_sec = FEED_SECONDS } };
    timer_settime(feed_timer, 0, &limit, NULL);
    feed_try(copy, n);
    free(copy);
}

static void feed_whole(uint8_t *bytes, size_t n) { feed_copy(bytes, n); }

static void feed_cut(uint8_t *bytes, size_t n)
{
    const size_t cuts = feed_times(FEED_CUTS);
    for (size_t i = 0; i < cuts && i < n; i++) feed_copy(bytes, n < cuts ? i : i * n / cuts);
}

/* One byte at a time, all over the input, to what stands somewhere else in it or to its complement. */
static void feed_changed(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < feed_times(FEED_CHANGES) && n > 0; i++) {
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

static inline int feed(const char *folder, void (*try)(const uint8_t *, size_t))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus), cmocka_unit_test(test_corpus_cut_short), cmocka_unit_test(test_corpus_changed),
    };
    feed_folder = folder, feed_try = try;
    feed_start_timer();
    return cmocka_run_group_tests_name(folder, tests, NULL, NULL);
}

#endif
