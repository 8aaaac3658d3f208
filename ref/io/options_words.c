/* options_words.c -- the part of options.h that needs no table: nearest names and numbers.
 *
 * options.c and other rooms call this file for messages about unknown names; settings and results print numbers with
 * real_format. fail_unknown_name returns ERR_USAGE.
 */
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int options_words_least(int a, int b) { return a < b ? a : b; }

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
            d[i][j] = options_words_least(options_words_least(d[i - 1][j], d[i][j - 1]) + 1,
                                          d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = options_words_least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

/* A name without its leading dashes. */
static const char *letters(const char *name) { return name + strspn(name, "-"); }

/* The first of equally near names is taken; names that are too far are no help. */
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

/* Names that begin with a word, or have the word behind a dash, are nearer than an edit: h100 means h100-node. */
static bool has_word(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = name; at; at = strpbrk(at + 1, "-_:")) {
        const char *part = at == name ? at : at + 1;
        if (strncmp(part, word, n) == 0) return true;
    }
    return false;
}

enum { NAMES_TEXT = 200 };

/* Add a name to a list that is read as "a, b, c"; a list that is full ends with "...".  @return false: it was full. */
static bool add_to_list(char *list, size_t *used, const char *name)
{
    if (*used >= NAMES_TEXT) return false;
    *used += (size_t)snprintf(list + *used, NAMES_TEXT - *used, "%s%s", *used > 0 ? ", " : "", name);
    return *used < NAMES_TEXT;
}

/* The names that have the word.  @return how many. */
static int names_with(const char *word, const char *const *names, size_t n, char *list, size_t *used)
{
    enum { LEAST = 2 };                                 /* letters: one would name everything */
    int found = 0;
    if (strlen(letters(word)) < LEAST) return 0;
    for (size_t i = 0; i < n; i++) {
        bool twice = false;
        if (names[i] == NULL || !has_word(letters(names[i]), letters(word))) continue;
        for (size_t k = 0; k < i && !twice; k++) twice = names[k] && strcmp(names[k], names[i]) == 0;
        if (!twice) found++, (void)add_to_list(list, used, names[i]);
    }
    return found;
}

/* Whether a word is this name with one mistake, and no other name is as near: then no longer names are meant. */
static bool is_typing_error(const char *word, const char *near, const char *const *names, size_t n)
{
    enum { LEAST = 4 };                                 /* letters: of fewer, one mistake is too much */
    if (near == NULL || strlen(letters(word)) < LEAST) return false;
    if (edit_distance(letters(word), letters(near)) != 1) return false;
    for (size_t i = 0; i < n; i++)
        if (names[i] && strcmp(names[i], near) != 0 && edit_distance(letters(word), letters(names[i])) == 1)
            return false;
    return true;
}

enum error_code fail_unknown_name(struct error *err, const char *flag, const char *word, const char *const *names,
                                  size_t n)
{
    char list[NAMES_TEXT] = "";
    size_t used = 0;
    const char *near = nearest_name(word, names, n);
    const int found = is_typing_error(word, near, names, n) ? 0 : names_with(word, names, n, list, &used);
    const char *cut = used < NAMES_TEXT ? "" : "...";
    if (found > 0)
        return fail(err, ERR_USAGE, "%s %s: there is no such choice; did you mean %s%s%s?", flag, printable(word).text,
                    found > 1 ? "one of " : "", list, cut);
    if (near != NULL)
        return fail(err, ERR_USAGE, "%s %s: there is no such choice; did you mean %s?", flag, printable(word).text,
                    near);
    for (size_t i = 0; i < n && add_to_list(list, &used, names[i]);) i++;
    return fail(err, ERR_USAGE, "%s %s: must be one of %s%s", flag, printable(word).text, list,
                used < NAMES_TEXT ? "" : "...");
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The fewest digits that are read back as the same number. */
struct real_text real_format(double x)
{
    struct real_text s;
    int digits = 1;
    do snprintf(s.text, sizeof s.text, "%.*g", digits, x);
    while (strtod(s.text, NULL) != x && digits++ < 17);
    return s;
}
