/* farewell.c -- speaks PMI-1 with MPICH's process manager at the end of a job on several machines.  connect.c
 * calls.  Where it returns false, MPI_Finalize has to do it. */
#include "emulated_devices/comm/farewell.h"
#include "emulated_devices/comm/patience.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The manager's line, or -1: it speaks another language than PMI-1, or the library needs an orderly end. */
static int manager_line(void)
{
#if defined(MPICH)
    const char *text = getenv("PMI_FD");
    char *end;
    const long fd = text != NULL && *text != '\0' ? strtol(text, &end, 10) : -1;
    return fd >= 0 && *end == '\0' ? (int)fd : -1;
#else
    return -1;
#endif
}

/* Read one line of the manager.  MPI makes progress meanwhile, for devices that still need it.  @return whether the
 * line came in time. */
static bool farewell_hear(int fd, char *line, size_t size, MPI_Comm comm, int64_t until)
{
    size_t n = 0;
    int anything;
    while (n + 1 < size && patience_now() < until) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &anything, MPI_STATUS_IGNORE);
        if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 1) != 1) continue;
        if (read(fd, line + n, 1) != 1) return false;
        line[n + 1] = '\0';
        if (line[n++] == '\n') return true;
    }
    return false;
}

/* Write a command and read one line.  @return whether the line begins with this answer. */
static bool farewell_ask(int fd, const char *words, const char *answer, MPI_Comm comm, double limit)
{
    char line[1024];
    const int64_t until = patience_now() + (int64_t)(limit * 1e9);
    if (write(fd, words, strlen(words)) != (ssize_t)strlen(words)) return false;
    return farewell_hear(fd, line, sizeof line, comm, until) && strncmp(line, answer, strlen(answer)) == 0;
}

/* Hydra tells each process how many of them it has started on the same host. */
bool farewell_has_hosts(int size)
{
    const char *const text = getenv("MPI_LOCALNRANKS");
    return text != NULL && atoi(text) > 0 && atoi(text) < size;
}

bool farewell(MPI_Comm comm, double limit)
{
    const int fd = manager_line();
    return fd >= 0 && farewell_ask(fd, "cmd=barrier_in\n", "cmd=barrier_out", comm, limit) &&
           farewell_ask(fd, "cmd=finalize\n", "cmd=finalize_ack", comm, limit);
}
