/* network.c -- fluid messages on ports and shared links, which share each link fairly or in order.
 *
 * contention.c calls this file for a replay, draw/simgrid.c for the ways of messages.  Times are picoseconds, sizes
 * bytes, rates bytes a picosecond.  Errors are ERR_MEMORY, and NULL from network_open.
 */
#include "emulated_devices/device/network.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct flow {
    uint64_t name;
    picoseconds enters;                 /* after its latency */
    picoseconds latency;
    double left, rate;                  /* bytes; bytes a picosecond, 0 while it waits */
    struct flow *next;                  /* of those on the links, by arrival; of those with latency, by time */
    int count, *link;
    bool fixed, waits;                  /* its rate is known; it waits for its turn, or for a busy device */
    int from, to;
    bool both;                          /* needs two devices that are not busy */
};

/* Links are ports, two for each that a device has on a level, and the shared links after them. */
struct network {
    const struct cluster *cluster;
    int devices, links;
    double *rate;                       /* [links] bytes a picosecond */
    double *room;                       /* [links] not yet given to a message */
    int *users;                         /* [links] messages that have no rate yet */
    struct flow *coming, *here;
    picoseconds now;
    int *first;                         /* [cluster->shares] of each shared link */
    bool *busy;                         /* [devices] */
    bool changed;
};

/* ---- links ------------------------------------------------------------------------------------------------------- */

/* Ports are numbered as on a device, then by device; the port that receives comes before the one that sends. */
static int port_of(const struct network *network, int port, int device, bool sends)
{
    return 2 * (port * network->devices + device) + sends;
}

/* All ports of the network, both ways. */
static int ports_of(const struct network *network)
{
    return 2 * link_first_port(network->cluster->link, network->cluster->levels) * network->devices;
}

static int paths_of(const struct shared_link *link) { return link->paths > 1 ? link->paths : 1; }

/* Members of a unit, as far as there are so many devices. */
static int network_width(const struct network *network, const struct shared_link *link)
{
    const int most = link->stride > 1 ? link->devices / link->stride : link->devices;
    return most < network->devices ? most : network->devices;
}

/* A torus counts all places in the dimensions along which devices differ: messages pass places without a device. */
static int units_of(const struct network *network, const struct shared_link *link)
{
    const int blocks = (network->devices + link->devices - 1) / link->devices;
    int places = 1;
    for (int d = 0; d < link->dimensions && places < blocks; d++) places *= link->size[d];
    /* A torus of one level of links is there once for each unit of the level. */
    if (link->kind == SHARED_TORUS) return (blocks + places - 1) / places * places;
    /* In a block of devices that is not full, no rank is above the last device. */
    if (link->stride > 1) return blocks == 1 && network->devices < link->stride ? network->devices
                                                                                : blocks * link->stride;
    return blocks;
}

/* A shared link counts once for each unit, direction and path; a torus also for each dimension, a mesh by pairs. */
static int links_of(const struct network *network, const struct shared_link *link)
{
    const int units = units_of(network, link), width = network_width(network, link);
    if (link->kind == SHARED_PAIRS) return units * width * width;
    return 2 * units * (link->kind == SHARED_TORUS ? link->dimensions : paths_of(link));
}

/* Messages that enter a unit use its links of even numbers, which may have a rate of their own. */
static int64_t rate_of(const struct shared_link *link, int number)
{
    const bool enters = link->kind == SHARED_LEAVING && number / paths_of(link) % 2 == 0;
    return enters && link->entering > 0 ? link->entering : link->rate;
}

/* A link counts once, also if a way meets it twice. */
static void add_link(struct message_way *way, int link)
{
    for (int i = 0; i < way->count; i++)
        if (way->link[i] == link) return;
    if (way->count < MOST_WAY) way->link[way->count++] = link;
}

/* Dimension by dimension, the shorter way round; from the middle upwards.  Units a and b are of one torus. */
static void torus_way(const struct shared_link *link, int first, int a, int b, struct message_way *way)
{
    int stride = 1;
    for (int d = 0; d < link->dimensions; stride *= link->size[d++]) {
        const int size = link->size[d];
        int x = a / stride % size;
        const int y = b / stride % size, up = (y - x + size) % size;
        /* The message takes the shorter way round the ring of this dimension. */
        const bool upwards = up <= size - up;
        for (; x != y; x = (x + (upwards ? 1 : size - 1)) % size) {
            /* The link is that of the place where the message is, in this dimension and direction. */
            add_link(way, first + 2 * (a * link->dimensions + d) + (upwards && !link->half_duplex));
            a += ((upwards ? (x + 1) % size : (x + size - 1) % size) - x) * stride;
        }
    }
}

