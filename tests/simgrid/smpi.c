/* Lists of events of patterns.c, under SimGrid's SMPI: each device does its own, one after the other.
 *
 * Usage: smpi LISTS, by smpirun.  Prints the picoseconds in which the last device is done.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_MESSAGES = 1 << 16, BEGINS = 1 };   /* the second of virtual time at which all begin */

/* One side of a message, by its sender and serial. */
struct side { int peer, serial; MPI_Request request; };

struct player {
    struct side sent[MOST_MESSAGES], posted[MOST_MESSAGES];
    int sends, posts;
    char *room;                         /* what is sent, and where it is received */
    size_t bytes;
};

static int stop(const char *why)
{
    fprintf(stderr, "smpi: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

/* A serial is its sender's: of what this device sends it alone is a name, and peer is -1. */
static struct side *find(struct side *list, int count, int peer, int serial)
{
    for (int i = count - 1; i >= 0; i--)
        if ((peer < 0 || list[i].peer == peer) && list[i].serial == serial) return &list[i];
    stop("waits for a message that nobody began");
    return NULL;
}

static void end_of(struct side *s) { MPI_Wait(&s->request, MPI_STATUS_IGNORE); }

static void play(struct player *p, char kind, int peer, int serial, uint64_t amount)
{
    if (p->sends == MOST_MESSAGES || p->posts == MOST_MESSAGES) stop("too many messages");
    switch (kind) {
    case 'w': smpi_execute_flops((double)amount); break;
    case 's':
        p->sent[p->sends].peer = peer, p->sent[p->sends].serial = serial;
        MPI_Isend(p->room, (int)amount, MPI_BYTE, peer, serial, MPI_COMM_WORLD, &p->sent[p->sends++].request);
        break;
    case 'd': end_of(find(p->sent, p->sends, -1, serial)); break;
    case 'p':
        p->posted[p->posts].peer = peer, p->posted[p->posts].serial = serial;
        MPI_Irecv(p->room, (int)amount, MPI_BYTE, peer, serial, MPI_COMM_WORLD, &p->posted[p->posts++].request);
        break;
    case 'r': end_of(find(p->posted, p->posts, peer, serial)); break;
    default: stop("an event that one stream cannot have");
    }
}

/* Read this device's part, playing it if so wanted; otherwise find the longest message. */
static void read_own(struct player *p, const char *path, int rank, int plays)
{
    char kind;
    int device, peer, serial;
    unsigned count;
    uint64_t amount;
    FILE *f = fopen(path, "r");
    if (f == NULL) stop("the lists cannot be read");
    while (fscanf(f, "device %d %u ", &device, &count) == 2)
        for (unsigned i = 0; i < count; i++) {
            if (fscanf(f, "%c %d %d %" SCNu64 " ", &kind, &peer, &serial, &amount) != 4) stop("a line is not an event");
            if (device != rank) continue;
            if (plays) play(p, kind, peer, serial, amount);
            else if (kind != 'w' && amount > p->bytes) p->bytes = (size_t)amount;
        }
    if (!feof(f)) stop("what follows is no device");
    fclose(f);
}

int main(int argc, char **argv)
{
    int rank;
    double took, longest;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct player *p = calloc(1, sizeof *p);                    /* no globals: devices share those */
    if (argc != 2 || p == NULL) return stop("usage: smpi LISTS");
    read_own(p, argv[1], rank, 0);
    p->room = malloc(p->bytes + 1);
    smpi_execute_flops((BEGINS - MPI_Wtime()) * 1e12);
    read_own(p, argv[1], rank, 1);
    took = MPI_Wtime() - BEGINS;
    for (int i = 0; i < p->sends; i++) end_of(&p->sent[i]);
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.0f\n", longest * 1e12);
    free(p->room);
    free(p);
    MPI_Finalize();
    return 0;
}
