/* character_sets.c -- reads classes of characters as Oniguruma does, and answers what is in them.
 *
 * patterns.c and the steps in normalizers/ and splitters/ call it.  Nothing here reports an error by itself: a set
 * says that memory was short, and character_set_read where it stopped.
 */
#include "ref/text/character_sets.h"
#include "ref/text/classes.h"
#include "ref/text/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { CODE_POINT_MOST = 0x10FFFF, CLASS_NAME_MOST = 40, BRACKETS_MOST = 50 };
#define LENGTH(a) (sizeof(a) / sizeof *(a))

/* Classes that consist of others.  ~ is everything but the others. */
static const struct { const char *name, *members; } unions[] = {
    { "L", "Lu Ll Lt Lm Lo" }, { "M", "Mn Mc Me" }, { "N", "Nd Nl No" }, { "P", "Pc Pd Ps Pe Pi Pf Po" },
    { "S", "Sm Sc Sk So" }, { "Z", "Zs Zl Zp" }, { "C", "Cc Cf Cn Co" }, { "LC", "Lu Ll Lt" },
    { "Cn", "~ L M N P S Z Cc Cf Co" }, { "Any", "~" },
    { "letter", "L" }, { "mark", "M" }, { "number", "N" }, { "punctuation", "P" }, { "symbol", "S" },
    { "separator", "Z" }, { "other", "C" }, { "lowercaseletter", "Ll" }, { "uppercaseletter", "Lu" },
    { "titlecaseletter", "Lt" }, { "otherletter", "Lo" }, { "modifierletter", "Lm" }, { "decimalnumber", "Nd" },
    { "nonspacingmark", "Mn" }, { "alphabetic", "alpha" }, { "lowercase", "lower" }, { "uppercase", "upper" },
    { "digit", "Nd" }, { "space", "s" }, { "whitespace", "s" }, { "cntrl", "Cc" }, { "punct", "P" },
    { "alnum", "alpha Nd" }, { "graph", "~ s Cc Cn" }, { "print", "graph Zs" }, { "word", "alpha M Nd Pc" },
};

/* Names that no expression can write. */
static const struct { const char *name, *members; } step_unions[] = {
    { "bare_w", "word w_more" }, { "rust_word", "word rust_more" },
};

/* ---- classes of the tables --------------------------------------------------------------------------------------- */

