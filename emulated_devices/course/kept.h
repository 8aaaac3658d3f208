/* kept.h -- one run of a student's function that is kept for a page or a drawing, and its film.
 *
 * A lesson tries many runs.  Kept is the run that fails first; of a right file the run that explains most: few
 * devices, many messages.  judge.c and trial.c keep; cli/course/learn.c shows.  The struct lies in memory that the
 * processes of checks share.
 */
#ifndef ORRERY_COURSE_KEPT_H
#define ORRERY_COURSE_KEPT_H

#include "emulated_devices/course/lesson.h"

struct film;

struct trial_kept {
    bool any, failed;                   /* there is a run; its check failed with it */
    bool exact;                         /* only the run of this function and label is kept */
    char function[80], label[160];      /* of the run */
    char said[JUDGE_TEXT], drawing[JUDGE_DRAWING];      /* why it failed; the run as text */
    int devices, events;                /* of the run */
    picoseconds end;                    /* the last device returned, or waits from then on */
    bool deadlock;                      /* devices wait for ever */
    struct { int32_t doing, peer; } waits[WORKER_MOST_DEVICES];         /* [devices] as in struct trial_device */
    struct event event[RUN_EVENTS];     /* [events] */
};

/** Memory for a kept run, empty.  @return NULL without memory. */
struct trial_kept *kept_open(void);
void kept_close(struct trial_kept *);

/** From now on keep the run that `like` has, and no other. */
void kept_want(struct trial_kept *, const struct trial_kept *like);

/** A run has ended: keep it, if it is better than the one that is kept.
 *  @param said  why its check fails; NULL: the run returned everywhere. */
void kept_offer(struct trial_kept *, const struct trial *, const char *said);

/** The first event that the same device of a right run does not have.
 *  @return its index in kept->event; -1: each device has the events of the right run. */
int kept_first_difference(const struct trial_kept *, const struct trial_kept *right);

/** Film a run: computing, waiting, messages from their send to their receive.
 *  @param whose        "yours", in its title.
 *  @param right        a right run, to say where this one differs first; NULL: not known.
 *  @param[out] film    for film_close, also after an error.  @return OK or ERR_MEMORY. */
enum error_code kept_film(struct film *film, const struct trial_kept *, const char *whose,
                          const struct trial_kept *right, struct error *);

#endif
