/* Locks of folders and growing files: a second process is refused, a killed one blocks nobody, numbers of processes are
 * used again, hosts are told apart, and of many that find a void lock one gets it. */
#include "ref/io/lock.h"
#include "tests/ref/scratch.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>

static const struct lock_owner first = { .run = "one" }, second = { .run = "two" };

/* In another process.  @return its exit status: 0 taken and left behind, 1 refused with these words. */
static int take_elsewhere(const char *path, bool folder, const char *words)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        struct lock l;
        struct error err = { OK, "" };
        char void_of[400];
        const enum error_code e = lock_take(&l, path, folder, &second, void_of, sizeof void_of, &err);
        if (e && (e != ERR_FILE || strstr(err.text, words) == NULL)) {
            fprintf(stderr, "it says: %s\n", err.text);
            _exit(2);
        }
        _exit(e ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_refused(const char *path, bool folder, const char *words)
{
    const int how = take_elsewhere(path, folder, words);
    if (how == 0) fail_msg("%s: a second process gets the lock of one that runs", path);
    assert_int_equal(how, 1);
}

static void take_well(struct lock *l, const char *path, bool folder, char *void_of, size_t size)
{
    struct error err;
    if (lock_take(l, path, folder, &first, void_of, size, &err) != OK) fail_msg("not taken: %s", err.text);
}

static void a_second_process_is_refused(void **state)
{
    struct lock l, again;
    char void_of[400];
    struct error err;
    (void)state;
    take_well(&l, scratch("kept"), true, void_of, sizeof void_of);
    assert_string_equal(void_of, "");
    expect_refused(scratch("kept"), true, "run one, process ");
    assert_int_equal(symlink(scratch("kept"), scratch("link")), 0);
    expect_refused(scratch("link"), true, "writes here");
    expect_refused(scratch("kept/../kept/"), true, "writes here");
    assert_int_equal(lock_stands(&l, &err), OK);
    take_well(&again, scratch("kept"), true, void_of, sizeof void_of);          /* the same process: nothing to do */
    lock_release(&again);
    expect_refused(scratch("kept"), true, "writes here");
    lock_release(&l);
    if (access(scratch("kept"), F_OK) == 0) fail_msg("the folder that it has made is left");
    take_well(&l, scratch("log"), false, void_of, sizeof void_of);
    put_text(scratch("log"), "a line\n");
    expect_refused(scratch("log"), false, "writes here");
    lock_release(&l);
    assert_int_equal(scratch_count(".lock"), 0);
    assert_int_equal(scratch_count("log"), 1);
}

static void the_lock_of_a_process_that_has_ended_is_void(void **state)
{
    struct lock l;
    char void_of[400];
    (void)state;
    mkdir(scratch("kept"), 0777);
    assert_int_equal(take_elsewhere(scratch("kept"), true, ""), 0);
    assert_int_equal(access(scratch("kept/.orrery.lock"), F_OK), 0);
    take_well(&l, scratch("kept"), true, void_of, sizeof void_of);
    assert_says("a void lock", void_of, "run two, process |begun ");
    lock_release(&l);
}

/* Take a lock, and put another one in its place, in which a line is changed. */
static void put_changed(const char *path, const char *key, const char *value)
{
    struct lock l;
    char void_of[400], changed[1000], file[300];
    size_t n;
    take_well(&l, path, true, void_of, sizeof void_of);
    snprintf(file, sizeof file, "%.250s/.orrery.lock", path);
    char *text = get_file(file, &n), *at = strstr(text, key);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s %s%s", (int)(at - text), text, key, value, strchr(at, '\n'));
    lock_release(&l);
    put_text(file, changed);
    free(text);
}

static void set_age(const char *path, double seconds)
{
    const struct timespec at = { .tv_sec = time(NULL) - (time_t)seconds };
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ at, at }, 0), 0);
}

static void a_number_that_is_used_again_is_another_process(void **state)
{
    struct lock l;
    char void_of[400];
    (void)state;
    if (access("/proc/self/stat", R_OK) != 0) skip();
    mkdir(scratch("kept"), 0777);
    put_changed(scratch("kept"), "started", "1");
    take_well(&l, scratch("kept"), true, void_of, sizeof void_of);
    assert_says("another start", void_of, "run one, process ");
    lock_release(&l);
}

