/* A text from any student, for each lesson whose exercise is a text: every check passes it or says why not, in a line.
 * tier: check
 */
#include "emulated_devices/course/lesson.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    static struct judge j;
    char *text = as_text(data, size);
    for (int i = 0; lessons[i]; i++)
        for (const struct check *c = lessons[i]->check;
             lessons[i]->functions == NULL && !lesson_has_kernels(lessons[i]) && c->run; c++)
            for (int hidden = 0; hidden < 2; hidden++) {
                memset(&j, 0, sizeof j);
                j.lesson = lessons[i], j.check = c, j.text = text, j.hidden = hidden, j.seed = 1;
                c->run(&j);
                must(!j.failed || j.said[0] != '\0', "lesson %s, check %s: fails without a word", j.lesson->folder,
                     c->name);
                must(strpbrk(j.said, "\n\r\033") == NULL, "lesson %s, check %s: says more than a line: %s",
                     j.lesson->folder, c->name, j.said);
            }
    free(text);
}

FUZZ_TARGET("lessons")
