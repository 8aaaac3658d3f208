/* tokenizer.c -- turns texts into tokens and back, by the parts that tokenizer_read.c has read.
 *
 * cli/tokenize.c, run/speaker.c, train/data/data.c and generate.c call this file.  A text goes through added tokens,
 * normalizers and splitters; words go to bpe.c.  Functions with a bool return whether there was memory.
 * tokenizer_open returns ERR_FILE, ERR_FORMAT or ERR_MEMORY.  tokenizer_encode returns ERR_FORMAT if an expression
 * takes too many steps.  tokenizer_decode returns ERR_USAGE for an id that is no token.  Both return ERR_MEMORY, too.
 */
#include "ref/text/tokenizer.h"
#include "ref/text/tokenizer_parts.h"
#include "ref/text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

struct encoding { struct tokenizer *t; struct token_ids *to; };

/* A text that is made; the caller frees it. */
struct made { char *text; size_t bytes; };

/* A text may have bytes 0, so all lengths are given. */
static bool starts_with(const char *text, size_t bytes, const char *with)
{
    const size_t n = strlen(with);
    return bytes >= n && memcmp(text, with, n) == 0;
}

/* before, and the text with `from` replaced. */
static bool replace_all(struct made *made, const char *before, const char *text, size_t bytes, const char *from,
                        const char *to)
{
    const size_t from_bytes = strlen(from), to_bytes = strlen(to);
    size_t most = strlen(before) + bytes + 1;
    /* The text grows only where the new text is longer. */
    if (to_bytes > from_bytes) most += bytes / from_bytes * (to_bytes - from_bytes);
    char *at = made->text = malloc(most);
    if (at == NULL) return false;
    at = strcpy(at, before) + strlen(before);
    for (size_t i = 0; i < bytes;) {
        if (!starts_with(text + i, bytes - i, from)) { *at++ = text[i++]; continue; }
        memcpy(at, to, to_bytes);
        at += to_bytes, i += from_bytes;
    }
    made->bytes = (size_t)(at - made->text);
    return true;
}

/* ---- normalizers ------------------------------------------------------------------------------------------------- */

static bool tokenizer_append(struct made *made, const char *text, size_t bytes)
{
    char *more = realloc(made->text, made->bytes + bytes + 1);
    if (more == NULL) return false;
    made->text = more;
    memcpy(made->text + made->bytes, text, bytes);
    made->bytes += bytes;
    return true;
}

/* The stretch is composed by itself: nothing in it moves across its ends. */
static bool append_composed(struct made *made, const char *text, size_t bytes)
{
    utf8proc_uint8_t *composed = NULL;
    if (bytes == 0) return true;
    const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &composed,
                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const bool ok = n >= 0 && tokenizer_append(made, (const char *)composed, (size_t)n);
    free(composed);
    return ok;
}

/* To NFC.  The library `tokenizers` has an older Unicode: marks that it does not know stay where they are, and nothing
 * moves across them. */
static bool compose(struct made *made, const char *text, size_t bytes)
{
    size_t from = 0;
    uint32_t c;
    bool ok = true;
    *made = (struct made){ NULL, 0 };
    for (size_t at = 0; ok && at < bytes;) {
        const int n = utf8_first(text + at, bytes - at, &c);
        if (utf8proc_get_property((utf8proc_int32_t)c)->combining_class != 0 && !is_in_class(c, "reordered")) {
            ok = append_composed(made, text + from, at - from) && tokenizer_append(made, text + at, (size_t)n);
            from = at + (size_t)n;
        }
        at += (size_t)n;
    }
    return ok && append_composed(made, text + from, bytes - from);
}

/* The normalizers change the whole text, one after the other; the caller frees made->text also after a failure. */
static bool normalize(const struct tokenizer *tokenizer, struct made *made, const char *text, size_t bytes)
{
    *made = (struct made){ malloc(bytes + 1), bytes };
    if (made->text == NULL) return false;
    memcpy(made->text, text, bytes);
    for (int i = 0; i < tokenizer->normals; i++) {
        const struct normal *n = &tokenizer->normal[i];
        const struct made old = *made;
        /* An empty text stays empty, also before a normalizer that would put something in front. */
        if (made->bytes == 0) break;
        made->text = NULL;
        const bool ok = n->kind == NORMAL_NFC ? compose(made, old.text, old.bytes)
                        : n->kind == NORMAL_PREPEND ? replace_all(made, n->to, old.text, old.bytes, "\n", "\n")
                                                    : replace_all(made, "", old.text, old.bytes, n->from, n->to);
        free(old.text);
        if (!ok) return false;
    }
    return true;
}

