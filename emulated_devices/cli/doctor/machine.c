/* machine.c -- what `orrery doctor` finds of this machine: cores, load, memory, folders.  doctor.c has a line for each
 * check.  No function fails. */
#include "emulated_devices/cli/doctor/doctor.h"
#include "emulated_devices/launch/machine.h"
#include "ref/error.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/machine/busy.h"
#include "ref/machine/cores.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* README's first run has so many devices. */
enum { USUAL_DEVICES = 8 };

void doctor_cores(struct finding *finding)
{
    const int usable = cores_usable(), all = busy_cores();
    finding_say(finding, usable < all ? FINDING_LACK : FINDING_FINE, "%d of the machine's %d core%s", usable, all,
                plural(all));
    if (usable < all)
        finding_cure(finding, "taskset, a batch system or a container's limit binds this process to fewer cores; more "
                              "devices than cores work, and take turns");
}

/* More runnable processes than half of the cores make measured times wrong. */
void doctor_load(struct finding *finding)
{
    const double load = busy_load();
    const int cores = busy_cores();
    const bool busy = load > 0.5 * cores;
    if (load < 0) {
        finding_say(finding, FINDING_FINE, "not known: the system does not say");
        return;
    }
    finding_say(finding, busy ? FINDING_LACK : FINDING_FINE, "%.1f processes on %d core%s in the last minute", load,
                cores, plural(cores));
    if (busy)
        finding_cure(finding, "results are right under any load; `orrery bench` and `orrery calibrate` measure wrong "
                              "speeds until the machine is quiet");
}

void doctor_memory(struct finding *finding)
{
    struct error err = { OK, "" };
    if (machine_check(USUAL_DEVICES, &err) == OK) {
        finding_say(finding, FINDING_FINE, "%d devices of a small model have room; processes and open files suffice",
                    USUAL_DEVICES);
        return;
    }
    finding_say(finding, FINDING_BAD, "%s", err.text);
    finding_cure(finding, "end other programs, or raise the limit that is named (`ulimit -a`, the container's limits)");
}

/* Devices on one machine pass long messages through shared memory; a message that finds no room goes by copies. */
void doctor_shared(struct finding *finding)
{
    enum { LEAST = 64 };                                /* MiB: what Docker gives, and a small model's messages take */
    static const char folder[] = "/dev/shm";
    struct statvfs room;
    if (statvfs(folder, &room) != 0) {
        finding_say(finding, FINDING_FINE, "there is no %s on this system", folder);
        return;
    }
    const uint64_t bytes = (uint64_t)room.f_bavail * room.f_frsize;
    const bool little = bytes < (uint64_t)LEAST << 20;
    finding_say(finding, little ? FINDING_LACK : FINDING_FINE, "%s free in %s", size_format(bytes).text, folder);
    if (little) finding_cure(finding, "start the container with --shm-size 1g, or remove old files there");
}

/* Jobs leave results and compiled exercises there for a moment. */
void doctor_temporary(struct finding *finding)
{
    const char *folder = temporary_folder();
    struct statvfs room;
    const struct printable shown = printable_path(folder);
    if (access(folder, W_OK | X_OK) != 0) {
        finding_say(finding, FINDING_BAD, "%s cannot be written: %s", shown.text, strerror(errno));
        finding_cure(finding, "set TMPDIR to a folder of yours");
        return;
    }
    const uint64_t bytes = statvfs(folder, &room) == 0 ? (uint64_t)room.f_bavail * room.f_frsize : 0;
    finding_say(finding, FINDING_FINE, "%s free in %s", size_format(bytes).text, shown.text);
}
