/* samples.c -- cuts a text into samples of given or drawn lengths, and makes batches of packed sequences.
 *
 * train/data/ calls it (--pack).  Errors are ERR_FORMAT and ERR_USAGE with the line of the file of lengths, and
 * ERR_MEMORY.
 */
#include "ref/io/samples.h"
#include "ref/exact/scalars.h"
#include "ref/io/output.h"
#include "ref/model/modality.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 64 << 20 };

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

/* A sample's length, and the patches of its clip of each modality. */
struct line { int64_t length, patches[MODALITIES]; };
struct lengths { struct line *at; int64_t count, room; };

static enum error_code samples_add(struct lengths *lengths, struct line line, struct error *err)
{
    if (lengths->count == lengths->room) {
        const int64_t room = lengths->room ? 2 * lengths->room : 256;
        struct line *grown = realloc(lengths->at, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the lengths of %lld samples", (long long)room);
        lengths->at = grown, lengths->room = room;
    }
    lengths->at[lengths->count++] = line;
    return OK;
}

/* Where a clip of a sample may begin, behind those of earlier modalities: a token of text is before each. */
static int64_t clip_first(const struct line *line, int modality)
{
    int64_t at = 1;
    for (int m = 0; m < modality; m++) at += line->patches[m] ? line->patches[m] + 1 : 0;
    return at;
}

/* The words behind a length: NAME:PATCHES.  @return where reading has ended: the end of the line, or what is wrong. */
static char *read_clips(struct line *line, char *at)
{
    while (*at == ' ' || *at == '\t') {
        char *const name = at + strspn(at, " \t"), *const colon = name + strcspn(name, ": \t\n");
        const int m = modality_find(name, (size_t)(colon - name));
        char *end = colon + 1;
        if (*name == '\n' || *name == '\0') return name;
        if (*colon != ':' || m < 0 || line->patches[m] != 0 || colon[1] < '1' || colon[1] > '9') return name;
        errno = 0;
        line->patches[m] = strtoll(colon + 1, &end, 10);
        if (errno != 0 || line->patches[m] > INT32_MAX) return name;
        at = end;
    }
    return at;
}

/* No clip is cut: a sample ends with text. */
static enum error_code check_cut(const struct line *line, const char *path, int number, struct error *err)
{
    for (int m = 0; m < MODALITIES; m++)
        if (line->patches[m] && clip_first(line, m) + line->patches[m] >= line->length)
            return fail(err, ERR_USAGE, "%s:%d: a sample of %lld tokens would cut its %s of %lld patches; with text "
                        "before, between and behind its clips it needs %lld", printable_path(path).text, number,
                        (long long)line->length, modalities[m].name, (long long)line->patches[m],
                        (long long)clip_first(line, MODALITIES));
    return OK;
}

/* One whole number a line, and clips. */
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
        struct line one = { .length = n };
        const bool number = after != at && errno == 0;
        after = number ? read_clips(&one, after) : after;
        if (!number || after != end)
            e = fail(err, ERR_FORMAT, "%s:%d: must be the length of a sample, a whole number%s",
                     printable_path(path).text, line, number ? "; its clips are words such as image:5 audio:2" : "");
        else if (n < 1 || n > S)
            e = fail(err, ERR_USAGE, "%s:%d: a sample of %lld tokens; a sequence has room for 1 to %lld (--seq)",
                     printable_path(path).text, line, n, (long long)S);
        else {
            e = check_cut(&one, path, line, err);
            if (!e) e = samples_add(lengths, one, err);
        }
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
        const struct line one = given->count ? given->at[i % given->count]
                                             : (struct line){ .length = drawn_length(drawn, S, seed, i) };
        if (used + one.length > text) break;
        used += one.length;
        e = samples_add(all, one, err);
    }
    if (!e && all->count == 0)
        e = fail(err, ERR_USAGE, "the text has %lld tokens for training; its first sample has more", (long long)text);
    return e;
}

static bool have_clips(const struct lengths *all)
{
    bool any = false;
    for (int64_t i = 0; i < all->count; i++)
        for (int m = 0; m < MODALITIES; m++) any = any || all->at[i].patches[m] > 0;
    return any;
}

static enum error_code pack_lines(struct packing *packing, const struct lengths *all, int64_t S, struct error *err)
{
    const bool clips = have_clips(all);
    int64_t *const length = malloc((size_t)all->count * sizeof *length),
            *const patches = clips ? malloc((size_t)all->count * sizeof all->at->patches) : NULL;
    enum error_code e = length && (patches || !clips) ? OK : fail(err, ERR_MEMORY, "no memory to pack %lld samples",
                                                                  (long long)all->count);
    for (int64_t i = 0; i < all->count && !e; i++) length[i] = all->at[i].length;
    for (int64_t i = 0; i < all->count && clips && !e; i++)
        memcpy(patches + i * MODALITIES, all->at[i].patches, sizeof all->at->patches);
    if (!e) e = packing_make(packing, length, all->count, S, err);
    if (!e) packing->patches = patches;
    else free(patches);
    free(length);
    return e;
}

enum error_code samples_say_clips(const char *path, bool *say, struct error *err)
{
    char *bytes;
    size_t n;
    const enum error_code e = file_read_all(path, FILE_LIMIT, &bytes, &n, err);
    *say = !e && memchr(bytes, ':', n) != NULL;
    if (!e) free(bytes);
    return e;
}

/* Whether a sample has a clip of a modality; if nothing is said of clips, whether it has room for one. */
static bool sample_takes(const struct packing *packing, int64_t sample, int modality)
{
    return packing->patches ? packing->patches[sample * MODALITIES + modality] > 0
                            : packing->length[sample] >= modalities[modality].least + 2;
}

enum error_code samples_check_clips(const struct packing *packing, int kinds, struct error *err)
{
    for (int m = 0; m < MODALITIES; m++) {
        int64_t i = 0;
        while (i < packing->samples && !sample_takes(packing, i, m)) i++;
        const bool takes = i < packing->samples;
        if (m >= kinds && packing->patches && takes)
            return fail(err, ERR_USAGE, "a sample has a clip of %s, which no encoder reads; --modalities %d has one",
                        modalities[m].name, m + 1);
        if (m < kinds && !takes)
            return fail(err, ERR_USAGE, "--modalities %d: the %s encoder would never have a token: no sample %s", kinds,
                        modalities[m].name, packing->patches ? "has such a clip" : "has room for such a clip");
    }
    return OK;
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
    if (!e) e = pack_lines(packing, &all, S, err);
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

/* Placeholders for a sample's patches. */
static void fill_clips(const struct packing *p, int64_t sample, int32_t *ids)
{
    struct line line = { .length = p->length[sample] };
    if (p->patches == NULL) return;
    memcpy(line.patches, p->patches + sample * MODALITIES, sizeof line.patches);
    for (int m = 0; m < MODALITIES; m++)
        for (int64_t k = 0, at = clip_first(&line, m); k < line.patches[m]; k++) ids[at + k] = clip_placeholder(m);
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
            fill_clips(p, sample, ids + at);
        }
        fill_sample(NULL, row + p->S - at, true, ids + at, labels + at, within + at);
    }
}

void samples_batch(const struct text *text, uint64_t seed, int64_t step, int64_t b0, int64_t count, int32_t *ids,
                   int32_t *labels, int32_t *within)
{
    samples_fill(&text->packing, text->bytes, seed, step, b0, count, ids, labels, within);
}
