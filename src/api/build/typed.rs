//! The messages that get a Rust type: those that some code names, and their parts. All others are known by their table alone,
//! which is a tenth of the size.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::{DescriptorProto, FileDescriptorSet};

/// Messages with types.
pub(crate) const TYPED: [&str; 14] = [
    ".istio.mcp.v1alpha1.RequestResources",
    ".istio.mcp.v1alpha1.Resources",
    ".istio.mesh.v1alpha1.MeshConfig",
    ".istio.mesh.v1alpha1.MeshNetworks",
    ".istio.networking.v1alpha3.DestinationRule",
    ".istio.networking.v1alpha3.EnvoyFilter",
    ".istio.networking.v1alpha3.Gateway",
    ".istio.networking.v1alpha3.ServiceEntry",
    ".istio.networking.v1alpha3.Sidecar",
    ".istio.networking.v1alpha3.VirtualService",
    ".istio.networking.v1alpha3.WorkloadEntry",
    ".istio.security.v1beta1.AuthorizationPolicy",
    ".istio.security.v1beta1.PeerAuthentication",
    ".istio.security.v1beta1.RequestAuthentication",
];

/// Returns the set without the messages that the roots do not need. Deprecation is the reader's matter (`schema`), not that of Rust code.
pub(crate) fn only(set: &FileDescriptorSet, roots: &[&str]) -> FileDescriptorSet {
    let wanted = closure(set, roots);
    let mut set = set.clone();
    for file in &mut set.file {
        if file.package() == super::WELL_KNOWN {
            // Google's comments are not written for this compiler.
            file.source_code_info = None;
        }
        let scope = format!(".{}", file.package());
        let is_wanted = |name: &str| wanted.contains(&format!("{scope}.{name}"));
        let messages: Vec<bool> = file
            .message_type
            .iter()
            .map(|message| is_wanted(message.name()))
            .collect();
        let enums: Vec<bool> = file
            .enum_type
            .iter()
            .map(|kinds| is_wanted(kinds.name()))
            .collect();
        if let Some(comments) = &mut file.source_code_info {
            comments
                .location
                .retain_mut(|place| moves(&mut place.path, &messages, &enums));
        }
        file.message_type
            .retain(|message| is_wanted(message.name()));
        file.enum_type.retain(|kinds| is_wanted(kinds.name()));
        file.message_type.iter_mut().for_each(in_use);
    }
    set.file
        .retain(|file| !file.message_type.is_empty() || !file.enum_type.is_empty());
    set
}

/// Moves the path of a comment to the new index of its subject; returns false if the subject is left out.
fn moves(path: &mut [i32], messages: &[bool], enums: &[bool]) -> bool {
    let stays = match path.first() {
        Some(4) => messages,
        Some(5) => enums,
        _ => return true,
    };
    let Some(at) = path.get_mut(1) else {
        return true;
    };
    let before = usize::try_from(*at).expect("a place is a small number");
    let gone = stays.iter().take(before).filter(|stays| !**stays).count();
    *at -= i32::try_from(gone).expect("a place is a small number");
    stays.get(before).copied().unwrap_or(true)
}

/// Names of the top-level types that the roots are made of, themselves included.
fn closure(set: &FileDescriptorSet, roots: &[&str]) -> BTreeSet<String> {
    let mut uses = BTreeMap::new();
    for file in &set.file {
        let scope = format!(".{}", file.package());
        for message in &file.message_type {
            let mut names = BTreeSet::new();
            used(message, &mut names);
            uses.insert(format!("{scope}.{}", message.name()), names);
        }
        for kinds in &file.enum_type {
            uses.insert(format!("{scope}.{}", kinds.name()), BTreeSet::new());
        }
    }
    let mut wanted = BTreeSet::new();
    let mut open: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    while let Some(name) = open.pop() {
        // A nested message comes with its outer one.
        let top = uses
            .keys()
            .find(|top| name == **top || name.starts_with(&format!("{top}.")))
            .unwrap_or_else(|| panic!("{name} is in no file"));
        if wanted.insert(top.clone()) {
            open.extend(uses.get(top).into_iter().flatten().cloned());
        }
    }
    wanted
}

fn used(message: &DescriptorProto, names: &mut BTreeSet<String>) {
    names.extend(
        message
            .field
            .iter()
            .filter(|field| !field.type_name().is_empty())
            .map(|field| field.type_name().to_owned()),
    );
    for inner in &message.nested_type {
        used(inner, names);
    }
}

fn in_use(message: &mut DescriptorProto) {
    for field in &mut message.field {
        if let Some(options) = &mut field.options {
            options.deprecated = None;
        }
    }
    message.nested_type.iter_mut().for_each(in_use);
}
