/* cooperative_groups.h -- refused: the emulator does not have it (cuda_runtime.h).  A .cu file of a student that
 * includes this header does not compile; no file here includes it. */
#error "cooperative groups are not emulated"
