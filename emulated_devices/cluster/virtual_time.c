/* virtual_time.c -- moves the clocks of UWFQ, and chains the jobs of a user.  uwfq.c and tests call.  Errors:
 * ERR_MEMORY. */
#include "emulated_devices/cluster/virtual_time.h"
#include <stdlib.h>
#include <string.h>

enum error_code virtual_time_open(struct virtual_time *clocks, int devices, int users, struct error *err)
{
    *clocks = (struct virtual_time){ .devices = devices, .users = users,
                                     .user = calloc((size_t)users + 1, sizeof *clocks->user) };
    return clocks->user ? OK : fail(err, ERR_MEMORY, "no memory for the clocks of %d users", users);
}

void virtual_time_close(struct virtual_time *clocks)
{
    for (int u = 0; u < clocks->users && clocks->user; u++) free(clocks->user[u].job);
    free(clocks->user);
    clocks->user = NULL;
}

/* The chain of a user's jobs from S on. */
static void chain_jobs(struct virtual_user *user)
{
    double D = user->start;
    for (int i = 0; i < user->jobs; i++) D += user->job[i].work, user->job[i].deadline = D;
    user->end = D;
}

/* A user's own clock goes on; jobs whose d it passes are done in the ideal, and S takes their work. */
static void advance_user(struct virtual_user *user, double share)
{
    while (user->jobs > 0) {
        const double needs = (user->job[0].ends - user->own) * user->jobs;
        if (needs > share) break;
        user->own = user->job[0].ends, share -= needs > 0 ? needs : 0;
        user->start += user->job[0].work;
        memmove(user->job, user->job + 1, (size_t)--user->jobs * sizeof *user->job);
    }
    if (user->jobs > 0) user->own += share / user->jobs;
}

/* All active users get a share of work. */
static void share_work(struct virtual_time *clocks, double share)
{
    clocks->V += share;
    for (int u = 0; u < clocks->users; u++)
        if (clocks->user[u].active) advance_user(&clocks->user[u], share);
}

static struct virtual_user *first_to_leave(const struct virtual_time *clocks)
{
    struct virtual_user *first = NULL;
    for (int u = 0; u < clocks->users; u++)
        if (clocks->user[u].active && (first == NULL || clocks->user[u].end < first->end)) first = &clocks->user[u];
    return first;
}

void virtual_time_advance(struct virtual_time *clocks, int64_t now)
{
    double left = (double)(now - clocks->now);
    for (struct virtual_user *u; clocks->active > 0 && (u = first_to_leave(clocks)) != NULL;) {
        const double sigma = clocks->devices / clocks->active, until = (u->end - clocks->V) / sigma;
        if (until > left) break;
        if (until > 0) share_work(clocks, u->end - clocks->V), left -= until;
        u->active = false, u->jobs = 0, clocks->active--;
    }
    if (clocks->active > 0) share_work(clocks, clocks->devices / clocks->active * left);
    clocks->now = now;
}

enum error_code virtual_time_add(struct virtual_time *clocks, int user, int number, double work, struct error *err)
{
    struct virtual_user *const u = &clocks->user[user];
    if (u->jobs == u->room) {
        const int room = u->room > 0 ? 2 * u->room : 8;
        struct virtual_job *const grown = realloc(u->job, (size_t)room * sizeof *grown);
        if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for %d jobs of a user", room);
        u->job = grown, u->room = room;
    }
    if (!u->active) u->active = true, clocks->active++, u->start = u->own = clocks->V;
    const struct virtual_job new = { number, work, u->own + work, 0 };
    int at = u->jobs;
    while (at > 0 && u->job[at - 1].ends > new.ends) at--;
    memmove(u->job + at + 1, u->job + at, (size_t)(u->jobs - at) * sizeof *u->job);
    u->job[at] = new, u->jobs++;
    chain_jobs(u);
    return OK;
}

double virtual_time_deadline(const struct virtual_time *clocks, int user, int number)
{
    const struct virtual_user *const u = &clocks->user[user];
    for (int i = 0; i < u->jobs; i++)
        if (u->job[i].number == number) return u->job[i].deadline;
    return -1;
}
