/* server.h -- HTTP for OpenAI's API, by GNU libmicrohttpd with epoll: a thread of its own, which calls no MPI.
 *
 * The library is optional: where it was missing when the program was built, server_open says so.
 *
 * cli/train/serve.c calls these functions on rank 0.
 */
#ifndef ORRERY_SERVER_H
#define ORRERY_SERVER_H

#include "emulated_devices/serve/http/front.h"

enum {
    SERVER_BODY = 1 << 20,              /* bytes of the body of a request */
    SERVER_BODIES = 64 << 20,           /* bytes of all bodies that are coming */
    SERVER_IDLE = 30,                   /* seconds after which a connection on which nothing moves is closed */
};

struct server;

/* Where it listens, and for how many. */
struct server_place { const char *host; int port, connections; };

/** Whether this program has a server.  @return OK, or ERR_USAGE naming the library that was missing. */
enum error_code server_there(struct error *);

/** Whether an address and a port can be listened on.  @return OK; ERR_USAGE; ERR_FILE with the system's reason. */
enum error_code server_probe(const struct server_place *, struct error *);

/** Begin to listen.
 *  @param place  port 0: any that is free.  host: an address; 127.0.0.1 takes requests of this machine alone, and only
 *                those that name it so.
 *  @return OK; ERR_USAGE; ERR_FILE; ERR_MEMORY. */
enum error_code server_open(struct server **, struct front *, const struct api_model *,
                            const struct server_place *place, struct error *);
/** The port it has, and the connections that it takes: fewer than were asked for if the system allows no more files. */
struct server_place server_place_of(const struct server *);
void server_close(struct server *);

#endif
