/* collective_state.h -- what every device has of a collective's vector, event by event.
 *
 * The vector is drawn as one block for each device: the columns of a picture.  For each device and place the state has
 * the set of devices whose numbers are in the sum there.  collective.c, collective_svg.c and collective_film.c call
 * these functions.
 */
#ifndef ORRERY_DRAW_COLLECTIVE_STATE_H
#define ORRERY_DRAW_COLLECTIVE_STATE_H

#include "emulated_devices/draw/collective/collective.h"
#include "ref/io/figures.h"

enum { COLLECTIVE_TEXT = 200 };         /* bytes of the text of a message or cell */

/* For each device and place: the set of devices whose numbers are in the largest sum that the device has had. */
struct collective_state {
    const struct show_trace *t;         /* the run */
    int64_t places;                     /* of the vector */
    unsigned *has;                      /* [P, places] */
    bool sums_only;                     /* what arrives to be added counts only when it has been added */
};

/* A block of a device: nothing, a part of the sum or of the elements, or all that the operation wants of this block. */
enum collective_fill { COLLECTIVE_EMPTY, COLLECTIVE_PARTIAL, COLLECTIVE_WHOLE };

/** Note what each device has before the first step.  @return OK or ERR_MEMORY. */
enum error_code collective_state_open(struct collective_state *, const struct show_trace *, struct error *);
void collective_state_free(struct collective_state *);

/** Update the state by an event.  An all-to-all adds nothing: elements from different devices are side by side. */
void collective_take_in(struct collective_state *, const struct show_event *);

/* When the messages of a step arrive: the first and the last.  last 0: the step has none. */
struct collective_arrivals { picoseconds first, last; };
struct collective_arrivals collective_arrivals(const struct show_trace *, int64_t step);

/** "4.021 us", or "4.021 to 5.025 us". */
struct figure collective_describe_arrivals(struct collective_arrivals);

/* The time of the last device, and the traffic of all; most: bytes from one device. */
struct collective_totals { picoseconds end; uint64_t messages, bytes, additions, most; };
struct collective_totals collective_totals(const struct show_trace *);

/** How to read the blocks: a sentence or two. */
void collective_describe_blocks(const struct collective_state *, char *text, size_t size);

/** The rounds of a run: the step of its last event. */
int64_t collective_steps(const struct show_trace *);

/* The result is a device's row of has [P, places]. */
static inline unsigned *collective_has(const struct collective_state *state, int device)
{
    return &state->has[device * state->places];
}

/** The first place of block b; of block P: the end of the vector. */
int64_t collective_block_first(const struct collective_state *, int b);

int64_t collective_block_size(const struct collective_state *, int b);

/** The block of a place. */
int collective_block_of(const struct collective_state *, int64_t place);

/** The number of devices of a set. */
int collective_members(unsigned set);

/** Whether the operation puts blocks of all devices beside each other, adds up, or only moves what one device has. */
bool collective_gathers(enum operation);
bool collective_reduces(enum operation);
bool collective_only_moves(const struct collective_state *);

/** The set of a finished block; 0: none. */
unsigned collective_finished(const struct collective_state *, int b);

/** Whether an event's buffer has elements of block b. */
bool collective_event_has(const struct collective_state *, const struct show_event *, int b);

/** How much a device has of block b. */
enum collective_fill collective_cell_fill(const struct collective_state *, int device, int b);

/** The part of block b, 0 to 1, in which the number of device `of` is. */
double collective_cell_share(const struct collective_state *, int device, int b, int of);

/** "b2(01)": block 2, with the numbers of devices 0 and 1 in it.  Consecutive blocks with equal sets are joined. */
void collective_describe_message(const struct collective_state *, const struct show_event *,
                                 char text[COLLECTIVE_TEXT]);

/** One cell: its set of devices, * if finished, . if empty; two of these if the block's elements differ. */
void collective_describe_cell(const struct collective_state *, int device, int b, char text[COLLECTIVE_TEXT]);

#endif
