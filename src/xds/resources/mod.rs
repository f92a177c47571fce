//! Envoy's resources, made from the mesh. Each generator takes exactly the inputs that it names: what it does not name, its
//! result does not depend on, and that is what resources are shared by.

pub(crate) mod access_log;
pub(crate) mod clusters;
pub(crate) mod directory;
mod distinct_endpoints;
mod domains;
pub(crate) mod endpoints;
pub(crate) mod filters;
pub(crate) mod grpc;
pub(crate) mod instances;
pub(crate) mod listeners;
pub(crate) mod locality;
mod log_cluster;
pub(crate) mod log_service;
pub(crate) mod mesh;
pub(crate) mod networks;
pub(crate) mod proxy;
pub(crate) mod routes;
pub(crate) mod sidecar_ingress;

pub(crate) use crate::common::wire::LocalityLbEndpoints;
