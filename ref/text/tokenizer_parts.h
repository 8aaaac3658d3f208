/* tokenizer_parts.h -- what a tokenizer consists of: for tokenizer*.c.
 *
 * tokenizer_read.c fills these structs and tokenizer.c uses them; nobody else includes the file.
 */
#ifndef ORRERY_TOKENIZER_PARTS_H
#define ORRERY_TOKENIZER_PARTS_H

#include "ref/io/json.h"
#include "ref/text/patterns.h"
#include "ref/text/tokenizer.h"

enum { STEPS_MOST = 16, AROUND_MOST = 8 };
#define META_SPACE "\xE2\x96\x81"      /* U+2581, sentencepiece's blank */

/* ---- normalizers: of a whole text -------------------------------------------------------------------------------- */

enum normal_kind { NORMAL_PREPEND, NORMAL_REPLACE, NORMAL_NFC };
struct normal { enum normal_kind kind; char *from, *to; };      /* from: of a replacement */

/* ---- splitters: of a text into pieces, one after the other ------------------------------------------------------- */

enum split_kind { SPLIT_PATTERN, SPLIT_DIGITS, SPLIT_METASPACE };
enum split_match { MATCH_ISOLATED, MATCH_REMOVED, MATCH_WITH_PREVIOUS, MATCH_WITH_NEXT, MATCH_CONTIGUOUS };
enum prepending { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct split {
    enum split_kind kind;               /* which of the fields below are used */
    struct pattern *pattern;            /* what it finds; NULL: the text stays whole */
    enum split_match match;             /* what becomes of what it finds */
    bool invert;                        /* it finds the pieces, not what is between them */
    bool space_first;                   /* a blank is put before a text that does not begin with one */
    char *space;                        /* SPLIT_METASPACE: what blanks become */
    enum prepending prepend;            /* ... and whether it is put before a text, or the first one only */
};

/* ---- tokens that are found in a text before it is split ---------------------------------------------------------- */

struct added {
    char *content;                      /* its text */
    size_t bytes;                       /* length of `content` */
    int32_t id;                         /* the token */
    bool special, left, right;          /* left, right: it takes the white space beside it, too */
    bool normalized;                    /* it is looked for in the normalized text */
};

struct tokenizer {
    struct bpe *bpe;                    /* names of tokens and merges */
    struct bpe_rule rule;               /* as read from the file, before bpe_set_rule has it */
    struct normal normal[STEPS_MOST];   /* changes of a text before it is split, in order */
    struct split split[STEPS_MOST];     /* cuts of the text into words, in order */
    int normals, splits;                /* entries of these */
    struct added *added;                /* [addeds] the longest first */
    int addeds;                         /* tokens that are found in the text before any merge */
    uint8_t begins[256];                /* whether one begins with this byte */
    int32_t before[AROUND_MOST], after[AROUND_MOST];            /* tokens around a text */
    int befores, afters;                /* entries of these */
    char *space;                        /* what stands for a blank in names of tokens; NULL: nothing does */
    bool cuts;                          /* no token has META_SPACE after another character, so no merge crosses there */
    bool strip;                         /* decoding removes a blank from the beginning */
    int32_t vocabulary;                 /* one more than the largest token */
};

/** The parts of a file, from its JSON.  @return as tokenizer_open; what was read is the tokenizer's even then. */
enum error_code tokenizer_read(struct tokenizer *, const cJSON *root, const char *path, struct error *);

/** A copy of a text.  @return NULL if there is no memory. */
char *text_copy(const char *);

#endif