static const struct character_class *class_in(const struct character_class *table, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const struct character_class *class_named(const char *name)
{
    const struct character_class *found = class_in(step_classes, LENGTH(step_classes), name);
    return found ? found : class_in(property_classes, LENGTH(property_classes), name);
}

/* Ranges ascend. */
static bool ranges_have(const struct character_range *range, int count, uint32_t c)
{
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (c > range[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < count && c >= range[low].first;
}

bool class_has(const struct character_class *character_class, uint32_t c)
{
    return ranges_have(character_class->range, character_class->count, c);
}

/* The name has to be one of the tables. */
bool is_in_class(uint32_t c, const char *name) { return class_has(class_named(name), c); }

uint32_t lower_of(uint32_t c)
{
    size_t low = 0, high = LENGTH(lower_ranges);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c > lower_ranges[middle].last) low = middle + 1;
        else high = middle;
    }
    if (low == LENGTH(lower_ranges) || c < lower_ranges[low].first) return c;
    return (c - lower_ranges[low].first) % lower_ranges[low].step ? c : c + (uint32_t)lower_ranges[low].distance;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

void character_set_free(struct character_set *character_set)
{
    free(character_set->range);
    *character_set = (struct character_set){ 0 };
}

bool character_set_has(const struct character_set *character_set, uint32_t c)
{
    return ranges_have(character_set->range, character_set->count, c);
}

/* At its end; character_set_order puts it in its place. */
static void character_set_put(struct character_set *character_set, uint32_t first, uint32_t last)
{
    if (character_set->count == character_set->room) {
        const int room = character_set->room ? 2 * character_set->room : 64;
        struct character_range *more = realloc(character_set->range, (size_t)room * sizeof *more);
        if (more == NULL) { character_set->no_memory = true; return; }
        character_set->range = more, character_set->room = room;
    }
    character_set->range[character_set->count++] = (struct character_range){ first, last };
}

static void character_set_put_set(struct character_set *character_set, const struct character_set *more)
{
    for (int i = 0; i < more->count; i++) character_set_put(character_set, more->range[i].first, more->range[i].last);
    character_set->no_memory |= more->no_memory;
}

static int by_first(const void *a, const void *b)
{
    const struct character_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Ranges ascend and do not touch. */
static void character_set_order(struct character_set *character_set)
{
    int kept = 0;
    struct character_range *range = character_set->range;
    if (character_set->count) qsort(range, (size_t)character_set->count, sizeof *range, by_first);
    for (int i = 0; i < character_set->count; i++) {
        if (kept && range[i].first <= range[kept - 1].last + 1) {
            if (range[i].last > range[kept - 1].last) range[kept - 1].last = range[i].last;
        } else range[kept++] = range[i];
    }
    character_set->count = kept;
}

/* The set becomes everything but itself. */
static void character_set_turn(struct character_set *character_set)
{
    struct character_set turned = { .no_memory = character_set->no_memory };
    uint32_t next = 0;
    character_set_order(character_set);
    for (int i = 0; i < character_set->count; i++) {
        if (character_set->range[i].first > next) character_set_put(&turned, next, character_set->range[i].first - 1);
        next = character_set->range[i].last + 1;
    }
    if (next <= CODE_POINT_MOST) character_set_put(&turned, next, CODE_POINT_MOST);
    character_set_free(character_set);
    *character_set = turned;
}

/* Everything is kept but what one of them lacks. */
static void character_set_keep(struct character_set *character_set, struct character_set *with)
{
    character_set_turn(character_set);
    character_set_turn(with);
    character_set_put_set(character_set, with);
    character_set_turn(character_set);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool character_set_put_name(struct character_set *character_set, const char *name, bool steps);

/* The members are words; a ~ before them turns what they are. */
static void character_set_put_members(struct character_set *character_set, const char *members)
{
    char word[CLASS_NAME_MOST];
    struct character_set sum = { 0 };
    const bool turned = *members == '~';
    for (const char *at = members + turned; *at;) {
        const size_t n = strcspn(at, " ");
        memcpy(word, at, n), word[n] = '\0';
        if (n) (void)character_set_put_name(&sum, word, true);
        at += n + (at[n] == ' ');
    }
    if (turned) character_set_turn(&sum);
    character_set_put_set(character_set, &sum);
    character_set_free(&sum);
}

/* Names are compared as Oniguruma does: without blanks, - and _, and in any case. */
static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a && strchr(" -_", *a)) a++;
        while (*b && strchr(" -_", *b)) b++;
        if ((*a | (*a >= 'A' && *a <= 'Z' ? 32 : 0)) != (*b | (*b >= 'A' && *b <= 'Z' ? 32 : 0))) return false;
        if (*a == '\0') return true;
    }
}

static void character_set_put_class(struct character_set *character_set, const struct character_class *character_class)
{
    for (int i = 0; i < character_class->count; i++)
        character_set_put(character_set, character_class->range[i].first, character_class->range[i].last);
}

/* steps: also what steps alone name, which is written exactly so. */
static bool character_set_put_name(struct character_set *character_set, const char *name, bool steps)
{
    const struct character_class *found = steps ? class_in(step_classes, LENGTH(step_classes), name) : NULL;
    if (found) return character_set_put_class(character_set, found), true;
    for (size_t i = 0; steps && i < LENGTH(step_unions); i++)
        if (strcmp(step_unions[i].name, name) == 0)
            return character_set_put_members(character_set, step_unions[i].members), true;
    for (size_t i = 0; i < LENGTH(unions); i++)
        if (same_name(unions[i].name, name)) return character_set_put_members(character_set, unions[i].members), true;
    for (size_t i = 0; i < LENGTH(property_classes); i++)
        if (same_name(property_classes[i].name, name))
            return character_set_put_class(character_set, &property_classes[i]), true;
    return false;
}

static bool character_set_add_name(struct character_set *character_set, const char *name, size_t bytes, bool steps)
{
    char copy[CLASS_NAME_MOST];
    if (bytes == 0 || bytes >= sizeof copy) return false;
    memcpy(copy, name, bytes), copy[bytes] = '\0';
    const bool known = character_set_put_name(character_set, copy, steps);
    character_set_order(character_set);
    return known;
}

bool character_set_add(struct character_set *character_set, const char *name)
{
    return character_set_add_name(character_set, name, strlen(name), true);
}

/* ---- brackets ---------------------------------------------------------------------------------------------------- */

struct bracket_reading { const char *at, *wrong; size_t bytes; int depth; };

static bool bracket_stop(struct bracket_reading *reading, const char *wrong, size_t bytes)
{
    reading->wrong = wrong, reading->bytes = bytes;
    return false;
}

/* \d and the like, without its opposite; NULL: another escape. */
static const char *short_class(char letter, bool bare)
{
    switch (letter) {
    case 'd': case 'D': return "Nd";
    case 's': case 'S': return "s";
    case 'h': case 'H': return "xdigit";
    case 'w': case 'W': return bare ? "bare_w" : "word";
    default: return NULL;
    }
}

/* An escape that stands for a class goes into *set.  @return its bytes; 0: it is another.  *known says whether there is
 * a table. */
static size_t read_class_escape(struct character_set *set, const char *text, bool bare, bool *opposite, bool *known)
{
    const char *short_name = short_class(text[1], bare);
    *known = true;
    *opposite = text[1] == 'D' || text[1] == 'S' || text[1] == 'W' || text[1] == 'H' || text[1] == 'P';
    if (short_name) return (void)character_set_add(set, short_name), 2;
    if ((text[1] != 'p' && text[1] != 'P') || text[2] != '{') return 0;
    const bool turned = text[3] == '^';
    const size_t n = strcspn(text + 3, "}");
    if (text[3 + n] == '\0') return 0;
    *opposite ^= turned;
    *known = n > turned && character_set_add_name(set, text + 3 + turned, n - turned, false);
    return n + 4;
}

static size_t read_hex(const char *text, size_t most, uint32_t *code)
{
    size_t n = 0;
    for (*code = 0; n < most && text[n] && strchr("0123456789abcdefABCDEF", text[n]); n++)
        *code = *code << 4 | (uint32_t)(text[n] <= '9' ? text[n] - '0' : (text[n] | 32) - 'a' + 10);
    return n;
}

/* A character, or an escape of one.  @return whether there is one. */
static bool read_character(struct bracket_reading *reading, uint32_t *code)
{
    static const char letters[] = "nrtfvaeb", codes[] = "\n\r\t\f\v\a\033\b";
    const char *t = reading->at;
    if (*t != '\\') return reading->at += utf8_first(t, UTF8_MOST, code), true;
    const char *letter = t[1] ? strchr(letters, t[1]) : NULL;
    if (letter) return *code = (uint32_t)codes[letter - letters], reading->at += 2, true;
    size_t n = 0;
    if (t[1] == 'x' && t[2] == '{') {
        n = read_hex(t + 3, 8, code);
        if (n == 0 || t[3 + n] != '}') return bracket_stop(reading, t, 3);
        return reading->at += n + 4, true;
    }
    if (t[1] == 'x' || t[1] == 'u') {
        n = read_hex(t + 2, t[1] == 'x' ? 2 : 4, code);
        if (n == 0 || (t[1] == 'u' && n < 4)) return bracket_stop(reading, t, 2);
        return reading->at += n + 2, true;
    }
    if (t[1] == '0') return *code = 0, reading->at += 2, true;
    if (t[1] == '\0' || (t[1] >= '1' && t[1] <= '9') || strchr("cCMRXKGzZAB", t[1])) return bracket_stop(reading, t, 2);
    return reading->at += 1 + utf8_first(t + 1, UTF8_MOST, code), true;
}

/* [:alpha:] or [:^alpha:].  @return whether it is one. */
static bool read_posix(struct bracket_reading *reading, struct character_set *set)
{
    const bool turned = reading->at[2] == '^';
    const char *name = reading->at + 2 + turned, *end = strstr(name, ":]");
    const size_t n = end ? (size_t)(end - name) : 0;
    struct character_set one = { 0 };
    if (n == 0 || n > 6 || strspn(name, "abcdefghijklmnopqrstuvwxyz") != n) return false;
    if (n == 5 && memcmp(name, "ascii", 5) == 0) character_set_put(&one, 0, 0x7F);
    else if (!character_set_add_name(&one, name, n, false)) return character_set_free(&one), false;
    /* Its punctuation has symbols, which \p{Punct} has not. */
    if (n == 5 && memcmp(name, "punct", 5) == 0) (void)character_set_add(&one, "S");
    if (turned) character_set_turn(&one);
    character_set_put_set(set, &one);
    character_set_free(&one);
    return reading->at = end + 2, true;
}

static bool read_brackets(struct bracket_reading *reading, struct character_set *set, bool *opposite);

/* A class in a class. */
static bool read_inner(struct bracket_reading *reading, struct character_set *set)
{
    struct character_set inner = { 0 };
    bool opposite;
    const bool ok = read_brackets(reading, &inner, &opposite);
    if (ok && opposite) character_set_turn(&inner);
    character_set_put_set(set, &inner);
    character_set_free(&inner);
    return ok;
}

/* An escape, a character or a range of them. */
static bool read_item(struct bracket_reading *reading, struct character_set *set)
{
    struct character_set one = { 0 };
    bool opposite, known;
    uint32_t first, last;
    const size_t n = *reading->at == '\\' ? read_class_escape(&one, reading->at, false, &opposite, &known) : 0;
    if (n && opposite) character_set_turn(&one);
    if (n) character_set_put_set(set, &one);
    character_set_free(&one);
    if (n && !known) return bracket_stop(reading, reading->at, n);
    if (n) return reading->at += n, true;
    if (!read_character(reading, &first)) return false;
    last = first;
    const char *t = reading->at;
    /* A - before the end, a class or an escape for one is a character itself. */
    const bool class_next = t[0] == '-' && (t[1] == ']' || t[1] == '[' || t[1] == '\0' ||
                                            (t[1] == '\\' && t[2] && strchr("dDsSwWhHpP", t[2])));
    if (t[0] == '-' && !class_next) {
        reading->at++;
        if (!read_character(reading, &last)) return false;
        if (last < first) return bracket_stop(reading, t - 1, (size_t)(reading->at - t + 1));
    }
    character_set_put(set, first, last);
    return true;
}

static bool read_brackets(struct bracket_reading *reading, struct character_set *set, bool *opposite)
{
    struct character_set left = { 0 };
    bool ok = true, both = false;
    const char *begin = reading->at++;
    if (++reading->depth > BRACKETS_MOST) return bracket_stop(reading, begin, 1);
    *opposite = *reading->at == '^';
    reading->at += *opposite;
    /* A ] that comes first is a character of the class. */
    if (*reading->at == ']') character_set_put(set, ']', ']'), reading->at++;
    while (ok && *reading->at && *reading->at != ']') {
        if (reading->at[0] == '&' && reading->at[1] == '&') {
            if (both) character_set_keep(&left, set);
            else character_set_put_set(&left, set);
            set->count = 0, both = true, reading->at += 2;
        } else if (reading->at[0] == '[' && reading->at[1] == ':' && read_posix(reading, set)) continue;
        else ok = *reading->at == '[' ? read_inner(reading, set) : read_item(reading, set);
    }
    if (ok && both) character_set_keep(set, &left);
    character_set_free(&left);
    if (ok && *reading->at == '\0') ok = bracket_stop(reading, NULL, 0);
    if (ok) reading->at++, character_set_order(set);
    reading->depth--;
    return ok;
}

size_t character_set_read(struct character_set *set, const char *text, bool *opposite, const char **wrong,
                          size_t *bytes)
{
    struct bracket_reading reading = { .at = text };
    bool known;
    *wrong = text, *bytes = 0;
    if (*text == '\\') {
        const size_t n = read_class_escape(set, text, true, opposite, &known);
        if (known) return n;
        return *bytes = n, 0;
    }
    if (read_brackets(&reading, set, opposite)) return (size_t)(reading.at - text);
    return *wrong = reading.wrong, *bytes = reading.bytes, 0;
}
