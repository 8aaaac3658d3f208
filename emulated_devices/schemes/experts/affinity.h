/* affinity.h -- which part of the experts the tokens of each id need most: what speculative dispatch predicts by.
 *
 * Source   Semantic parallelism (Sem-MoE), arXiv:2503.04398: a token's experts follow mostly from its id, and partly
 *          from what is before it.  The paper has a table for each layer, and one of n-grams; where both know a token,
 *          the more confident one counts.  Here both are for all layers, so that rows are moved once, and a pair is
 *          listed only where it is the more confident one (affinity_pairs.h)
 *
 * plan/shuffle.c orders rows by it; `orrery affinity` (cli/affinity.c) writes a table, --affinity reads it
 * (run/words/take.c).
 */
#ifndef ORRERY_EXPERT_AFFINITY_H
#define ORRERY_EXPERT_AFFINITY_H

#include "ref/error.h"
#include <stdint.h>

/* A token behind another one in a sequence, and the part that has most of its experts there. */
struct affinity_pair { int32_t before, token, part; };

struct affinity {
    int64_t V;                          /* token ids */
    int parts;                          /* of the experts: ep */
    int32_t *part;                      /* [V] the part that has most of the experts of such tokens; -1: not known */
    int64_t pairs;                      /* pairs whose token needs another part than by itself */
    struct affinity_pair *pair;         /* [pairs] by before, then by token */
};

/** The part of the token at a place of a batch [B*S], whose sequence may have a token before it; -1: not known. */
int32_t affinity_part_at(const struct affinity *, const int32_t *ids, int64_t S, int64_t at);

/**
 * Order rows so that each device gets, as far as it has room, those whose experts are probably its own.
 * Block r of the order (block_at) is device r's.  A row goes to the device with its part if there is room, in the order
 * of rows; the others fill what room is left.  In a block rows are ascending.  Pure.
 * @param part         [n] of each row: affinity_part_at.
 * @param own          [devices] the part of each; of two with the same the first is filled first.
 * @param[out] order   [n] the row at each place.
 * @return OK or ERR_MEMORY.
 */
enum error_code affinity_order(const int32_t *part, int64_t n, const int own[], int devices, int32_t *order,
                               struct error *);

/** Read a table from JSON: {"parts": P, "part_of_token": [V numbers, -1 to P-1]}, and
 *  perhaps "pairs": [[before, token, part], ..], ascending.
 *  @return OK, for affinity_free; ERR_FILE, ERR_FORMAT naming what is wrong, or ERR_MEMORY, with an empty table. */
enum error_code affinity_read(struct affinity *, const char *path, struct error *);

/** Write such a file atomically.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code affinity_write(const struct affinity *, const char *path, struct error *);

void affinity_free(struct affinity *);

#endif
