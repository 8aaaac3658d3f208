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

/* Links are ports, two for each device and level, and the shared links after them. */
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

static int port_of(const struct network *n, int level, int device, bool sends)
{
    return 2 * (level * n->devices + device) + sends;
}

/* A torus counts all places in the dimensions along which devices differ: messages pass places without a device. */
static int units_of(const struct network *n, const struct shared_link *s)
{
    const int units = (n->devices + s->devices - 1) / s->devices;
    int places = 1;
    for (int d = 0; d < s->dimensions && places < units; d++) places *= s->size[d];
    return s->kind == SHARED_TORUS ? places : units;
}

/* A shared link counts once for each unit and direction; a torus also for each dimension. */
static int links_of(const struct network *n, const struct shared_link *s)
{
    return 2 * units_of(n, s) * (s->kind == SHARED_TORUS ? s->dimensions : 1);
}

static void add_link(struct message_way *w, int link)
{
    for (int i = 0; i < w->count; i++)
        if (w->link[i] == link) return;
    if (w->count < MOST_WAY) w->link[w->count++] = link;
}

/* Dimension by dimension, the shorter way round; from the middle upwards. */
static void torus_way(const struct shared_link *s, int first, int a, int b, struct message_way *w)
{
    int stride = 1;
    for (int d = 0; d < s->dimensions; stride *= s->size[d++]) {
        const int size = s->size[d];
        int x = a / stride % size;
        const int y = b / stride % size, up = (y - x + size) % size;
        /* The message takes the shorter way round the ring of this dimension. */
        const bool upwards = up <= size - up;
        for (; x != y; x = (x + (upwards ? 1 : size - 1)) % size) {
            /* The link is that of the place where the message is, in this dimension and direction. */
            add_link(w, first + 2 * (a * s->dimensions + d) + (upwards && !s->half_duplex));
            a += ((upwards ? (x + 1) % size : (x + size - 1) % size) - x) * stride;
        }
    }
}

static void shared_way(const struct network *n, int i, int from, int to, struct message_way *w)
{
    const struct shared_link *s = &n->cluster->shared[i];
    const int a = from / s->devices, b = to / s->devices, first = n->first[i];
    /* Each unit has two links: with half duplex both directions use one of them. */
    if (s->kind == SHARED_INSIDE && a == b) add_link(w, first + 2 * a);
    if (s->kind == SHARED_LEAVING && a != b) {
        add_link(w, first + 2 * a + !s->half_duplex);
        add_link(w, first + 2 * b);
    }
    if (s->kind == SHARED_TORUS && a != b) torus_way(s, first, a, b, w);
}

static int torus_hops(const struct shared_link *s, int a, int b)
{
    int stride = 1, hops = 0;
    for (int d = 0; d < s->dimensions; stride *= s->size[d++]) {
        const int size = s->size[d], up = (b / stride % size - a / stride % size + size) % size;
        hops += up <= size - up ? up : size - up;
    }
    return hops;
}

/* Besides the link's latency, that of every further hop through a torus. */
static picoseconds latency_of(const struct network *n, int level, int from, int to)
{
    picoseconds sum = n->cluster->link[level].latency;
    for (int i = 0; i < n->cluster->shares; i++) {
        const struct shared_link *s = &n->cluster->shared[i];
        const int hops = s->kind == SHARED_TORUS ? torus_hops(s, from / s->devices, to / s->devices) : 0;
        if (hops > 1) sum += (hops - 1) * s->hop;
    }
    return sum;
}

void network_way(const struct network *n, int from, int to, struct message_way *w)
{
    w->count = 0;
    w->level = link_between(n->cluster->link, n->cluster->levels, from, to);
    w->latency = latency_of(n, w->level, from, to);
    add_link(w, port_of(n, w->level, from, true));
    add_link(w, port_of(n, w->level, to, false));
    for (int i = 0; i < n->cluster->shares; i++) shared_way(n, i, from, to, w);
}

int network_links(const struct network *n) { return n->links; }
double network_rate(const struct network *n, int link) { return n->rate[link]; }

