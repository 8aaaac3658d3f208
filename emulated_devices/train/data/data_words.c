/* data_words.c -- what --data says: FILE, FILE:WIDTH, FILE:WEIGHT or FILE:WIDTH:WEIGHT, several with commas.
 * run/settings.c, data.c and cli/tokenize.c call these functions.  ERR_USAGE says which name or weight is wrong;
 * ERR_MEMORY. */
#include "emulated_devices/train/data/data_words.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS_MOST = 6, WEIGHT_MOST = 1000000 };

/* Millionths; 0: it is no weight. */
static int64_t data_words_weight_of(const char *text)
{
    char *end;
    const size_t whole = strspn(text, "0123456789"), point = text[whole] == '.',
                 after = point ? strspn(text + whole + 1, "0123456789") : 0;
    if (whole + after == 0 || whole > DIGITS_MOST + 1 || after > DIGITS_MOST || text[whole + point + after]) return 0;
    const double x = strtod(text, &end);
    return x <= WEIGHT_MOST ? (int64_t)(x * 1e6 + 0.5) : 0;
}

static bool is_weight(const char *text) { return text[0] && text[strspn(text, "0123456789.")] == '\0'; }

static enum error_code take_word(struct data_word *data_word, char *text, const char *words, struct error *err)
{
    *data_word = (struct data_word){ .path = text };
    if (text[0] == '\0') return fail(err, ERR_USAGE, "%s: has an empty name", printable(words).text);
    /* A weight and a width may stand in either order; the name of a file that is there is taken as it stands. */
    for (char *colon; (colon = strrchr(text, ':')) != NULL && access(text, F_OK) != 0; *colon = '\0') {
        const enum token_width width = token_width_named(colon + 1);
        if (width != TOKENS_AS_FOUND && data_word->width == TOKENS_AS_FOUND) data_word->width = width;
        else if (is_weight(colon + 1) && data_word->weight == 0) {
            data_word->weight = data_words_weight_of(colon + 1);
            if (data_word->weight == 0)
                return fail(err, ERR_USAGE, "%s: the weight must be above 0 and at most %d, with at most %d digits "
                                            "after the point", printable(text).text, WEIGHT_MOST, DIGITS_MOST);
        } else break;
    }
    return text[0] ? OK : fail(err, ERR_USAGE, "%s: has an empty name", printable(words).text);
}

bool data_word_is_tokens(const struct data_word *word)
{
    return word->width != TOKENS_AS_FOUND || token_file_is(word->path);
}

static int64_t common(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Weights as whole numbers without a common divisor. */
static enum error_code take_shares(struct data_words *data_words, const char *words, struct error *err)
{
    int64_t divisor = 0;
    int weighed = 0;
    for (int i = 0; i < data_words->count; i++)
        divisor = common(data_words->word[i].weight, divisor), weighed += data_words->word[i].weight > 0;
    if (weighed > 0 && weighed < data_words->count)
        return fail(err, ERR_USAGE, "%s: some files have a weight and some have none; give all a weight, FILE:WEIGHT",
                    printable(words).text);
    for (int i = 0; i < data_words->count && weighed; i++) {
        const int64_t share = data_words->word[i].weight / divisor;
        if (share > CORPUS_MOST_PERIOD)
            return fail(err, ERR_USAGE, "%s: weights are shares of more than %d sequences; take rounder ones",
                        printable(words).text, CORPUS_MOST_PERIOD);
        data_words->word[i].share = (int)share;
    }
    return OK;
}

enum error_code data_words_read(struct data_words *data_words, const char *words, struct error *err)
{
    *data_words = (struct data_words){ .text = strdup(words) };
    int commas = 0;
    for (const char *at = words; *at; at++) commas += *at == ',';
    data_words->word = calloc((size_t)commas + 1, sizeof *data_words->word);
    enum error_code e = data_words->text && data_words->word ? OK
        : fail(err, ERR_MEMORY, "no memory for a list of files");
    /* a name with commas or colons */
    if (!e && access(words, F_OK) == 0) data_words->word[data_words->count++].path = data_words->text;
    else
        for (char *at = data_words->text, *end; at && !e; at = end) {
            end = strchr(at, ',');
            if (end) *end++ = '\0';
            e = take_word(&data_words->word[data_words->count++], at, words, err);
        }
    if (!e) e = take_shares(data_words, words, err);
    if (e) data_words_free(data_words);
    return e;
}

void data_words_free(struct data_words *words)
{
    free(words->text), free(words->word);
    *words = (struct data_words){ 0 };
}

static void print_weight(FILE *file, int64_t millionths)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lld.%06lld", (long long)(millionths / 1000000),
                     (long long)(millionths % 1000000));
    while (text[n - 1] == '0') text[--n] = '\0';
    if (text[n - 1] == '.') text[--n] = '\0';
    fprintf(file, ":%s", text);
}

char *data_words_with_paths(const char *words, const char *from)
{
    struct data_words l;
    char *text = NULL;
    size_t bytes;
    struct error unread;
    if (data_words_read(&l, words, &unread)) return NULL;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < l.count && f; i++) {
        const struct data_word *w = &l.word[i];
        fprintf(f, "%s%s%s%s", i ? "," : "", w->path[0] == '/' ? "" : from, w->path[0] == '/' ? "" : "/", w->path);
        if (w->width != TOKENS_AS_FOUND) fprintf(f, ":%s", token_width_names[w->width]);
        if (w->weight) print_weight(f, w->weight);
    }
    data_words_free(&l);
    if (f && fclose(f) == 0) return text;
    free(text);
    return NULL;
}
