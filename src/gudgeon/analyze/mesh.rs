//! The mesh configuration that an analysis goes by: of a file, or of the cluster's ConfigMap.

use std::path::Path;

use api::mesh::MeshConfig;
use sources::kubernetes::Cluster;

use crate::exit::Failure;
use crate::file;

/// The ConfigMap that Istio's charts and gudgeon's manifests write, and its key.
const CONFIG_MAP: (&str, &str) = ("istio", "mesh");

fn parse(name: &str, text: &str) -> Result<MeshConfig, String> {
    let parsed = api::mesh::parse_over(&api::mesh::discovery_defaults(), text);
    let parsed = parsed.map_err(|cause| format!("cannot use {name}: {cause}"))?;
    Ok(parsed.config)
}

/// Reads the file of `--meshConfigFile`; `None`: there is no such flag.
///
/// # Errors
/// It cannot be read, or is not valid.
pub(super) fn of_flag(path: Option<&Path>) -> Result<Option<MeshConfig>, Failure> {
    path.map(of_file).transpose()
}

fn of_file(path: &Path) -> Result<MeshConfig, Failure> {
    let name = format!("--meshConfigFile {}", path.display());
    let cannot = |cause: &str| Failure::config(format!("cannot use {name}: {cause}"));
    let bytes = file::read_now(path).map_err(|cause| cannot(&cause.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8"))?;
    parse(&name, &text).map_err(Failure::config)
}

/// The mesh configuration of a cluster.
#[derive(Debug)]
pub(super) enum ClusterMesh {
    /// `None`: the cluster has no such ConfigMap, or the map no such key.
    Read(Option<Box<MeshConfig>>),
    /// The account may not read the ConfigMap, which says nothing about the objects: the warning to print.
    Forbidden(String),
}

/// Reads the ConfigMap of the mesh.
///
/// # Errors
/// It cannot be read, or is not valid.
pub(super) async fn of_cluster(cluster: &Cluster, namespace: &str) -> Result<ClusterMesh, String> {
    let (name, key) = CONFIG_MAP;
    let data = match cluster.config_map(namespace, name).await {
        Ok(data) => data,
        Err(failure) if failure.is_not_found() => return Ok(ClusterMesh::Read(None)),
        Err(failure) if failure.is_forbidden() => {
            return Ok(ClusterMesh::Forbidden(format!(
                "{failure}; using the defaults of the mesh, unless --meshConfigFile names a file with the configuration"
            )));
        }
        Err(failure) => return Err(failure.to_string()),
    };
    let text = data.get(key);
    let name = format!("ConfigMap {namespace}/{name}, key {key}");
    let mesh = text.map(|text| parse(&name, text)).transpose()?;
    Ok(ClusterMesh::Read(mesh.map(Box::new)))
}

#[cfg(test)]
mod tests {
    use api::mesh::mesh_config::IngressControllerMode;

    use super::*;

    #[test]
    fn the_file_lies_over_the_defaults_of_discovery() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mesh.yaml");
        std::fs::write(&path, "ingressControllerMode: DEFAULT\n").unwrap();
        let mesh = of_file(&path).unwrap();
        assert_eq!(
            mesh.ingress_controller_mode(),
            IngressControllerMode::Default
        );
        std::fs::write(&path, "ingressControllerMode: SOME\n").unwrap();
        let refused = of_file(&path).unwrap_err().message;
        assert!(
            refused.starts_with("cannot use --meshConfigFile /"),
            "{refused}"
        );
        assert!(refused.contains("ingressControllerMode"), "{refused}");
        std::fs::write(&path, b"\xff").unwrap();
        let refused = of_file(&path).unwrap_err().message;
        assert!(refused.ends_with("it is not UTF-8"), "{refused}");
        std::fs::remove_file(&path).unwrap();
        assert!(of_file(&path).is_err());
    }
}
