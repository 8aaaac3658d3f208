/* samples.c -- cuts a text into samples of given or drawn lengths, and makes batches of packed sequences.
 *
 * train/data/ calls it (--pack).  Errors are ERR_FORMAT and ERR_USAGE with the line of the file of lengths, and
 * ERR_MEMORY.
 */
#include "ref/io/samples.h"
#include "ref/exact/scalars.h"
#include "ref/io/output.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 64 << 20 };

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

struct lengths { int64_t *at, count, room; };

static enum error_code samples_add(struct lengths *lengths, int64_t length, struct error *err)
{
    if (lengths->count == lengths->room) {
        const int64_t room = lengths->room ? 2 * lengths->room : 256;
        int64_t *grown = realloc(lengths->at, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the lengths of %lld samples", (long long)room);
        lengths->at = grown, lengths->room = room;
    }
    lengths->at[lengths->count++] = length;
    return OK;
}

/* One whole number a line. */
static enum error_code samples_parse(struct lengths *lengths, const char *path, char *text, int64_t S,
                                     struct error *err)
{
    enum error_code e = OK;
    int line = 1;
    for (char *at = text, *end; *at != '\0' && !e; at = *end ? end + 1 : end, line++) {
        end = at + strcspn(at, "\n");
        char *after = at;
        errno = 0;
        const long long n = strtoll(at, &after, 10);
        if (after == at || after != end || errno != 0)
            e = fail(err, ERR_FORMAT, "%s:%d: must be the length of a sample, a whole number",
                     printable_path(path).text, line);
        else if (n < 1 || n > S)
            e = fail(err, ERR_USAGE, "%s:%d: a sample of %lld tokens; a sequence has room for 1 to %lld (--seq)",
                     printable_path(path).text, line, n, (long long)S);
        else e = samples_add(lengths, n, err);
    }
    if (!e && lengths->count == 0) e = fail(err, ERR_FORMAT, "%s: has no lengths", printable_path(path).text);
    return e;
}

/* The text needs a byte 0 at its end, for strtoll. */
static enum error_code read_lengths(struct lengths *lengths, const char *path, int64_t S, struct error *err)
{
    char *bytes;
    size_t n;
    enum error_code e = file_read_all(path, FILE_LIMIT, &bytes, &n, err);
    if (e) return e;
    char *text = realloc(bytes, n + 1);
    if (text == NULL) e = fail(err, ERR_MEMORY, "%s: no memory to read it", printable_path(path).text);
    else bytes = text, text[n] = '\0';
    if (!e && memchr(text, '\0', n) != NULL)
        e = fail(err, ERR_FORMAT, "%s: has a zero byte; must be lines of whole numbers", printable_path(path).text);
    if (!e) e = samples_parse(lengths, path, text, S, err);
    free(bytes);
    return e;
}

/* Lengths are exp of a normal number with this median and deviation. */
struct lognormal { double median, deviation; };

bool samples_are_drawn(const char *lengths)
{
    const size_t n = strlen(SAMPLES_LOGNORMAL);
    return strncmp(lengths, SAMPLES_LOGNORMAL, n) == 0 && (lengths[n] == '\0' || lengths[n] == ':');
}

/* Read lognormal or lognormal:MEDIAN,DEVIATION. */
static enum error_code samples_read_lognormal(struct lognormal *drawn, const char *word, int64_t S, struct error *err)
{
    const char *at = word + strlen(SAMPLES_LOGNORMAL);
    char *end = NULL;
    *drawn = (struct lognormal){ (double)S / 8, 1 };
    if (*at == '\0') return OK;
    drawn->median = strtod(++at, &end);
    const bool two = end != at && *end == ',';
    at = end + two;
    if (two) drawn->deviation = strtod(at, &end);
    const bool read = two && end != at && *end == '\0';
    if (!read || !(drawn->median >= 1) || !(drawn->deviation >= 0 && drawn->deviation <= 10))
        return fail(err, ERR_USAGE, "%s: must be lognormal:MEDIAN,DEVIATION, a number of tokens from 1 and one of 0 to "
                    "10", printable(word).text);
    if (drawn->median <= (double)S) return OK;
    return fail(err, ERR_USAGE, "%s: the median sample has more tokens than a sequence, %lld (--seq)",
                printable(word).text, (long long)S);
}

/* The length of a sample depends on seed and number only, so every device draws the same. */
static int64_t drawn_length(const struct lognormal *drawn, int64_t S, uint64_t seed, int64_t sample)
{
    const double normal = random_normal(seed, random_stream("length of a sample"), (uint64_t)sample);
    const double length = drawn->median * scalar_exp(drawn->deviation * normal);
    const int64_t n = length < (double)S ? (int64_t)lrint(length) : S, least = S < 2 ? S : 2;
    return n < least ? least : n > S ? S : n;
}

/* Samples one after another, as many as the text has room for. */
static enum error_code samples_cut(struct lengths *all, const struct lengths *given, const struct lognormal *drawn,
                                   int64_t text, int64_t S, uint64_t seed, struct error *err)
{
    enum error_code e = OK;
    for (int64_t i = 0, used = 0; !e; i++) {
        const int64_t n = given->count ? given->at[i % given->count] : drawn_length(drawn, S, seed, i);
        if (used + n > text) break;
        used += n;
        e = samples_add(all, n, err);
    }
    if (!e && all->count == 0)
        e = fail(err, ERR_USAGE, "the text has %lld tokens for training; its first sample has more", (long long)text);
    return e;
}

enum error_code samples_pack_tokens(struct packing *packing, const char *lengths, int64_t tokens, int64_t S,
                                    uint64_t seed, struct error *err)
{
    struct lengths given = { 0 }, all = { 0 };
    struct lognormal drawn = { 0 };
    *packing = (struct packing){ 0 };
    enum error_code e = samples_are_drawn(lengths) ? samples_read_lognormal(&drawn, lengths, S, err)
                                                   : read_lengths(&given, lengths, S, err);
    if (!e) e = samples_cut(&all, &given, &drawn, tokens, S, seed, err);
    if (!e) e = packing_make(packing, all.at, all.count, S, err);
    free(given.at), free(all.at);
    return e;
}

/* The text keeps the packing; text_free frees it. */
enum error_code samples_pack(struct text *text, const char *lengths, int64_t S, uint64_t seed, struct error *err)
{
    return samples_pack_tokens(&text->packing, lengths, text->train, S, seed, err);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* One sample's part of a row.  bytes NULL: all its tokens are 0. */
static void fill_sample(const uint8_t *bytes, int64_t n, bool padding, int32_t *ids, int32_t *labels, int32_t *within)
{
    for (int64_t i = 0; i < n; i++) {
        ids[i] = bytes ? bytes[i] : 0;
        /* The last token of a sample has no label, since the next sample is another text. */
        labels[i] = padding || i + 1 == n ? IGNORE_LABEL : bytes ? bytes[i + 1] : 0;
        within[i] = padding ? padding_at((int32_t)i) : (int32_t)i;
    }
}

/* ids, labels and within [count, S]: the samples of a drawn sequence, then padding. */
void samples_fill(const struct packing *p, const uint8_t *bytes, uint64_t seed, int64_t step, int64_t b0,
                  int64_t count, int32_t *ids, int32_t *labels, int32_t *within)
{
    for (int64_t b = b0; b < b0 + count; b++) {
        const double draw = random_uniform(seed, random_stream("sequence of samples"), (uint64_t)(step << 32 | b));
        const int64_t sequence = (int64_t)(draw * (double)p->sequences), row = (b - b0) * p->S;
        int64_t at = row;
        for (int64_t i = p->first[sequence]; i < p->first[sequence + 1]; at += p->length[p->order[i++]]) {
            const int64_t sample = p->order[i];
            fill_sample(bytes ? bytes + p->start[sample] : NULL, p->length[sample], false, ids + at, labels + at,
                        within + at);
        }
        fill_sample(NULL, row + p->S - at, true, ids + at, labels + at, within + at);
    }
}

void samples_batch(const struct text *text, uint64_t seed, int64_t step, int64_t b0, int64_t count, int32_t *ids,
                   int32_t *labels, int32_t *within)
{
    samples_fill(&text->packing, text->bytes, seed, step, b0, count, ids, labels, within);
}
