//! The common part of admission webhooks: a review is received with bounds, read as far as it can be read, and answered in
//! its own version.

mod details;
mod group;
mod object;
mod recent;
pub(crate) mod review;
mod review_body;

pub(crate) use object::strict;

pub(crate) use group::Group;
pub(crate) use recent::{MESSAGE_BYTES, Recent, TEXT_BYTES, micros};
pub(crate) use review::{AdmissionRequest, AdmissionResponse, Cause, DecodeError, ReadOptions};
pub(crate) use review_body::{Received, ReviewAnswer, ReviewError, take};
