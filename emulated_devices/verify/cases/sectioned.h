/* sectioned.h -- draws plans whose layers have different strategies, for `orrery verify plans` and tests.
 * verify/jobs/plans.c calls case_draw_sections, and so do tests of devices. */
#ifndef ORRERY_VERIFY_SECTIONED_H
#define ORRERY_VERIFY_SECTIONED_H

#include "emulated_devices/plan/sections.h"
#include "emulated_devices/verify/cases/case.h"

/** Draws of which one at least is a plan that is not refused (500 draws of 3 to 8 devices: 9 tries at most). */
enum { SECTIONED_TRIES = 64 };

/**
 * Draw a plan for so many devices: stages of drawn numbers of devices, one or two sections on each, and for each
 * section a mesh, schemes of tensor, context and data parallelism, and recomputation.  The same on every device.
 * @param draw  which one, from 0.  @param exact  SUMS_ROUND: in fp64; else with sums by this rule, in fp32 or 16 bits.
 * @param[out] sections  of the plan, for sections_free.
 * @return OK with a checked plan; ERR_PLAN if all tries are refused; ERR_MEMORY.
 */
enum error_code case_draw_sections(struct plan *, struct sections *sections, int devices, int draw,
                                   enum exact_rule exact, struct error *);

#endif
