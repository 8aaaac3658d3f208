/* schedule_named.c -- one of the schedules that a text has one after another.
 *
 * load.c calls schedule_read_named for FILE:NAME, and course/command_function.c for the schedules of a lesson.  The
 * errors are ERR_FORMAT, ERR_MEMORY and those of schedule_read.
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

/* The length includes the newline; the last line of a text may have none. */
static size_t line_length(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? (size_t)(end - at) + 1 : strlen(at);
}

/* Whether a line is these words, whatever blanks are between them, and maybe a comment. */
static bool line_has(const char *at, size_t n, const char *const *words)
{
    const char *end = memchr(at, '#', n) ? memchr(at, '#', n) : at + n;
    for (; *words; words++) {
        const size_t m = strlen(*words);
        while (at < end && strchr(" \t\r", *at)) at++;
        if ((size_t)(end - at) < m || memcmp(at, *words, m) != 0) return false;
        at += m;
        if (at < end && !strchr(" \t\r\n", *at)) return false;
    }
    while (at < end && strchr(" \t\r\n", *at)) at++;
    return at == end;
}

static bool is_first(const char *at, size_t n)
{
    return line_has(at, n, (const char *const[]){ "orrery", "schedule", "1", NULL });
}

/* Where the schedule of a name is in a text. */
struct named { const char *first; size_t bytes; int line[2], count; };         /* line: of the name, in two of them */

/* named_in finds the schedule with a line `name NAME`, from its first line to the line before the next schedule. */
static struct named named_in(const char *text, const char *name)
{
    struct named found = { .first = NULL };
    const char *first = NULL;
    bool inside = false;                        /* the schedule that has the name */
    int line = 1;
    for (const char *at = text; *at; at += line_length(at), line++) {
        const size_t n = line_length(at);
        /* A new first line ends the previous schedule. */
        if (is_first(at, n)) first = at, inside = false;
        if (first && !inside && line_has(at, n, (const char *const[]){ "name", name, NULL })) {
            if (found.count < 2) found.line[found.count] = line;
            if (found.count++ == 0) found.first = first;
            inside = true;
        }
        /* Only the first schedule of this name grows.  A second schedule is counted and becomes an error. */
        if (inside && found.count == 1) found.bytes = (size_t)(at + n - first);
    }
    return found;
}

enum error_code schedule_read_named(struct schedule *schedule, const char *text, const char *name, const char *file,
                                    struct error *err)
{
    const struct named found = named_in(text, name);
    const char *first = found.first;
    const size_t bytes = found.bytes;
    if (first == NULL)
        return fail(err, ERR_FORMAT, "%s: has no schedule with a line \"name %s\"", file, printable(name).text);
    if (found.count > 1)
        return fail(err, ERR_FORMAT, "%s:%d: a second schedule has the name %s, the first is at line %d", file,
                    found.line[1], printable(name).text, found.line[0]);
    /* The schedule is read from a copy of the text that ends with the schedule.  Blanks replace the text before the
     * schedule. */
    const size_t before = (size_t)(first - text);
    char *alone = strndup(text, before + bytes);
    FILE *f = alone ? fmemopen(alone, before + bytes, "r") : NULL;
    enum error_code e = f ? OK : fail(err, ERR_MEMORY, "%s: no memory to read it", file);
    for (size_t i = 0; !e && i < before; i++)           /* lines keep their numbers */
        if (alone[i] != '\n') alone[i] = ' ';
    if (!e) e = schedule_read(schedule, f, file, err);
    if (f) fclose(f);
    free(alone);
    return e;
}
