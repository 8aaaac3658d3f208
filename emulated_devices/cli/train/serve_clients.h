/* serve_clients.h -- `orrery serve --port`: clients instead of a trace.  serve.c calls. */
#ifndef ORRERY_TRAIN_SERVE_CLIENTS_H
#define ORRERY_TRAIN_SERVE_CLIENTS_H

#include "emulated_devices/serve/http/server.h"

/* Words of the command line about clients. */
struct live_words {
    const char *host, *chat;            /* address; file of a chat template, or NULL */
    int port, open, connections;
    double seconds;
};

/* All that a device needs to answer clients. */
struct live_serving {
    const struct live_words *words;     /**< Words of the command line about clients. */
    const struct serving_job *job;      /* without requests */
    const char *dir;                    /* of the model; NULL or empty: a preset */
    int64_t answers;                    /* end after so many; 0: do not */
    struct request_rules rules;         /* of the model */
};

/** Answer clients until a signal or the last answer.  Collective; rank 0 listens, and prints what it has done.
 *  @return OK; ERR_FILE of the port; ERR_FORMAT of --chat-template; ERR_CHECK if a token is wrong; errors of
 *          serve_live. */
enum error_code serve_clients(struct comm *, const struct live_serving *, struct error *);

#endif