/* ---- long pieces of sentencepiece's ------------------------------------------------------------------------------ */

/* The end of the characters before the next META_SPACE that follows another character. */
static size_t before_space(const char *text, size_t bytes)
{
    size_t at = 0;
    while (starts_with(text + at, bytes - at, META_SPACE)) at += strlen(META_SPACE);
    while (at < bytes && !starts_with(text + at, bytes - at, META_SPACE)) at++;
    return at;
}

/* Words can be cut at META_SPACE only if no token has one after another character. */
static bool cuts(const struct tokenizer *tokenizer)
{
    size_t bytes;
    if (tokenizer->rule.byte_level || bpe_find(tokenizer->bpe, META_SPACE, strlen(META_SPACE)) < 0) return false;
    for (int32_t id = 0; id < tokenizer->vocabulary; id++) {
        const char *name = bpe_name(tokenizer->bpe, id, &bytes);
        if (name != NULL && before_space(name, bytes) < bytes) return false;
    }
    return true;
}

/* The text is a word of the model.  What merges is between two cuts, so the words there can be merged one by one, and
 * remembered; an unknown character before a cut is not fused with what follows, which is a token. */
static bool word_of(struct encoding *encoding, const char *text, size_t bytes)
{
    for (size_t n; encoding->t->cuts && (n = before_space(text, bytes)) < bytes; text += n, bytes -= n)
        if (!bpe_word(encoding->t->bpe, text, n, encoding->to)) return false;
    return bpe_word(encoding->t->bpe, text, bytes, encoding->to);
}

/* ---- splitting --------------------------------------------------------------------------------------------------- */

static bool through(struct encoding *encoding, int step, const char *text, size_t bytes, bool first);

struct part { size_t begin, end; bool match; };
struct part_list { struct part *part; size_t count, room; };

static bool tokenizer_add_part(struct part_list *part_list, size_t begin, size_t end, bool match)
{
    if (part_list->count == part_list->room) {
        const size_t room = part_list->room ? 2 * part_list->room : 64;
        struct part *more = realloc(part_list->part, room * sizeof *more);
        if (more == NULL) return false;
        part_list->part = more, part_list->room = room;
    }
    part_list->part[part_list->count++] = (struct part){ begin, end, match };
    return true;
}

/* A match that is not removed or alone goes with the piece before or after it; of several in a row one does. */
static void unite(struct part_list *part_list, enum split_match how)
{
    size_t kept = 0;
    const size_t n = part_list->count;
    if (how == MATCH_WITH_NEXT) {
        for (size_t i = 0; i + 1 < n; i++)
            if (part_list->part[i].match && !part_list->part[i + 1].match)
                part_list->part[i + 1].begin = part_list->part[i].begin,
                    part_list->part[i].end = part_list->part[i].begin;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct part p = part_list->part[i];
        const bool before = i > 0 && part_list->part[i - 1].match;      /* read before it is written over: kept <= i */
        const bool joins = kept > 0 && (how == MATCH_CONTIGUOUS ? p.match == before : p.match && !before);
        if (joins) part_list->part[kept - 1].end = p.end;
        else part_list->part[kept++] = (struct part){ p.begin, p.end, false };
        part_list->part[i].match = p.match;
    }
    part_list->count = kept;
}

/* Matches and what is between them are listed first, because some of them go together. */
static bool by_list(struct encoding *encoding, int step, const char *text, size_t bytes, bool first)
{
    const struct split *s = &encoding->t->split[step];
    struct part_list l = { 0 };
    size_t at = 0, begin, end;
    bool ok = true;
    while (ok && at < bytes && pattern_next(s->pattern, text, bytes, at, &begin, &end)) {
        if (begin > at) ok = tokenizer_add_part(&l, at, begin, s->invert);
        ok = ok && tokenizer_add_part(&l, begin, end, !s->invert);
        at = end;
    }
    if (ok && at < bytes) ok = tokenizer_add_part(&l, at, bytes, s->invert);
    if (ok && s->match != MATCH_REMOVED && s->match != MATCH_ISOLATED) unite(&l, s->match);
    for (size_t i = 0; ok && i < l.count; i++) {
        const struct part p = l.part[i];
        if (p.end > p.begin && !(s->match == MATCH_REMOVED && p.match))
            ok = through(encoding, step + 1, text + p.begin, p.end - p.begin, first && p.begin == 0);
    }
    free(l.part);
    return ok;
}

