//! The command: which configuration, which manifests, where to.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use inject::{NativeSidecars, Parameters, SourceKind, Sources};
use sources::kubernetes::{Access, Cluster};

use super::input::Input;
use super::job::inject_all;
use super::out::BufferedOutput;
use crate::cli::{InjectFlags, KubeInjectFlags, NativeSetting};
use crate::exit::{Exit, Failure};
use crate::injector::{ActiveConfiguration, native, native_for};
use crate::{file, parameters};

/// Injects and writes.
///
/// # Errors
/// The error in flags, configuration or manifests; nothing is written then.
pub(crate) fn run<E: ActiveConfiguration>(flags: &InjectFlags) -> Result<Exit, Failure> {
    if flags.kube_inject.hub.is_some() != flags.kube_inject.tag.is_some() {
        return Err(Failure::usage(
            "cannot use one of --hub and --tag without the other",
        ));
    }
    if flags.emit_template {
        return emit(flags);
    }
    if flags.files.is_empty() {
        return Err(Failure::usage("cannot inject: no -f names a manifest"));
    }
    let mut texts = Texts::read(flags)?;
    let mut native = native(flags.native_sidecars);
    if let Some(asked) = from_cluster(flags)? {
        texts = texts.or(asked.texts);
        native = asked.native.unwrap_or(native);
    }
    let (engine, warnings) = E::load(texts.sources(), &parameters(flags))
        .map_err(|broken| Failure::config(texts.line(&broken)))?;
    // A configuration may have a policy without a template: then the built-in template takes the parameters.
    if !engine.is_built_in() {
        for flag in ignored_flags(flags) {
            note(&parameters::ignored(flag));
        }
    }
    for warning in warnings {
        note(&warning);
    }
    let variable = std::env::var_os("KUBECONFIG").is_some_and(|files| !files.is_empty());
    for text in unread_maps(flags, variable) {
        note(text);
    }
    let inputs = Input::read_all(&flags.files).map_err(Failure::failed)?;
    let mut buffered = BufferedOutput::new();
    let notes = inject_all(&engine, native, &inputs, &mut buffered).map_err(Failure::failed)?;
    for text in &notes {
        note(text);
    }
    drop(notes);
    let output = flags.output.as_deref();
    match buffered.whole() {
        Some(bytes) => write(&bytes, output)?,
        // All inputs succeeded, and would again.
        None => write_by(output, |to| {
            let again = inject_all(&engine, native, &inputs, to);
            again.map(drop).map_err(std::io::Error::other)
        })?,
    }
    Ok(Exit::Done)
}

/// Prints the built-in configuration.
fn emit(flags: &InjectFlags) -> Result<Exit, Failure> {
    let text = inject::builtin_configuration(&parameters(flags)).map_err(Failure::config)?;
    write(text.as_bytes(), flags.output.as_deref())?;
    Ok(Exit::Done)
}

/// Writes a note for the user to stderr; stdout has the manifests only.
fn note(text: &str) {
    // If stderr is closed, nobody can read the note.
    let _written = writeln!(std::io::stderr(), "{text}");
}

/// A text, and its name in messages.
#[derive(Debug)]
struct NamedText {
    name: String,
    text: String,
}

/// The texts of a configuration.
#[derive(Debug, Default)]
struct Texts {
    config: Option<NamedText>,
    values: Option<NamedText>,
    mesh: Option<NamedText>,
}

impl Texts {
    fn read(flags: &InjectFlags) -> Result<Self, Failure> {
        let of = |flag: &str, path: &Option<std::path::PathBuf>| match path {
            None => Ok(None),
            Some(path) => read(flag, path).map(Some),
        };
        Ok(Self {
            config: of("injectConfigFile", &flags.inject_config_file)?,
            values: of("valuesFile", &flags.values_file)?,
            mesh: of("meshConfigFile", &flags.mesh_config_file)?,
        })
    }

