//! `gudgeon`: the control plane beside pintle, in one program: command line, roles, listeners, TLS, metrics, log, health and
//! the end.
//!
//! It alone knows all the others: `api` and `inject` decide, `cluster` talks to Kubernetes, and here they are joined.
//! One thread, one tokio runtime (`current_thread`). A panic ends the request that it happened in and no more, so the program
//! is built to unwind: by the profiles `gudgeon` and `gudgeon-dev`.

#![forbid(unsafe_code)]
