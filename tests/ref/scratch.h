/* scratch.h -- a folder of its own for a test program that needs files.  Tests in tests/ref/ call these functions.
 * No function returns an error code. */
#ifndef TESTS_REF_SCRATCH_H
#define TESTS_REF_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_folder[200];

/* The path of a file there.  Four may be in use at a time. */
static inline const char *scratch(const char *name)
{
    static char path[4][300];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", scratch_folder, name);
    return p;
}

static inline void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void put_text(const char *path, const char *text) { put_file(path, text, strlen(text)); }

/* The file's content, for free(). */
static inline char *get_file(const char *path, size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)st.st_size, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

/* How many names in the folder have this in them: for what must not be left behind. */
static inline int scratch_count(const char *part)
{
    int n = 0;
    DIR *d = opendir(scratch_folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

static inline int scratch_make(void **state)
{
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "%.150s/orrery.XXXXXX", tmp);
    return mkdtemp(scratch_folder) == NULL;
}

static inline int scratch_remove_all(const char *folder)
{
    DIR *d = opendir(folder);
    if (d == NULL) return unlink(folder);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[1000];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%.700s/%.255s", folder, e->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) scratch_remove_all(path);
        else unlink(path);
    }
    closedir(d);
    return rmdir(folder);
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return scratch_remove_all(scratch_folder);
}

/* A message is one line that says all of these words, which are separated by '|'. */
static inline void assert_says(const char *name, const char *message, const char *words)
{
    if (message[0] == '\0' || strchr(message, '\n') != NULL) fail_msg("%s: not one line: \"%s\"", name, message);
    for (const char *w = words; *w != '\0';) {
        char word[200];
        const size_t n = strcspn(w, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, w);
        if (strstr(message, word) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", name, message, word);
        w += n + (w[n] == '|');
    }
}

#endif
