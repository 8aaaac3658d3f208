/* All warm-ups of the course, without a compiler and without a command: sizes, answers, what wrong answers are told,
 * and how answers may be typed.  `orrery course --prove` tries those that draw a picture, and lines of C.
 */
#include "emulated_devices/course/warmups/warmup.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 60 };                    /* warm-ups of the course */

static struct error err;
#define MUST(call) do { if ((call) != OK) fail_msg("%s", err.text); } while (0)

/* One that needs neither a command nor a compiler. */
static bool is_plain(const struct warmup *w) { return w->run == NULL && w->kind == ASKS_NUMBER; }

static void read_lesson(struct warmups *list, int lesson, uint64_t variant)
{
    err = (struct error){ OK, "" };
    MUST(warmups_read(list, lessons[lesson], variant, &err));
}

static void test_every_lesson_has_some(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; lessons[i]; i++) {
        struct warmups list;
        read_lesson(&list, i, 0);
        if (list.count < 3) fail_msg("%s has %d warm-ups", lessons[i]->folder, list.count);
        for (int k = 0; k < list.count; k++)
            for (int l = 0; l < k; l++) assert_string_not_equal(list.warmup[k].name, list.warmup[l].name);
        count += list.count;
        warmups_free(&list);
    }
    assert_true(count >= LEAST);
}

/* A student of one variant cannot take over the answers of another. */
static void test_answers_differ_between_variants(void **state)
{
    (void)state;
    const uint64_t variants = tier_now() == TIER_VERIFY ? 200 : 12;
    for (int i = 0; lessons[i]; i++) {
        struct warmups list;
        read_lesson(&list, i, 0);
        const int count = list.count;
        warmups_free(&list);
        for (int k = 0; k < count; k++) {
            double first = 0;
            bool differ = false, plain = true;
            for (uint64_t v = 0; v < variants && plain; v++) {
                struct question p;
                read_lesson(&list, i, v);
                plain = is_plain(&list.warmup[k]);
                if (plain) {
                    MUST(warmup_pose(&p, &list.warmup[k], v, &err));
                    if (v == 0) first = p.right;
                    differ |= p.right != first;
                    question_free(&p);
                }
                warmups_free(&list);
            }
            if (plain && !differ) fail_msg("%s.%d: the answer is %g in all variants", lessons[i]->folder, k + 1, first);
        }
    }
}

static void must_tell(const struct question *p, const char *answer, enum reply_kind kind, const char *text)
{
    struct reply reply;
    MUST(warmup_answer(p, answer, &reply, &err));
    if (reply.kind != kind || strcmp(reply.text, text) != 0)
        fail_msg("%s of %s: \"%s\" is told \"%s\" (%d), and should be told \"%s\"", p->warmup->name,
                 p->warmup->lesson->folder, answer, reply.text, (int)reply.kind, text);
}

/* Sizes are drawn until no wrong answer is right. */
static void test_wrong_answers_are_told_apart(void **state)
{
    (void)state;
    for (int i = 0; lessons[i]; i++)
        for (uint64_t v = 0; v < (tier_now() == TIER_VERIFY ? 200 : 12); v++) {
            struct warmups list;
            read_lesson(&list, i, v);
            for (int k = 0; k < list.count; k++) {
                struct question p;
                if (!is_plain(&list.warmup[k])) continue;
                MUST(warmup_pose(&p, &list.warmup[k], v, &err));
                for (const struct warmup_wrong *w = list.warmup[k].wrong; w->answer; w++) {
                    struct formula_number n;
                    char answer[40], *means = warmup_text(&p, w->means, &err);
                    MUST(formula_compute(&p.scope, w->answer, &n, &err));
                    snprintf(answer, sizeof answer, "%.12g", n.value);
                    must_tell(&p, answer, REPLY_WRONG, means);
                    free(means);
                }
                question_free(&p);
            }
            warmups_free(&list);
        }
}

/* ---- how an answer may be typed ---------------------------------------------------------------------------------- */

static const struct warmup of_bytes = { .kind = ASKS_NUMBER, .unit = "bytes", .answer = "48", .name = "some",
                                        .wrong = { { "12", "numbers, {n token}" } } };

static struct question pose_some(const struct warmup *w, double right)
{
    struct question p = { .warmup = w, .right = right };
    MUST(formula_set(&p.scope, "n", 12, true, &err));
    MUST(formula_set(&p.scope, "W", 3, true, &err));
    return p;
}

