/* disturb.c -- reads what is to be made slow, and says how long something takes then.
 * clock.c and comm/recorder.c ask; cli/train/options/ and tests read the words.  Wrong words are ERR_USAGE. */
#include "emulated_devices/device/disturb.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TIMES = 1000, MOST_NOISE = 1000 };          /* of the words: factors and percent */

static const char *const kinds[DISTURBANCE_KINDS] = { "compute", "link", "out", "in", "hang", "hang-inside" };

static bool hangs(enum disturbance_kind kind) { return kind == DISTURB_HANG || kind == DISTURB_HANG_INSIDE; }

/* Read a whole number without a sign.  @return whether there is one; *at moves behind it. */
static bool disturb_number(const char **at, int64_t *to)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    const long long n = strtoll(*at, &end, 10);
    if (end - *at > 9) return false;
    *at = end, *to = n;
    return true;
}

/* A factor has at most two digits after its point. */
static bool disturb_factor(const char **at, int64_t *percent)
{
    int64_t whole, part = 0;
    if (!disturb_number(at, &whole) || whole > MOST_TIMES) return false;
    if (**at == '.') {
        const char *const from = ++*at;
        if (!disturb_number(at, &part) || *at - from > 2) return false;
        if (*at - from == 1) part *= 10;
    }
    *percent = 100 * whole + part;
    return *percent >= 100;
}

/* The end of a word: nothing, @STEP or @STEP-. */
static bool disturb_steps(const char **at, struct disturbance *disturbance)
{
    disturbance->first = 1, disturbance->last = INT64_MAX;
    if (**at == '\0') return true;
    if (*(*at)++ != '@' || !disturb_number(at, &disturbance->first) || disturbance->first < 1) return false;
    if (**at == '-') ++*at;
    else disturbance->last = disturbance->first;
    return **at == '\0';
}

static bool parse_word(struct disturbances *all, const char *word)
{
    struct disturbance d = { .percent = 100 };
    const size_t length = strcspn(word, ":");
    int64_t device, other = 0;
    const char *at = word + length;
    if (*at++ != ':') return false;
    if (length == 5 && strncmp(word, "noise", length) == 0)
        return disturb_number(&at, &all->noise) && *at == '\0' && all->noise <= MOST_NOISE;
    while (d.kind < DISTURBANCE_KINDS && (strlen(kinds[d.kind]) != length || strncmp(word, kinds[d.kind], length) != 0))
        d.kind++;
    if (d.kind == DISTURBANCE_KINDS || all->count == DISTURBANCES_MOST || !disturb_number(&at, &device)) return false;
    if (d.kind == DISTURB_LINK && (*at++ != '-' || !disturb_number(&at, &other))) return false;
    if (!hangs(d.kind) && (*at++ != ':' || !disturb_factor(&at, &d.percent))) return false;
    if (!disturb_steps(&at, &d)) return false;
    d.device = (int)device, d.other = (int)other;
    all->of[all->count++] = d;
    return true;
}

enum error_code disturbances_parse(struct disturbances *all, const char *words, struct error *err)
{
    char word[80];
    *all = (struct disturbances){ .count = 0 };
    for (const char *at = words;; at++) {
        const size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : 0, at);
        if (!parse_word(all, word))
            return fail(err, ERR_USAGE, "--disturb %.60s: at most %d words such as compute:3:4, link:2-5:4, out:6:2.5, "
                        "in:6:2, hang:3, hang-inside:3, noise:10, with commas between, each with @STEP or @STEP- "
                        "behind it", words, DISTURBANCES_MOST);
        at += length;
        if (*at == '\0') return OK;
    }
}

enum error_code disturbances_check(const struct disturbances *all, int devices, struct error *err)
{
    for (int i = 0; i < all->count; i++) {
        const struct disturbance *const d = &all->of[i];
        if (d->device >= devices || d->other >= devices)
            return fail(err, ERR_USAGE, "--disturb %s: there is no device %d: devices are 0 to %d", kinds[d->kind],
                        d->device >= devices ? d->device : d->other, devices - 1);
        if (d->kind == DISTURB_LINK && d->device == d->other)
            return fail(err, ERR_USAGE, "--disturb link: device %d sends nothing to itself", d->device);
    }
    return OK;
}

/* The finalizer of splitmix64 (S. Vigna) makes a number of seed, device and place. */
static uint64_t disturb_draw(struct disturbed *disturbed)
{
    uint64_t x = disturbed->all->seed * UINT64_C(0xD1B54A32D192ED03)
               + (uint64_t)disturbed->rank * UINT64_C(0x8CB92BA72F3D8DD7)
               + ++disturbed->drawn * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static bool is_now(const struct disturbance *disturbance, int64_t step)
{
    return step >= disturbance->first && step <= disturbance->last;
}

/* A percentage of a time, rounded up. */
static int64_t percent_of(int64_t usual, int64_t percent)
{
    return usual / 100 * percent + (usual % 100 * percent + 99) / 100;
}

int64_t disturbed_time(struct disturbed *disturbed, enum disturbance_kind kind, int device, int other, int64_t usual)
{
    int64_t time = usual;
    const struct disturbances *const all = disturbed->all;
    if (all == NULL) return usual;
    for (int i = 0; i < all->count; i++) {
        const struct disturbance *const d = &all->of[i];
        if (d->kind == kind && d->device == device && (kind != DISTURB_LINK || d->other == other)
            && is_now(d, disturbed->step)) time = percent_of(time, d->percent);
    }
    /* Noise in thousandths of a percent; a link has none beside its ports'. */
    if (all->noise > 0 && kind != DISTURB_LINK) {
        const int64_t more = (int64_t)(disturb_draw(disturbed) % (uint64_t)(all->noise * 1000 + 1));
        time += usual / 100000 * more + usual % 100000 * more / 100000;
    }
    return time;
}

bool disturbed_hangs(const struct disturbed *disturbed, enum disturbance_kind kind)
{
    for (int i = 0; disturbed->all && i < disturbed->all->count; i++) {
        const struct disturbance *const d = &disturbed->all->of[i];
        if (d->kind == kind && d->device == disturbed->rank && is_now(d, disturbed->step)) return true;
    }
    return false;
}