/* Whether a message of this level and these units passes a shared link. */
static bool shared_passes(const struct shared_link *link, int level, int from, int to)
{
    const bool together = shared_unit(link, from) == shared_unit(link, to);
    if (link->of_level > 0 && link->of_level != level + 1) return false;
    return link->kind == SHARED_INSIDE || link->kind == SHARED_PAIRS ? together : !together;
}

/* Each unit has a link for each path that enters, and one that leaves: with half duplex both use the first. */
static void leaving_way(const struct shared_link *link, int first, int from, int to, struct message_way *way)
{
    const int paths = paths_of(link), path = link->by_receiver ? to % paths : shared_path(from, to, paths);
    add_link(way, first + (2 * shared_unit(link, from) + !link->half_duplex) * paths + path);
    add_link(way, first + 2 * shared_unit(link, to) * paths + path);
}

/* The links of shared link i that a message uses, if any. */
static void shared_way(const struct network *network, int i, int from, int to, struct message_way *way)
{
    const struct shared_link *s = &network->cluster->shared[i];
    const int a = shared_unit(s, from), first = network->first[i], width = network_width(network, s);
    const int x = shared_place(s, from), y = shared_place(s, to);
    if (!shared_passes(s, way->level, from, to)) return;
    if (s->kind == SHARED_INSIDE) add_link(way, first + 2 * a);
    if (s->kind == SHARED_LEAVING) leaving_way(s, first, from, to, way);
    if (s->kind == SHARED_TORUS) torus_way(s, first, a, shared_unit(s, to), way);
    /* With half duplex a pair has the link of its lower place for both directions. */
    if (s->kind == SHARED_PAIRS && s->half_duplex && x > y) add_link(way, first + (a * width + y) * width + x);
    else if (s->kind == SHARED_PAIRS) add_link(way, first + (a * width + x) * width + y);
}

/* The hops of torus_way, without the links. */
static int torus_hops(const struct shared_link *link, int a, int b)
{
    int stride = 1, hops = 0;
    for (int d = 0; d < link->dimensions; stride *= link->size[d++]) {
        const int size = link->size[d], up = (b / stride % size - a / stride % size + size) % size;
        hops += up <= size - up ? up : size - up;
    }
    return hops;
}

/* Besides the link's latency, that of shared links that are passed, and of every further hop through a torus. */
static picoseconds latency_of(const struct network *network, int level, int from, int to)
{
    picoseconds sum = network->cluster->link[level].latency;
    for (int i = 0; i < network->cluster->shares; i++) {
        const struct shared_link *s = &network->cluster->shared[i];
        if (!shared_passes(s, level, from, to)) continue;
        sum += s->hop * (s->kind == SHARED_TORUS ? torus_hops(s, from / s->devices, to / s->devices) - 1 : 1);
    }
    return sum;
}

/* A way begins with the two ports; struct message_way in network.h says the rest.  All links go by places. */
void network_way(const struct network *network, int sender, int receiver, struct message_way *way)
{
    const int from = cluster_slot(network->cluster, sender), to = cluster_slot(network->cluster, receiver);
    way->count = 0;
    way->level = link_between(network->cluster->link, network->cluster->levels, from, to);
    way->latency = latency_of(network, way->level, from, to);
    const int port = link_port(network->cluster->link, way->level, from, to);
    add_link(way, port_of(network, port, from, true));
    add_link(way, port_of(network, port, to, false));
    for (int i = 0; i < network->cluster->shares; i++) shared_way(network, i, from, to, way);
}

int network_links(const struct network *network) { return network->links; }
double network_rate(const struct network *network, int link) { return network->rate[link]; }

int network_shared(const struct network *network, int link)
{
    for (int i = network->cluster->shares - 1; i >= 0; i--)
        if (link >= network->first[i]) return i;
    return -1;
}

static double per_picosecond(int64_t rate) { return rate > 0 ? (double)rate * 1e-6 : INFINITY; }

