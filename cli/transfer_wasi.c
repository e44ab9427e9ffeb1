/* No network, and no store to pull into. */
#include "commands.h"
#include "first_launch.h"
#include "report.h"

int cmd_pull(struct options *o) { return usage(o, "the WebAssembly build has no network"); }
int cmd_push(struct options *o) { return usage(o, "the WebAssembly build has no network"); }
int cmd_seed(struct options *o) { return usage(o, "the WebAssembly build has no store"); }

enum first_launch first_launch(const struct options *o, char digest[LAM_DIGEST_TEXT])
{
    (void)o, (void)digest;
    return FIRST_LAUNCH_NONE;
}
