//! Kubelet's part for one container: its variables and arguments, its volumes, its hooks, and its end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::host::{Cable, NODE, POD, output, podman};

/// The container of the proxy, wherever it is.
pub(crate) fn proxy_of(pod: &Value) -> &Value {
    ["initContainers", "containers"]
        .iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten()
        .find(|container| container["name"] == "istio-proxy")
        .unwrap()
}

/// A field of the pod that an entry of `env` names, as the pod is once it has a node and an address.
fn field(pod: &Value, path: &str) -> String {
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("no {path}"))
            .to_owned()
    };
    match path {
        "metadata.name" => text(&pod["metadata"]["name"]),
        "metadata.namespace" => text(&pod["metadata"]["namespace"]),
        "spec.serviceAccountName" => text(&pod["spec"]["serviceAccountName"]),
        "spec.nodeName" => "node-1".to_owned(),
        "status.podIP" => POD.to_owned(),
        "status.hostIP" => NODE.to_owned(),
        _ => panic!("{path}: nothing that kubelet knows"),
    }
}

/// Expands `$(NAME)` if the name is known, and `$$` to `$`; any other text stays.
fn expand(text: &str, known: &[(String, String)]) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        done.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            done.push('$');
            rest = after;
            continue;
        }
        let named = after
            .strip_prefix('(')
            .and_then(|after| after.split_once(')'));
        let value = named.and_then(|(name, left)| {
            let found = known.iter().rev().find(|(key, _)| key == name)?;
            Some((&found.1, left))
        });
        if let Some((value, left)) = value {
            done.push_str(value);
            rest = left;
        } else {
            done.push('$');
            rest = after;
        }
    }
    done + rest
}

/// The variables of a container, after those of the services of its namespace.
pub(crate) fn environment(container: &Value, pod: &Value) -> Vec<(String, String)> {
    let pairs = [
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ];
    let mut known: Vec<_> = pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    for entry in container["env"].as_array().into_iter().flatten() {
        let value = match entry["valueFrom"].as_object() {
            None => expand(entry["value"].as_str().unwrap_or_default(), &known),
            Some(from) => field(pod, from["fieldRef"]["fieldPath"].as_str().unwrap()),
        };
        let name = entry["name"].as_str().unwrap().to_owned();
        known.retain(|(other, _)| *other != name);
        known.push((name, value));
    }
    known
}

/// One container, gone when this is.
pub(crate) struct Kubelet {
    name: String,
    pod: Value,
    volumes: tempfile::TempDir,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _gone = podman().args(["rm", "-f", "-t", "0", &self.name]).output();
        for volume in fs::read_dir(self.volumes.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let _none = Command::new("umount").arg("-q").arg(volume.path()).output();
        }
    }
}

