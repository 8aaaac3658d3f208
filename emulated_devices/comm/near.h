/* near.h -- messages between devices of one machine, past MPI.
 *
 * Each process has a pool (device/pool.h) that the others of its machine map.  In it is the device's inbox: a ring of
 * bytes for each sender, which the sender writes and the device reads.  An entry is a letter: the head of a message,
 * and its payload if that is small.  The head of a large message says where in the sender's pool the body is.  The
 * receiver copies it from there: one copy.  A body that is not in the pool (memory of a backend that the host sees
 * copies of, a block from malloc) is copied into it first.
 *
 *   sender    writes a letter: where the body and its receipt are    rings the bell    waits for the receipt
 *   receiver  reads it    copies the body    signs the receipt       rings the bell
 *
 * A receiver reads its inbox whenever it waits for anything, as MPI would: a device that waits for its send before it
 * waits for its receive holds nobody up.  Looking into the inbox costs some nanoseconds, a look by MPI_Test about a
 * microsecond, which on a machine with fewer cores than devices is taken from those that compute.
 *
 * Whether two devices are near is known to both after connecting, so neither starts an MPI message that the other does
 * not expect.  Devices of two machines, or where the system has no such memory, use MPI.
 *
 * Source    D. Buntinas, G. Mercier, W. Gropp, "Implementation and shared-memory evaluation of MPICH2 over the Nemesis
 *           communication subsystem", doi:10.1007/11846802_19: queues in shared memory, and two copies; B. Goglin,
 *           S. Moreaud, "KNEM: a generic and scalable kernel-assisted intra-node MPI communication framework",
 *           J. Parallel Distrib. Comput. 73(2), 2013, doi:10.1016/j.jpdc.2012.09.016: one copy, in the kernel.
 * Called    connect.c, letters.c and transport.c call these functions.  near_make returns false without memory, and
 *           near_write without room in a ring.
 */
#ifndef ORRERY_NEAR_H
#define ORRERY_NEAR_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Says that a message has been taken: its sender may use the memory of a body again. */
struct receipt { _Alignas(64) atomic_uint taken; };

struct near {
    char **base;                        /* [size] the pool of each device, as mapped here; NULL: it is not near */
    struct ring **to, **from;           /* [size] in its inbox, and in this device's; NULL: it is not near */
    struct near_place *place;           /* [size] where they are; while connecting */
    unsigned char *mapped;              /* [2][size] whether this device maps theirs, and they its; while connecting */
    char *inbox;                        /* a flag for each sender, and its ring; NULL: there is none */
    atomic_uint_least64_t **flags;      /* [size] of 64 senders, this device among them, in the inbox of each */
    int rank, size;                     /* this device, and all devices of the program */
    int devices;                        /* that are near, this one included */
    bool elsewhere;                     /* some device is on another machine, or in another container */
};

/** Memory for the lists.  Local.  @return false: there is none, and nothing to close. */
bool near_make(struct near *, int rank, int size);

/** Find out who is near.  Collective over the communicator; waits yield the core.
 *  @param wanted  false: nobody is near to this device, nor is it to itself. */
void near_open(struct near *, MPI_Comm, bool wanted);
void near_close(struct near *);

static inline bool is_near(const struct near *n, int rank) { return n->base[rank] != NULL; }

/** Write a letter of two parts, together at most RING_MOST bytes, to a near device.
 *  @return false: its ring has no room now. */
bool near_write(const struct near *, int rank, const void *head, size_t head_bytes, const void *rest,
                size_t rest_bytes);

/** The next 64 devices' flags: a bit for each that has written since this was last asked.  Then its ring is to be read
 *  until that is empty.  @param word  0: devices 0 to 63, 1: 64 to 127, and so on, below near_words. */
uint64_t near_flags(const struct near *, int word);
static inline int near_words(const struct near *n) { return n->devices > 0 ? (n->size + 63) / 64 : 0; }

/** The next letter from a near device, aligned to 8 bytes, until near_drop.  @return NULL: there is none now. */
const void *near_read(const struct near *, int rank, size_t *bytes);
void near_drop(const struct near *, int rank);

enum { RING_BYTES = 1 << 16, RING_MOST = RING_BYTES / 4 };

#endif
