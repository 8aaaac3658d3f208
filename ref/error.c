/* error.c -- fills struct error with a code and one line of text, and says what codes mean.  Almost every file that
 * can fail calls fail; cli/main.c prints the meaning and takes the exit status.  A text of ERR_MEMORY ends with the
 * memory that error_names_memory has named.  The functions never print and never end the process. */
#include "ref/error.h"
#include "ref/error_memory.h"
#include "ref/io/plain.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char full_memory[200];

void error_names_memory(const char *what) { snprintf(full_memory, sizeof full_memory, "%s", what); }

static void name_memory(struct error *err)
{
    const size_t n = strlen(err->text);
    if (full_memory[0] != '\0') snprintf(err->text + n, sizeof err->text - n, " (%s)", full_memory);
    full_memory[0] = '\0';
}

enum error_code fail(struct error *err, enum error_code code, const char *fmt, ...)
{
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (code == ERR_MEMORY) name_memory(err);
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
