/* fuzz.h -- a reader and whatever bytes somebody may give it: one source, two programs.
 *
 *     static void try(const uint8_t *data, size_t size) { ... must(x == y, "..."); }
 *     FUZZ_TARGET("schedule")
 *
 * Built as a test (make test), the program gives `try` every file of tests/fuzz/corpus/schedule, and each of them cut
 * short and with bytes changed.  Built with FUZZING defined (make fuzz) it is the entry of libFuzzer, which looks for
 * inputs of its own.  An input that once did harm is kept in the corpus.  Tests in tests/fuzz/ call these functions.
 * No function returns an error code.
 */
#ifndef ORRERY_FUZZ_H
#define ORRERY_FUZZ_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What must hold whatever the input is: a sanitizer, the fuzzer and the shell all understand an abort. */
__attribute__((format(printf, 2, 3)))
static inline void must(bool holds, const char *format, ...)
{
    if (holds) return;
    va_list ap;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

/* A folder for readers that want a path.  It is gone when the program ends. */
static char fuzz_folder[4096];

static inline void fuzz_remove(void)
{
    char path[sizeof fuzz_folder + 300];
    DIR *d = opendir(fuzz_folder);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%.255s", fuzz_folder, e->d_name);
        unlink(path);
    }
    if (d != NULL) closedir(d);
    rmdir(fuzz_folder);
}

static inline const char *fuzz_place(void)
{
    if (fuzz_folder[0] != '\0') return fuzz_folder;
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(fuzz_folder, sizeof fuzz_folder, "%.4000s/orrery-fuzz-XXXXXX", tmp);
    must(mkdtemp(fuzz_folder) != NULL, "%s: cannot be made", fuzz_folder);
    atexit(fuzz_remove);
    return fuzz_folder;
}

/* A path under which these bytes can be read, until another file of this name is made.  Two at a time may be in use. */
static inline const char *as_file_named(const char *name, const uint8_t *data, size_t size)
{
    static char path[2][sizeof fuzz_folder + 300];
    static int turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%.255s", fuzz_place(), name);
    FILE *f = fopen(p, "wb");
    must(f != NULL, "%s: cannot be written", p);
    must(fwrite(data, 1, size, f) == size && fclose(f) == 0, "%s: cannot be written", p);
    return p;
}

static inline const char *as_file(const uint8_t *data, size_t size) { return as_file_named("input", data, size); }

/* The bytes and a NUL, for free(). */
static inline char *as_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    must(text != NULL, "no memory for %zu bytes", size);
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#ifdef FUZZING
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
#define FUZZ_TARGET(name) \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { try(data, size); return 0; }
#else
#include "tests/fuzz/feed.h"
#define FUZZ_TARGET(name) \
    int main(void) { return feed(name, try); }
#endif

#endif
