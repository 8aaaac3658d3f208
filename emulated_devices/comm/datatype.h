/* datatype.h -- MPI datatypes as strided bytes, to hold our packer against MPI_Pack.  tests/devices/test_strided.c
 * calls; no scheme sends MPI datatypes. */
#ifndef ORRERY_DATATYPE_H
#define ORRERY_DATATYPE_H

#include "emulated_devices/device/strided.h"
#include <mpi.h>

/**
 * Decode elements of a type, as MPI_Type_get_envelope tells: named, contiguous, vector, hvector, subarray, resized and
 * duplicated types, nested in any way.
 * @param count  elements of the type, one extent after another.
 * @return false: the type is made in another way, or has too many dimensions.
 */
bool datatype_strided(struct strided *, MPI_Datatype, int count);

#endif
