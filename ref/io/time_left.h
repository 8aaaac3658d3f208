/* time_left.h -- a line on the terminal, overwritten, that says how far a command is and how long the rest may take.
 * Files of cli/, bench/ and run/ call these functions.  No function returns an error code. */
#ifndef ORRERY_TIME_LEFT_H
#define ORRERY_TIME_LEFT_H

#include <stdbool.h>

struct time_left {
    bool shown;                         /* standard error is a terminal, and the command is not quiet */
    int percent;                        /* what the line says; -1: there is none */
    double began;                       /* seconds, of any clock */
};

/** Begin.  Nothing is shown unless standard error is a terminal. */
void time_left_begin(struct time_left *);

/**
 * Say how far it is; the line changes with each percent.
 * @param part  of the work that is done, 0 to 1.
 * @param doing what is done now; @param what  its name, cut where the terminal ends.
 */
void time_left_show(struct time_left *, double part, const char *doing, const char *what);

/** Remove the line: before something else is printed, and at the end. */
void time_left_end(struct time_left *);

/* A duration as text, such as "2 min 10 s". */
struct time_left_text { char text[16]; };

/** "12 min left"; empty in the first second, and in the first 2 %.
 *  @param gone  seconds.  @param part  of the work that is done. */
struct time_left_text time_left_of(double gone, double part);

#endif
