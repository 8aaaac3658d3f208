/* sparse.h -- shared by the sparse collectives: which members have which blocks.  Private, as algorithm.h.
 *
 * A sparse collective has an owner for each block, and targets, which need the block (struct block_placement).  A
 * block's holders are its owner and its targets.  They are numbered from the owner on, in the order of ranks, and
 * round: holder 0 is the owner.  Blocks without elements are not sent.
 *
 *     P = 4, block of member 2 with targets 0 and 3:      holders  2 3 0
 *
 * Files of collectives/sparse/ and collectives/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_SPARSE_H
#define ORRERY_SPARSE_H

#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/comm/mesh.h"

/* A member's way through all blocks, in their order; start with { .b = -1 }. */
struct sparse_walk {
    int64_t b, length;                  /* block, elements */
    int owner;                          /* of the block */
    bool owns, holds;                   /* this member */
    int64_t owned_at, held_at;          /* elements of earlier blocks that it owns; that it holds */
};

/* Go to the next block.  @return false after the last one; owned_at and held_at then are of all blocks. */
bool sparse_next(const struct collective *, int P, int member, struct sparse_walk *);

/* Whether a member is the owner or a target of block b. */
bool sparse_holds(const struct collective *, int P, int64_t b, int member);

/* The holders of a block. */
struct holders { int count, me, member[MESH_MOST_LISTED]; };   /* me: this member's number; -1: none */
void sparse_holders(const struct collective *, int P, int member, const struct sparse_walk *, struct holders *);

/* This member's part in a block's tree.  Blocks go by levels, from the owner on, or towards it, and in their order
 * within a level: then all members can work at once, and two members' messages have one order at both.
 * @return false if the block is not this member's at this level, or has no elements, or no targets. */
bool sparse_part(const struct exchange *, const struct collective *, const struct sparse_walk *, int level,
                 struct holders *);

/* A binomial tree over the holders, whose root is the owner: the parent of number v, and its children, those with the
 * largest subtrees first.  @return how many. */
enum { HOLDER_CHILDREN = 16 };
static inline int holder_parent(int v) { return v & (v - 1); }
int holder_children(int v, int count, int child[HOLDER_CHILDREN]);
/* The messages one after another from the owner to number v. */
int holder_level(int v);
/* The longest chain of such a tree of any block. */
uint64_t sparse_depth(const struct collective *, int P);

/* Where a member's own blocks lie in the smaller buffer: side by side, or in place at their places in the larger one,
 * of which it then begins with the first own block. */
struct own_blocks { bool in_place; int64_t first; };

/* The place of the first own block in the larger buffer. */
int64_t sparse_first_owned(const struct collective *, int P, int member);
struct own_blocks sparse_own_blocks(const struct exchange *, const struct collective *);

static inline int64_t sparse_own_at(struct own_blocks blocks, const struct sparse_walk *walk)
{
    return blocks.in_place ? walk->held_at - blocks.first : walk->owned_at;
}

/* Copy this member's own blocks from in to out, unless the call is in place. */
void sparse_copy_own(struct exchange *, const struct collective *);

#endif
