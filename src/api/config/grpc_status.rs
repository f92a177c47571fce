//! Statuses of gRPC by their names.

/// The number of a status of gRPC by its name, as gRPC's own documents have them.
#[must_use]
pub fn grpc_status(name: &str) -> Option<u32> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let at = NAMES.iter().position(|known| *known == name)?;
    u32::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in `google/rpc/code.proto`.
    #[test]
    fn each_status_has_its_number() {
        for (number, name) in [
            (0, "OK"),
            (1, "CANCELLED"),
            (2, "UNKNOWN"),
            (3, "INVALID_ARGUMENT"),
            (4, "DEADLINE_EXCEEDED"),
            (5, "NOT_FOUND"),
            (6, "ALREADY_EXISTS"),
            (7, "PERMISSION_DENIED"),
            (8, "RESOURCE_EXHAUSTED"),
            (9, "FAILED_PRECONDITION"),
            (10, "ABORTED"),
            (11, "OUT_OF_RANGE"),
            (12, "UNIMPLEMENTED"),
            (13, "INTERNAL"),
            (14, "UNAVAILABLE"),
            (15, "DATA_LOSS"),
            (16, "UNAUTHENTICATED"),
        ] {
            assert_eq!(grpc_status(name), Some(number), "{name}");
        }
        assert_eq!(grpc_status("ok"), None);
        assert_eq!(grpc_status("17"), None);
    }
}
