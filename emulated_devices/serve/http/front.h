/* front.h -- open requests of clients, between the thread that talks to them (server.c) and that of the devices
 * (live.h).
 *
 * Both threads call; a lock protects the table.  A request stays in it until its client has all or has left, and the
 * devices have no part of it any more.  Memory is bounded: by the requests that may be open, their prompts and answers.
 */
#ifndef ORRERY_FRONT_H
#define ORRERY_FRONT_H

#include "emulated_devices/serve/http/openai.h"
#include "emulated_devices/serve/live.h"

struct front;

/* A front may have so much, and ends then. */
struct front_limits {
    int64_t open;                       /* requests at the same time */
    int replicas;                       /* to which they are dealt */
    double seconds;                     /* of a request, from its coming to its end */
    int64_t answers;                    /* after so many the front ends; 0: it goes on */
    int (*asked)(void);                 /* not 0 once a signal has asked for the end; NULL: none can */
};

/* All requests together have come to this. */
struct front_counts {
    int64_t answered, left, late, refused;      /* with all tokens; whose client left; that took too long; not taken */
    int64_t prompt_tokens, tokens;      /* of requests that were taken; of answers */
    double first_mean, first_most, seconds;     /* of the wall: to first tokens; in which something was open */
};

/** @return OK or ERR_MEMORY. */
enum error_code front_open(struct front **, const struct api_model *, const struct front_limits *, struct error *);
void front_close(struct front *);

/** The functions of the devices' thread. */
struct live_front front_for_devices(struct front *);
struct front_counts front_counts_of(struct front *);

/** Whether the front waits for nothing but its end: what comes is refused. */
bool front_ends(struct front *);

/* Functions of the clients' thread; a ticket is a request that is open. */
struct ticket;

/* How a client's thread sleeps, and hears that there is more.  Both are called with the table locked. */
struct sleeper {
    void *context;                      /**< First argument of the functions. */
    void (*sleep)(void *context);       /* until wake */
    void (*wake)(void *context);        /**< Wakes the thread that sleeps. */
    bool (*left)(void *context);        /* whether the client of a sleeper has left */
};

/** Open a request, whose contents move into the table.
 *  @return NULL: there is no room, and the request is as it was. */
struct ticket *front_enter(struct front *, struct api_request *, const struct sleeper *);

/** Number that the next request would have. */
uint64_t front_next(struct front *);

/* An answer is so far. */
struct ticket_state {
    struct api_answer answer;           /* so far */
    char *text;                         /* [bytes] that may be sent, behind those that were seen; for free() */
    size_t bytes;                       /**< Size of `text`, in bytes. */
    bool done;                          /* there will be no more */
    const char *problem;                /* why it has no end; NULL: it has, or goes on */
};

/** Look at an answer behind its first `seen` bytes.  If there is nothing new, or it is wanted whole and is not done,
 *  sleep.  @return false: the client sleeps, and *state is not set. */
bool ticket_look(struct front *, struct ticket *, size_t seen, bool whole, struct ticket_state *state);

/** A client has all, or has left. */
void ticket_leave(struct front *, struct ticket *);

/** A request was refused: it only counts. */
void front_refused(struct front *);

#endif
