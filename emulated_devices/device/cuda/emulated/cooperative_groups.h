/* cooperative_groups.h -- refused: the emulator does not have it (cuda_runtime.h). */
#error "cooperative groups are not emulated"
