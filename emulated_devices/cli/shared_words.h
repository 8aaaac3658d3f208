/* shared_words.h -- a link that devices share, in words.  list/machines.c and show/cluster_pairs.c call
 * this function. */
#ifndef ORRERY_SHARED_WORDS_H
#define ORRERY_SHARED_WORDS_H

#include "emulated_devices/device/cluster.h"
#include <stddef.h>

/** Write who shares a link, for which messages, and at which rate; also each member's part, if all send at once.
 *  @return text. */
const char *shared_words(const struct cluster *, const struct shared_link *, char *text, size_t size);

#endif
