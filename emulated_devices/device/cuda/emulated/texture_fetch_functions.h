/* texture_fetch_functions.h -- refused: the emulator does not have it (cuda_runtime.h).  A .cu file of a student that
 * includes this header does not compile; no file here includes it. */
#error "textures are not emulated"
