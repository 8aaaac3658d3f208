/* likes.h -- the schemes that a training framework has, so that a search need not try all that there are.
 *
 * Callers: cli/train/search.c fills a space's lists by --like; cli/list/ prints the table.
 */
#ifndef ORRERY_SEARCH_LIKES_H
#define ORRERY_SEARCH_LIKES_H

#include "emulated_devices/search/plan_space.h"

/* A framework, and the names that a space's dimensions may have; NULL: any. */
struct like {
    const char *name, *source;          /* as typed; where its schemes are described */
    const char *only[DIMENSION_COUNT];
};

#define LIKES_USUAL "megatron,torchtitan,deepspeed"
#define LIKES_ALL "all"

/** The framework at this place, from 0.  @return NULL after the last. */
const struct like *like_at(int place);

enum { LIKES_TEXT = 320 };
/* These are the texts of a space's lists: what some frameworks have together, dimension by dimension. */
struct likes { char text[DIMENSION_COUNT][LIKES_TEXT]; };

/**
 * Limit the dimensions of a space that have no list yet to what some frameworks have.
 * @param names  frameworks with commas between; LIKES_ALL: nothing is limited.
 * @param likes  keeps the texts; must live as long as the space.
 * @return OK, or ERR_USAGE: a word is no framework.
 */
enum error_code likes_limit(struct plan_space *, struct likes *likes, const char *names, struct error *err);

/** Add all attention schemes that plan by the lengths of samples to the ones that frameworks have; a list that was
 *  given stays as it is.  @param likes  of likes_limit. */
void likes_add_planning(struct plan_space *, struct likes *likes);

#endif
