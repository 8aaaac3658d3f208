/* shared_words.c -- puts a link that devices share into words, for `orrery list clusters` and `orrery show cluster`.
 * No errors: a text without room ends early. */
#include "emulated_devices/cli/shared_words.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Append to the text. */
static void words_add(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void words_add(char *text, size_t size, const char *fmt, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(text + used, size - used, fmt, arguments);
    va_end(arguments);
}

static struct figure words_rate(int64_t rate) { return byte_rate_format(1e6 * (double)rate); }

/* Members of a unit: "8 devices", "the 18 devices of equal rank modulo 4 in 72". */
static void words_members(const struct shared_link *shared_link, char *text, size_t size)
{
    if (shared_link->stride > 1)
        words_add(text, size, "the %d devices of equal rank modulo %d in %d",
                  shared_link->devices / shared_link->stride, shared_link->stride, shared_link->devices);
    else words_add(text, size, "%d device%s", shared_link->devices, plural(shared_link->devices));
}

static void words_torus(const struct shared_link *shared_link, char *text, size_t size)
{
    words_add(text, size, "a torus of ");
    for (int d = 0; d < shared_link->dimensions; d++)
        words_add(text, size, "%s%d", d > 0 ? " x " : "", shared_link->size[d]);
    words_add(text, size, " places of ");
    words_members(shared_link, text, size);
    words_add(text, size, ", %s up and down in each dimension", words_rate(shared_link->rate).text);
}

/* Messages leave and enter a unit by one path or several. */
static void words_leaving(const struct shared_link *shared_link, char *text, size_t size)
{
    const int paths = shared_link->paths > 1 ? shared_link->paths : 1, stride = shared_link->stride;
    const int members = shared_link->devices / (stride > 1 ? stride : 1);
    if (paths > 1) words_add(text, size, "%d paths of ", paths);
    words_add(text, size, "%s", words_rate(shared_link->rate).text);
    if (shared_link->entering > 0) words_add(text, size, " out and %s in", words_rate(shared_link->entering).text);
    words_add(text, size, " for what leaves and enters ");
    words_members(shared_link, text, size);
    if (paths > 1)
        words_add(text, size, ", a path for each %s", shared_link->by_receiver ? "receiver" : "pair by a hash");
    if (members > 1)
        words_add(text, size, "; %s each if all send",
                  byte_rate_format(1e6 * (double)shared_link->rate * paths / members).text);
}

const char *shared_words(const struct cluster *cluster, const struct shared_link *shared_link, char *text, size_t size)
{
    text[0] = '\0';
    switch (shared_link->kind) {
    case SHARED_TORUS:
        words_torus(shared_link, text, size);
        break;
    case SHARED_LEAVING:
        words_leaving(shared_link, text, size);
        break;
    case SHARED_PAIRS:
        words_add(text, size, "%s for each pair of ", words_rate(shared_link->rate).text);
        words_members(shared_link, text, size);
        break;
    default:
        words_add(text, size, "%s for all messages inside ", words_rate(shared_link->rate).text);
        words_members(shared_link, text, size);
    }
    /* The rest is of every kind. */
    if (shared_link->half_duplex) words_add(text, size, "; both directions together");
    if (shared_link->hop > 0)
        words_add(text, size, "; %s %s", picoseconds_format((double)shared_link->hop).text,
                  shared_link->kind == SHARED_TORUS ? "for each further hop" : "more latency");
    if (shared_link->of_level > 0)
        words_add(text, size, "; only messages of level %s", cluster->link[shared_link->of_level - 1].level);
    return text;
}
