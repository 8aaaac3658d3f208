/* The judge of kernels: it kills every kernel that has a mistake, says so where the mistake is, and lets right ones
 * pass, in every order of threads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "tests/devices/cuda/judged.h"
#include <stdio.h>
#include <string.h>

int judge_reports(void);
const char *judge_report(int);
void judge_forget(void);
void judge_look_for_leaks(void);
void judge_print(bool now);
extern const struct judged right_kernels[];

/* One of several words, with | between. */
static bool says(const char *text, const char *words)
{
    char word[100];
    for (size_t n; *words; words += n + (words[n] == '|')) {
        n = strcspn(words, "|");
        memcpy(word, words, n), word[n] = '\0';
        if (strstr(text, word)) return true;
    }
    return false;
}

static bool killed(const struct judged *k)
{
    judge_forget();
    const bool wrong = k->run() != 0;
    judge_look_for_leaks();
    if (strcmp(k->says, "wrong") == 0) return wrong;
    for (int i = 0; i < judge_reports(); i++)
        if (says(judge_report(i), k->says)) return true;
    return false;
}

static void test_faulty_kernels_are_killed(void **state)
{
    int count = 0, alive = 0;
    (void)state;
    for (const struct judged *k = faulty_kernels; k->name; k++, count++) {
        if (killed(k)) continue;
        alive++;
        print_message("%s: lives; wanted \"%s\"; %d reports\n", k->name, k->says, judge_reports());
        for (int i = 0; i < judge_reports(); i++) print_message("    %s\n", judge_report(i));
    }
    print_message("%d kernels with a mistake, %d killed\n", count, count - alive);
    assert_int_equal(alive, 0);
    assert_true(count >= 40);
}

static int alarms_of(const struct judged *k)
{
    judge_forget();
    const int wrong = k->run();
    if (wrong) print_message("%s: its numbers are wrong\n", k->name);
    for (int i = 0; i < judge_reports(); i++) print_message("%s: %s\n", k->name, judge_report(i));
    return wrong + judge_reports();
}

static void test_right_kernels_pass(void **state)
{
    int count = 0, alarms = 0;
    (void)state;
    for (const struct judged *k = right_kernels; k->name; k++, count++) alarms += alarms_of(k);
    for (const struct judged *k = tricky_kernels; k->name; k++, count++) alarms += alarms_of(k);
    print_message("%d right kernels, %d alarms\n", count, alarms);
    assert_int_equal(alarms, 0);
    assert_true(count >= 20);
}

/* A report names the kernel, both accesses, their lines, blocks and threads. */
static void test_a_report_leads_to_the_line(void **state)
{
    (void)state;
    for (const struct judged *k = faulty_kernels; k->name; k++) {
        if (strcmp(k->name, "prefix sums: write after read") != 0) continue;
        assert_true(killed(k));
        const char *text = judge_report(0);
        assert_true(says(text, "kernel prefix_sums") && says(text, "shared array s, byte"));
        assert_true(says(text, "a read by block (0,0,0) thread ("));
        assert_true(says(text, "a write by block (0,0,0) thread ("));
        const char *line = strstr(text, "faulty.cu:");
        assert_non_null(line);
        assert_non_null(strstr(line + 1, "faulty.cu:"));
        return;
    }
    fail_msg("no such kernel");
}

/* A mask that is wrong for each lane of a warp is one report, not 32. */
static void test_a_wrong_mask_is_said_once(void **state)
{
    (void)state;
    for (const struct judged *k = faulty_kernels; k->name; k++) {
        if (strcmp(k->name, "warp sum: a lane that does not give") != 0) continue;
        judge_forget();
        k->run();
        assert_int_equal(judge_reports(), 1);
        assert_true(says(judge_report(0), k->says));
        return;
    }
    fail_msg("no such kernel");
}

/* What compute-sanitizer said of them on a GPU is of these kernels.  A newer kernel may not be in the table yet. */
static void test_the_measured_table_is_of_these_kernels(void **state)
{
    char line[200], want[200];
    const struct judged *k = faulty_kernels;
    FILE *f = fopen("tests/devices/cuda/sanitized_h200.tsv", "r");
    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));               /* the heads */
    while (fgets(line, sizeof line, f) != NULL) {
        for (; k->name; k++) {
            snprintf(want, sizeof want, "%s\t%s\t", k->name, k->says);
            if (strncmp(line, want, strlen(want)) == 0) break;
        }
        if (k->name == NULL) fail_msg("the table has a kernel that is not here: %s", line);
    }
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_kernels_pass), cmocka_unit_test(test_faulty_kernels_are_killed),
        cmocka_unit_test(test_a_report_leads_to_the_line),
        cmocka_unit_test(test_a_wrong_mask_is_said_once),
        cmocka_unit_test(test_the_measured_table_is_of_these_kernels),
    };
    judge_print(false);
    return cmocka_run_group_tests_name("judge", tests, NULL, NULL) != 0;
}
