//! `cluster`: where objects come from. The one crate that talks to the Kubernetes API server.
//!
//! It knows `api`, and no role: what it yields are changes, what it is given are wishes, and who makes something of them is
//! none of its business.

#![forbid(unsafe_code)]