    fn sources(&self) -> Sources<'_> {
        fn text(named_text: Option<&NamedText>) -> Option<&str> {
            named_text.map(|named_text| named_text.text.as_str())
        }
        Sources {
            config: text(self.config.as_ref()),
            values: text(self.values.as_ref()),
            mesh: text(self.mesh.as_ref()),
        }
    }

    /// Returns these texts, and those of others for the ones that are not there.
    fn or(self, others: Self) -> Self {
        Self {
            config: self.config.or(others.config),
            values: self.values.or(others.values),
            mesh: self.mesh.or(others.mesh),
        }
    }

    fn line(&self, broken: &inject::ConfigurationError) -> String {
        let named_text = match broken.source {
            SourceKind::Config => &self.config,
            SourceKind::Values => &self.values,
            SourceKind::Mesh => &self.mesh,
        };
        match named_text {
            Some(named_text) => format!("cannot use {}: {}", named_text.name, broken.cause),
            None => format!("cannot use the built-in template: {}", broken.cause),
        }
    }
}

fn read(flag: &str, path: &Path) -> Result<NamedText, Failure> {
    let name = format!("--{flag} {}", path.display());
    let cannot = |cause: &str| Failure::config(format!("cannot use {name}: {cause}"));
    let bytes = file::read_now(path).map_err(|cause| cannot(&cause.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8"))?;
    Ok(NamedText { name, text })
}

/// The configuration that the API server gave.
#[derive(Debug, Default)]
struct ClusterConfiguration {
    texts: Texts,
    native: Option<NativeSidecars>,
}

/// ConfigMaps that flags name, and how new the API server is, where that matters.
fn from_cluster(flags: &InjectFlags) -> Result<Option<ClusterConfiguration>, Failure> {
    let access = match (&flags.kubeconfig, &flags.context) {
        (None, None) if Access::in_cluster() => Access::InCluster,
        (file, context) => Access::Kubeconfig {
            file: file.clone(),
            context: context.clone(),
        },
    };
    let maps = flags.inject_config_map_name.is_some() || flags.mesh_config_map_name.is_some();
    let reachable =
        access == Access::InCluster || flags.kubeconfig.is_some() || flags.context.is_some();
    let auto = flags.native_sidecars == NativeSetting::Auto && (maps || reachable);
    if !maps && !auto {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let asked = runtime.block_on(fetch(flags, &access, auto));
    runtime.shutdown_background();
    asked.map(Some)
}

async fn fetch(
    flags: &InjectFlags,
    access: &Access,
    auto: bool,
) -> Result<ClusterConfiguration, Failure> {
    let cluster = Cluster::open(access)
        .await
        .map_err(|cause| Failure::config(cause.to_string()))?;
    let mut asked = ClusterConfiguration::default();
    let namespace = &flags.istio_namespace;
    if let Some(name) = &flags.inject_config_map_name {
        let mut map = config_map(&cluster, namespace, name).await?;
        asked.texts.config = Some(map.take("config")?);
        // The first versions had no values.
        asked.texts.values = map.take("values").ok();
    }
    if let Some(name) = &flags.mesh_config_map_name {
        let mut map = config_map(&cluster, namespace, name).await?;
        asked.texts.mesh = Some(map.take("mesh")?);
    }
    if auto {
        let version = cluster
            .version()
            .await
            .map_err(|cause| Failure::config(cause.to_string()))?;
        asked.native = Some(native_for(version));
    }
    Ok(asked)
}

/// A ConfigMap, with its name in messages.
struct Map {
    name: String,
    data: BTreeMap<String, String>,
}

impl Map {
    fn take(&mut self, key: &str) -> Result<NamedText, Failure> {
        let text = self.data.remove(key).ok_or_else(|| {
            Failure::config(format!("cannot use {}: it has no key {key}", self.name))
        })?;
        Ok(NamedText {
            name: format!("{}, key {key}", self.name),
            text,
        })
    }
}

async fn config_map(cluster: &Cluster, namespace: &str, name: &str) -> Result<Map, Failure> {
    let data = cluster
        .config_map(namespace, name)
        .await
        .map_err(|cause| Failure::config(cause.to_string()))?;
    Ok(Map {
        name: format!("ConfigMap {namespace}/{name}"),
        data,
    })
}

/// Says what inject does not read from the cluster of the flags, or of the variable `KUBECONFIG`: `istioctl kube-inject` reads both maps
/// without being told their names.
fn unread_maps(flags: &InjectFlags, variable: bool) -> Vec<&'static str> {
    let from_cluster = flags.inject_config_map_name.is_some();
    let is_meant =
        from_cluster || variable || flags.kubeconfig.is_some() || flags.context.is_some();
    let is_built_in = !from_cluster && flags.inject_config_file.is_none();
    let is_default = flags.mesh_config_map_name.is_none() && flags.mesh_config_file.is_none();
    let mut unread = Vec::new();
    if is_meant && is_built_in {
        unread.push(
            "the template is the built-in one: neither --injectConfigMapName nor --injectConfigFile names another",
        );
    }
    if is_meant && is_default {
        unread.push(
            "the mesh configuration has its defaults: neither --meshConfigMapName nor --meshConfigFile names one",
        );
    }
    unread
}

/// The parameters of a configuration by the flags.
fn parameters(flags: &InjectFlags) -> Parameters {
    let mut parameters = parameters::of(flags.revision.as_ref(), &flags.builtin);
    let settings = settings(&flags.kube_inject).into_iter();
    parameters
        .settings
        .extend(settings.map(|(name, value)| (name.to_owned(), value.clone())));
    parameters
}

/// Returns the given flags that custom templates ignore.
fn ignored_flags(flags: &InjectFlags) -> Vec<&'static str> {
    let mut flags_set = parameters::set_flags(&flags.builtin);
    flags_set.extend(settings(&flags.kube_inject).iter().map(|(name, _)| *name));
    flags_set
}

fn settings(of: &KubeInjectFlags) -> Vec<(&'static str, &String)> {
    [
        ("hub", &of.hub),
        ("tag", &of.tag),
        ("includeIPRanges", &of.include_ip_ranges),
        ("excludeIPRanges", &of.exclude_ip_ranges),
        ("includeInboundPorts", &of.include_inbound_ports),
        ("excludeInboundPorts", &of.exclude_inbound_ports),
        ("imagePullPolicy", &of.image_pull_policy),
        ("statusPort", &of.status_port),
        (
            "readinessInitialDelaySeconds",
            &of.readiness_initial_delay_seconds,
        ),
        ("readinessPeriodSeconds", &of.readiness_period_seconds),
        ("readinessFailureThreshold", &of.readiness_failure_threshold),
        ("sidecarProxyUID", &of.sidecar_proxy_uid),
        ("rewriteAppProbe", &of.rewrite_app_probe),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value.as_ref()?)))
    .collect()
}

