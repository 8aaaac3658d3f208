/* flight.c -- the list of transfers that have not been waited for, and what the program must not see of them yet.
 *
 * clock.c, arena.c, tier.c, comm/ and the backend discrete (flight_hash) call this file; flight.h says what is
 * followed.  What a program does wrong is no error here: comm_agree asks flight_trouble.  Only a wrong ORRERY_STREAMS
 * is an error, ERR_USAGE.  Without memory a transfer counts as done early.
 */
#include "emulated_devices/device/flight.h"
#include "emulated_devices/device/streams.h"
#include "emulated_devices/device/backend.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MARK: a transfer that was done early; only its end is kept. */
enum kind { COPY, RESULT, SOURCE, MARK };

struct pending {
    enum kind kind;
    enum stream stream;
    picoseconds start, done;            /* start: for a copy, everything that ended before it has been waited for */
    bool reached;                       /* for a copy: that has been checked */
    char *to;                           /* destination of a copy or result */
    const char *from;                   /* a source; or of a copy that has not been read yet */
    uint64_t bytes;
    char *aside;                        /* the future contents of `to`: of a result, or a copy that has been read */
    uint64_t hash;                      /* of a source */
    bool open;                          /* its stream is current, so results are in place */
    bool fresh;                         /* ... and has written it since it became current */
};

struct flight {
    struct flight_mode mode;
    uint64_t random;
    const struct arena *arena;
    struct pending *list;               /* in the order of the program */
    int count, room;
    enum stream at_work;                /* the current stream; COMPUTE: no other one */
    char trouble[200];
};

/* ORRERY_STREAMS in words; the seed may be any whole number without a sign. */
enum error_code flight_mode_parse(struct flight_mode *mode, const char *text, struct error *err)
{
    static const char *const word[] = {
        [FLIGHT_OFF] = "off", [FLIGHT_EARLIEST] = "earliest", [FLIGHT_LATEST] = "latest"
    };
    static const char prefix[] = "random:";
    for (enum flight_when w = FLIGHT_OFF; w <= FLIGHT_LATEST; w++)
        if (strcmp(text, word[w]) == 0) return mode->when = w, OK;
    /* After the prefix there must be digits alone. */
    const char *digits = text + sizeof prefix - 1;
    if (strncmp(text, prefix, sizeof prefix - 1) == 0 && *digits != '\0' &&
        strspn(digits, "0123456789") == strlen(digits)) {
        *mode = (struct flight_mode){ FLIGHT_RANDOM, strtoull(digits, NULL, 10) };
        return OK;
    }
    return fail(err, ERR_USAGE, "ORRERY_STREAMS is neither off, earliest, latest nor random:SEED with a whole number");
}

/* Seed and rank are mixed, so that devices of one run draw differently and a run can be repeated. */
struct flight *flight_open(struct flight_mode mode, int rank, const struct arena *arena)
{
    struct flight *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->mode = mode;
    f->arena = arena;
    f->random = (mode.seed + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) * 0xd1342543de82ef95u;
    return f;
}

void flight_close(struct flight *flight)
{
    if (flight == NULL) return;
    for (int i = 0; i < flight->count; i++) free(flight->list[i].aside);
    free(flight->list);
    free(flight);
}

