/* character_sets.h -- sets of characters: what stands in the brackets of an expression, and the classes of classes.h.
 *
 * A set is ascending ranges of code points that do not touch.  Brackets are read as Oniguruma reads them: classes in
 * classes, && for what is in both, \p{Han}, [:alpha:], \d, \w, \s and their opposites.  The library `tokenizers` has
 * another Unicode than PCRE2, so all classes come from tables that golden/make_classes.py asks it for.
 *
 * patterns.c writes sets into expressions for PCRE2; steps ask whether a character is in a class.
 */
#ifndef ORRERY_CHARACTER_SETS_H
#define ORRERY_CHARACTER_SETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Code points from first to last, both included. */
struct character_range { uint32_t first, last; };

/* A class by its name in classes.h, such as "Nd", as ascending ranges. */
struct character_class { const char *name; const struct character_range *range; int count; };

/** A class of classes.h: "s", white space; "numeric", what the splitter Digits takes for a digit; "Nd"... */
const struct character_class *class_named(const char *name);

/** Whether a code point is in a class. */
bool class_has(const struct character_class *, uint32_t c);

/** As class_has, by the name of the class. */
bool is_in_class(uint32_t c, const char *name);

/* All zeros is the empty set. */
struct character_set {
    struct character_range *range;      /* [count], ascending */
    int count, room;                    /* ranges, and how many there is memory for */
    bool no_memory;                     /* there was too little for some, so that the set is of no use */
};

void character_set_free(struct character_set *);

/** Whether a code point is in the set. */
bool character_set_has(const struct character_set *, uint32_t c);

/** Add a class, or a union of such, by its name in braces, as {Lu}; or "bare_w", the class w outside brackets; or
 *  "rust_word", the class w in Rust.
 *  @return whether it is known. */
bool character_set_add(struct character_set *, const char *name);

/**
 * Read brackets, or an escape outside of them that stands for a class.
 * @param text           begins with [ or a backslash.
 * @param[out] set       what is read; for character_set_free also after an error.
 * @param[out] opposite  the class is everything but the set, as in [^a].
 * @param[out] wrong     where 0 is returned: what is not understood, *bytes long; NULL: the end is missing.
 * @return how many bytes were read; 0: `wrong` says why not, or it is no class (*bytes is 0 then).
 */
size_t character_set_read(struct character_set *set, const char *text, bool *opposite, const char **wrong,
                          size_t *bytes);

/** The lower case of a code point in Rust.  U+0130, which has two characters, stays as it is. */
uint32_t lower_of(uint32_t c);

#endif