fn write(bytes: &[u8], output: Option<&Path>) -> Result<(), Failure> {
    write_by(output, |to| to.write_all(bytes))
}

/// The file of `--output`; none for stdout, which `-` is, too.
fn output_file(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| *path != Path::new("-"))
}

/// Writes the result where it is wanted: a file in one step, or stdout.
///
/// # Errors
/// The error of the operating system.
fn write_by(
    output: Option<&Path>,
    write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    match output_file(output) {
        Some(path) => file::replace_by(path, write)
            .map_err(|cause| Failure::failed(format!("cannot write {}: {cause}", path.display()))),
        None => {
            let mut stdout = std::io::stdout().lock();
            write(&mut stdout)
                .and_then(|()| stdout.flush())
                .map_err(|cause| Failure::stdout(&cause))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_stdout() {
        assert_eq!(output_file(Some(Path::new("-"))), None);
        assert_eq!(output_file(None), None);
        assert_eq!(output_file(Some(Path::new("./-"))), Some(Path::new("./-")));
    }

    #[test]
    fn a_cluster_whose_maps_no_flag_names_is_not_read_silently() {
        let unread = |arguments: &[&str], variable: bool| {
            let line: Vec<_> = ["gudgeon", "inject"]
                .iter()
                .chain(arguments)
                .map(Into::into)
                .collect();
            let parsed = crate::cli::parse(&line).unwrap();
            let crate::cli::Action::Inject(flags) = parsed.action else {
                panic!("{line:?}: {parsed:?}");
            };
            unread_maps(&flags, variable).len()
        };
        assert_eq!(unread(&[], false), 0);
        assert_eq!(unread(&[], true), 2);
        assert_eq!(unread(&["--context", "edge"], false), 2);
        assert_eq!(unread(&["--kubeconfig", "k"], false), 2);
        assert_eq!(unread(&["--injectConfigMapName", "m"], false), 1);
        assert_eq!(unread(&["--injectConfigFile", "f"], true), 1);
        let both = ["--injectConfigMapName", "m", "--meshConfigMapName", "n"];
        assert_eq!(unread(&both, true), 0);
    }
}
