/* kinds.c -- the list of kinds of plug-ins, and the book that their judges write.  cli/verify_plugin.c and child.c
 * call these functions.  No function returns an error code.
 */
#include "emulated_devices/verify/plugins/laws.h"
#include <stdarg.h>
#include <stdio.h>

/* One line for each kind. */
#define LAW_KINDS(X) X(collective) X(optimizer) X(attention) X(data) X(pipeline) X(tensor) X(experts) X(backend)

#define X(name) extern const struct law_kind law_kind_##name;
LAW_KINDS(X)
#undef X

const struct law_kind *const law_kinds[] = {
#define X(name) &law_kind_##name,
    LAW_KINDS(X)
#undef X
    NULL
};

static const struct law laws_of_all[-LAW_COMPLETE] = {
    [LAW_COMPLETE - LAW_COMPLETE] = { "complete", "it has all that its kind needs, and a name of its own" },
    [LAW_ENDS - LAW_COMPLETE] = { "ends", "it comes to its end: no crash, no deadlock, within its time and memory" },
    [LAW_QUIET - LAW_COMPLETE] = { "quiet", "it prints nothing" },
};

const struct law *law_at(const struct law_kind *kind, int law)
{
    if (law < 0) return &laws_of_all[law - LAW_COMPLETE];
    return kind->laws[law].name ? &kind->laws[law] : NULL;
}

struct verdict *law_verdict(struct book *book, int law) { return &book->verdict[law - LAW_COMPLETE]; }

bool law_judge(struct book *book, int law, bool holds, const char *format, ...)
{
    struct verdict *const v = law_verdict(book, law);
    v->judged = v->judged < 0 ? 1 : v->judged + 1;
    if (holds || v->broken) return holds;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(v->why, sizeof v->why, format, arguments);
    va_end(arguments);
    v->broken = true;
    return false;
}

void law_now(struct book *book, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(book->now, sizeof book->now, format, arguments);
    va_end(arguments);
}

void law_leave_out(struct book *book, int law)
{
    struct verdict *const v = law_verdict(book, law);
    if (v->judged == 0) v->judged = -1;
}
