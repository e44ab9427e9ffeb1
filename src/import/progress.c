#include "import/progress.h"
#include "base/alloc.h"
#include "base/os.h"
#include "base/str.h"

#include <inttypes.h>

#define INTERVAL 0.05 /* seconds */

lam_code lam_progress_add(struct lam_progress *p, uint64_t bytes, lam_error *err)
{
    p->done += bytes;
    if (!p->options || !p->options->progress) return LAM_OK;
    double now = lam_now();
    if (bytes && p->done < p->total && now - p->last < INTERVAL) return LAM_OK;
    p->last = now;
    if (p->options->progress(p->options->progress_context, p->stage, p->done, p->total)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_CANCELLED, "%s: cancelled after %" PRIu64 " of %" PRIu64 " bytes", p->stage, p->done, p->total);
}

lam_code lam_check_room(const char *out_path, uint64_t bytes, const struct lam_import_options *options, lam_error *err)
{
    if (options && options->max_bytes && bytes > options->max_bytes)
        return LAM_RAISE(err, LAM_E_LIMIT, "%s: %" PRIu64 " bytes are needed, the limit is %" PRIu64, out_path, bytes, options->max_bytes);
    const char *name = lam_path_base(out_path);
    char *folder = name == out_path ? lam_strdup(".") : lam_strndup(out_path, (size_t)(name - out_path));
    if (!folder) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%s: out of memory", out_path);
    uint64_t room = lam_disk_free(folder);
    lam_free(folder);
    if (bytes <= room) return LAM_OK;
    return LAM_RAISE(err, LAM_E_NO_SPACE, "%s: %" PRIu64 " bytes are needed, the disk has %" PRIu64 " free", out_path, bytes, room);
}