/* Links get their numbers here: ports first, then each shared link's units and directions. */
struct network *network_open(const struct cluster *cluster, int devices)
{
    struct network *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    *n = (struct network){ .cluster = cluster, .devices = devices,
                           .first = calloc((size_t)cluster->shares + 1, sizeof *n->first) };
    /* Ports are the first links. */
    n->links = ports_of(n);
    for (int i = 0; i < cluster->shares && n->first; i++)
        n->first[i] = n->links, n->links += links_of(n, &cluster->shared[i]);
    /* All arrays are asked for before any is checked; network_close frees those that there are. */
    n->rate = calloc((size_t)n->links, sizeof *n->rate);
    n->room = calloc((size_t)n->links, sizeof *n->room);
    n->users = calloc((size_t)n->links, sizeof *n->users);
    n->busy = calloc((size_t)devices + 1, sizeof *n->busy);
    if (!n->first || !n->busy || !n->rate || !n->room || !n->users) {
        network_close(n);
        return NULL;
    }
    /* Ports come first, then the shared links. */
    for (int l = 0; l < cluster->levels; l++)
        for (int p = port_of(n, link_first_port(cluster->link, l), 0, false);
             p < port_of(n, link_first_port(cluster->link, l + 1), 0, false); p++)
            n->rate[p] = per_picosecond(cluster->link[l].rate);
    for (int i = 0; i < cluster->shares; i++) {
        double *rate = n->rate + n->first[i];
        for (int k = 0; k < links_of(n, &cluster->shared[i]); k++)
            rate[k] = per_picosecond(rate_of(&cluster->shared[i], k));
    }
    return n;
}

static void free_flows(struct flow *flow)
{
    while (flow) {
        struct flow *next = flow->next;
        free(flow->link);
        free(flow);
        flow = next;
    }
}