/* The most usual way: matches and what is between them, as they are found. */
static bool as_found(struct encoding *encoding, int step, const char *text, size_t bytes, bool first)
{
    struct pattern *p = encoding->t->split[step].pattern;
    size_t at = 0, begin, end;
    while (at < bytes && pattern_next(p, text, bytes, at, &begin, &end)) {
        if (begin > at && !through(encoding, step + 1, text + at, begin - at, first && at == 0)) return false;
        if (!through(encoding, step + 1, text + begin, end - begin, first && begin == 0)) return false;
        at = end;
    }
    return at == bytes || through(encoding, step + 1, text + at, bytes - at, first && at == 0);
}

/* A splitter without a pattern passes the whole text on. */
static bool split(struct encoding *encoding, int step, const char *text, size_t bytes, bool first)
{
    const struct split *s = &encoding->t->split[step];
    if (s->pattern == NULL) return through(encoding, step + 1, text, bytes, first);
    return s->match == MATCH_ISOLATED ? as_found(encoding, step, text, bytes, first)
           : by_list(encoding, step, text, bytes, first);
}

/* A piece goes through the splitters from `step` on, and what comes out is a word.  first: the text begins with it. */
static bool through(struct encoding *encoding, int step, const char *text, size_t bytes, bool first)
{
    struct made m;
    bool ok;
    if (step == encoding->t->splits) return word_of(encoding, text, bytes);
    const struct split *s = &encoding->t->split[step];
    /* Metaspace writes its own sign for blanks, and puts one before a text that begins without. */
    if (s->kind == SPLIT_METASPACE) {
        const bool there = starts_with(text, bytes, s->space) || starts_with(text, bytes, " ");
        const bool put = !there && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first));
        ok = replace_all(&m, put ? s->space : "", text, bytes, " ", s->space);
    /* ByteLevel may want a blank before the first letter. */
    } else if (s->space_first && !starts_with(text, bytes, " "))
        ok = replace_all(&m, " ", text, bytes, "\n", "\n");
    else return split(encoding, step, text, bytes, first);
    ok = ok && split(encoding, step, m.text, m.bytes, first);
    free(m.text);
    return ok;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

/* Added tokens are sorted by length, so that the first that fits is the longest.  A token that is empty after
 * normalization stands nowhere. */
static const struct added *added_at(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool normalized)
{
    if (!tokenizer->begins[(uint8_t)*text]) return NULL;
    for (int i = 0; i < tokenizer->addeds; i++) {
        const struct added *a = &tokenizer->added[i];
        if (a->normalized == normalized && a->bytes > 0 && a->bytes <= bytes &&
            memcmp(text, a->content, a->bytes) == 0) return a;
    }
    return NULL;
}

/* Where white space before `to` begins, but not before `from`. */
static size_t blank_before(const char *text, size_t from, size_t to)
{
    for (size_t at = to; at > from; to = at) {
        uint32_t c;
        do at--; while (at > from && ((uint8_t)text[at] & 0xC0) == 0x80);
        if (utf8_first(text + at, to - at, &c) <= 0 || !is_in_class(c, "s")) break;
    }
    return to;
}

/* Where white space after `at` ends. */
static size_t blank_after(const char *text, size_t bytes, size_t at)
{
    uint32_t c;
    while (at < bytes) {
        const int n = utf8_first(text + at, bytes - at, &c);
        if (n <= 0 || !is_in_class(c, "s")) break;
        at += (size_t)n;
    }
    return at;
}

typedef bool between_fn(struct encoding *, const char *text, size_t bytes, bool first);

