/* flight.h -- what is in flight: copies and results that in virtual time are not there yet.
 *
 * A device executes in order, and overlap exists in virtual time only: a result of the communication stream lies in
 * memory at once.  So nothing would go wrong if somebody used it without waiting.  Here it does.  Until the current
 * stream waits for it (clock_wait, clock_join, message_wait)
 *
 *   the destination of a transfer is poison, which is NaN in every format, and
 *   its source is read late: when it is waited for, so that a buffer that is used again too early travels with what it
 *   is used for.
 *
 * A real machine may also be early.  For each transfer one of the two is chosen:
 *
 *   earliest   the data are there at once                    finds what reads its source before that is there
 *   latest     the data come when they are waited for        finds missing waits, and buffers used again too early
 *   random     one or the other, drawn by seed and rank
 *
 * Three kinds of transfer are followed:
 *   messages   (comm/transport.c)  a late send starts when its device next waits for any message: its peer may need it
 *   to go on.  If the
 *              source changes after that, message_wait says so.
 *   copies     of the slow tier (tier.h): the destination, the source
 *   results    of a stream between clock_begin and clock_end: what messages, sums and clock_made have written to the
 *   arena.  They are moved
 *              aside at clock_end, and back when they are waited for, or when the same stream goes on.  What has been
 *              read there was read early; if it is changed before the stream is waited for, comm_agree says so.
 *
 * Memory is freed in the order of the stream that used it last, as a stream-ordered allocator frees it: a source that
 * is freed is read then, and results that are freed are dropped.  Nothing here counts in the arena, and no virtual time
 * passes.
 */
#ifndef ORRERY_FLIGHT_H
#define ORRERY_FLIGHT_H

#include "emulated_devices/device/clock.h"
#include "ref/error.h"

struct arena;
struct flight;

enum flight_when { FLIGHT_OFF, FLIGHT_EARLIEST, FLIGHT_LATEST, FLIGHT_RANDOM };
struct flight_mode { enum flight_when when; uint64_t seed; };

/** What ORRERY_STREAMS may say: off, earliest, latest, random:SEED.  @return OK; ERR_USAGE with *mode as it was. */
enum error_code flight_mode_parse(struct flight_mode *mode, const char *text, struct error *err);

/** Nothing is in flight yet.  @param rank  so that devices draw differently.
 * @return NULL if the machine has no memory. */
struct flight *flight_open(struct flight_mode, int rank, const struct arena *);
void flight_close(struct flight *);

/* In what follows the flight may be NULL: nothing happens, and nothing is late. */

/** Draw whether the next transfer is late. */
bool flight_late(struct flight *);

/** An engine copies, or is about to: from `start` on, so that it sees what is there by then. */
void flight_before_copy(struct flight *, picoseconds start, void *to, const void *from, uint64_t bytes);
void flight_copied(struct flight *, enum stream engine, picoseconds start, picoseconds done, void *to, const void *from,
                   uint64_t bytes);

/** A stream that is not COMPUTE has written or read memory of the arena; other memory is left alone. */
void flight_wrote(struct flight *, picoseconds now, void *data, uint64_t bytes);
void flight_read(struct flight *, picoseconds now, const void *data, uint64_t bytes);

/** What a stream would read at data, though results of its own are aside: its message that leaves now takes that along.
 *  @param to  [bytes] of the host */
void flight_snapshot(const struct flight *, enum stream, void *to, const void *data, uint64_t bytes);

/** What the clock tells: a stream goes on, and stops; somebody waits until a time, or for all of a stream;
 * the clock starts anew. */
void flight_enter(struct flight *, enum stream);
void flight_leave(struct flight *);
void flight_wait(struct flight *, picoseconds until);
void flight_join(struct flight *, enum stream);
void flight_settle(struct flight *);

/** What the arena tells, before the memory goes. */
void flight_freed(struct flight *, const void *data, uint64_t bytes);

/** A hash of what a source holds, to see whether it changes. */
uint64_t flight_hash(const void *data, uint64_t bytes);

/** The first source that was changed too early, in words; empty: none. */
const char *flight_trouble(const struct flight *);

#endif