void network_close(struct network *network)
{
    if (network == NULL) return;
    free_flows(network->coming);
    free_flows(network->here);
    free(network->first), free(network->rate), free(network->room), free(network->users), free(network->busy);
    free(network);
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

/* Per link: the room that messages with a rate leave, and how many messages have no rate yet. */
static void count_users(struct network *network)
{
    /* Nobody reads the counts of links without messages. */
    for (const struct flow *f = network->here; f; f = f->next)
        for (int i = 0; i < f->count; i++)
            network->room[f->link[i]] = network->rate[f->link[i]], network->users[f->link[i]] = 0;
    for (const struct flow *f = network->here; f; f = f->next)
        for (int i = 0; i < f->count && !f->waits; i++) {
            if (f->fixed) network->room[f->link[i]] -= f->rate;
            else network->users[f->link[i]]++;
        }
}

static double network_share_of(const struct network *network, int link)
{
    return network->room[link] / network->users[link];
}

/* The link with the least for each of its users decides theirs; then the others share what is left. */
static void share_fairly(struct network *network)
{
    bool open = true;
    while (open) {
        double least = INFINITY;
        open = false;
        count_users(network);
        /* The narrowest link has the least room for each message that has no rate yet. */
        for (const struct flow *f = network->here; f; f = f->next)
            for (int i = 0; i < f->count && !f->fixed && !f->waits; i++)
                least = fmin(least, network_share_of(network, f->link[i]));
        for (struct flow *f = network->here; f; f = f->next) {
            /* All messages through that link get this rate, and leave the rest to the others. */
            bool bound = isinf(least);
            for (int i = 0; i < f->count && !bound; i++)
                bound = network_share_of(network, f->link[i]) <= least * (1 + 1e-12);
            if (f->fixed || f->waits) continue;
            if (bound) f->fixed = true, f->rate = least;
            else open = true;
        }
    }
}

/* In order of arrival: a message has its shared links alone, or waits and keeps those behind it from them. */
static void take_turns(struct network *network)
{
    const int ports = ports_of(network);
    for (const struct flow *f = network->here; f; f = f->next)
        for (int i = 0; i < f->count; i++) network->users[f->link[i]] = 0;
    for (struct flow *f = network->here; f; f = f->next) {
        f->waits = false;
        for (int i = 0; i < f->count; i++)
            if (f->link[i] >= ports) f->waits = f->waits || network->users[f->link[i]]++ > 0;
    }
}

/* Every message moves at its rate until this time. */
static void move_to(struct network *network, picoseconds at)
{
    for (struct flow *f = network->here; f; f = f->next)
        /* Rates have been constant since the last change. */
        if (isfinite(f->rate)) f->left = fmax(0, f->left - f->rate * (double)(at - network->now));
        else f->left = 0;
    network->now = at;
}

/* Rates are computed again only after a message came or went, or a device changed. */
static void network_share(struct network *network)
{
    if (!network->changed) return;
    for (struct flow *f = network->here; f; f = f->next) f->fixed = f->waits = false, f->rate = 0;
    /* Messages that wait are found first, then the others share. */
    if (network->cluster->in_order) take_turns(network);
    for (struct flow *f = network->here; f; f = f->next)
        f->waits = f->waits || (f->both && (network->busy[f->from] || network->busy[f->to]));
    share_fairly(network);
    network->changed = false;
}

/* A millionth of a byte is rounding. */
static picoseconds done_at(const struct network *network, const struct flow *flow)
{
    if (flow->left < 1e-6 || isinf(flow->rate)) return flow->rate > 0 ? network->now : -1;
    return flow->rate > 0 ? network->now + (picoseconds)ceil(flow->left / flow->rate - 1e-6) : -1;
}

/* The earliest message to be done; of equals the one that arrived first. */
static struct flow *first_done(const struct network *network)
{
    struct flow *first = NULL;
    for (struct flow *f = network->here; f; f = f->next)
        if (done_at(network, f) >= 0 && (first == NULL || done_at(network, f) < done_at(network, first))) first = f;
    return first;
}

/* The next one, whose latency is over, joins the others. */
static void admit(struct network *network, struct change *out)
{
    struct flow *f = network->coming, **end = &network->here;
    move_to(network, f->enters);
    /* The list is in the order of arrival, which decides turns and ties. */
    while (*end) end = &(*end)->next;
    network->coming = f->next, *end = f, f->next = NULL;
    network->changed = true;
    *out = (struct change){ .begins = true, .name = f->name, .from = f->from, .to = f->to, .both = f->both,
                            .at = network->now };
}

static void remove_flow(struct network *network, struct flow *flow)
{
    struct flow **at = &network->here;
    while (*at != flow) at = &(*at)->next;
    *at = flow->next, flow->next = NULL;
    free_flows(flow);
    network->changed = true;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A gap occupies ports as so many more bytes would. */
static double network_size_of(const struct link *link, uint64_t bytes)
{
    return (double)bytes + (link->rate > 0 ? (double)link->gap * per_picosecond(link->rate) : 0);
}

/* The message has its latency first, and waits in `coming` until then. */
enum error_code network_send(struct network *network, picoseconds at, int from, int to, uint64_t bytes, uint64_t name,
                             bool both, struct error *err)
{
    struct message_way way;
    struct flow *f = calloc(1, sizeof *f), **place = &network->coming;
    network_way(network, from, to, &way);
    if (f) f->link = malloc((size_t)way.count * sizeof *f->link);
    if (f == NULL || f->link == NULL) {
        free(f);
        return fail(err, ERR_MEMORY, "no memory for a message on a shared link");
    }
    memcpy(f->link, way.link, (size_t)way.count * sizeof *f->link);
    f->name = name, f->from = from, f->to = to, f->both = both, f->count = way.count;
    f->latency = way.latency;
    f->enters = at + f->latency, f->left = network_size_of(&network->cluster->link[way.level], bytes);
    /* The list of those with latency stays sorted. */
    while (*place && (*place)->enters <= f->enters) place = &(*place)->next;
    f->next = *place, *place = f;
    return OK;
}

/* Rates change from this time on, so all messages move up to it first. */
void network_busy(struct network *network, picoseconds at, int device, bool busy)
{
    if (network->busy[device] == busy) return;
    network_share(network);
    move_to(network, at > network->now ? at : network->now);
    network->busy[device] = busy;
    network->changed = true;
}

/* Messages that come at the same time share the links once. */
bool network_next(struct network *network, picoseconds until, struct change *out)
{
    const struct flow *coming = network->coming;
    if (coming == NULL || coming->enters > network->now) network_share(network);
    struct flow *done = coming && coming->enters <= network->now ? NULL : first_done(network);
    /* The earlier of two events comes next: a message enters, or one is done. */
    if (coming && coming->enters <= until && !(done && done_at(network, done) < coming->enters)) {
        admit(network, out);
        return true;
    }
    if (done == NULL || done_at(network, done) > until) return false;
    move_to(network, done_at(network, done));
    *out = (struct change){ .name = done->name, .from = done->from, .to = done->to, .both = done->both,
                           .at = network->now,
                            .left = network->now - done->latency };
    remove_flow(network, done);
    return true;
}
