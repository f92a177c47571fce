//! The proxy's bootstrap document, as bytes, rendered anew for every epoch.
//!
//! Three sources (`Source`): generated from values (`document`, whose shape is in `parts/`), a JSON template of
//! the user's (`template`), or a file of the user's that is used as it is. `ISTIO_BOOTSTRAP_OVERRIDE` is merged into the
//! first two by RFC 7396 (`merge`); to the third, Envoy adds it as `--config-yaml`, unless that is JSON, too, and can be written
//! anew: then no secret stands in a command line. `node` makes the metadata. Everything but
//! `files` is pure, and nothing here writes: the caller puts the bytes where the proxy finds them.
#![forbid(unsafe_code)]

mod document;
mod error;
mod files;
mod merge;
pub mod node;
mod parts;
mod template;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::error::BootstrapError;
use crate::json::{Map, Value};
use crate::values::HostPort;

/// Linux takes no longer single argument (`MAX_ARG_STRLEN`, 32 pages of 4 KiB, with its NUL).
const ARGUMENT_BYTES: usize = 32 * 4096 - 1;

/// The source of the file after `-c`.
#[derive(Debug)]
pub enum Source {
    /// Generated from values; written to `<directory>/envoy-rev<epoch>.json`.
    Generated {
        inputs: Box<Generated>,
        override_file: Option<PathBuf>,
    },
    /// A JSON document of the user's with `${name}` in it; written like a generated one.
    Template {
        template: Box<Template>,
        override_file: Option<PathBuf>,
    },
    /// The user's own file, used as it is, or with an override added.
    Custom {
        file: PathBuf,
        override_file: Option<PathBuf>,
    },
}

/// The way in which the override of a user's own file reaches the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Override {
    /// Added to the file's content, if that is JSON.
    InFile,
    /// The same, and the file was JSON before: one that is not, or cannot be read, is on its way to something else, and what an
    /// override holds is shown to nobody for that.
    InFileOnly,
    /// As `--config-yaml`: nothing can be written.
    InArgument,
}

/// The input of a proxy process at its start.
#[derive(Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The bytes to write for `-c`; `None`: the user's own file is used.
    pub document: Option<Vec<u8>>,
    /// The value of `--config-yaml`: the override of a user's own file that is no JSON.
    pub config_yaml: Option<String>,
}

/// Reads what `source` names, and renders it for `epoch`.
///
/// # Errors
/// A file that cannot be read or is not what it should be, with its name.
pub fn render(source: &Source, epoch: u32, way: Override) -> Result<Rendered, BootstrapError> {
    match source {
        Source::Generated {
            inputs,
            override_file,
        } => generated(document::build(inputs), override_file.as_deref()),
        Source::Template {
            template,
            override_file,
        } => finish(from_template(template, epoch)?, override_file.as_deref()),
        Source::Custom {
            file,
            override_file,
        } => hand_over(file, override_file.as_deref(), way),
    }
}

impl Source {
    /// Tells the control plane by the metadata whether the proxy has certificates as a client, for what is rendered from now
    /// on. Returns the first file that is missing; the metadata names them. `told`: that one was missing before. `seen`: that a
    /// file is there, where that is known.
    #[inline(never)]
    pub fn tell_certificates(
        &mut self,
        told: bool,
        seen: &dyn Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let metadata = self.metadata()?;
        let missing = files::missing_certificate(metadata, seen);
        if missing.is_some() {
            metadata.insert(CERTIFICATES, "none".into());
        } else if told {
            metadata.retain(&mut |key, _| key != CERTIFICATES);
        }
        missing
    }

    /// `None`: it is the user's own.
    fn metadata(&mut self) -> Option<&mut Map> {
        let value = match self {
            Self::Generated { inputs, .. } => return Some(&mut inputs.metadata),
            Self::Template { template, .. } => {
                let mut values = template.values.iter_mut();
                values.find(|(name, _)| *name == NODE_METADATA)
            }
            Self::Custom { .. } => None,
        };
        match value {
            Some((_, Value::Object(metadata))) => Some(metadata),
            _ => None,
        }
    }
}

/// The key that tells it.
const CERTIFICATES: &str = "CERTIFICATES";
/// The name of the metadata in a template.
pub const NODE_METADATA: &str = "node-metadata";

fn from_template(template: &Template, epoch: u32) -> Result<Value, BootstrapError> {
    let document = files::read_object(files::TEMPLATE, &template.file)?;
    let mut values = template.values.clone();
    values.push(("epoch", epoch.into()));
    template::fill(document, &values).map_err(|unfilled| {
        BootstrapError::new(
            "fill",
            files::TEMPLATE,
            &template.file,
            &[": ", &unfilled.0].concat(),
        )
    })
}

