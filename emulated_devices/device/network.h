/* network.h -- messages on shared links, in order of time.
 *
 * A message uses the port of its sender, the port of its receiver, and every shared link of the cluster that lies on
 * its way (struct shared_link).  After the latency it shares them fairly with the messages that are there (max-min: no
 * message can have more without one having less that has no more).  Where links are had in order, it first waits until
 * all shared links on its way are free of those that came before it, and then has these alone; ports it shares.
 *
 * Fair sharing is fluid: rates change only when a message comes or is done.  The model is that of D. Bertsekas and
 * R. Gallager, Data Networks, section 6.5; SimGrid's default is the same.
 *
 * contention.c sends the messages of a replay; draw/simgrid.c and cli/show/cluster_pairs.c ask for ways.  Times are
 * picoseconds.  Without memory there is no network (NULL) or an error (ERR_MEMORY).
 */
#ifndef ORRERY_NETWORK_H
#define ORRERY_NETWORK_H

#include "emulated_devices/device/cluster.h"
#include "ref/error.h"
#include <stdbool.h>

struct network;

/** An idle network of these devices.  @return NULL: no memory. */
struct network *network_open(const struct cluster *, int devices);
void network_close(struct network *);

/** How many links it has: the ports of each device, both ways, and those that devices share. */
int network_links(const struct network *);

/** A link's bytes in a picosecond; infinite: bytes take no time. */
double network_rate(const struct network *, int link);

/** The shared link of the cluster that a link belongs to, as an index; -1: it is a port. */
int network_shared(const struct network *, int link);

/* The links on the way of a message, the ports of its devices first. */
enum { MOST_WAY = 4096 };               /* of a torus, half of each dimension */
struct message_way {
    int level, count, link[MOST_WAY];   /* level of the nearest common link; links on the way; their indices for
                                         * network_rate */
    picoseconds latency;                /* of the link between the devices, and of a torus's further hops */
};
void network_way(const struct network *, int from, int to, struct message_way *);

/** A message enters at a time not before those of earlier calls.
 *  @param both  it moves only while neither its sender nor its receiver is busy: network_busy.
 *  @return OK or ERR_MEMORY. */
enum error_code network_send(struct network *, picoseconds at, int from, int to, uint64_t bytes, uint64_t name,
                             bool both, struct error *);

/** A device is busy from now on, or no longer: no earlier change is left to be taken out. */
void network_busy(struct network *, picoseconds at, int device, bool);

/* A message begins or ends. */
struct change {
    bool begins;                        /* it comes to the ports of its devices; else its last byte arrives */
    uint64_t name;                      /* as given to network_send */
    int from, to;                       /* sender and receiver, as devices of the network */
    bool both;                          /* as given to network_send */
    picoseconds at, left;               /* when; for an arrival, when its last byte has left the sender */
};

/** Take out the next change, if there is one by `until`; later calls send nothing before that.
 *  @return whether there is one. */
bool network_next(struct network *, picoseconds until, struct change *);

#endif
