//! Objects of `security.istio.io` as types: who may do what, and how that is known.

mod key_set;
mod keys_place;

pub use crate::istio::security::v1beta1::*;
pub use crate::istio::r#type::v1beta1::WorkloadSelector;
pub use key_set::{KeySet, MOST_KEYS, NoKeySet};
pub use keys_place::KeysPlace;
