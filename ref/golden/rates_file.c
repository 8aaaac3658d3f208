/* rates_file.c -- reads learning rates, one a line.  cli/golden/make_rates.c calls rates_read.  Errors are ERR_FORMAT
 * with the line, ERR_FILE and ERR_MEMORY. */
#include "ref/golden/rates_file.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RATES_LIMIT = 1 << 16 };         /* bytes of such a file */

/* The text ends with a byte 0. */
static enum error_code rates_parse(const char *path, const char *text, double rate[GOLDEN_MOST_STEPS], int *count,
                                   struct error *err)
{
    for (const char *at = text; *at != '\0'; at += *at == '\n') {
        const char *line_end = at + strcspn(at, "\n");
        char *after = NULL;
        const double x = strtod(at, &after);
        if (*count == GOLDEN_MOST_STEPS)
            return fail(err, ERR_FORMAT, "%s: has more than %d rates", printable_path(path).text, GOLDEN_MOST_STEPS);
        if (after == at || after != line_end || !isfinite(x) || x < 0)
            return fail(err, ERR_FORMAT, "%s:%d: must be the rate of a step, a number from 0 on",
                        printable_path(path).text, *count + 1);
        rate[(*count)++] = x;
        at = line_end;
    }
    return *count > 0 ? OK : fail(err, ERR_FORMAT, "%s: has no rates", printable_path(path).text);
}

enum error_code rates_read(const char *path, double rate[GOLDEN_MOST_STEPS], int *count, struct error *err)
{
    char *bytes;
    size_t n;
    *count = 0;
    enum error_code e = file_read_all(path, RATES_LIMIT, &bytes, &n, err);
    if (e) return e;
    char *text = realloc(bytes, n + 1);
    if (text == NULL) e = fail(err, ERR_MEMORY, "%s: no memory to read it", printable_path(path).text);
    else bytes = text, text[n] = '\0';
    if (!e && memchr(text, '\0', n) != NULL)
        e = fail(err, ERR_FORMAT, "%s: has a zero byte; must be lines of numbers", printable_path(path).text);
    if (!e) e = rates_parse(path, text, rate, count, err);
    free(bytes);
    return e;
}
