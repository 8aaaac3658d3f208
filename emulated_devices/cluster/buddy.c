/* buddy.c -- takes and gives blocks of devices, in a tree that knows the largest free block below each node.  place.c
 * and schedulers call.  ERR_MEMORY of buddy_open. */
#include "emulated_devices/cluster/buddy.h"
#include <stdlib.h>
#include <string.h>

enum error_code buddy_open(struct buddy *buddy, int devices, struct error *err)
{
    *buddy = (struct buddy){ devices, devices, calloc(2 * (size_t)devices, sizeof *buddy->largest) };
    if (buddy->largest == NULL) return fail(err, ERR_MEMORY, "no memory for the blocks of %d devices", devices);
    for (int node = 1; node < 2 * devices; node++) {
        int size = devices;
        for (int n = node; n > 1; n /= 2) size /= 2;
        buddy->largest[node] = size;
    }
    return OK;
}

void buddy_close(struct buddy *buddy)
{
    free(buddy->largest);
    buddy->largest = NULL;
}

void buddy_copy(struct buddy *buddy, const struct buddy *from)
{
    buddy->free = from->free;
    memcpy(buddy->largest, from->largest, 2 * (size_t)from->devices * sizeof *from->largest);
}

/* The node of a block. */
static int node_of(const struct buddy *buddy, int size, int place) { return buddy->devices / size + place / size; }

/* Set the largest free block of a node, and that of all nodes above. */
static void set_largest(struct buddy *buddy, int node, int largest, int size)
{
    buddy->largest[node] = largest;
    for (node /= 2, size *= 2; node >= 1; node /= 2, size *= 2) {
        const int left = buddy->largest[2 * node], right = buddy->largest[2 * node + 1];
        buddy->largest[node] = left == size / 2 && right == size / 2 ? size : left > right ? left : right;
    }
}

bool buddy_is_free(const struct buddy *buddy, int size, int place)
{
    /* A node above that is taken as a whole says so; nodes below the taken one keep their numbers. */
    for (int node = node_of(buddy, size, place); node > 1; node /= 2)
        if (buddy->largest[node / 2] == 0) return false;
    return buddy->largest[node_of(buddy, size, place)] == size;
}

bool buddy_take_at(struct buddy *buddy, int size, int place)
{
    if (!buddy_is_free(buddy, size, place)) return false;
    set_largest(buddy, node_of(buddy, size, place), 0, size);
    buddy->free -= size;
    return true;
}

int buddy_take(struct buddy *buddy, int size)
{
    int node = 1, at = buddy->devices;
    if (size > buddy->devices || buddy->largest[1] < size) return -1;
    for (; at > size; at /= 2) {
        const int left = buddy->largest[2 * node], right = buddy->largest[2 * node + 1];
        node = 2 * node + (left < size || (right >= size && right < left));
    }
    const int place = (node - buddy->devices / size) * size;
    set_largest(buddy, node, 0, size);
    buddy->free -= size;
    return place;
}

int buddy_take_beside(struct buddy *buddy, int size, int place, int other)
{
    for (int at = 0; at < buddy->devices; at += size) {
        const bool meets = at < place + other && place < at + size;
        if (!meets && buddy_take_at(buddy, size, at)) return at;
    }
    return -1;
}

void buddy_give(struct buddy *buddy, int size, int place)
{
    set_largest(buddy, node_of(buddy, size, place), size, size);
    buddy->free += size;
}
