//! `gudgeon inject`: manifests in, the same with the proxy out.
//!
//! A document that is not injected comes out byte for byte, so a file is cut into documents by its lines `---` and only an
//! injected document is written anew. The decision and the pod are the webhook's: the same engine, with a manifest as the
//! pod's origin.

mod command;
pub(crate) mod documents;
pub(crate) mod input;
pub(crate) mod job;
mod kinds;
mod out;
mod writer;

pub(crate) use command::run;

#[cfg(test)]
mod tests;
