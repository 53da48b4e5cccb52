// The same for sources that use protocol buffers.
#include "tools/bazel/precompiled.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "proto/view.pb.h"