static double per_picosecond(int64_t rate) { return rate > 0 ? (double)rate * 1e-6 : INFINITY; }

struct network *network_open(const struct cluster *c, int devices)
{
    struct network *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    *n = (struct network){ .cluster = c, .devices = devices, .links = 2 * c->levels * devices,
                           .first = calloc((size_t)c->shares + 1, sizeof *n->first) };
    for (int i = 0; i < c->shares && n->first; i++) n->first[i] = n->links, n->links += links_of(n, &c->shared[i]);
    n->rate = calloc((size_t)n->links, sizeof *n->rate);
    n->room = calloc((size_t)n->links, sizeof *n->room);
    n->users = calloc((size_t)n->links, sizeof *n->users);
    n->busy = calloc((size_t)devices + 1, sizeof *n->busy);
    if (!n->first || !n->busy || !n->rate || !n->room || !n->users) {
        network_close(n);
        return NULL;
    }
    /* Ports come first, then the shared links. */
    for (int l = 0; l < c->levels; l++)
        for (int p = 0; p < 2 * devices; p++) n->rate[2 * l * devices + p] = per_picosecond(c->link[l].rate);
    for (int i = 0; i < c->shares; i++) {
        double *rate = n->rate + n->first[i];
        for (int k = 0; k < links_of(n, &c->shared[i]); k++) rate[k] = per_picosecond(c->shared[i].rate);
    }
    return n;
}

static void free_flows(struct flow *f)
{
    while (f) {
        struct flow *next = f->next;
        free(f->link);
        free(f);
        f = next;
    }
}

