/* fuzz.h -- a reader and whatever bytes somebody may give it: one source, two programs.
 *
 *     static void try(const uint8_t *data, size_t size) { ... must(x == y, "..."); }
 *     FUZZ_TARGET("schedule")
 *
 * Built as a test (make test), the program gives `try` every file of tests/fuzz/corpus/schedule, and each of them cut short and
 * with bytes changed.  Built with FUZZING defined (make fuzz) it is the entry of libFuzzer, which looks for inputs of its own.
 * An input that once did harm is kept in the corpus.
 */
#ifndef ORRERY_FUZZ_H
#define ORRERY_FUZZ_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
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

/* A name under which these bytes can be read, for readers that want a path.  The file is gone when the program ends. */
static char fuzz_file[4096];

static inline void fuzz_remove(void) { unlink(fuzz_file); }

static inline const char *as_file(const uint8_t *data, size_t size)
{
    if (fuzz_file[0] == '\0') {
        const char *folder = getenv("TMPDIR");
        snprintf(fuzz_file, sizeof fuzz_file, "%s/orrery-fuzz-%ld", folder != NULL ? folder : "/tmp", (long)getpid());      /* where there is no TMPDIR */
        atexit(fuzz_remove);
    }
    FILE *f = fopen(fuzz_file, "wb");
    must(f != NULL, "%s: cannot be written", fuzz_file);
    must(fwrite(data, 1, size, f) == size && fclose(f) == 0, "%s: cannot be written", fuzz_file);
    return fuzz_file;
}

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
