//! Objects of `security.istio.io` as types: authorization policies, and the keys that prove identities.

mod jwks_source;
mod key_set;

pub use crate::istio::security::v1beta1::*;
pub use crate::istio::r#type::v1beta1::WorkloadSelector;
pub use jwks_source::JwksSource;
pub use key_set::{KeySet, MAX_KEYS, NoKeySet};
