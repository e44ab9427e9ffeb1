/* Importing: other formats to .slm, and a base back to GGUF. The functions are public: lamina/lamina.h says what each does. */
#ifndef LAM_IMPORT_IMPORT_H
#define LAM_IMPORT_IMPORT_H

#include "base/error.h"
#include "base/sha256.h"
#include "lamina/lamina.h"

#endif
