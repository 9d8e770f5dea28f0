//! What the running kernel can do, found by trying.

use aya::programs::{SchedClassifier, TcAttachType};

/// Whether tc programs can be attached through TCX links (Linux 6.6).
pub fn has_tcx() -> bool {
    SchedClassifier::query_tcx("lo", TcAttachType::Ingress).is_ok()
}

/// The values of `--tc` that this kernel accepts.
pub fn tc_hooks() -> &'static [&'static str] {
    if has_tcx() {
        &["tcx", "clsact"]
    } else {
        &["clsact"]
    }
}
