/* Files that are replaced together: the writer is killed before and during every call that changes the disk, or has no
 * space at that call; several writers at once; every byte of every file changed. */
#include "ref/io/bundle.h"
#include "ref/io/output.h"
#include "tests/ref/scratch.h"
#include <sys/wait.h>

static const struct bundle_kind kind = { .title = "three files",
                                         .list = "list.sha256",
                                         .name = { "one", "two", "three" } };
enum { FILES = 3, MOST_CALLS = 200 };

/* Each version has other bytes, and as many. */
static void text_of(int version, int file, char *text, size_t size)
{
    snprintf(text, size, "version %03d of file %s, and what else there is in it\n", version, kind.name[file]);
}

static enum error_code put(const struct bundle_writer *w, int version, int file, struct error *err)
{
    char path[BUNDLE_PATH], text[100];
    struct output o;
    text_of(version, file, text, sizeof text);
    enum error_code e = output_create(&o, bundle_new_path(w, kind.name[file], path), err);
    if (!e) e = output_write(&o, text, strlen(text), 0, err);
    return e ? e : output_commit(&o, err);
}

static enum error_code save(const char *dir, int version, struct error *err)
{
    struct bundle_writer w;
    enum error_code e = bundle_begin(&w, &kind, dir, err);
    for (int i = 0; i < FILES && !e; i++) e = put(&w, version, i, err);
    if (!e) e = bundle_commit(&w, err);
    bundle_end(&w);
    return e;
}

