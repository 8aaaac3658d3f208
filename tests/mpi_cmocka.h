/* mpi_cmocka.h -- cmocka on several devices: one verdict, one copy of the output, no hangs.
 *
 *     static void test_sum(void **state) { ... ASSERT_ALL(x == 6, "x is %d, want 6", x); }
 *     int main(void) { const struct CMUnitTest tests[] = { MPI_TEST(test_sum) }; return MPI_RUN("sums", tests); }
 *
 * ASSERT_ALL is collective: every rank calls it, the lowest rank whose condition is false speaks, and all leave the
 * test together, so the next test still runs.  Never put it under a condition in which ranks differ.
 * Everything that goes wrong on one rank of several alone (a plain assert_*, a crash) ends the whole job at once,
 * because the others are about to wait for a rank that will not come; what that rank had to say is shown.
 * Rank 0 owns the terminal and the XML report.  The exit status is 0 or 1, the same on every rank.
 * The harness talks on a communicator of its own, so a test that stops half-way cannot take its messages.  Tests in
 * tests/ call these functions.
 */
#ifndef ORRERY_MPI_CMOCKA_H
#define ORRERY_MPI_CMOCKA_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include <mpi.h>
#include "emulated_devices/comm/patience.h"

/* Part of cmocka, though not of its header: unlike fail_msg() its text reaches the XML report. */
void cm_print_error(const char *const format, ...);

enum { HARNESS_TEXT = 1024 };

static MPI_Comm harness;
static int test_rank, test_size;
static int own_output = -1, terminal = STDERR_FILENO;       /* where ranks above 0 write, and where they may shout */

/* What the lowest rank with a complaint has to say, on rank 0; and how many complain, on all. */
static int harness_collect(bool complaint, char text[HARNESS_TEXT], int *speaker)
{
    struct { int complains, rank; } mine = { complaint, test_rank }, first;
    int number = 0, flag = complaint;
    MPI_Request request;
    MPI_Iallreduce(&mine, &first, 1, MPI_2INT, MPI_MAXLOC, harness, &request);
    patience_meet(&request);
    if (!first.complains) return 0;
    MPI_Iallreduce(&flag, &number, 1, MPI_INT, MPI_SUM, harness, &request);
    patience_meet(&request);
    MPI_Ibcast(text, HARNESS_TEXT, MPI_CHAR, first.rank, harness, &request);
    patience_meet(&request);
    *speaker = first.rank;
    return number;
}

__attribute__((format(printf, 4, 5)))
static void assert_all(bool holds, const char *file, int line, const char *format, ...)
{
    char text[HARNESS_TEXT] = "";
    int speaker = 0;
    if (!holds) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(text, sizeof text, format, ap);
        va_end(ap);
    }
    const int failed = harness_collect(!holds, text, &speaker);
    if (failed == 0) return;
    if (test_rank != 0) skip();                             /* leave too, quietly */
    unsetenv("CMOCKA_TEST_ABORT");                          /* all know: no need to end the job */
    cm_print_error("device %d (%d of %d fail): %s\n", speaker, failed, test_size, text);
    _fail(file, line);
}
#define ASSERT_ALL(holds, ...) assert_all((holds), __FILE__, __LINE__, __VA_ARGS__)

static int harness_before(void **state)
{
    MPI_Request request;
    (void)state;
    MPI_Ibarrier(harness, &request);
    patience_meet(&request);
    if (test_size > 1) setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failure of one rank aborts, see harness_last_words */
    return 0;
}
#define MPI_TEST(function) cmocka_unit_test_setup(function, harness_before)

/* On SIGABRT: show what this rank alone has written. */
static void harness_last_words(int number)
{
    char text[4096];
    ssize_t n = snprintf(text, sizeof text, "--- device %d gives up:\n", test_rank);
    if (write(terminal, text, (size_t)n) < 0) _exit(1);
    if (own_output >= 0 && lseek(own_output, 0, SEEK_SET) == 0)
        while ((n = read(own_output, text, sizeof text)) > 0 && write(terminal, text, (size_t)n) == n) { }
    signal(number, SIG_DFL);
    raise(number);
}

static void harness_quiet(void)
{
    FILE *file = tmpfile();
    if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    own_output = fileno(file);
    terminal = dup(STDERR_FILENO);
    dup2(own_output, STDOUT_FILENO);
    dup2(own_output, STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    unsetenv("CMOCKA_MESSAGE_OUTPUT");
    unsetenv("CMOCKA_XML_FILE");
}

static int harness_run(const char *name, const struct CMUnitTest *tests, size_t number)
{
    MPI_Request request;
    MPI_Init(NULL, NULL);
    MPI_Comm_idup(MPI_COMM_WORLD, &harness, &request);
    patience_meet(&request);
    MPI_Comm_rank(harness, &test_rank);
    MPI_Comm_size(harness, &test_size);
    signal(SIGABRT, harness_last_words);
    if (test_rank != 0) harness_quiet();
    else if (getenv("CMOCKA_XML_FILE") != NULL) remove(getenv("CMOCKA_XML_FILE"));   /* cmocka would keep the old one */

    int failed = _cmocka_run_group_tests(name, tests, number, NULL, NULL) != 0;
    MPI_Ibcast(&failed, 1, MPI_INT, 0, harness, &request);
    patience_meet(&request);
    MPI_Comm_free(&harness);
    MPI_Finalize();
    return failed;
}
#define MPI_RUN(name, tests) harness_run(name, tests, sizeof(tests) / sizeof((tests)[0]))

#endif
