/* trainer_parts.h -- what the files of the trainer share; private to them. */
#ifndef ORRERY_TRAINER_PARTS_H
#define ORRERY_TRAINER_PARTS_H

#include "emulated_devices/model/trainer.h"

/* The numbers of a result: the loss, and the squared norm in a form whose sums are exact. */
enum { RESULT_NUMBERS = 1 + EXACT_LIMBS };

static inline bool forward_only(const struct trainer *t) { return t->plan.optimizer->forward_only; }
static inline bool draws(const struct trainer *t) { return optimizer_draws(t->plan.optimizer); }
static inline bool infers(const struct trainer *t) { return t->plan.optimizer->infers; }

/* All parameters of a unit are held by the same places. */
static inline int holders_of(const struct unit *u) { return u->count > 0 ? u->parameter[0].holders : 1; }

static inline uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The activations that the device's list of actions holds. */
struct held trainer_activations(const struct trainer *);

#endif
