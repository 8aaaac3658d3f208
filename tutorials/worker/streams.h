/* streams.h -- what a stream makes is out of reach until stream_join.  Private to worker.c.
 *
 * A device's operations are done at once, also those of its stream.  Where streams are real they are not done before
 * somebody waits for them.  So between stream_end and stream_join what arrived on the stream is put away, and poison is
 * in its place: who reads it has poison, and who writes there is told.  worker.c includes this file.  A wrong access
 * is told to the student by ASK_MISUSE.
 */
#ifndef COURSE_STREAMS_H
#define COURSE_STREAMS_H

#include "course.h"
#include "worker/protocol.h"
#include <stdbool.h>

static void ask(struct request, const void *payload);
static void misuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

enum { STREAM_ARRAYS = 256, STREAM_BYTES = 8 << 20, STREAM_POISON = 0x7f };

/* Since the last stream_join.  What has no place any more stays where it is. */
static struct { unsigned char *at, *kept; uint64_t bytes; } arrived[STREAM_ARRAYS];
static int arrivals;
static unsigned char put_away[STREAM_BYTES];
static uint64_t put_bytes;
static bool on_stream;

static void stream_arrives(void *at, uint64_t bytes)
{
    if (!on_stream || arrivals == STREAM_ARRAYS || bytes > sizeof put_away - put_bytes) return;
    arrived[arrivals].at = at, arrived[arrivals].kept = put_away + put_bytes, arrived[arrivals++].bytes = bytes;
    put_bytes += bytes;
}

static void stream_put_away(void)
{
    on_stream = false;
    for (int i = 0; i < arrivals; i++) {
        memcpy(arrived[i].kept, arrived[i].at, arrived[i].bytes);
        memset(arrived[i].at, STREAM_POISON, arrived[i].bytes);
    }
}

/* The other way round, because arrays may overlap.  @return whether nobody has written there. */
static bool stream_put_back(void)
{
    bool untouched = true;
    for (int i = arrivals - 1; i >= 0; i--) {
        for (uint64_t k = 0; k < arrived[i].bytes; k++) untouched &= arrived[i].at[k] == STREAM_POISON;
        memcpy(arrived[i].at, arrived[i].kept, arrived[i].bytes);
    }
    return untouched;
}

/* Memory is given back: by the stream itself, or too early. */
static void stream_loses(const unsigned char *at, uint64_t bytes)
{
    for (int i = 0; i < arrivals; i++) {
        if (arrived[i].bytes == 0 || arrived[i].at + arrived[i].bytes <= at || at + bytes <= arrived[i].at) continue;
        if (!on_stream) misuse("release() of memory that the stream still works on: stream_join() comes first");
        arrived[i].bytes = 0;
    }
}

static void stream(int which) { ask((struct request){ .kind = ASK_STREAM, .number = which }, NULL); }

static void look_at_stream(void)
{
    if (stream_put_back()) return;
    misuse("what arrived on the stream was changed before stream_join(): it can be used only after that");
}

void stream_begin(void)
{
    stream(0);
    if (!on_stream) look_at_stream();
    on_stream = true;
}

void stream_end(void)
{
    if (on_stream) stream_put_away();
    stream(1);
}

void stream_join(void)
{
    if (!on_stream) look_at_stream();
    arrivals = 0, put_bytes = 0;
    stream(2);
}

#endif
