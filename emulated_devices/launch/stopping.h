/* stopping.h -- ends a run after the step that it is at, when a signal asks for it.
 *
 * SIGINT and SIGTERM ask.  One that comes more than a second after the first ends the process at once.  Devices that
 * launch_devices has started are asked by it, through the one that speaks: SIGUSR1 stands for SIGINT, SIGUSR2 for
 * SIGTERM.
 * run/between.c, run/log.c, run/report/report_json.c and run/session.c call these functions.  No function returns an
 * error code.
 */
#ifndef ORRERY_LAUNCH_STOPPING_H
#define ORRERY_LAUNCH_STOPPING_H

#include <stdbool.h>

/** Begin to listen, on the device that speaks for the run; it tells launch_devices that it can be asked.  Signals that
 *  are ignored stay so. */
void stopping_listen(bool speaks);

/** The signal that has asked this process, SIGINT or SIGTERM; 0: none has. */
int stopping_asked(void);

/** "SIGINT" or "SIGTERM". */
const char *stopping_name(int signal);

#endif