void network_close(struct network *n)
{
    if (n == NULL) return;
    free_flows(n->coming);
    free_flows(n->here);
    free(n->first), free(n->rate), free(n->room), free(n->users), free(n->busy);
    free(n);
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

/* Per link: the room that messages with a rate leave, and how many messages have no rate yet. */
static void count_users(struct network *n)
{
    memcpy(n->room, n->rate, (size_t)n->links * sizeof *n->room);
    memset(n->users, 0, (size_t)n->links * sizeof *n->users);
    for (const struct flow *f = n->here; f; f = f->next)
        for (int i = 0; i < f->count && !f->waits; i++) {
            if (f->fixed) n->room[f->link[i]] -= f->rate;
            else n->users[f->link[i]]++;
        }
}

static double share_of(const struct network *n, int link) { return n->room[link] / n->users[link]; }

/* The link with the least for each of its users decides theirs; then the others share what is left. */
static void share_fairly(struct network *n)
{
    bool open = true;
    while (open) {
        double least = INFINITY;
        open = false;
        count_users(n);
        /* The narrowest link has the least room for each message that has no rate yet. */
        for (const struct flow *f = n->here; f; f = f->next)
            for (int i = 0; i < f->count && !f->fixed && !f->waits; i++) least = fmin(least, share_of(n, f->link[i]));
        for (struct flow *f = n->here; f; f = f->next) {
            /* All messages through that link get this rate, and leave the rest to the others. */
            bool bound = isinf(least);
            for (int i = 0; i < f->count && !bound; i++) bound = share_of(n, f->link[i]) <= least * (1 + 1e-12);
            if (f->fixed || f->waits) continue;
            if (bound) f->fixed = true, f->rate = least;
            else open = true;
        }
    }
}

/* In order of arrival: a message has its shared links alone, or waits and keeps those behind it from them. */
static void take_turns(struct network *n)
{
    const int ports = 2 * n->cluster->levels * n->devices;
    memset(n->users, 0, (size_t)n->links * sizeof *n->users);
    for (struct flow *f = n->here; f; f = f->next) {
        f->waits = false;
        for (int i = 0; i < f->count; i++)
            if (f->link[i] >= ports) f->waits = f->waits || n->users[f->link[i]]++ > 0;
    }
}

static void move_to(struct network *n, picoseconds at)
{
    for (struct flow *f = n->here; f; f = f->next)
        /* Rates have been constant since the last change. */
        if (isfinite(f->rate)) f->left = fmax(0, f->left - f->rate * (double)(at - n->now));
        else f->left = 0;
    n->now = at;
}

static void share(struct network *n)
{
    if (!n->changed) return;
    for (struct flow *f = n->here; f; f = f->next) f->fixed = f->waits = false, f->rate = 0;
    /* Messages that wait are found first, then the others share. */
    if (n->cluster->in_order) take_turns(n);
    for (struct flow *f = n->here; f; f = f->next)
        f->waits = f->waits || (f->both && (n->busy[f->from] || n->busy[f->to]));
    share_fairly(n);
    n->changed = false;
}

/* A millionth of a byte is rounding. */
static picoseconds done_at(const struct network *n, const struct flow *f)
{
    if (f->left < 1e-6 || isinf(f->rate)) return f->rate > 0 ? n->now : -1;
    return f->rate > 0 ? n->now + (picoseconds)ceil(f->left / f->rate - 1e-6) : -1;
}

static struct flow *first_done(const struct network *n)
{
    struct flow *first = NULL;
    for (struct flow *f = n->here; f; f = f->next)
        if (done_at(n, f) >= 0 && (first == NULL || done_at(n, f) < done_at(n, first))) first = f;
    return first;
}

/* The next one, whose latency is over, joins the others. */
static void admit(struct network *n, struct change *out)
{
    struct flow *f = n->coming, **end = &n->here;
    move_to(n, f->enters);
    while (*end) end = &(*end)->next;
    n->coming = f->next, *end = f, f->next = NULL;
    n->changed = true;
    *out = (struct change){ .begins = true, .name = f->name, .from = f->from, .to = f->to, .both = f->both,
                            .at = n->now };
}

static void remove_flow(struct network *n, struct flow *f)
{
    struct flow **at = &n->here;
    while (*at != f) at = &(*at)->next;
    *at = f->next, f->next = NULL;
    free_flows(f);
    n->changed = true;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A gap occupies ports as so many more bytes would. */
static double size_of(const struct link *l, uint64_t bytes)
{
    return (double)bytes + (l->rate > 0 ? (double)l->gap * per_picosecond(l->rate) : 0);
}

enum error_code network_send(struct network *n, picoseconds at, int from, int to, uint64_t bytes, uint64_t name,
                             bool both, struct error *err)
{
    struct message_way way;
    struct flow *f = calloc(1, sizeof *f), **place = &n->coming;
    network_way(n, from, to, &way);
    if (f) f->link = malloc((size_t)way.count * sizeof *f->link);
    if (f == NULL || f->link == NULL) {
        free(f);
        return fail(err, ERR_MEMORY, "no memory for a message on a shared link");
    }
    memcpy(f->link, way.link, (size_t)way.count * sizeof *f->link);
    f->name = name, f->from = from, f->to = to, f->both = both, f->count = way.count;
    f->latency = way.latency;
    f->enters = at + f->latency, f->left = size_of(&n->cluster->link[way.level], bytes);
    /* The list of those with latency stays sorted. */
    while (*place && (*place)->enters <= f->enters) place = &(*place)->next;
    f->next = *place, *place = f;
    return OK;
}

void network_busy(struct network *n, picoseconds at, int device, bool busy)
{
    if (n->busy[device] == busy) return;
    share(n);
    move_to(n, at > n->now ? at : n->now);
    n->busy[device] = busy;
    n->changed = true;
}

/* Those that come at one time share the links once. */
bool network_next(struct network *n, picoseconds until, struct change *out)
{
    const struct flow *coming = n->coming;
    if (coming == NULL || coming->enters > n->now) share(n);
    struct flow *done = coming && coming->enters <= n->now ? NULL : first_done(n);
    /* The earlier of two events comes next: a message enters, or one is done. */
    if (coming && coming->enters <= until && !(done && done_at(n, done) < coming->enters)) {
        admit(n, out);
        return true;
    }
    if (done == NULL || done_at(n, done) > until) return false;
    move_to(n, done_at(n, done));
    *out = (struct change){ .name = done->name, .from = done->from, .to = done->to, .both = done->both, .at = n->now,
                            .left = n->now - done->latency };
    remove_flow(n, done);
    return true;
}
