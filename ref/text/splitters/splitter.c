/* splitter.c -- the list of splitters, and the chain of those of a file.  tokenizer.c calls the chain; errors are those
 * of the kinds. */
#include "ref/text/splitters/splitter.h"
#include <stdlib.h>

static const struct step_kind *const kinds[] = {
#define SPLITTER(symbol) &splitter_##symbol.step,
#include "ref/text/kinds.def"
    NULL
};

const struct step_room splitter_room = { "pre_tokenizer", "pretokenizers", kinds };

enum error_code splitters_check(const struct steps *steps, struct step_reading *reading)
{
    enum { LEVELS_MOST = 4 };
    int levels = 0;
    reading->part = splitter_room.key, reading->kind = "Sequence";
    for (int i = 0; i < steps->count; i++) levels += steps->step[i].kind == &splitter_byte_level.step;
    return levels > LEVELS_MOST ? step_refuse(reading, "more than 4 ByteLevel") : OK;
}

/* A splitter as the taker of the pieces that the one before it passes on. */
struct split_link {
    struct piece_taker taker;           /* the first member, so that a taker is a link */
    const struct splitter_kind *kind;   /* of the splitter */
    void *state;                        /* of the splitter */
    struct piece_taker *next;           /* who takes what it passes on */
};

struct split_chain {
    struct piece_taker *first;          /* the first link, or the taker of words */
    struct split_link link[];
};

static enum error_code split_link_take(struct piece_taker *taker, struct piece piece, struct error *err)
{
    struct split_link *link = (struct split_link *)taker;
    return link->kind->apply(link->state, piece, link->next, err);
}

struct split_chain *split_chain_open(const struct steps *steps, struct piece_taker *words)
{
    struct split_chain *chain = malloc(sizeof *chain + (size_t)steps->count * sizeof *chain->link);
    if (chain == NULL) return NULL;
    chain->first = words;
    for (int i = steps->count - 1; i >= 0; i--) {
        chain->link[i] = (struct split_link){ { split_link_take }, (const struct splitter_kind *)steps->step[i].kind,
                                              steps->step[i].state, chain->first };
        chain->first = &chain->link[i].taker;
    }
    return chain;
}

void split_chain_close(struct split_chain *split_chain) { free(split_chain); }

enum error_code split_chain_take(struct split_chain *split_chain, struct piece piece, struct error *err)
{
    return piece_pass(split_chain->first, piece, err);
}
