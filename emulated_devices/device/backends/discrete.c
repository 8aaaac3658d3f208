/* discrete -- computes as cpu does, in memory that the host cannot touch, like that of a device behind a bus.
 *
 * Device memory is accessible only while an operation runs.  A host view is a copy; a view for writing is copied back
 * when it ends.  The program stops with one line if the host dereferences device memory, writes to a view for reading,
 * frees memory that still has a view, or never ends a view.  Debug builds use this backend.
 *
 * device_open calls this file for --backend discrete.  Opening can fail with ERR_MEMORY; every misuse of memory ends
 * the program.
 */
#define _DEFAULT_SOURCE                 /* sigaction's SA_SIGINFO */
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/backends/range.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t ADDRESSES = (size_t)1 << 36;        /* per device; unused addresses have no memory */

struct view {
    struct view *next;
    char *data;                         /* the device's */
    size_t bytes;
    bool writes;
    uint64_t hash;                      /* of the contents of a view for reading */
    char shown[];
};

struct discrete {
    struct discrete *next;              /* in the list of all devices of the process, for the fault handler */
    struct device *device;
    struct range range;
    int opened;                         /* number of running operations */
    struct view *views;
};

static struct discrete *all;
static struct sigaction usual;

static struct discrete *discrete_of(struct device *device) { return device->state; }

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* The program ends here anyway, so calls that are not allowed in a signal handler do no harm. */
static void fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    for (struct discrete *s = all; s != NULL; s = s->next) {
        if (!range_holds(&s->range, info->si_addr)) continue;
        enum arena_tag tag;
        uint64_t bytes;
        const bool known = arena_look(&s->device->arena, info->si_addr, &tag, &bytes);
        fprintf(stderr, "orrery: device memory is touched without a host view: %p in ", info->si_addr);
        if (known) fprintf(stderr, "a tensor of %llu bytes (%s)\n", (unsigned long long)bytes, arena_tag_name(tag));
        else fprintf(stderr, "no tensor that there is\n");
    }
    sigaction(signal, &usual, NULL);    /* the access is repeated, with the default handler */
}

static void catch_faults(void)
{
    struct sigaction a = { .sa_sigaction = fault, .sa_flags = SA_SIGINFO };
    sigemptyset(&a.sa_mask);
    sigaction(SIGSEGV, &a, &usual);
}

/* A misuse of views is a mistake of the program, so it ends here with one line. */
static void stop(const char *what, const struct view *view)
{
    fprintf(stderr, "orrery: %s: %llu bytes of device memory, at %p\n", what, (unsigned long long)view->bytes,
            (void *)view->data);
    abort();
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

/* The first device installs the handler for faults, and the last one restores the usual one. */
static enum error_code discrete_open_it(struct device *device, struct error *err)
{
    struct discrete *s = calloc(1, sizeof *s);
    if (s == NULL || !range_open(&s->range, ADDRESSES)) {
        free(s);
        return fail(err, ERR_MEMORY, "the backend discrete has no addresses for a device's memory");
    }
    if (all == NULL) catch_faults();
    s->device = device;
    s->next = all;
    all = s;
    device->state = s;
    return OK;
}

static void discrete_close_it(struct device *device)
{
    struct discrete *s = discrete_of(device), **at = &all;
    if (s->views != NULL) stop("a host view was never given back", s->views);
    /* The device leaves the list of those that the fault handler searches. */
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    if (all == NULL) sigaction(SIGSEGV, &usual, NULL);
    range_close(&s->range);
    free(s);
}

static void discrete_begin(struct device *device)
{
    /* Operations nest, so the outermost one opens the memory. */
    if (discrete_of(device)->opened++ == 0) range_protect(&discrete_of(device)->range, true);
}

static void discrete_end(struct device *device)
{
    if (--discrete_of(device)->opened == 0) range_protect(&discrete_of(device)->range, false);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool meets(const struct view *view, const char *data, size_t bytes) { return view->data < data + bytes
                                                                          && data < view->data + view->bytes; }

static void *discrete_allocate(struct device *device, size_t bytes)
{
    return range_take(&discrete_of(device)->range, bytes);
}

static void discrete_release(struct device *device, void *data, size_t bytes)
{
    for (struct view *v = discrete_of(device)->views; v != NULL; v = v->next)
        if (meets(v, data, bytes)) stop("memory is released while the host looks at it", v);
    range_give(&discrete_of(device)->range, data, bytes);
}

static void discrete_copy(struct device *device, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t width, size_t rows)
{
    discrete_begin(device);
    for (size_t r = 0; r < rows; r++) memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    discrete_end(device);
}

/* ---- host views -------------------------------------------------------------------------------------------------- */

/* A view is a copy in the host's memory.  Views of the same bytes may be read together, but not written. */
static struct view *view(struct device *device, void *data, size_t bytes, bool writes)
{
    struct view *v = malloc(sizeof *v + bytes);
    if (v == NULL) fprintf(stderr, "orrery: no memory for a host view of %zu bytes\n", bytes), abort();
    for (struct view *other = discrete_of(device)->views; other != NULL; other = other->next)
        if ((writes || other->writes) && meets(other, data, bytes))
            stop("somebody else looks at what a host view writes", other);
    *v = (struct view){ .next = discrete_of(device)->views, .data = data, .bytes = bytes, .writes = writes };
    discrete_copy(device, v->shown, bytes, data, bytes, bytes, 1);
    discrete_of(device)->views = v;
    return v;
}

static const void *host_reads(struct device *device, const void *data, size_t bytes)
{
    if (!range_holds(&discrete_of(device)->range, data)) return data;
    struct view *v = view(device, (char *)(uintptr_t)data, bytes, false);
    v->hash = flight_hash(v->shown, bytes);
    return v->shown;
}

static void *host_writes(struct device *device, void *data, size_t bytes)
{
    return range_holds(&discrete_of(device)->range, data) ? view(device, data, bytes, true)->shown : data;
}

/* A view for writing is copied back; one for reading must not have changed. */
static void host_gives_back(struct device *device, const void *shown)
{
    struct view **at = &discrete_of(device)->views, *v;
    while ((v = *at) != NULL && v->shown != shown) at = &v->next;
    if (v == NULL) return;                                      /* the host's own memory */
    if (v->writes) discrete_copy(device, v->data, v->bytes, v->shown, v->bytes, v->bytes, 1);
    else if (flight_hash(v->shown, v->bytes) != v->hash) stop("a host view for reading was written to", v);
    *at = v->next;
    free(v);
}

const struct backend backend_discrete = {
    .name = "discrete",
    .description = "computes as cpu, in memory that the host sees copies of only: finds accesses that do not ask",
    .has_numbers = true,
    .open = discrete_open_it, .close = discrete_close_it, .begin = discrete_begin, .end = discrete_end,
    .allocate = discrete_allocate, .release = discrete_release, .copy = discrete_copy,
    .host_read = host_reads, .host_write = host_writes, .host_done = host_gives_back,
    .ops = ops_for,
};
