/* A lesson's source with its marks, and a change to it, from anybody: refused in a line, or texts without marks.  A NUL
 * is between the two.
 * tier: check
 */
#include "emulated_devices/course/annotated.h"
#include "tests/fuzz/fuzz.h"

static const struct lesson lesson = {
    .folder = "99_some", .title = "some", .file = "some.c",
    .vary = { { "RING", 2 }, { "OWNER", 3 } },
};

static void look_at(char *text, const struct error *err)
{
    if (text == NULL)
        must(err->code != OK && err->text[0] != '\0' && strpbrk(err->text, "\n\r\033") == NULL, "refused with: %s",
             err->text);
    free(text);
}

static void try(const uint8_t *data, size_t size)
{
    char *text = as_text(data, size);
    const size_t n = strlen(text);
    const char *change = n < size ? text + n + 1 : "";
    for (int variant = 0; variant < 3; variant++)
        for (int cut = CUT_SKELETON; cut <= CUT_SOLUTION; cut++) {
            struct error err = { OK, "" };
            look_at(annotated_cut(text, (enum cut)cut, &lesson, (uint64_t)variant, &err), &err);
        }
    struct error err = { OK, "" };
    look_at(annotated_change(text, change, &err), &err);
    free(text);
}

FUZZ_TARGET("annotated")
