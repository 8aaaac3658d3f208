/* alike.c -- what differs between the members' calls of a collective operation, so that a student can find the line.
 * serve_requests.c calls collectives_alike for each collective operation, trial.c uses collective_text for a
 * deadlock.  All texts are cut where their room ends; nothing can fail. */
#include "emulated_devices/course/alike.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text that grows, and is cut where its memory ends. */
struct text { char *at; size_t size, used; };

/* This appends to a text; a text that does not fit is cut. */
static void alike_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void alike_add(struct text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(text->at + text->used, text->size - text->used, format, list);
    va_end(list);
    text->used += n > 0 ? (size_t)n : 0;
    if (text->used >= text->size) text->used = text->size - 1;
}

/* Say a call as the student wrote it: "all_reduce of 12 numbers".  An all_to_all has two lists, which rows_fit
 * compares. */
void collective_text(const struct asked_collective *collective, char *to, size_t size)
{
    struct text t = { to, size, 0 };
    alike_add(&t, "%s", trial_collectives[collective->kind]);
    if (collective->kind != DO_ALL_TO_ALL)
        alike_add(&t, " of %lld number%s", (long long)collective->count, collective->count == 1 ? "" : "s");
    if (collective->kind == DO_BROADCAST) alike_add(&t, " from member %d", collective->root);
}

/* List each different call once, with all devices that made it: "all_reduce of 12 numbers on devices 0 and 2, of 8
 * numbers on device 1". */
static void list_calls(const struct trial *trial, const int *member, int size, struct text *text)
{
    bool said[WORKER_MOST_DEVICES] = { false };
    char one[100], other[100];
    for (int m = 0; m < size; m++) {
        int left = 0;
        if (said[m]) continue;
        collective_text(&trial->device[member[m]].asked, one, sizeof one);
        /* Members with the same text have made the same call; they are listed together. */
        for (int n = m; n < size; n++) {
            collective_text(&trial->device[member[n]].asked, other, sizeof other);
            said[n] |= strcmp(one, other) == 0;
            left += strcmp(one, other) == 0;
        }
        alike_add(text, "%s%s on device%s", m > 0 ? ", " : "", one, left > 1 ? "s" : "");
        for (int n = m; n < size; n++) {
            collective_text(&trial->device[member[n]].asked, other, sizeof other);
            if (strcmp(one, other) != 0) continue;
            alike_add(text, "%s%d", n == m ? " " : left == 1 ? " and " : ", ", member[n]);
            left--;
        }
    }
}

/* Say what all members must have in common, by the first thing that differs.  NULL: nothing differs. */
static const char *rule(const struct trial *trial, const int *member, int size)
{
    const struct asked_collective *first = &trial->device[member[0]].asked;
    bool kind = false, root = false, count = false;
    for (int m = 1; m < size; m++) {
        const struct asked_collective *a = &trial->device[member[m]].asked;
        kind |= a->kind != first->kind, root |= a->root != first->root, count |= a->count != first->count;
    }
    if (kind) return "all members of a group call the same operations, in the same order";
    if (root) return "all members give the same root";
    if (!count) return NULL;
    if (first->kind == DO_REDUCE_SCATTER) return "all members give the same count, that of all numbers of `in`";
    if (first->kind == DO_ALL_GATHER) return "all members give the same count, that of all numbers of `out`";
    return "all members give the same count";
}

/* Whether each member gives another member what that one takes; if not, the text says who differs. */
static bool rows_fit(const struct trial *trial, const int *member, int size, struct text *text)
{
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++) {
            const int64_t gives = trial->device[member[from]].asked.give[to];
            const int64_t takes = trial->device[member[to]].asked.take[from];
            if (gives == takes) continue;
            alike_add(text,
                      "all_to_all: give[%d] is %lld on device %d, but take[%d] is %lld on device %d; what a member "
                      "gives is what the other one takes", to, (long long)gives, member[from], from,
                      (long long)takes, member[to]);
            return false;
        }
    return true;
}

/* member has ranks; the texts name devices by these. */
bool collectives_alike(const struct trial *trial, const int *member, int size, char *why, size_t bytes)
{
    struct text t = { why, bytes, 0 };
    const char *same = rule(trial, member, size);
    why[0] = 0;
    if (same == NULL)
        return trial->device[member[0]].asked.kind != DO_ALL_TO_ALL || rows_fit(trial, member, size, &t);
    list_calls(trial, member, size, &t);
    alike_add(&t, "; %s", same);
    return false;
}
