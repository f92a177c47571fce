//! The answers about the agent: `/status` for programs, `/` for people.

#![forbid(unsafe_code)]

pub(crate) mod json;
pub(crate) mod page;
mod text;
