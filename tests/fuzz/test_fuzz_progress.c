/* A course's two small files from anybody: refused in a line, or each lesson has points and hints that there are, and
 * so has a warm-up.
 * tier: check
 */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/course/warmups/warmup.h"
#include "tests/fuzz/fuzz.h"

static void look_at(const struct folder *f)
{
    must(f->variant <= INT32_MAX, "variant %llu", (unsigned long long)f->variant);
    for (int i = 0; lessons[i]; i++) {
        const struct progress p = folder_progress(f, lessons[i]);
        must(p.of == 10 * lesson_points(lessons[i]) && p.tenths >= 0 && p.tenths <= p.of, "%d of %d tenths", p.tenths,
             p.of);
        must(p.hints >= 0 && p.hints <= CHECK_HINTS, "%d hints", p.hints);
        const struct warmup warmup = { .lesson = lessons[i], .name = "steps" };
        const struct warmup_progress w = warmup_recall(f, &warmup);
        must(w.state >= WARMUP_NEW && w.state <= WARMUP_DONE, "state %d", (int)w.state);
        must(w.hints >= 0 && w.hints <= WARMUP_HINTS && w.tries >= 0, "%d hints of a warm-up", w.hints);
    }
}

/* The input is what is remembered, and what marks the folder if that is all it has. */
static void try(const uint8_t *data, size_t size)
{
    static const char course[] = "{ \"variant\": 7 }";
    for (int both = 0; both < 2; both++) {
        struct error err = { OK, "" };
        struct folder f;
        as_file_named(PROGRESS_FILE, data, size);
        if (both) as_file_named(COURSE_FILE, data, size);
        else as_file_named(COURSE_FILE, (const uint8_t *)course, sizeof course - 1);
        if (folder_open(&f, fuzz_place(), &err) == OK) look_at(&f);
        else must(err.text[0] != '\0' && strpbrk(err.text, "\n\033") == NULL, "refused with: %s", err.text);
        folder_close(&f);
    }
}

FUZZ_TARGET("progress")