/* The mode decides, or the next bit of splitmix64. */
bool flight_late(struct flight *flight)
{
    if (flight == NULL || flight->mode.when != FLIGHT_RANDOM)
        return flight != NULL && flight->mode.when == FLIGHT_LATEST;
    flight->random += 0x9e3779b97f4a7c15u;                                   /* splitmix64 */
    uint64_t z = (flight->random ^ flight->random >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z >> 63;
}

static inline uint64_t flight_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Sums of words, and of products of their halves: there are no products of 64 bits, which take long in vector
 * instructions.  Keys differ by place, so that words that change places are noticed. */
enum { LANES = 8 };
struct lanes { uint64_t key[LANES], plain[LANES], mixed[LANES]; };

static inline void take_words(struct lanes *lanes, const char *from)
{
    uint64_t word[LANES];
    memcpy(word, from, sizeof word);
    for (int i = 0; i < LANES; i++) {
        const uint64_t d = word[i] ^ lanes->key[i];
        lanes->plain[i] += word[i];
        lanes->mixed[i] += (d & 0xffffffffu) * (d >> 32);
        lanes->key[i] += 0xd1342543de82ef95u;
    }
}

/* The result is the same on every machine with the same byte order, whatever vector instructions there are. */
uint64_t flight_hash(const void *data, uint64_t bytes)
{
    enum { BLOCK = LANES * (int)sizeof(uint64_t) };
    const uint64_t blocks = bytes / BLOCK, rest = bytes % BLOCK;
    const char *const p = data;
    char last[BLOCK] = { 0 };
    struct lanes l = { .plain = { bytes } };
    uint64_t h = 0;
    for (int i = 0; i < LANES; i++) l.key[i] = flight_mix(1, (uint64_t)i);
    /* Whole blocks come first, then the rest with zeros behind it; the length is in the first sum. */
    for (uint64_t b = 0; b < blocks; b++) take_words(&l, p + b * BLOCK);
    if (rest > 0) memcpy(last, p + blocks * BLOCK, (size_t)rest);
    take_words(&l, last);
    for (int i = 0; i < LANES; i++) h = flight_mix(flight_mix(h, l.plain[i]), l.mixed[i]);
    return h;
}

const char *flight_trouble(const struct flight *flight) { return flight != NULL ? flight->trouble : ""; }

/* Both sides of a move, and hashed memory, may be the device's or the host's.  Neither is a use of memory that comm
 * watches. */
static void flight_move(const struct flight *flight, void *to, const void *from, uint64_t bytes)
{
    struct device *const d = flight->arena->device;
    if (bytes > 0) d->backend->copy(d, to, (size_t)bytes, from, (size_t)bytes, (size_t)bytes, 1);
}

static uint64_t hash_of(const struct flight *flight, const void *data, uint64_t bytes)
{
    struct device *const d = flight->arena->device;
    if (bytes == 0) return 0;
    const void *view = d->backend->host_read(d, data, (size_t)bytes);
    const uint64_t hash = flight_hash(view, bytes);
    d->backend->host_done(d, view);
    return hash;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Ranges of bytes meet if they share a byte; `within` asks whether the first lies in the second. */
static bool meets(const char *a, uint64_t n, const char *b, uint64_t m)
{
    return a != NULL && b != NULL && a < b + m && b < a + n;
}

static bool within(const char *a, uint64_t n, const char *b, uint64_t m) { return b <= a && a + n <= b + m; }

static void flight_drop(struct flight *flight, int i)
{
    free(flight->list[i].aside);
    memmove(&flight->list[i], &flight->list[i + 1], sizeof flight->list[0] * (size_t)(flight->count - i - 1));
    flight->count--;
}

/* Without memory for another entry the transfer counts as done early. */
static struct pending *flight_add(struct flight *flight, struct pending pending)
{
    if (flight->count == flight->room) {
        const int room = flight->room > 0 ? 2 * flight->room : 64;
        struct pending *list = realloc(flight->list, sizeof *list * (size_t)room);
        if (list == NULL) return NULL;
        flight->list = list;
        flight->room = room;
    }
    flight->list[flight->count] = pending;
    return &flight->list[flight->count++];
}

/* A source must still have the hash it had when its stream stopped.  Only the first trouble is kept. */
static void judge_source(struct flight *flight, const struct pending *pending)
{
    enum arena_tag tag;
    uint64_t block;
    if (hash_of(flight, pending->from, pending->bytes) == pending->hash || flight->trouble[0] != '\0') return;
    snprintf(flight->trouble, sizeof flight->trouble,
             "%llu bytes of %s were changed while the %s stream still read them, until %s: a buffer is used "
             "again too early",
             (unsigned long long)pending->bytes, arena_look(flight->arena, pending->from, &tag, &block)
                 ? arena_tag_name(tag) : "memory",
             stream_name(pending->stream), picoseconds_format((double)pending->done).text);
}

/* A transfer ends: a source is judged, a result or copy gets to its destination. */
static void land(struct flight *flight, int i)
{
    const struct pending *p = &flight->list[i];
    if (p->kind == SOURCE) judge_source(flight, p);
    else if (p->kind != MARK) flight_move(flight, p->to, p->aside != NULL ? p->aside : p->from, p->bytes);
    flight_drop(flight, i);
}

/* A question to the list: entries that end by `until`, of a stream (STREAMS: of any), at some memory. */
struct which { picoseconds until; enum stream stream; const char *to, *from; uint64_t bytes; };

/* Open entries are in place already.  Without bytes every entry that is due is meant; else those that meet the
 * memory. */
static bool asked_for(const struct pending *pending, const struct which *which)
{
    if (pending->open || pending->done > which->until || (which->stream != STREAMS && pending->stream != which->stream))
        return false;
    if (which->bytes == 0) return true;
    return meets(pending->to, pending->bytes, which->to, which->bytes)
           || meets(pending->to, pending->bytes, which->from, which->bytes) ||
           meets(pending->from, pending->bytes, which->to, which->bytes);
}

/* Copies land in the order of virtual time, and at equal times in program order. */
static void land_all(struct flight *flight, struct which which)
{
    for (;;) {
        int first = -1;
        for (int i = 0; i < flight->count; i++)
            if (asked_for(&flight->list[i], &which) && (first < 0 || flight->list[i].done < flight->list[first].done))
                first = i;
        if (first < 0) return;
        land(flight, first);
    }
}

/* ---- what the clock tells ---------------------------------------------------------------------------------------- */

/* Whether a job of this stream ends exactly at this time, so that a wait until then is for that stream. */
static bool ends_at(const struct flight *flight, enum stream stream, picoseconds when)
{
    for (int i = 0; i < flight->count; i++)
        if (flight->list[i].stream == stream && flight->list[i].done == when && !flight->list[i].open) return true;
    return false;
}

/* Waiting for a copy includes waiting for everything that the copy has waited for. */
static void land_stream(struct flight *flight, enum stream stream, picoseconds until)
{
    for (int i = 0; i < flight->count; i++) {
        struct pending *p = &flight->list[i];
        if ((p->kind != COPY && p->kind != MARK) || p->stream != stream || p->done > until || p->reached ||
            p->start >= p->done)
            continue;
        /* Each copy is looked at once, or this would not end. */
        p->reached = true;
        flight_wait(flight, p->start);
        i = -1;                                                     /* the list has changed: start again */
    }
    land_all(flight, (struct which){ .until = until, .stream = stream });
}

/* Waiting for one stream's job does not include another stream's job, even if that ends earlier. */
void flight_wait(struct flight *flight, picoseconds until)
{
    bool found = false;
    if (flight == NULL) return;
    /* A wait names only a time, so each stream is asked whether a job of it ends then. */
    for (enum stream s = COMPUTE; s < STREAMS; s++)
        if (ends_at(flight, s, until)) found = true, land_stream(flight, s, until);
    if (!found) land_all(flight, (struct which){ .until = until, .stream = STREAMS });
}

void flight_join(struct flight *flight, enum stream stream)
{
    if (flight != NULL) land_stream(flight, stream, INT64_MAX);
}

void flight_settle(struct flight *flight)
{
    if (flight != NULL) land_all(flight, (struct which){ .until = INT64_MAX, .stream = STREAMS });
}

/* A stream continues: its results come back from aside, and its sources have to be unchanged. */
void flight_enter(struct flight *flight, enum stream stream)
{
    if (flight == NULL) return;
    flight->at_work = stream;
    for (int i = 0; i < flight->count; i++) {
        struct pending *p = &flight->list[i];
        /* Copies belong to engines, and are in memory or late whatever stream runs. */
        if (p->stream != stream || p->kind == COPY || p->kind == MARK) continue;
        if (p->kind == SOURCE) judge_source(flight, p);
        else flight_move(flight, p->to, p->aside, p->bytes);
        p->open = true;
    }
}

/* Whether memory belongs to a result that the current stream has in place. */
static bool is_result(const struct flight *flight, const char *data, uint64_t bytes)
{
    for (int i = 0; i < flight->count; i++)
        if (flight->list[i].kind == RESULT && flight->list[i].open
            && meets(flight->list[i].to, flight->list[i].bytes, data, bytes)) return true;
    return false;
}

/* A mark keeps start and end only, so that a wait finds the job. */
static void make_mark(struct pending *pending)
{
    *pending = (struct pending){ .kind = MARK, .stream = pending->stream, .start = pending->start,
                                .done = pending->done };
}

/* Memory that is read and written is treated as a result.  Early results are only marked. */
static void flight_choose(struct flight *flight)
{
    for (int i = flight->count - 1; i >= 0; i--) {
        struct pending *p = &flight->list[i];
        /* A source that the stream has also written is a result, not a source. */
        if (!p->open || p->kind != SOURCE) continue;
        if (is_result(flight, p->from, p->bytes)) flight_drop(flight, i);
        else p->hash = hash_of(flight, p->from, p->bytes), p->open = false;
    }
    const bool late = flight_late(flight);
    for (int i = flight->count - 1; i >= 0; i--)
        if (flight->list[i].open && flight->list[i].fresh && !late) make_mark(&flight->list[i]);
}

/* A stream stops: what it has written is put aside and replaced by poison.  All results move before the first is
 * poisoned, because they may overlap. */
void flight_leave(struct flight *flight)
{
    if (flight == NULL) return;
    flight->at_work = COMPUTE;
    flight_choose(flight);
    for (int i = flight->count - 1; i >= 0; i--) {
        struct pending *p = &flight->list[i];
        if (!p->open) continue;
        /* A result that continues has its memory already. */
        if (p->aside == NULL) p->aside = malloc((size_t)p->bytes);
        if (p->aside == NULL) flight_drop(flight, i);
        else flight_move(flight, p->aside, p->to, p->bytes);
    }
    for (int i = 0; i < flight->count; i++)
        if (flight->list[i].open) {
            arena_poison(flight->arena, flight->list[i].to, flight->list[i].bytes);
            flight->list[i].open = flight->list[i].fresh = false;
        }
}

/* Entries of the stream that lie inside the memory of a message to come are given up. */
void flight_reuse(struct flight *flight, enum stream stream, const void *data, uint64_t bytes)
{
    for (int i = flight != NULL ? flight->count - 1 : -1; i >= 0; i--) {
        const struct pending *p = &flight->list[i];
        const bool source = p->kind == SOURCE;
        if ((source || p->kind == RESULT) && p->stream == stream
            && within(source ? p->from : p->to, p->bytes, data, bytes)) flight_drop(flight, i);
    }
}

/* First the bytes as they are in memory, then over them those of the stream's own results that lie aside. */
void flight_snapshot(const struct flight *flight, enum stream stream, void *to, const void *data, uint64_t bytes)
{
    const char *const first = data, *const last = first + bytes;
    flight_move(flight, to, data, bytes);
    for (int i = 0; i < flight->count; i++) {
        const struct pending *p = &flight->list[i];
        if (p->kind != RESULT || p->stream != stream || p->open || !meets(p->to, p->bytes, data, bytes)) continue;
        const char *const from = p->to > first ? p->to : first, *const end = p->to + p->bytes;
        memcpy((char *)to + (from - first), p->aside + (from - p->to), (size_t)((end < last ? end : last) - from));
    }
}

static bool has_aside(const struct flight *flight, enum stream stream, const void *data, uint64_t bytes)
{
    for (int i = 0; i < flight->count; i++) {
        const struct pending *p = &flight->list[i];
        if (p->kind == RESULT && p->stream == stream && !p->open && meets(p->to, p->bytes, data, bytes)) return true;
    }
    return false;
}

uint64_t flight_hash_sent(const struct flight *flight, enum stream stream, const void *data, uint64_t bytes)
{
    char *seen = has_aside(flight, stream, data, bytes) ? malloc((size_t)bytes) : NULL;
    if (seen == NULL) return hash_of(flight, data, bytes);
    flight_snapshot(flight, stream, seen, data, bytes);
    const uint64_t hash = flight_hash(seen, bytes);
    free(seen);
    return hash;
}

/* ---- what is read and written ------------------------------------------------------------------------------------ */

/* Only what another stream than COMPUTE does in the arena can be in flight. */
static bool followed(const struct flight *flight, const void *data, uint64_t bytes)
{
    enum arena_tag tag;
    uint64_t block;
    return flight != NULL && flight->at_work != COMPUTE && bytes > 0 && arena_look(flight->arena, data, &tag, &block);
}

/* The stream wrote memory: a result that covers it stays, those inside it are replaced by a new one. */
void flight_wrote(struct flight *flight, picoseconds now, void *data, uint64_t bytes)
{
    bool known = false;
    if (!followed(flight, data, bytes)) return;
    for (int i = flight->count - 1; i >= 0; i--) {
        struct pending *p = &flight->list[i];
        if (p->kind != RESULT || !p->open || !meets(p->to, p->bytes, data, bytes)) continue;
        p->done = now;                                              /* it is complete when its last part is */
        if (within(data, bytes, p->to, p->bytes)) known = true;
        else if (within(p->to, p->bytes, data, bytes)) flight_drop(flight, i);
    }
    if (!known)
        flight_add(flight, (struct pending){ .kind = RESULT,
                                 .stream = flight->at_work,
                                 .done = now,
                                 .to = data,
                                 .bytes = bytes,
                                 .open = true,
                                 .fresh = true });
}

/* The stream read memory: an entry of exactly these bytes gets the new time. */
void flight_read(struct flight *flight, picoseconds now, const void *data, uint64_t bytes)
{
    if (!followed(flight, data, bytes)) return;
    for (int i = 0; i < flight->count; i++) {
        struct pending *p = &flight->list[i];
        if (p->kind != SOURCE || !p->open || p->from != data || p->bytes != bytes) continue;
        p->done = now;
        return;
    }
    flight_add(flight, (struct pending){ .kind = SOURCE,
                             .stream = flight->at_work,
                             .done = now,
                             .from = data,
                             .bytes = bytes,
                             .open = true,
                             .fresh = true });
}

void flight_before_copy(struct flight *flight, picoseconds start, void *to, const void *from, uint64_t bytes)
{
    if (flight != NULL && bytes > 0) land_all(flight, (struct which){ start, STREAMS, to, from, bytes });
}

/* A late copy leaves poison at its destination until somebody waits. */
void flight_copied(struct flight *flight, enum stream engine, picoseconds start, picoseconds done, void *to,
                   const void *from, uint64_t bytes)
{
    if (flight == NULL || bytes == 0) return;
    struct pending p = {
        .kind = COPY, .stream = engine, .start = start, .done = done, .to = to, .from = from, .bytes = bytes
    };
    const bool late = flight_late(flight);
    if (!late) make_mark(&p);
    if (flight_add(flight, p) && late) arena_poison(flight->arena, to, bytes);
}

/* ---- what the arena tells ---------------------------------------------------------------------------------------- */

/* Read a copy now, because its source will be freed.  Without memory for the data, the copy counts as done early. */
static void read_now(struct flight *flight, int i)
{
    struct pending *p = &flight->list[i];
    p->aside = malloc((size_t)p->bytes);
    if (p->aside == NULL) {
        land(flight, i);
        return;
    }
    flight_move(flight, p->aside, p->from, p->bytes);
    p->from = NULL;
}

/* Memory is about to be freed: results in it are dropped, copies from it are read now, sources are judged. */
void flight_freed(struct flight *flight, const void *data, uint64_t bytes)
{
    for (int i = flight != NULL ? flight->count - 1 : -1; i >= 0; i--) {
        struct pending *p = &flight->list[i];
        if (meets(p->to, p->bytes, data, bytes)) flight_drop(flight, i);
        else if (!meets(p->from, p->bytes, data, bytes)) continue;
        else if (p->kind == COPY) read_now(flight, i);
        else {
            if (!p->open) judge_source(flight, p);
            flight_drop(flight, i);
        }
    }
}
