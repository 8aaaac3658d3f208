/* splitter.h -- steps that cut a text into pieces.
 *
 * A splitter takes a piece and passes pieces on, one after the other, to the next splitter; the last ones are the words
 * of the model.  So nobody keeps a list of pieces.  A piece may be another text than what the splitter got: ByteLevel
 * passes on letters, which the next splitter sees.  tokenizer.c calls splitters.
 */
#ifndef ORRERY_SPLITTER_H
#define ORRERY_SPLITTER_H

#include "ref/text/step.h"

/* A part of a text on its way to the model, valid UTF-8. */
struct piece {
    const char *text;                   /* the sender's; it stays only until `take` returns */
    size_t bytes;                       /* length of `text` */
    size_t first;                       /* how many of its bytes stand for the first character of the whole text */
};

/* The next splitter, or the model. */
struct piece_taker {
    enum error_code (*take)(struct piece_taker *, struct piece, struct error *);        /* for piece_pass */
};

/* A kind of splitter: a file of this folder, and a line in kinds.def. */
struct splitter_kind {
    struct step_kind step;              /* its name, read and close */
    /** Pass pieces on.  The piece is not empty.  The state may keep buffers: `apply` is not called again before it
     *  returns.  @return OK; what piece_pass returned; ERR_MEMORY; ERR_FORMAT if an expression takes too many steps. */
    enum error_code (*apply)(void *state, struct piece, struct piece_taker *next, struct error *);
};

#define SPLITTER(symbol) extern const struct splitter_kind splitter_##symbol;
#include "ref/text/kinds.def"

extern const struct step_room splitter_room;

/** Pass a piece on.  An empty one is dropped, as nobody makes tokens of it. */
static inline enum error_code piece_pass(struct piece_taker *next, struct piece piece, struct error *err)
{
    return piece.bytes ? next->take(next, piece, err) : OK;
}

/** The bytes from `begin` to `end` of a piece. */
static inline struct piece piece_part(struct piece piece, size_t begin, size_t end)
{
    const size_t first = piece.first > begin ? piece.first - begin : 0;
    return (struct piece){ piece.text + begin, end - begin, first < end - begin ? first : end - begin };
}

/** Refuse a file in which a text could grow without end: with more than a few ByteLevel, each of which can double it.
 *  @return as the readers of step.h. */
enum error_code splitters_check(const struct steps *, struct step_reading *);

/* Splitters one after the other, and who takes the words at their end. */
struct split_chain;

/** @return NULL if there is no memory. */
struct split_chain *split_chain_open(const struct steps *, struct piece_taker *words);
void split_chain_close(struct split_chain *);

/** Send a piece through all splitters.  @return as their `apply`. */
enum error_code split_chain_take(struct split_chain *, struct piece, struct error *);

#endif
