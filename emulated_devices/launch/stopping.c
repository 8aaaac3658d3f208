/* stopping.c -- notes a signal that asks a run to end after its step.  run/session.c installs the handlers;
 * run/between.c asks between steps.  Among launched devices, only the one that speaks listens.  No function reports
 * errors. */
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/launch/launch.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t asked;
static struct timespec first;           /* when */

static int meaning(int number) { return number == ASKED_BY_INT ? SIGINT : number == ASKED_BY_TERM ? SIGTERM : number; }

/* A shell or `timeout` may send the same signal twice in a moment, to us and to our group. */
static void stopping_ask(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (asked == 0) {
        asked = meaning(number);
        first = now;
    } else if (now.tv_sec - first.tv_sec + 1e-9 * (double)(now.tv_nsec - first.tv_nsec) > 1) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

static void listen_to(int number)
{
    const struct sigaction act = { .sa_handler = stopping_ask, .sa_flags = SA_RESTART };
    struct sigaction before;
    sigaction(number, NULL, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &act, NULL);
}

void stopping_listen(bool speaks)
{
    const bool launched = under_launcher() && getenv("ORRERY_LAUNCHED") != NULL;
    if (launched && !speaks) return;
    listen_to(launched ? ASKED_BY_INT : SIGINT);
    listen_to(launched ? ASKED_BY_TERM : SIGTERM);
    if (launched) announce_stopping();
}

int stopping_asked(void) { return asked; }

const char *stopping_name(int number) { return number == SIGINT ? "SIGINT" : "SIGTERM"; }
