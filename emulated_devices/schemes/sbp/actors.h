/* actors.h -- operations as actors, with registers and back pressure: OneFlow's runtime (arXiv:2110.15032, section 5),
 * in virtual time.
 *
 * An actor makes a piece from one register of each of its producers, and writes the piece to one of its own registers.
 * It acts only if each producer has sent one that is ready, and if one of its own is free.  A register is free again
 * when all consumers have said that they have read it.  So a slow consumer holds its producers back, and memory is
 * what the registers have, however fast a producer is.  There are two messages: "ready" to each consumer, and "read"
 * back to each producer.
 *
 * cli/show/actors.c and tests call these functions.
 */
#ifndef ORRERY_ACTORS_H
#define ORRERY_ACTORS_H

#include "emulated_devices/device/cluster.h"

enum { ACTORS_MOST = 32, ACTOR_PRODUCERS = 8, ACTORS_PIECES = 100000, ACTOR_REGISTERS = 4096 };

struct actor {
    char name[24];                      /**< Name of the actor. */
    picoseconds takes;                  /* to make a piece */
    int registers;                      /* of its own; 0: no back pressure, a new one for each piece */
    int producer[ACTOR_PRODUCERS], producers;           /* actors before it, whose pieces it reads */
};

/* Actors in an order in which producers stand before their consumers. */
struct actors {
    struct actor actor[ACTORS_MOST];                    /**< Actors, [count]. */
    int count;                                          /**< Entries of `actor`. */
    picoseconds latency;                /* of a message between two actors */
    int64_t pieces;                     /* that each makes */
};

/* A run comes to these numbers.  actors_run fills the struct, and actors_free frees it. */
struct actors_run {
    picoseconds *end;                   /* [count * pieces] when actor a has made piece n: a * pieces + n */
    uint64_t *made;                     /* [count * pieces] what it has written */
    int held[ACTORS_MOST];              /* registers of an actor that were in use at once, at most */
    int64_t messages;                   /* of both kinds */
    picoseconds last;                   /* the last piece of all actors is made */
};

/**
 * Read actors: NAME:TIME[:REGISTERS][<PRODUCER+PRODUCER], with commas between them.  Without producers an actor reads
 * the one before it; "<" alone: it reads none.
 * @param registers  of actors that name no number.
 * @return OK, or ERR_USAGE naming the word; the latency and the pieces stay.
 */
enum error_code actors_read(struct actors *, const char *words, int registers, struct error *);

/** Run the actors until each has made its pieces.  Local.
 *  @return OK; ERR_MEMORY; ERR_PLAN: they wait for each other. */
enum error_code actors_run(const struct actors *, struct actors_run *, struct error *);
void actors_free(struct actors_run *);

/** The value of piece n of an actor, made in the order of the list as one device would: for comparison.  Pure. */
uint64_t actors_serial(const struct actors *, int actor, int64_t piece);

/** Time from piece to piece of the last actor, when that no longer changes: over its last `over` pieces. */
double actors_period(const struct actors *, const struct actors_run *, int64_t over);

/** Return the period of a chain by formula: the largest of each actor's time, and of
 *  (t + t' + 2 latency) / registers for each actor and its consumer.  NAN: the actors are no chain. */
double actors_chain_period(const struct actors *);

#endif
