/* flight.h -- a race detector: what is in flight cannot be used before it has been waited for.
 *
 * A device executes in program order; overlap exists in virtual time only.  A result of the communication stream is in
 * memory at once, so a program that forgets to wait for it would still compute the right numbers.  With a flight it
 * does not.  Until the current stream waits (clock_wait, clock_join, message_wait)
 *
 *   the destination of a transfer is poison: NaN in every format;
 *   its source is read late, when it is waited for: if the buffer is reused too early, the new content is sent.
 *
 * A real machine may also transfer early.  For each transfer one of the two is chosen:
 *
 *   earliest   the data are there at once                 finds transfers that start before their source is complete
 *   latest     the data arrive when they are waited for   finds missing waits and buffers that are reused too early
 *   random     one or the other, drawn by seed and rank
 *
 * Three kinds of transfer are followed:
 *   messages   (comm/transport.c)  A late send starts when its device next waits for any message, because its peer may
 *              need it.  What is received is poison until its wait in all three modes.  Buffers that are used too early
 *              are reported (comm/watch.h).
 *   copies     to and from the slow tier (tier.h): destination and source.
 *   results    of a stream between clock_begin and clock_end: what messages, sums and clock_made have written to the
 *              arena.  clock_end moves them aside.  They come back when they are waited for, or when the same stream
 *              continues.  What that stream has read was read early: if it changes before the stream is waited for,
 *              comm_agree reports it.
 *
 * Memory is freed in the order of the stream that used it last, as by a stream-ordered allocator: the source of a copy
 * is read before it is freed, and results that are freed are dropped.  Nothing here counts in the arena or takes
 * virtual time.
 */
#ifndef ORRERY_FLIGHT_H
#define ORRERY_FLIGHT_H

#include "emulated_devices/device/clock.h"
#include "ref/error.h"

struct arena;
struct flight;

enum flight_when { FLIGHT_OFF, FLIGHT_EARLIEST, FLIGHT_LATEST, FLIGHT_RANDOM };
/* When transfers happen in real memory, and the seed that draws this for FLIGHT_RANDOM. */
struct flight_mode { enum flight_when when; uint64_t seed; };

/** Parse ORRERY_STREAMS: off, earliest, latest, random:SEED.  @return OK; ERR_USAGE with *mode as it was. */
enum error_code flight_mode_parse(struct flight_mode *mode, const char *text, struct error *err);

/** A flight with nothing in it.  @param rank  so that devices draw differently.  @return NULL: no memory. */
struct flight *flight_open(struct flight_mode, int rank, const struct arena *);
void flight_close(struct flight *);

/* For all functions below the flight may be NULL: then nothing is late, and they do nothing. */

/** Draw whether the next transfer is late. */
bool flight_late(struct flight *);

/** An engine is about to copy, and has copied.  It reads what is there at `start`. */
void flight_before_copy(struct flight *, picoseconds start, void *to, const void *from, uint64_t bytes);
void flight_copied(struct flight *, enum stream engine, picoseconds start, picoseconds done, void *to, const void *from,
                   uint64_t bytes);

/** A stream other than COMPUTE has written or read memory.  Memory outside of the arena is not followed. */
void flight_wrote(struct flight *, picoseconds now, void *data, uint64_t bytes);
void flight_read(struct flight *, picoseconds now, const void *data, uint64_t bytes);

/** A message of stream s will be received into this memory: what the stream has read or written there before is of no
 *  use any more, and must not be looked at while the message arrives.  f NULL: nothing. */
void flight_reuse(struct flight *, enum stream, const void *data, uint64_t bytes);

/** Copy what a stream reads at `data`, with its own results that are aside in their place: what its message sends.
 *  @param to  [bytes] of host memory. */
void flight_snapshot(const struct flight *, enum stream, void *to, const void *data, uint64_t bytes);

/** Called by the clock: a stream continues; it stops; the current stream waits until a time; for all of a stream; the
 *  clock restarts. */
void flight_enter(struct flight *, enum stream);
void flight_leave(struct flight *);
void flight_wait(struct flight *, picoseconds until);
void flight_join(struct flight *, enum stream);
void flight_settle(struct flight *);

/** Called by the arena, before it frees the memory. */
void flight_freed(struct flight *, const void *data, uint64_t bytes);

/** A hash of the content of a source, to detect changes. */
uint64_t flight_hash(const void *data, uint64_t bytes);

/** The hash of what a stream's message sends: see flight_snapshot. */
uint64_t flight_hash_sent(const struct flight *, enum stream, const void *data, uint64_t bytes);

/** A message about the first source that was changed too early; empty: none was. */
const char *flight_trouble(const struct flight *);

#endif