impl Kubelet {
    /// Starts the proxy's container.
    pub(crate) fn start(pod: &Value, cable: &Cable) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let this = Self {
            name: format!("istio-proxy-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            pod: pod.clone(),
            volumes: tempfile::tempdir().unwrap(),
        };
        open(this.volumes.path());
        let container = this.container();
        assert!(
            container["command"].is_null(),
            "the image's entry point stands"
        );
        let environment = environment(&container, pod);
        let mut run = podman();
        run.args([
            "run",
            "-d",
            "--name",
            &this.name,
            "--network",
            &format!("ns:/run/netns/{}", cable.pod),
        ]);
        run.args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
        ]);
        run.args(this.rights()).args(this.mounts());
        for (name, value) in &environment {
            run.args(["-e", &format!("{name}={value}")]);
        }
        run.arg(container["image"].as_str().unwrap());
        let arguments = container["args"].as_array().unwrap().iter();
        run.args(arguments.map(|word| expand(word.as_str().unwrap(), &environment)));
        output(&mut run);
        this
    }

    /// Returns the proxy's container of the pod.
    pub(crate) fn container(&self) -> Value {
        proxy_of(&self.pod).clone()
    }

    /// `securityContext` in podman's words; its own seccomp profile is the runtime's default.
    fn rights(&self) -> Vec<String> {
        let context = proxy_of(&self.pod)["securityContext"].clone();
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(
            (&context["privileged"], &context["runAsNonRoot"]),
            (&Value::Bool(false), &Value::Bool(true))
        );
        let mut arguments = vec![
            "--user".to_owned(),
            format!("{}:{}", context["runAsUser"], context["runAsGroup"]),
        ];
        if context["readOnlyRootFilesystem"] == true {
            arguments.extend(["--read-only", "--read-only-tmpfs=false"].map(ToOwned::to_owned));
        }
        if context["allowPrivilegeEscalation"] == false {
            arguments.push("--security-opt=no-new-privileges".to_owned());
        }
        for (list, flag) in [("drop", "--cap-drop"), ("add", "--cap-add")] {
            for name in context["capabilities"][list]
                .as_array()
                .into_iter()
                .flatten()
            {
                arguments.push(format!("{flag}={}", name.as_str().unwrap()));
            }
        }
        arguments
    }

    /// The volumes of the pod, the account's token, and the place for the last words.
    fn mounts(&self) -> Vec<String> {
        let volumes = self.pod["spec"]["volumes"].as_array().unwrap();
        let mut arguments = Vec::new();
        let mut bind = |from: PathBuf, to: &str, kind: &str| {
            arguments.push(format!("--volume={}:{to}:{kind}", from.display()));
        };
        let token = self.folder("token");
        fs::write(token.join("token"), "a token").unwrap();
        bind(token, "/var/run/secrets/kubernetes.io/serviceaccount", "ro");
        let last = self.volumes.path().join("termination-log");
        fs::write(&last, "").unwrap();
        fs::set_permissions(&last, fs::Permissions::from_mode(0o666)).unwrap();
        bind(last, "/dev/termination-log", "rw");
        for mount in proxy_of(&self.pod)["volumeMounts"].as_array().unwrap() {
            let name = mount["name"].as_str().unwrap();
            let path = mount["mountPath"].as_str().unwrap();
            let volume = volumes
                .iter()
                .find(|volume| volume["name"] == name)
                .unwrap();
            if volume["emptyDir"]["medium"] == "Memory" {
                let folder = self.folder(name);
                output(
                    Command::new("mount")
                        .args(["-t", "tmpfs", "-o", "mode=0777", "none"])
                        .arg(&folder),
                );
                bind(folder, path, "rw");
            } else if volume["secret"]["optional"] == true {
                // The Secret does not exist: its folder does, and is empty.
                bind(self.folder(name), path, "ro");
            } else {
                panic!("no volume that is known here: {volume}");
            }
        }
        arguments
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.volumes.path().join(name);
        fs::create_dir(&path).unwrap();
        open(&path);
        path
    }

    /// Starts the command of a hook in the container.
    pub(crate) fn begin(&self, command: &Value) -> Child {
        let arguments = command
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap());
        podman()
            .args(["exec", &self.name])
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    pub(crate) fn log(&self) -> String {
        let mut command: Command = podman();
        let done = command
            .args(["logs", "--tail", "60", &self.name])
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
    }

    /// TERM, and KILL after the pod's grace period. The exit code.
    pub(crate) fn stop(&self) -> i32 {
        let grace = self.pod["spec"]["terminationGracePeriodSeconds"].to_string();
        output(podman().args(["stop", "-t", &grace, &self.name]));
        output(podman().args(["inspect", "--format", "{{.State.ExitCode}}", &self.name]))
            .parse()
            .unwrap()
    }

    /// Its last line is what kubelet shows.
    pub(crate) fn ended_well(&self) {
        let last = fs::read_to_string(self.volumes.path().join("termination-log")).unwrap();
        assert!(
            last.contains("stopped on request (SIGTERM), exit code 0"),
            "{last}"
        );
        assert!(self.log().contains(last.trim_end()), "{}", self.log());
    }
}

/// Makes the folder readable, whatever the umask.
fn open(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}
