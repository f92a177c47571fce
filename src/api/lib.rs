//! `api`: the vocabulary of the mesh. Types from the `.proto` files beside this file, their proto JSON, their defaults and
//! what makes a value valid. Packages, names and numbers are those of Istio's API, so that the wire is the same.
//!
//! # Who may know whom
//!
//! ```text
//! api ◄── inject ◄──┐
//!  ▲                ├── gudgeon
//!  └───── cluster ◄─┘
//! ```
//!
//! This crate knows none of the others. It is pure: no socket, no file, no clock, no environment and no tokio; what it judges
//! is an argument, and equal input gives equal output.

#![forbid(unsafe_code)]