/* Tokens that stand in the text as they are, and what is between them. */
static bool find_added(struct encoding *encoding, const char *text, size_t bytes, bool first, bool normalized,
                       between_fn *between)
{
    size_t done = 0;
    for (size_t at = 0; at < bytes;) {
        const struct added *a = added_at(encoding->t, text + at, bytes - at, normalized);
        if (a == NULL) { at++; continue; }
        /* The token may take the white space before and behind it. */
        const size_t begin = a->left ? blank_before(text, done, at) : at;
        at += a->bytes;
        if (a->right) at = blank_after(text, bytes, at);
        if (begin > done && !between(encoding, text + done, begin - done, first && done == 0)) return false;
        if (!token_ids_add(encoding->to, a->id)) return false;
        done = at;
    }
    return done == bytes || between(encoding, text + done, bytes - done, first && done == 0);
}

/* The text between added tokens goes through all splitters. */
static bool words(struct encoding *encoding, const char *text, size_t bytes, bool first)
{
    return through(encoding, 0, text, bytes, first);
}

/* Added tokens with `normalized` are looked for in the normalized text only. */
static bool normalized_words(struct encoding *encoding, const char *text, size_t bytes, bool first)
{
    struct made m;
    const bool ok = normalize(encoding->t, &m, text, bytes)
        && find_added(encoding, m.text, m.bytes, first, true, words);
    free(m.text);
    return ok;
}

/* ---- for everybody ----------------------------------------------------------------------------------------------- */

/* Tokens of one length are in the order of their ids. */
static int longest_first(const void *a, const void *b)
{
    const struct added *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->id - y->id;
}

/* Names of added tokens are normalized like the text in which they are looked for.  Then the longest of those that
 * begin alike is tried first. */
static enum error_code normalize_added(struct tokenizer *tokenizer, struct error *err)
{
    for (int i = 0; i < tokenizer->addeds; i++) {
        struct added *a = &tokenizer->added[i];
        struct made m;
        if (!a->normalized || tokenizer->normals == 0) continue;
        if (!normalize(tokenizer, &m, a->content, a->bytes)) return fail(err, ERR_MEMORY, "no memory for a tokenizer");
        free(a->content);
        a->content = m.text, a->bytes = m.bytes;
        if (a->bytes) tokenizer->begins[(uint8_t)*a->content] = 1;
    }
    qsort(tokenizer->added, (size_t)tokenizer->addeds, sizeof *tokenizer->added, longest_first);
    return OK;
}

/* A folder stands for the tokenizer.json in it.  After a failure *out is NULL. */
enum error_code tokenizer_open(struct tokenizer **out, const char *path, struct error *err)
{
    char inside[4096];
    struct stat s;
    cJSON *root = NULL;
    struct tokenizer *t = *out = calloc(1, sizeof *t);
    if (t == NULL) return fail(err, ERR_MEMORY, "no memory for a tokenizer");
    const bool folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    snprintf(inside, sizeof inside, "%s%s", path, folder ? "/tokenizer.json" : "");
    enum error_code e = json_read(inside, &root, err);
    if (!e) e = tokenizer_read(t, root, inside, err);
    if (!e) e = normalize_added(t, err);
    if (!e) t->cuts = cuts(t);
    cJSON_Delete(root);
    if (e) tokenizer_close(t), *out = NULL;
    return e;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    bpe_close(tokenizer->bpe);
    for (int i = 0; i < tokenizer->normals; i++) free(tokenizer->normal[i].from), free(tokenizer->normal[i].to);
    for (int i = 0; i < tokenizer->splits; i++)
        pattern_close(tokenizer->split[i].pattern), free(tokenizer->split[i].space);
    for (int i = 0; i < tokenizer->addeds; i++) free(tokenizer->added[i].content);
    free(tokenizer->added), free(tokenizer->space);
    free(tokenizer);
}

int32_t tokenizer_vocabulary(const struct tokenizer *tokenizer) { return tokenizer->vocabulary; }