/* Nobody can look at processes of another host, or of another name space or boot of ours. */
static void another_host_is_void_without_a_sign(void **state)
{
    static const char *const key[] = { "host", "boot", "space" };
    struct lock l;
    char void_of[400];
    (void)state;
    mkdir(scratch("kept"), 0777);
    for (int i = 0; i < 3; i++) {
        put_changed(scratch("kept"), key[i], "elsewhere");
        set_age(scratch("kept/.orrery.lock"), LOCK_VOID - 30);
        expect_refused(scratch("kept"), true, "last seen 4 min");
        expect_refused(scratch("kept"), true, "/.orrery.lock, or wait until");
        set_age(scratch("kept/.orrery.lock"), LOCK_VOID + 30);
        take_well(&l, scratch("kept"), true, void_of, sizeof void_of);
        assert_says(key[i], void_of, "run one, process |last seen ");
        lock_release(&l);
    }
}

static void what_is_no_lock_ages(void **state)
{
    struct lock l;
    char void_of[400];
    (void)state;
    mkdir(scratch("kept"), 0777);
    put_text(scratch("kept/.orrery.lock"), "orrery-lock 1\nrun");
    expect_refused(scratch("kept"), true, "somebody who does not say who");
    set_age(scratch("kept/.orrery.lock"), LOCK_VOID + 30);
    take_well(&l, scratch("kept"), true, void_of, sizeof void_of);
    lock_release(&l);
}

static void who_lost_the_lock_is_told(void **state)
{
    struct lock l;
    char void_of[400];
    struct error err;
    (void)state;
    mkdir(scratch("kept"), 0777);
    take_well(&l, scratch("kept"), true, void_of, sizeof void_of);
    unlink(scratch("kept/.orrery.lock"));
    assert_int_equal(lock_stands(&l, &err), ERR_FILE);
    assert_says("removed", err.text, "this run's lock is no longer there");
    assert_int_equal(take_elsewhere(scratch("kept"), true, ""), 0);
    assert_int_equal(lock_stands(&l, &err), ERR_FILE);
    assert_says("taken", err.text, "but that of run two, process ");
    lock_release(&l);
    assert_int_equal(access(scratch("kept/.orrery.lock"), F_OK), 0);            /* it is another's */
}

/* Pipes and devices are nobody's; what cannot be written into is named by whoever writes. */
static void other_places_are_not_locked(void **state)
{
    struct lock l;
    char void_of[400];
    struct error err;
    (void)state;
    take_well(&l, "-", false, void_of, sizeof void_of), lock_release(&l);
    take_well(&l, "/dev/null", false, void_of, sizeof void_of), lock_release(&l);
    take_well(&l, scratch("no/such/folder"), true, void_of, sizeof void_of), lock_release(&l);
    assert_int_equal(lock_look(scratch("no/such/folder"), true, &err), OK);
    put_text(scratch("file"), "x");
    take_well(&l, scratch("file"), true, void_of, sizeof void_of), lock_release(&l);
    assert_int_equal(scratch_count(""), 3);                     /* "file", ".", ".." */
}

/* All find a void lock, or none; each that gets it says so, and keeps it until all have tried. */
static void of_many_one_gets_it(void **state)
{
    enum { ROUNDS = 200, MANY = 12 };
    (void)state;
    mkdir(scratch("kept"), 0777);
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], told[2], got = 0, ended = 0;
        pid_t child[MANY];
        char word;
        assert_int_equal(pipe(go) | pipe(told), 0);
        if (round % 2 == 0) assert_int_equal(take_elsewhere(scratch("kept"), true, ""), 0);
        for (int i = 0; i < MANY; i++)
            if ((child[i] = fork()) == 0) {
                struct lock l;
                struct error err;
                char void_of[400];
                close(go[1]);
                if (read(go[0], &word, 1) < 0) _exit(1);        /* the end, for all at once */
                word = lock_take(&l, scratch("kept"), true, &second, void_of, sizeof void_of, &err) == OK ? 'y' : 'n';
                if (write(told[1], &word, 1) != 1) _exit(1);
                pause();
            }
        close(go[0]), close(go[1]);
        while (ended < MANY && read(told[0], &word, 1) == 1) ended++, got += word == 'y';
        for (int i = 0; i < MANY; i++) kill(child[i], SIGKILL), waitpid(child[i], NULL, 0);
        close(told[0]), close(told[1]);
        if (got != 1) fail_msg("round %d: %d of %d processes have the lock", round, got, MANY);
        if (round % 2 == 1) unlink(scratch("kept/.orrery.lock"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_process_is_refused, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(the_lock_of_a_process_that_has_ended_is_void, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_number_that_is_used_again_is_another_process, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(another_host_is_void_without_a_sign, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(what_is_no_lock_ages, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(who_lost_the_lock_is_told, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(other_places_are_not_locked, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(of_many_one_gets_it, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
