/* graph_file.h -- a graph of signatures as text: tensors, operations, and how some of them lie.
 *
 *   # an MLP
 *   tensor x  8*16 64           what enters: 8 sequences of 16 tokens, cut between sequences only; 64 columns
 *   tensor w1 256 64
 *   tensor w2 64 256
 *   h = linear x w1             what an operation makes has the shape that follows
 *   a = gelu h
 *   y = linear a w2
 *   pin x (S(0), B)             how a tensor lies, on a mesh of two axes; on one axis it is S(0)
 *   like y x                    it lies as the other does
 *
 * A line has one of these; # begins a comment.  A name is used after the line that makes it.
 *
 * cli/show/sbp.c reads --pins and graph files, and writes --save.
 */
#ifndef ORRERY_SBP_GRAPH_FILE_H
#define ORRERY_SBP_GRAPH_FILE_H

#include "emulated_devices/schemes/sbp/assign.h"

/**
 * Read a file.
 * @param[in,out] graph  without tensors: all lines are read; else only lines with pin and like, for this graph.
 * @return OK; ERR_FILE; ERR_FORMAT, naming the line and what it should have; the graph is then not whole.
 */
enum error_code graph_read(struct sbp_graph *graph, const struct sbp_mesh *, const char *file, struct error *);

/** Do the same of a text, which is changed.  @param file  its name in messages. */
enum error_code graph_parse(struct sbp_graph *graph, const struct sbp_mesh *, char *text, const char *file,
                            struct error *);

/** Write the pins of an assignment: with them the graph has no other.  Atomic.  @return OK or ERR_FILE, ERR_MEMORY. */
enum error_code graph_write_pins(const struct sbp_graph *, const struct assignment *, const char *file, struct error *);

#endif