/// The document is text already, and a tree only where something is merged into it.
fn generated(text: String, override_file: Option<&Path>) -> Result<Rendered, BootstrapError> {
    if override_file.is_none() {
        return Ok(Rendered {
            document: Some(text.into_bytes()),
            config_yaml: None,
        });
    }
    let document = files::parse(
        "built-in template",
        "document.json".as_ref(),
        text.as_bytes(),
    );
    finish(document?, override_file)
}

/// Merges the override.
fn finish(mut document: Value, override_file: Option<&Path>) -> Result<Rendered, BootstrapError> {
    if let Some(path) = override_file {
        merge::merge(&mut document, files::read_object(files::OVERRIDE, path)?);
    }
    Ok(Rendered {
        document: Some(readable(&document)),
        config_yaml: None,
    })
}

fn hand_over(
    file: &Path,
    override_file: Option<&Path>,
    way: Override,
) -> Result<Rendered, BootstrapError> {
    files::check(files::CUSTOM, file)?;
    let mut rendered = Rendered {
        document: None,
        config_yaml: None,
    };
    if let Some(path) = override_file {
        let more = files::read_object(files::OVERRIDE, path)?;
        match files::read_object(files::CUSTOM, file) {
            Ok(mut document) if way != Override::InArgument => {
                merge::add(&mut document, more);
                rendered.document = Some(readable(&document));
            }
            Err(error) if way == Override::InFileOnly => return Err(error),
            // YAML, say: whatever Envoy reads.
            _ => rendered.config_yaml = Some(as_argument(path, &more)?),
        }
    }
    Ok(rendered)
}

/// So that a person can read it.
fn readable(document: &Value) -> Vec<u8> {
    [&document.pretty(), "\n"].concat().into_bytes()
}

/// The override in its shortest form, without the line ends and NULs that an argument cannot carry.
fn as_argument(path: &Path, document: &Value) -> Result<String, BootstrapError> {
    let text = document.compact();
    if text.len() > ARGUMENT_BYTES {
        let length = text.len().to_string();
        let why = [
            " as --config-yaml: ",
            &length,
            " bytes, of which one argument takes 131071",
        ];
        return Err(BootstrapError::new(
            "pass",
            files::OVERRIDE,
            path,
            &why.concat(),
        ));
    }
    Ok(text)
}

/// The values that the generated bootstrap is made of.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Generated {
    /// `type~ip~id~domain`.
    pub node_id: String,
    pub cluster: String,
    pub metadata: Map,
    pub locality: Locality,
    /// Inclusion prefixes, suffixes and regexes of the annotations, beyond the required ones.
    pub stats: StatsInclusion,
    pub admin: SocketAddr,
    pub discovery: HostPort,
    /// ADS sends what changed, and not the state of the world.
    pub delta: bool,
    pub connect_timeout: Duration,
    /// `Some`: MUTUAL_TLS towards the control plane.
    pub control_plane_tls: Option<ControlPlaneTls>,
    pub tracing: Option<Tracing>,
    pub statsd: Option<SocketAddr>,
    pub metrics_service: Option<HostPort>,
    /// The Prometheus listener's port (15090).
    pub prometheus_port: u16,
    /// Only the pod itself reaches it.
    pub prometheus_local: bool,
    /// The host has no IPv4 address.
    pub ipv6_only: bool,
    /// The drain counts connections: keep `downstream_cx_active`.
    pub count_connections: bool,
}

/// The place where the proxy runs; an empty part is left out of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    pub region: String,
    pub zone: String,
    pub sub_zone: String,
}

/// Statistics to keep beyond the required ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsInclusion {
    pub prefixes: Vec<String>,
    pub suffixes: Vec<String>,
    pub regexes: Vec<String>,
}

/// The proxy's certificate and what it expects of the control plane's.
#[derive(Clone, Debug)]
pub struct ControlPlaneTls {
    pub certificate_chain: PathBuf,
    pub private_key: PathBuf,
    pub root_certificate: PathBuf,
    /// SPIFFE ids or DNS names; none: any that the root certificate signed.
    pub subject_alt_names: Vec<String>,
}

/// The destination of spans.
#[derive(Clone, Debug)]
pub enum Tracing {
    Zipkin(HostPort),
    Datadog(HostPort),
}

/// A JSON document of the user's, with the names it may use.
///
/// A string that is only `${name}` becomes the value with its type, and a null value removes it together with its key;
/// inside a longer string the value is put in as text. `$${` is a literal `${`. Keys are left alone.
#[derive(Clone, Debug)]
pub struct Template {
    pub file: PathBuf,
    /// Name (kebab-case) and value; `epoch` is added at each rendering.
    pub values: Vec<(&'static str, Value)>,
}
