/* told.h -- what the device that draws tells its replica after an iteration: the time, and each piece's tokens.
 *
 *     time, two halves; for each piece that samples: its token
 *     with proposals, instead: how many tokens, room for them, how many proposals for the next iteration, room for them
 *
 * engine.c writes and reads such messages of 32-bit integers.
 */
#ifndef ORRERY_TOLD_H
#define ORRERY_TOLD_H

#include "emulated_devices/serve/scheduler.h"
#include <string.h>

enum { TOLD_TIME = 2 };                 /* integers before the pieces */

/* Integers of a piece, with up to so many proposals. */
static inline int64_t told_stride(int64_t most) { return most > 0 ? 2 * most + 3 : 1; }

static inline void told_time_write(int32_t *told, int64_t time)
{
    told[0] = (int32_t)(uint32_t)(uint64_t)time, told[1] = (int32_t)(uint32_t)((uint64_t)time >> 32);
}

static inline int64_t told_time_read(const int32_t *told)
{
    return (int64_t)((uint64_t)(uint32_t)told[0] | (uint64_t)(uint32_t)told[1] << 32);
}

static inline int32_t *told_piece(int32_t *told, int64_t most, int64_t piece)
{
    return told + TOLD_TIME + piece * told_stride(most);
}

/* Where tokens and proposals of a piece are written, and their numbers.  Without proposals there is one token. */
static inline int32_t *told_tokens(int32_t *piece, int64_t most) { return most > 0 ? piece + 1 : piece; }
static inline int32_t *told_proposals(int32_t *piece, int64_t most) { return piece + most + 3; }
static inline void told_count(int32_t *piece, int64_t most, int64_t tokens, int64_t proposals)
{
    if (most > 0) piece[0] = (int32_t)tokens, piece[most + 2] = (int32_t)proposals;
}

static inline struct taken_tokens told_read(int32_t *piece, int64_t most)
{
    if (most == 0) return (struct taken_tokens){ piece, 1, NULL, 0 };
    return (struct taken_tokens){ piece + 1, piece[0], piece + most + 3, piece[most + 2] };
}

#endif
