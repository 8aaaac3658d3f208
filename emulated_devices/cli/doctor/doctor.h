/* doctor.h -- what a check of `orrery doctor` finds.  doctor.c calls the checks one after another; machine.c and
 * programs.c have them.  A check never fails: what cannot be found out is said. */
#ifndef ORRERY_CLI_DOCTOR_H
#define ORRERY_CLI_DOCTOR_H

#include <stdbool.h>

enum finding_kind {
    FINDING_FINE,
    FINDING_LACK,                       /* a part of the program cannot be used, or is slow */
    FINDING_BAD                         /* runs fail */
};

enum { FINDING_TEXT = 600 };
struct finding {
    enum finding_kind kind;
    char says[FINDING_TEXT];            /* what was found, in a line */
    char cure[FINDING_TEXT];            /* what to do; "" if nothing is to be done */
};

/** Say what was found. */
void finding_say(struct finding *, enum finding_kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
/** Say what to do. */
void finding_cure(struct finding *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* machine.c */
void doctor_cores(struct finding *);
void doctor_load(struct finding *);
void doctor_memory(struct finding *);
void doctor_shared(struct finding *);
void doctor_temporary(struct finding *);

/* programs.c */
void doctor_program(struct finding *);
void doctor_messages(struct finding *);
void doctor_matrices(struct finding *);
void doctor_products(struct finding *);
void doctor_compiler(struct finding *);
void doctor_cage(struct finding *);
void doctor_python(struct finding *);
void doctor_run(struct finding *);

#endif
