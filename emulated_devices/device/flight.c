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

enum error_code flight_mode_parse(struct flight_mode *mode, const char *text, struct error *err)
{
    static const char *const word[] = {
        [FLIGHT_OFF] = "off", [FLIGHT_EARLIEST] = "earliest", [FLIGHT_LATEST] = "latest"
    };
    static const char prefix[] = "random:";
    for (enum flight_when w = FLIGHT_OFF; w <= FLIGHT_LATEST; w++)
        if (strcmp(text, word[w]) == 0) return mode->when = w, OK;
    const char *digits = text + sizeof prefix - 1;
    if (strncmp(text, prefix, sizeof prefix - 1) == 0 && *digits != '\0' &&
        strspn(digits, "0123456789") == strlen(digits)) {
        *mode = (struct flight_mode){ FLIGHT_RANDOM, strtoull(digits, NULL, 10) };
        return OK;
    }
    return fail(err, ERR_USAGE, "ORRERY_STREAMS is neither off, earliest, latest nor random:SEED with a whole number");
}

struct flight *flight_open(struct flight_mode mode, int rank, const struct arena *a)
{
    struct flight *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->mode = mode;
    f->arena = a;
    f->random = (mode.seed + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) * 0xd1342543de82ef95u;
    return f;
}

void flight_close(struct flight *f)
{
    if (f == NULL) return;
    for (int i = 0; i < f->count; i++) free(f->list[i].aside);
    free(f->list);
    free(f);
}

