/* owners.h -- which part of the devices owns which expert of which layer, if it is not the nth range of each layer.
 *
 * --owners reads such a file (run/words/take.c), --owners-out writes one (run/session.c) after model/mixture.c has
 * placed experts.
 */
#ifndef ORRERY_EXPERT_OWNERS_H
#define ORRERY_EXPERT_OWNERS_H

#include "ref/error.h"
#include <stdint.h>

struct expert_owners {
    int64_t L, E;                       /* layers and experts of the model */
    int parts;                          /* ep */
    int32_t *member;                    /* [L, E] from 0 to parts-1 */
};

/** Allocate owners, all 0.  @return OK, for expert_owners_free, or ERR_MEMORY. */
enum error_code expert_owners_make(struct expert_owners *, int64_t L, int64_t E, int parts, struct error *);

/** Read owners from JSON: {"parts": P, "experts": E, "owners": [L x E numbers from 0 to P-1, layer by layer]}.
 *  @return OK, for expert_owners_free; ERR_FILE, ERR_FORMAT naming what is wrong, or ERR_MEMORY, with no owners. */
enum error_code expert_owners_read(struct expert_owners *, const char *path, struct error *);

/** Write such a file atomically.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code expert_owners_write(const struct expert_owners *, const char *path, struct error *);

void expert_owners_free(struct expert_owners *);

#endif
