/* kernel_table.h -- measured rates of one kind of device: matrix products, attention, reads and writes of memory.
 *
 * A table is a file of device/kernels/tables/, with the source of its numbers; a cluster file names it ("kernels":
 * {"table": ..}).  Rates are shares of the rates that the table states for its device, so a cluster of slower devices
 * of the same kind may name it, too.
 *
 *   product    a law, m n / (m n + half_outputs) * k / (k + half_depth), times a factor: at each measured (m, n, k) the
 *              measured share over the law; elsewhere the mean of all points' factors with weights 1 / distance^4.
 *              No product reaches more than a share that long runs sustain.
 *   attention  by kernels, direction, mask and width of a head: linear in the logarithms of length and width.
 *   memory     linear in the logarithm of the bytes.
 *
 * Beyond its points a table goes on with the nearest.  Logarithms are to base 2, linear between powers of two, so that
 * results have the same bits on all machines.  kernel.c asks; cli/list/, run/report/ and tests/devices/ read tables.
 */
#ifndef ORRERY_KERNEL_TABLE_H
#define ORRERY_KERNEL_TABLE_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t picoseconds;

enum { TABLE_MOST_POINTS = 128, TABLE_MOST_SERIES = 48, TABLE_MOST_LENGTHS = 12 };

/* A share of a rate at the logarithm of a length or of a number of bytes. */
struct table_point { double at, share; };
struct table_line { int count; struct table_point point[TABLE_MOST_LENGTHS]; };

/* Attention by some kernels, forward or backward, with heads of one width. */
struct table_attention {
    char kernels[16];                   /* as sets of kernels name them: "flash-2" */
    bool backward, causal;              /* pass and mask of the series */
    int64_t head;                       /* columns of a head */
    struct table_line line;             /* by tokens of a sequence */
};

struct table_product {
    int64_t rows, columns, depth;       /* sizes of the product */
    double at[3];                       /* their logarithms */
    double share, factor;               /* measured share of the rate; over the law */
};

struct kernel_table {
    char name[48], description[160], source[400];       /* source: of the launches */
    double flop_rate, memory_rate;      /* of which points are shares: operations and bytes, in 10^6 a second */
    double half_outputs, half_depth;    /* of the law of products */
    double sustained;                   /* share that no product exceeds in a long run; 1: not stated */
    int products;                       /* entries of `product` */
    struct table_product product[TABLE_MOST_POINTS]; /* measured products */
    int series;                         /* entries of `attention` */
    struct table_attention attention[TABLE_MOST_SERIES]; /* measured series */
    struct table_line memory;           /* by bytes */
    picoseconds launch, graph_launch;   /* before a kernel starts: alone, and in a graph of kernels */
    struct table_class { char source[600], assumed[400]; } of_products, of_attention, of_memory;
};

/** The tables that are part of the program, as JSON; ends with NULL.  Made from device/kernels/tables/ by make. */
extern const char *const kernel_table_texts[];

/**
 * Find a table: one of the program by its name, or a file if the word contains '/' or ends in ".json".
 * It stays valid until the program ends.
 * @return OK; ERR_USAGE for an unknown name; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code kernel_table_find(const struct kernel_table **, const char *name_or_file, struct error *);

/** Read a table from memory, with a NUL after its last byte.  @param where  names it in messages. */
enum error_code kernel_table_parse(struct kernel_table *, const char *text, const char *where, struct error *);

/** The share of the rate of operations that a product of [rows, depth] by [depth, columns] reaches. */
double table_product_share(const struct kernel_table *, double rows, double columns, double depth);

/** The share that attention reaches.  @param seen  pairs of query and key that are computed, over all of them. */
double table_attention_share(const struct kernel_table *, const char *kernels, bool backward, double head,
                             double length, double seen);

/** The share of the memory's rate that a kernel reaches that moves so many bytes. */
double table_memory_share(const struct kernel_table *, double bytes);

/** Mean relative error of each point of a class if it is left out: products, attention or memory. */
double table_error_of_products(const struct kernel_table *);
double table_error_of_attention(const struct kernel_table *);
double table_error_of_memory(const struct kernel_table *);

#endif
