/* session.h -- a trainer of a plan on the devices of a test: opened, stepped and closed.  Tests in tests/devices/ that
 * look inside a trainer include this file.  An error fails the test on all devices. */
#ifndef TESTS_SESSION_H
#define TESTS_SESSION_H

#include "tests/mpi_cmocka.h"
#include "tests/devices/batches.h"

struct session { struct device device; struct comm comm; struct trainer trainer; };

/* The source's context is the plan, which must outlive the session. */
static inline void session_open(struct session *s, struct plan *p, struct batch_source source)
{
    struct error why = { .text = "" };
    ASSERT_ALL(plan_check(p, &why) == OK, "refused: %s", why.text);
    ASSERT_ALL(device_open(&s->device, NULL, p->dtype, 0, &why) == OK, "%s", why.text);
    ASSERT_ALL(comm_open(&s->comm, &s->device, &why) == OK, "%s", why.text);
    ASSERT_ALL(trainer_open(&s->trainer, p, &s->comm, source, &why) == OK, "%s", why.text);
}

/* Gradients of the next step, without its update. */
static inline struct step_result session_gradients(struct session *s)
{
    struct step_result result = { 0 };
    struct error why = { .text = "" };
    ASSERT_ALL(trainer_gradients(&s->trainer, &result, &why) == OK, "%s", why.text);
    return result;
}

static inline struct step_result session_step(struct session *s)
{
    struct step_result result = session_gradients(s);
    struct error why = { .text = "" };
    ASSERT_ALL(trainer_update(&s->trainer, &result, &why) == OK, "%s", why.text);
    return result;
}

static inline void session_close(struct session *s)
{
    trainer_close(&s->trainer), comm_close(&s->comm), device_close(&s->device);
}

#endif