bool flight_late(struct flight *f)
{
    if (f == NULL || f->mode.when != FLIGHT_RANDOM) return f != NULL && f->mode.when == FLIGHT_LATEST;
    f->random += 0x9e3779b97f4a7c15u;                                   /* splitmix64 */
    uint64_t z = (f->random ^ f->random >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z >> 63;
}

static inline uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Sums of words, and of products of their halves: there are no products of 64 bits, which take long in vector
 * instructions.  Keys differ by place, so that words that change places are noticed. */
enum { LANES = 8 };
struct lanes { uint64_t key[LANES], plain[LANES], mixed[LANES]; };

static inline void take_words(struct lanes *l, const char *from)
{
    uint64_t word[LANES];
    memcpy(word, from, sizeof word);
    for (int i = 0; i < LANES; i++) {
        const uint64_t d = word[i] ^ l->key[i];
        l->plain[i] += word[i];
        l->mixed[i] += (d & 0xffffffffu) * (d >> 32);
        l->key[i] += 0xd1342543de82ef95u;
    }
}

uint64_t flight_hash(const void *data, uint64_t bytes)
{
    enum { BLOCK = LANES * (int)sizeof(uint64_t) };
    const uint64_t blocks = bytes / BLOCK, rest = bytes % BLOCK;
    const char *const p = data;
    char last[BLOCK] = { 0 };
    struct lanes l = { .plain = { bytes } };
    uint64_t h = 0;
    for (int i = 0; i < LANES; i++) l.key[i] = mix(1, (uint64_t)i);
    /* Whole blocks come first, then the rest with zeros behind it; the length is in the first sum. */
    for (uint64_t b = 0; b < blocks; b++) take_words(&l, p + b * BLOCK);
    if (rest > 0) memcpy(last, p + blocks * BLOCK, (size_t)rest);
    take_words(&l, last);
    for (int i = 0; i < LANES; i++) h = mix(mix(h, l.plain[i]), l.mixed[i]);
    return h;
}

const char *flight_trouble(const struct flight *f) { return f != NULL ? f->trouble : ""; }

/* Both sides of a move, and hashed memory, may be the device's or the host's.  Neither is a use of memory that comm
 * watches. */
static void move(const struct flight *f, void *to, const void *from, uint64_t bytes)
{
    struct device *const d = f->arena->device;
    if (bytes > 0) d->backend->copy(d, to, (size_t)bytes, from, (size_t)bytes, (size_t)bytes, 1);
}

static uint64_t hash_of(const struct flight *f, const void *data, uint64_t bytes)
{
    struct device *const d = f->arena->device;
    if (bytes == 0) return 0;
    const void *view = d->backend->host_read(d, data, (size_t)bytes);
    const uint64_t hash = flight_hash(view, bytes);
    d->backend->host_done(d, view);
    return hash;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static bool meets(const char *a, uint64_t n, const char *b, uint64_t m)
{
    return a != NULL && b != NULL && a < b + m && b < a + n;
}

static bool within(const char *a, uint64_t n, const char *b, uint64_t m) { return b <= a && a + n <= b + m; }

static void drop(struct flight *f, int i)
{
    free(f->list[i].aside);
    memmove(&f->list[i], &f->list[i + 1], sizeof f->list[0] * (size_t)(f->count - i - 1));
    f->count--;
}

/* Without memory for another entry the transfer counts as done early. */
static struct pending *add(struct flight *f, struct pending p)
{
    if (f->count == f->room) {
        const int room = f->room > 0 ? 2 * f->room : 64;
        struct pending *list = realloc(f->list, sizeof *list * (size_t)room);
        if (list == NULL) return NULL;
        f->list = list;
        f->room = room;
    }
    f->list[f->count] = p;
    return &f->list[f->count++];
}

static void judge_source(struct flight *f, const struct pending *p)
{
    enum arena_tag tag;
    uint64_t block;
    if (hash_of(f, p->from, p->bytes) == p->hash || f->trouble[0] != '\0') return;
    snprintf(f->trouble, sizeof f->trouble,
             "%llu bytes of %s were changed while the %s stream still read them, until %s: a buffer is used "
             "again too early",
             (unsigned long long)p->bytes, arena_look(f->arena, p->from, &tag, &block) ? arena_tag_name(tag) : "memory",
             stream_name(p->stream), picoseconds_format((double)p->done).text);
}

static void land(struct flight *f, int i)
{
    const struct pending *p = &f->list[i];
    if (p->kind == SOURCE) judge_source(f, p);
    else if (p->kind != MARK) move(f, p->to, p->aside != NULL ? p->aside : p->from, p->bytes);
    drop(f, i);
}

struct which { picoseconds until; enum stream stream; const char *to, *from; uint64_t bytes; };

static bool asked_for(const struct pending *p, const struct which *w)
{
    if (p->open || p->done > w->until || (w->stream != STREAMS && p->stream != w->stream)) return false;
    if (w->bytes == 0) return true;
    return meets(p->to, p->bytes, w->to, w->bytes) || meets(p->to, p->bytes, w->from, w->bytes) ||
           meets(p->from, p->bytes, w->to, w->bytes);
}

/* Copies land in the order of virtual time, and at equal times in program order. */
static void land_all(struct flight *f, struct which w)
{
    for (;;) {
        int first = -1;
        for (int i = 0; i < f->count; i++)
            if (asked_for(&f->list[i], &w) && (first < 0 || f->list[i].done < f->list[first].done)) first = i;
        if (first < 0) return;
        land(f, first);
    }
}

/* ---- what the clock tells ---------------------------------------------------------------------------------------- */

static bool ends_at(const struct flight *f, enum stream s, picoseconds when)
{
    for (int i = 0; i < f->count; i++)
        if (f->list[i].stream == s && f->list[i].done == when && !f->list[i].open) return true;
    return false;
}

/* Waiting for a copy includes waiting for everything that the copy has waited for. */
static void land_stream(struct flight *f, enum stream s, picoseconds until)
{
    for (int i = 0; i < f->count; i++) {
        struct pending *p = &f->list[i];
        if ((p->kind != COPY && p->kind != MARK) || p->stream != s || p->done > until || p->reached ||
            p->start >= p->done)
            continue;
        /* Each copy is looked at once, or this would not end. */
        p->reached = true;
        flight_wait(f, p->start);
        i = -1;                                                     /* the list has changed: start again */
    }
    land_all(f, (struct which){ .until = until, .stream = s });
}

/* Waiting for one stream's job does not include another stream's job, even if that ends earlier. */
void flight_wait(struct flight *f, picoseconds until)
{
    bool found = false;
    if (f == NULL) return;
    for (enum stream s = COMPUTE; s < STREAMS; s++)
        if (ends_at(f, s, until)) found = true, land_stream(f, s, until);
    if (!found) land_all(f, (struct which){ .until = until, .stream = STREAMS });
}

void flight_join(struct flight *f, enum stream s)
{
    if (f != NULL) land_stream(f, s, INT64_MAX);
}

void flight_settle(struct flight *f)
{
    if (f != NULL) land_all(f, (struct which){ .until = INT64_MAX, .stream = STREAMS });
}

void flight_enter(struct flight *f, enum stream s)
{
    if (f == NULL) return;
    f->at_work = s;
    for (int i = 0; i < f->count; i++) {
        struct pending *p = &f->list[i];
        if (p->stream != s || p->kind == COPY || p->kind == MARK) continue;
        if (p->kind == SOURCE) judge_source(f, p);
        else move(f, p->to, p->aside, p->bytes);
        p->open = true;
    }
}

static bool is_result(const struct flight *f, const char *data, uint64_t bytes)
{
    for (int i = 0; i < f->count; i++)
        if (f->list[i].kind == RESULT && f->list[i].open && meets(f->list[i].to, f->list[i].bytes, data, bytes))
            return true;
    return false;
}

static void make_mark(struct pending *p)
{
    *p = (struct pending){ .kind = MARK, .stream = p->stream, .start = p->start, .done = p->done };
}

/* Memory that is read and written is treated as a result.  Early results are only marked. */
static void choose(struct flight *f)
{
    for (int i = f->count - 1; i >= 0; i--) {
        struct pending *p = &f->list[i];
        if (!p->open || p->kind != SOURCE) continue;
        if (is_result(f, p->from, p->bytes)) drop(f, i);
        else p->hash = hash_of(f, p->from, p->bytes), p->open = false;
    }
    const bool late = flight_late(f);
    for (int i = f->count - 1; i >= 0; i--)
        if (f->list[i].open && f->list[i].fresh && !late) make_mark(&f->list[i]);
}

/* All results are moved aside before the first is poisoned, because they may overlap. */
void flight_leave(struct flight *f)
{
    if (f == NULL) return;
    f->at_work = COMPUTE;
    choose(f);
    for (int i = f->count - 1; i >= 0; i--) {
        struct pending *p = &f->list[i];
        if (!p->open) continue;
        if (p->aside == NULL) p->aside = malloc((size_t)p->bytes);
        if (p->aside == NULL) drop(f, i);
        else move(f, p->aside, p->to, p->bytes);
    }
    for (int i = 0; i < f->count; i++)
        if (f->list[i].open) {
            arena_poison(f->arena, f->list[i].to, f->list[i].bytes);
            f->list[i].open = f->list[i].fresh = false;
        }
}

void flight_reuse(struct flight *f, enum stream s, const void *data, uint64_t bytes)
{
    for (int i = f != NULL ? f->count - 1 : -1; i >= 0; i--) {
        const struct pending *p = &f->list[i];
        const bool source = p->kind == SOURCE;
        if ((source || p->kind == RESULT) && p->stream == s && within(source ? p->from : p->to, p->bytes, data, bytes))
            drop(f, i);
    }
}

void flight_snapshot(const struct flight *f, enum stream s, void *to, const void *data, uint64_t bytes)
{
    const char *const first = data, *const last = first + bytes;
    move(f, to, data, bytes);
    for (int i = 0; i < f->count; i++) {
        const struct pending *p = &f->list[i];
        if (p->kind != RESULT || p->stream != s || p->open || !meets(p->to, p->bytes, data, bytes)) continue;
        const char *const from = p->to > first ? p->to : first, *const end = p->to + p->bytes;
        memcpy((char *)to + (from - first), p->aside + (from - p->to), (size_t)((end < last ? end : last) - from));
    }
}

static bool has_aside(const struct flight *f, enum stream s, const void *data, uint64_t bytes)
{
    for (int i = 0; i < f->count; i++) {
        const struct pending *p = &f->list[i];
        if (p->kind == RESULT && p->stream == s && !p->open && meets(p->to, p->bytes, data, bytes)) return true;
    }
    return false;
}

uint64_t flight_hash_sent(const struct flight *f, enum stream s, const void *data, uint64_t bytes)
{
    char *seen = has_aside(f, s, data, bytes) ? malloc((size_t)bytes) : NULL;
    if (seen == NULL) return hash_of(f, data, bytes);
    flight_snapshot(f, s, seen, data, bytes);
    const uint64_t hash = flight_hash(seen, bytes);
    free(seen);
    return hash;
}

/* ---- what is read and written ------------------------------------------------------------------------------------ */

static bool followed(const struct flight *f, const void *data, uint64_t bytes)
{
    enum arena_tag tag;
    uint64_t block;
    return f != NULL && f->at_work != COMPUTE && bytes > 0 && arena_look(f->arena, data, &tag, &block);
}

void flight_wrote(struct flight *f, picoseconds now, void *data, uint64_t bytes)
{
    bool known = false;
    if (!followed(f, data, bytes)) return;
    for (int i = f->count - 1; i >= 0; i--) {
        struct pending *p = &f->list[i];
        if (p->kind != RESULT || !p->open || !meets(p->to, p->bytes, data, bytes)) continue;
        p->done = now;                                              /* it is complete when its last part is */
        if (within(data, bytes, p->to, p->bytes)) known = true;
        else if (within(p->to, p->bytes, data, bytes)) drop(f, i);
    }
    if (!known)
        add(f, (struct pending){ .kind = RESULT,
                                 .stream = f->at_work,
                                 .done = now,
                                 .to = data,
                                 .bytes = bytes,
                                 .open = true,
                                 .fresh = true });
}

void flight_read(struct flight *f, picoseconds now, const void *data, uint64_t bytes)
{
    if (!followed(f, data, bytes)) return;
    for (int i = 0; i < f->count; i++) {
        struct pending *p = &f->list[i];
        if (p->kind != SOURCE || !p->open || p->from != data || p->bytes != bytes) continue;
        p->done = now;
        return;
    }
    add(f, (struct pending){ .kind = SOURCE,
                             .stream = f->at_work,
                             .done = now,
                             .from = data,
                             .bytes = bytes,
                             .open = true,
                             .fresh = true });
}

void flight_before_copy(struct flight *f, picoseconds start, void *to, const void *from, uint64_t bytes)
{
    if (f != NULL && bytes > 0) land_all(f, (struct which){ start, STREAMS, to, from, bytes });
}

void flight_copied(struct flight *f, enum stream engine, picoseconds start, picoseconds done, void *to,
                   const void *from, uint64_t bytes)
{
    if (f == NULL || bytes == 0) return;
    struct pending p = {
        .kind = COPY, .stream = engine, .start = start, .done = done, .to = to, .from = from, .bytes = bytes
    };
    const bool late = flight_late(f);
    if (!late) make_mark(&p);
    if (add(f, p) && late) arena_poison(f->arena, to, bytes);
}

/* ---- what the arena tells ---------------------------------------------------------------------------------------- */

/* Read a copy now, because its source will be freed.  Without memory for the data, the copy counts as done early. */
static void read_now(struct flight *f, int i)
{
    struct pending *p = &f->list[i];
    p->aside = malloc((size_t)p->bytes);
    if (p->aside == NULL) {
        land(f, i);
        return;
    }
    move(f, p->aside, p->from, p->bytes);
    p->from = NULL;
}

void flight_freed(struct flight *f, const void *data, uint64_t bytes)
{
    for (int i = f != NULL ? f->count - 1 : -1; i >= 0; i--) {
        struct pending *p = &f->list[i];
        if (meets(p->to, p->bytes, data, bytes)) drop(f, i);
        else if (!meets(p->from, p->bytes, data, bytes)) continue;
        else if (p->kind == COPY) read_now(f, i);
        else {
            if (!p->open) judge_source(f, p);
            drop(f, i);
        }
    }
}
