//! `inject`: configuration, pod and request in; decision, new pod, patch and warnings out.
//!
//! It knows `api` and nothing of who asks: the webhook and the command line call the same functions. It is pure: no socket,
//! no file, no clock, no environment and no tokio; equal input gives equal bytes. A pod stays JSON from end to end, so that
//! fields of a newer Kubernetes and large numbers survive.

#![forbid(unsafe_code)]
