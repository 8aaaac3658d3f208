/* nccl.h -- the few calls of NCCL that collectives/nccl.c makes, between processes of this machine; C.
 *
 * "Device memory" is the host's.  Each communicator is a file of shared memory.  A call goes on while cudaStreamQuery
 * is asked whether all have ended; sums are in the order of ranks.  NCCL hangs or gives wrong numbers where its callers
 * do not agree; here a rank that calls with another count, format or reduction, or another function, ends the program
 * with status 3 and a line that has both calls.  So does a buffer that is not the device's, or that overlaps the other
 * one in a way that is not in place; and a call that nobody joins for ORRERY_WAIT_LIMIT seconds (120).  Two ranks of
 * one host (NCCL_HOSTID, or else this machine) with one GPU are refused, as by NCCL.  collectives/nccl.c calls these
 * functions where CUDA is emulated, and so does test_nccl_calls.c.
 */
#ifndef ORRERY_EMULATED_NCCL_H
#define ORRERY_EMULATED_NCCL_H

#include "emulated_devices/device/cuda/emulated/cuda_runtime_api.h"

typedef enum { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInvalidUsage = 5 } ncclResult_t;
typedef enum { ncclUint8 = 1, ncclInt32 = 2, ncclInt64 = 4, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8,
               ncclBfloat16 = 9 } ncclDataType_t;
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3 } ncclRedOp_t;
typedef struct emulated_nccl *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;

const char *ncclGetErrorString(ncclResult_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int ranks, ncclUniqueId, int rank);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t, ncclRedOp_t, int root, ncclComm_t,
                        cudaStream_t);
ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t, int to, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t, int from, ncclComm_t, cudaStream_t);

/* cudaErrorNotReady until all calls have ended. */
cudaError_t cudaStreamQuery(cudaStream_t);

#endif