/* In a process of its own, whose calls are counted from 1.  @return its wait status. */
static int save_with_fault(const char *dir, int version, const char *fault, int call)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        char text[40];
        struct error err;
        snprintf(text, sizeof text, "%s@%d", fault, call);
        if (call) setenv("ORRERY_DISK_FAULT", text, 1);
        _exit(save(dir, version, &err) == OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_saved(const char *dir, int version)
{
    const int status = save_with_fault(dir, version, "", 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("version %d is not saved: status %d", version, status);
}

/* The version that a reader finds, the same in all files; 0: none. */
static int version_in(const char *dir, const char *when)
{
    struct bundle b;
    struct error err;
    bool there;
    int version = 0;
    if (bundle_open(&b, &kind, dir, &there, &err) != OK) fail_msg("%s: %s", when, err.text);
    for (int i = 0; there && i < FILES; i++) {
        char *bytes, want[100];
        size_t n;
        if (bundle_read(&b, kind.name[i], 1000, &bytes, &n, &err) != OK) fail_msg("%s: %s", when, err.text);
        const int found = atoi(bytes + strlen("version "));
        if (i > 0 && found != version)
            fail_msg("%s: file %s has version %d, those before it %d", when, kind.name[i], found, version);
        version = found;
        text_of(version, i, want, sizeof want);
        if (strcmp(want, bytes) != 0) fail_msg("%s: file %s has \"%s\"", when, kind.name[i], bytes);
        free(bytes);
        if (bundle_check(&b, kind.name[i], &err) != OK) fail_msg("%s: %s", when, err.text);
    }
    return version;
}

/* @param before  the version that is there; 0: not even the folder. */
static void killed_everywhere(const char *fault, int before)
{
    char when[80];
    int n = 1, olds = 0, news = 0, status;
    for (;; n++) {
        const char *dir = scratch("kept");
        scratch_remove_all(dir);
        if (before) expect_saved(dir, before);
        status = save_with_fault(dir, 2, fault, n);
        if (WIFEXITED(status)) break;
        snprintf(when, sizeof when, "%s at call %d", fault, n);
        assert_int_equal(WTERMSIG(status), SIGKILL);
        const int found = version_in(dir, when);
        if (found != before && found != 2) fail_msg("%s: version %d is there", when, found);
        olds += found == before, news += found == 2;
        expect_saved(dir, 3);
        assert_int_equal(version_in(dir, when), 3);
        strcpy(scratch_folder, dir);
        const int left = scratch_count(".new") + scratch_count(".tmp");
        *strrchr(scratch_folder, '/') = '\0';
        if (left) fail_msg("%s: the next writer leaves %d files of it", when, left);
        if (n > MOST_CALLS) fail_msg("it does not come to an end");
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    /* A folder; four calls for each file; folder, list, folder, of which the list's last makes the
     * new files count; three names, folder. */
    if (n - 1 != 1 + 4 * FILES + 1 + 4 + 1 + FILES + 1 || olds != 18 || news != 5)
        fail_msg("%s: %d calls, %d of them left the old files, %d the new", fault, n - 1, olds, news);
}

static void a_killed_writer_leaves_old_or_new(void **state) { (void)state; killed_everywhere("kill", 1); }
static void a_killed_first_writer_leaves_nothing_or_all(void **state) { (void)state; killed_everywhere("kill", 0); }
static void a_torn_write_is_not_read(void **state) { (void)state; killed_everywhere("torn", 1); }

/* Where a call fails, the writer says so, and tidies up by itself. */
static void fails_everywhere(const char *fault)
{
    char when[80];
    int n = 1;
    for (; n < MOST_CALLS; n++) {
        const char *dir = scratch("kept");
        scratch_remove_all(dir);
        expect_saved(dir, 1);
        const int status = save_with_fault(dir, 2, fault, n);
        snprintf(when, sizeof when, "%s at call %d", fault, n);
        if (!WIFEXITED(status)) fail_msg("%s: it died", when);
        const int found = version_in(dir, when);
        if (found != 2 && WEXITSTATUS(status) == 0)
            fail_msg("%s: version %d is there, and it says all is well", when, found);
        if (found == 2 && WEXITSTATUS(status) == 0 && n > 25) break;
    }
    if (n < 25 || n == MOST_CALLS) fail_msg("%s: %d calls", fault, n - 1);
}
static void a_full_disk_leaves_the_old_files(void **state)
{
    (void)state;
    fails_everywhere("ENOSPC"), fails_everywhere("EIO");
}

static void writers_take_turns(void **state)
{
    (void)state;
    enum { WRITERS = 4, TIMES = 5 };
    const char *dir = scratch("kept");
    struct error err;
    expect_saved(dir, 1);
    pid_t child[WRITERS];
    for (int c = 0; c < WRITERS; c++) {
        child[c] = fork();
        for (int i = 0; child[c] == 0 && i < TIMES; i++)
            if (save(dir, 10 * (c + 1) + i, &err) != OK) _exit(1);
        if (child[c] == 0) _exit(0);
    }
    for (int i = 0; i < 40; i++) {
        const int lock = bundle_lock_to_read(dir);
        assert_true(lock >= 0);
        version_in(dir, "beside four writers");
        close(lock);
    }
    for (int c = 0; c < WRITERS; c++) {
        int status;
        waitpid(child[c], &status, 0);
        assert_int_equal(status, 0);
    }
    const int last = version_in(dir, "after four writers");
    if (last % 10 != TIMES - 1) fail_msg("version %d is no writer's last", last);
}

/* One bit of each byte, another one from byte to byte. */
static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    static const char *const name[] = { "one", "two", "three", "list.sha256" };
    const char *dir = scratch("kept");
    expect_saved(dir, 1);
    for (int f = 0; f < 4; f++) {
        char path[500];
        size_t n;
        snprintf(path, sizeof path, "%s/%s", dir, name[f]);
        char *bytes = get_file(path, &n);
        for (size_t i = 0; i < n; i++) {
            struct bundle b;
            struct error err = { .code = OK };
            bool there;
            bytes[i] ^= (char)(1 << i % 8);
            put_file(path, bytes, n);
            enum error_code e = bundle_open(&b, &kind, dir, &there, &err);
            for (int k = 0; k < FILES && !e; k++) e = bundle_check(&b, kind.name[k], &err);
            bytes[i] ^= (char)(1 << i % 8);
            if (e != ERR_FORMAT) fail_msg("%s, byte %zu changed: %d %s", name[f], i, (int)e, err.text);
            char words[80];
            snprintf(words, sizeof words, "/%s: |is damaged", name[f]);
            assert_says(name[f], err.text, words);
        }
        put_file(path, bytes, n);
        free(bytes);
    }
    assert_int_equal(version_in(dir, "as it was"), 1);
}

static void checksums_are_those_of_the_standard(void **state)
{
    (void)state;
    static const struct { const char *text, *sum; } known[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };
    for (int i = 0; i < 3; i++) assert_string_equal(sha256_of(known[i].text, strlen(known[i].text)).text, known[i].sum);
    struct sha256 s = sha256_begin();
    for (int i = 0; i < 100000; i++) sha256_add(&s, "aaaaaaaaaa", 10);
    assert_string_equal(sha256_end(&s).text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void what_is_in_the_way_is_named(void **state)
{
    (void)state;
    struct error err;
    put_text(scratch("file"), "x");
    assert_int_equal(save(scratch("file"), 1, &err), ERR_FILE);
    assert_says("a file", err.text, "/file: this folder cannot be made: Not a directory");
    assert_int_equal(save(scratch("no/such"), 1, &err), ERR_FILE);
    assert_says("no folder", err.text, "/no/such: this folder cannot be made: No such file or directory");
    mkdir(scratch("kept"), 0777), mkdir(scratch("kept/two"), 0777);
    assert_int_equal(save(scratch("kept"), 1, &err), ERR_FILE);
    assert_says("a folder", err.text, "/kept/two: cannot be written: it is a folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_those_of_the_standard),
        cmocka_unit_test_setup_teardown(a_killed_writer_leaves_old_or_new, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_killed_first_writer_leaves_nothing_or_all, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_torn_write_is_not_read, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_old_files, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(writers_take_turns, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_found, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(what_is_in_the_way_is_named, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
