#include "ref/error.h"
#include "ref/io/plain.h"
#include <stdarg.h>
#include <stdio.h>

enum error_code fail(struct error *err, enum error_code code, const char *fmt, ...)
{
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    plain_text(err->text);                      /* may contain text from a file or a command line */
    return code;
}

enum error_code fail_about(struct error *err, enum error_code code, const char *argument)
{
    if (code == OK || err == NULL) return code;
    const struct error before = *err;
    return fail(err, code, "%s %s", argument, before.text);
}

const char *error_meaning(enum error_code code)
{
    static const char *const meaning[] = {
#define X(code, text, status) [code] = text,
        ERROR_CODES(X)
#undef X
    };
    return code < ERROR_COUNT ? meaning[code] : "unknown error";
}

int error_exit_status(enum error_code code)
{
    static const int exit_status[] = {
#define X(code, text, status) [code] = status,
        ERROR_CODES(X)
#undef X
    };
    return code < ERROR_COUNT ? exit_status[code] : 1;
}