/* The order is: repair UTF-8, find added tokens, normalize, split, merge; then the tokens around the text. */
enum error_code tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes, bool special,
                                 struct token_ids *to, int64_t *wrong, struct error *err)
{
    int64_t replaced = 0;
    struct encoding e = { tokenizer, to };
    char *valid = malloc(3 * bytes + 1);
    bool ok = valid != NULL;
    for (int i = 0; ok && special && i < tokenizer->befores; i++) ok = token_ids_add(to, tokenizer->before[i]);
    if (ok) ok = find_added(&e, valid, utf8_repair(valid, text, bytes, &replaced), true, false, normalized_words);
    for (int i = 0; ok && special && i < tokenizer->afters; i++) ok = token_ids_add(to, tokenizer->after[i]);
    free(valid);
    if (wrong) *wrong = replaced;
    /* A pattern that gave up has cut the text in the wrong places, so its tokens are no result.  Each pattern is asked,
     * because the answer is about the texts since the last question. */
    bool gave_up = false;
    for (int i = 0; i < tokenizer->splits; i++)
        if (tokenizer->split[i].pattern && pattern_gave_up(tokenizer->split[i].pattern)) gave_up = true;
    if (gave_up) return fail(err, ERR_FORMAT, "an expression of the tokenizer takes too many steps for this text");
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the tokens of %zu bytes", bytes);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

struct text_out { char *text; size_t count, room; };

/* The text always ends with a byte 0, which `count` does not count. */
static bool tokenizer_put(struct text_out *text_out, const char *text, size_t n)
{
    if (text_out->count + n + 1 > text_out->room) {
        const size_t room = 2 * (text_out->count + n + 1);
        char *more = realloc(text_out->text, room);
        if (more == NULL) return false;
        text_out->text = more, text_out->room = room;
    }
    memcpy(text_out->text + text_out->count, text, n);
    text_out->text[text_out->count += n] = '\0';
    return true;
}

/* The bytes that letters stand for; a name with another letter stays as it is. */
static bool put_letters(struct text_out *text_out, const char *name, size_t bytes)
{
    const size_t before = text_out->count;
    uint32_t c;
    for (size_t i = 0; i < bytes;) {
        const int n = utf8_first(name + i, bytes - i, &c), byte = n > 0 ? letter_byte(c) : -1;
        const char one = (char)byte;
        if (byte < 0) return text_out->count = before, tokenizer_put(text_out, name, bytes);
        if (!tokenizer_put(text_out, &one, 1)) return false;
        i += (size_t)n;
    }
    return true;
}

/* The byte of <0xE2>; -1: it is another name. */
static int byte_of_name(const char *name, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    if (bytes != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return -1;
    const char *high = memchr(digits, name[3], 16), *low = memchr(digits, name[4], 16);
    return high && low ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

/* A name is letters of bytes, one byte as <0xNN>, or text with a sign for blanks. */
static bool put_token(const struct tokenizer *tokenizer, struct text_out *text_out, const char *name, size_t bytes)
{
    struct made m;
    if (tokenizer->rule.byte_level) return put_letters(text_out, name, bytes);
    const int byte = tokenizer->rule.byte_fallback ? byte_of_name(name, bytes) : -1;
    if (byte >= 0) return tokenizer_put(text_out, &(char){ (char)byte }, 1);
    if (tokenizer->space == NULL) return tokenizer_put(text_out, name, bytes);
    const bool ok = replace_all(&m, "", name, bytes, tokenizer->space, " ") && tokenizer_put(text_out, m.text, m.bytes);
    free(m.text);
    return ok;
}

static const struct added *added_of(const struct tokenizer *tokenizer, int32_t id)
{
    for (int i = 0; i < tokenizer->addeds; i++)
        if (tokenizer->added[i].id == id) return &tokenizer->added[i];
    return NULL;
}

/* Added tokens have names outside the table of bpe.c, so they are asked first. */
enum error_code tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count, bool special,
                                 char **text, size_t *bytes, struct error *err)
{
    struct text_out o = { 0 };
    bool ok = tokenizer_put(&o, "", 0);
    for (int64_t i = 0; ok && i < count; i++) {
        size_t n = 0;
        const struct added *a = added_of(tokenizer, ids[i]);
        const char *name = a ? a->content : bpe_name(tokenizer->bpe, ids[i], &n);
        if (name == NULL) {
            free(o.text);
            return fail(err, ERR_USAGE, "%d: is no token; there are %d, from 0", (int)ids[i],
                        (int)tokenizer->vocabulary);
        }
        if (a && a->special && !special) continue;
        ok = put_token(tokenizer, &o, name, a ? a->bytes : n);
    }
    if (!ok) {
        free(o.text);
        return fail(err, ERR_MEMORY, "no memory for the text of %lld tokens", (long long)count);
    }
    /* A tokenizer that puts a blank before a text takes it away again. */
    if (tokenizer->strip && o.count > 0 && *o.text == ' ') memmove(o.text, o.text + 1, o.count--);
    *text = o.text, *bytes = o.count;
    return OK;
}
