/* The cache of imported models; its functions are public: lamina/cache.h says what each does. */
#ifndef LAM_IMPORT_CACHE_H
#define LAM_IMPORT_CACHE_H

#include "base/files.h"
#include "import/import.h"
#include "lamina/cache.h"

#endif
