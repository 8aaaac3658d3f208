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

static const struct list { const char *file; const struct judged *kernels; } lists[] = {
    { "faulty.cu", faulty_kernels }, { "faulty.cu", right_kernels }, { "tricky.cu", tricky_kernels },
    { "model.cu", model_kernels }, { "memory.cu", memory_kernels }, { "host.cu", host_kernels }, { NULL, NULL },
};

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

/* Lines of a kernel with the word HERE, in the file of its list: from its name to the next kernel. */
static int lines_of(const char *file, const char *name, int lines[])
{
    char path[100], text[400], begin[100];
    bool inside = false;
    int n = 0;
    snprintf(path, sizeof path, "tests/devices/cuda/%s", file);
    snprintf(begin, sizeof begin, "WRONG(%s, ", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int line = 1; fgets(text, sizeof text, f) != NULL; line++) {
        if (strstr(text, "WRONG(") == text || strstr(text, "RIGHT(") == text) inside = strstr(text, begin) == text;
        if (inside && strstr(text, "HERE") != NULL) lines[n++] = line;
    }
    fclose(f);
    return n;
}

/* Whether a report names the lines; of two that conflict, it has to name two. */
static bool names_lines(const char *report, const char *file, const int lines[], int n)
{
    char word[100];
    int named = 0;
    for (int i = 0; i < n; i++) {
        snprintf(word, sizeof word, "%s:%d", file, lines[i]);
        const char *at = strstr(report, word);
        named += at != NULL && (at[strlen(word)] < '0' || at[strlen(word)] > '9');
    }
    return named == (n < 2 ? n : 2);
}

/* A report of a kernel's access names a line of its file; of what the host does, there may be none. */
static bool has_a_line(const char *report, const char *file)
{
    static const char *const with[] = { "race: ", "misaligned: ", "bad mask: ", "divergent barrier: ", "host pointer: ",
                                        "null pointer: ", "after free: ", "read-only: ", "host access: " };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        if (strstr(report, with[i]) == report) return strstr(report, file) != NULL;
    return true;
}

static bool killed(const struct list *l, const struct judged *k)
{
    int lines[16];
    judge_forget();
    const bool wrong = k->run() != 0;
    judge_look_for_leaks();
    if (strcmp(k->says, "wrong") == 0) return wrong;
    const int n = lines_of(l->file, k->name, lines);
    for (int i = 0; i < judge_reports(); i++)
        if (says(judge_report(i), k->says) && has_a_line(judge_report(i), l->file)
            && names_lines(judge_report(i), l->file, lines, n))
            return true;
    return false;
}

static void test_faulty_kernels_are_killed(void **state)
{
    int count = 0, alive = 0;
    (void)state;
    for (const struct list *l = lists; l->file; l++)
        for (const struct judged *k = l->kernels; k->name; k++) {
            if (k->says == NULL || (count++, killed(l, k))) continue;
            alive++;
            print_message("%s: lives; wanted \"%s\"; %d reports\n", k->name, k->says, judge_reports());
            for (int i = 0; i < judge_reports(); i++) print_message("    %s\n", judge_report(i));
        }
    print_message("%d kernels with a mistake, %d killed\n", count, count - alive);
    assert_int_equal(alive, 0);
    assert_true(count >= 120);
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
    for (const struct list *l = lists; l->file; l++)
        for (const struct judged *k = l->kernels; k->name; k++)
            if (k->says == NULL) count++, alarms += alarms_of(k);
    print_message("%d right kernels, %d alarms\n", count, alarms);
    assert_int_equal(alarms, 0);
    assert_true(count >= 60);
}

/* A report names the kernel, both accesses, their lines, blocks and threads. */
static void test_a_report_leads_to_the_line(void **state)
{
    (void)state;
    for (const struct judged *k = faulty_kernels; k->name; k++) {
        if (strcmp(k->name, "prefix sums: write after read") != 0) continue;
        assert_true(killed(&lists[0], k));
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

/* ---- docs/authors/memory_model.md -------------------------------------------------------------------------------- */

static bool is_in(const struct judged *k, const char *name, bool right)
{
    for (; k->name; k++)
        if (strcmp(k->name, name) == 0) return (k->says == NULL) == right;
    return false;
}

/* The n-th word between two ` of a line of the page. */
static bool word_of(const char *line, int n, char word[100])
{
    const char *at = line;
    for (int i = 0; i < 2 * n + 1; i++) {
        at = strchr(at, '`');
        if (at++ == NULL) return false;
    }
    const char *end = strchr(at, '`');
    if (end == NULL || end - at >= 100) return false;
    memcpy(word, at, (size_t)(end - at)), word[end - at] = '\0';
    return true;
}

/* Each row is a sentence, a kernel that is right by it, and one that is wrong; all kernels of model.cu stand there. */
static void test_each_sentence_of_the_memory_model_has_its_kernels(void **state)
{
    char line[600], right[100], wrong[100], seen[8000] = " ";
    int rows = 0, kernels = 0;
    FILE *f = fopen("docs/authors/memory_model.md", "r");
    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        const char *last = strstr(line, " | `");                /* behind the sentence, which may have words of code */
        if (line[0] != '|' || strncmp(line, "|---", 4) == 0 || strstr(line, "| right |") != NULL) continue;
        rows++;
        if (last == NULL || !word_of(last, 0, right) || !word_of(last, 1, wrong)) fail_msg("no two kernels: %s", line);
        if (!is_in(model_kernels, right, true)) fail_msg("%s is no right kernel of model.cu", right);
        if (!is_in(model_kernels, wrong, false)) fail_msg("%s is no wrong kernel of model.cu", wrong);
        strcat(strcat(strcat(strcat(seen, right), " "), wrong), " ");
        assert_true(strlen(seen) < sizeof seen - 200);
    }
    fclose(f);
    for (const struct judged *k = model_kernels; k->name; k++, kernels++) {
        char word[120];
        snprintf(word, sizeof word, " %s ", k->name);
        if (strstr(seen, word) == NULL) fail_msg("%s stands beside no sentence", k->name);
    }
    assert_int_equal(kernels, 2 * rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_kernels_pass), cmocka_unit_test(test_faulty_kernels_are_killed),
        cmocka_unit_test(test_a_report_leads_to_the_line),
        cmocka_unit_test(test_a_wrong_mask_is_said_once),
        cmocka_unit_test(test_the_measured_table_is_of_these_kernels),
        cmocka_unit_test(test_each_sentence_of_the_memory_model_has_its_kernels),
    };
    judge_print(false);
    return cmocka_run_group_tests_name("judge", tests, NULL, NULL) != 0;
}
