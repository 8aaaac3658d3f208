/* options_words.c -- the part of options.h that needs no table: nearest names, numbers, and sizes such as "64M". */
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int least(int a, int b) { return a < b ? a : b; }

/* Edits that turn a into b: insert, delete or change a letter, or swap two neighbours (restricted Damerau-Levenshtein).
 * Words longer than the table have the largest distance. */
static int edit_distance(const char *a, const char *b)
{
    enum { MOST = 63 };
    int d[MOST + 1][MOST + 1];
    const size_t n = strlen(a), m = strlen(b);
    if (n > MOST || m > MOST) return INT_MAX;
    for (size_t i = 0; i <= n; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

/* A name without its leading dashes. */
static const char *letters(const char *name) { return name + strspn(name, "-"); }

const char *nearest_name(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    const int length = (int)strlen(letters(word));
    int most = length / 3 + 1;                          /* with more edits the suggestion is a guess */
    if (most >= length) most = length - 1;              /* at least one letter must match */
    for (size_t i = 0; i < n; i++) {
        if (names[i] == NULL) continue;
        const int d = edit_distance(letters(word), letters(names[i]));
        if (d > most) continue;
        best = names[i];
        most = d - 1;                                   /* the first of the nearest wins */
    }
    return best;
}

enum error_code fail_unknown_name(struct error *err, const char *flag, const char *word, const char *const *names,
                                  size_t n)
{
    char list[200] = "";
    size_t used = 0;
    const char *near = nearest_name(word, names, n);
    if (near != NULL)
        return fail(err, ERR_USAGE, "%s %s: there is no such choice; did you mean %s?", flag, printable(word).text,
                    near);
    for (size_t i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
    return fail(err, ERR_USAGE, "%s %s: must be one of %s%s", flag, printable(word).text, list,
                used < sizeof list ? "" : "...");
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct real_text real_format(double x)
{
    struct real_text s;
    int digits = 1;
    do snprintf(s.text, sizeof s.text, "%.*g", digits, x);
    while (strtod(s.text, NULL) != x && digits++ < 17);
    return s;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static const char SUFFIX[] = "KMGT";

bool size_parse(const char *text, uint64_t *bytes)
{
    static const char digits[] = "0123456789";
    const size_t whole = strspn(text, digits);
    const size_t all = text[whole] == '.' ? whole + 1 + strspn(text + whole + 1, digits) : whole;
    const char *s = text[all] != '\0' ? strchr(SUFFIX, toupper((unsigned char)text[all])) : NULL;
    const int shift = s != NULL ? 10 * (int)(s - SUFFIX + 1) : 0;
    if (whole == 0 || text[all + (s != NULL)] != '\0') return false;
    if (all > whole) {
        const double x = ldexp(strtod(text, NULL), shift);
        if (!(x < 0x1p64) || x != floor(x)) return false;
        *bytes = (uint64_t)x;
        return true;
    }
    errno = 0;
    const uint64_t x = strtoull(text, NULL, 10);        /* not as a double: exact above 2^53, too */
    if (errno != 0 || x << shift >> shift != x) return false;
    *bytes = x << shift;
    return true;
}

struct size_text size_format(uint64_t bytes)
{
    struct size_text s;
    int k = 0;
    for (uint64_t x = bytes; x >= 1024 && k < 4; x >>= 10) k++;
    const uint64_t unit = UINT64_C(1) << (10 * k);
    if (k == 0) snprintf(s.text, sizeof s.text, "%" PRIu64, bytes);
    else if (bytes % unit == 0) snprintf(s.text, sizeof s.text, "%" PRIu64 "%c", bytes / unit, SUFFIX[k - 1]);
    else snprintf(s.text, sizeof s.text, "%.1f%c", (double)bytes / (double)unit, SUFFIX[k - 1]);
    return s;
}
