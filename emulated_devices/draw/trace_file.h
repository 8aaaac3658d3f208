/* trace_file.h -- the traces of all devices in one file, for ui.perfetto.dev or chrome://tracing.
 *
 * Callers: run/session.c after the last step (--trace), tests/devices/test_trace.c.
 */
#ifndef ORRERY_DRAW_TRACE_FILE_H
#define ORRERY_DRAW_TRACE_FILE_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/trace.h"

/**
 * Write every device's recorded trace: a process for each device, a row for each of its streams and ports, an arrow for
 * each message.  Times are virtual, so the file has the same bytes on every run and machine.
 * Collective over all devices; rank 0 writes, holding one device's events at a time.
 * @param trace    this device's.
 * @param cluster  its name, for the file.
 * @return OK, or the same error on every device: ERR_FILE, ERR_MEMORY, ERR_COMM.
 */
enum error_code trace_write(struct comm *, const struct mesh *, const struct trace *trace, const char *cluster,
                            const char *path, struct error *);

#endif