static void test_numbers_and_units(void **state)
{
    (void)state;
    const struct question p = pose_some(&of_bytes, 3072);
    static const char *const right[] = { "3072", "3072 bytes", "3072 B", "3072bytes", "  3072 byte ", "3 KiB", "3,072",
                                         "3KB", "3.072 KB", "6144/2", "3*1024", "2^10*3", "(1000+24)*3", "3072.",
                                         "3.072e3", "0.0029296875 MiB" };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) must_tell(&p, right[i], REPLY_RIGHT, "");
    must_tell(&p, "12", REPLY_WRONG, "numbers, 12 tokens");
    must_tell(&p, "6144", REPLY_WRONG, "Not yet: it is too large, by a whole factor.  What is in it more than once?");
    must_tell(&p, "1024", REPLY_WRONG, "Not yet: it is too small, by a whole factor.  What is in it too seldom?");
    must_tell(&p, "3073", REPLY_WRONG, "Not yet: it is too large.");
    must_tell(&p, "-3072", REPLY_WRONG, "Not yet.");
    must_tell(&p, "3072 us", REPLY_UNREADABLE, "\"us\": the question asks for bytes.");
    must_tell(&p, "3072 messages", REPLY_UNREADABLE, "\"messages\": the question asks for bytes.");
    must_tell(&p, "", REPLY_UNREADABLE, "An answer is expected.");
    must_tell(&p, "   ", REPLY_UNREADABLE, "An answer is expected.");
    static const char *const none[] = { "abc", "1e999", "1/0", "9^9^9^9", "3072 3072", "n*256", "sum(k,1,2,k)", "--",
                                        "%" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        must_tell(&p, none[i], REPLY_UNREADABLE, "A number is expected, such as 12, 3/4, 0.75 or 2*6.");
    must_tell(&p, "30\t72", REPLY_UNREADABLE, "The answer has characters that are no text.");
    must_tell(&p, "30\x01", REPLY_UNREADABLE, "The answer has characters that are no text.");
    char huge[ANSWER_MOST + 100];
    memset(huge, '1', sizeof huge - 1), huge[sizeof huge - 1] = '\0';
    must_tell(&p, huge, REPLY_UNREADABLE, "The answer is too long.");
    huge[ANSWER_MOST] = '\0';
    must_tell(&p, huge, REPLY_UNREADABLE, "A number is expected, such as 12, 3/4, 0.75 or 2*6.");
}

static void test_parts(void **state)
{
    (void)state;
    const struct warmup part = { .kind = ASKS_NUMBER, .name = "part" }, time = { .kind = ASKS_NUMBER, .unit = "us" };
    const struct question third = pose_some(&part, 1.0 / 3), us = pose_some(&time, 1500);
    static const char *const right[] = { "1/3", "0.333", "0,333", "0.3333", ".334", "2/6", "3^-1" };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) must_tell(&third, right[i], REPLY_RIGHT, "");
    must_tell(&third, "0.3", REPLY_WRONG, "Not yet."), must_tell(&third, "0.34", REPLY_WRONG, "Not yet.");
    must_tell(&third, "1/3 us", REPLY_UNREADABLE, "\"us\": the question asks for a number alone.");
    must_tell(&us, "1.5 ms", REPLY_RIGHT, ""), must_tell(&us, "1500000 ns", REPLY_RIGHT, "");
    must_tell(&us, "1500 \u00b5s", REPLY_RIGHT, ""), must_tell(&us, "0.0015 s", REPLY_RIGHT, "");
    /* A number with another unit is another number. */
    must_tell(&us, "1500 ms", REPLY_WRONG,
              "Not yet: it is too large, by a whole factor.  What is in it more than once?");
}

/* The devices of a sum have no order, and all of them have a sign of their own. */
static void test_words(void **state)
{
    (void)state;
    const struct warmup word = { .kind = ASKS_WORD, .name = "word", .wrong = { { "{W-1}", "only {word}" } } };
    struct question p = pose_some(&word, 0);
    strcpy(p.word, "02");
    static const char *const some[] = { "02", "20", "0 2", "2,0", "0+2", "\"02\"" };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) must_tell(&p, some[i], REPLY_RIGHT, "");
    must_tell(&p, "2", REPLY_WRONG, "only 02"), must_tell(&p, "012", REPLY_WRONG, "Not yet.");
    must_tell(&p, "all", REPLY_WRONG, "Not yet.");
    strcpy(p.word, "*");
    static const char *const all[] = { "*", "all", "ALL", "everything", "012", "210", "0 1 2" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) must_tell(&p, all[i], REPLY_RIGHT, "");
    strcpy(p.word, "F2");
    must_tell(&p, "f2", REPLY_RIGHT, ""), must_tell(&p, "F1", REPLY_WRONG, "Not yet.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_lesson_has_some), cmocka_unit_test(test_answers_differ_between_variants),
        cmocka_unit_test(test_wrong_answers_are_told_apart), cmocka_unit_test(test_numbers_and_units),
        cmocka_unit_test(test_parts), cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
