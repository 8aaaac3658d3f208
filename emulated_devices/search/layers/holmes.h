/* holmes.h -- layers for stages on unequal devices.  holmes.c calls, and so do cli/bench/planners.c and tests. */
#ifndef ORRERY_SEARCH_HOLMES_H
#define ORRERY_SEARCH_HOLMES_H

/**
 * Cut layers for stages by their speeds: every type of stages but the slowest gets
 * floor(alpha x its share of all speeds x layers), and the slowest what is left; stages of a type share evenly.
 * @param speed  [stages] of each stage, above 0.
 * @param[out] first  [stages + 1] the first layer of each stage, then the number of layers.
 * @return 1 if every stage has a layer, else 0.
 */
int holmes_split(int layers, int stages, const int speed[], double alpha, int first[]);

#endif
