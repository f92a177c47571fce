//! Rewrites the injector's arguments of istio-init, which is Istio's program, as rules for iptables-restore.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::network::{inside, run};
use crate::place::{Place, gudgeon};

/// A rule's mark on what goes to Envoy as it is, and on what Envoy sends to its own machine.
const TO_ENVOY: &str = "1337";
const FROM_ENVOY: &str = "1338";
/// The routing table of marked packets.
const TABLE: &str = "133";

/// The arguments.
#[derive(Clone, Debug)]
pub struct Interception {
    /// Ports that outbound connections are redirected to, and inbound ones.
    outbound: String,
    inbound: String,
    /// The proxy's user and group.
    user: String,
    transparent: bool,
    /// Ports that stay as they are.
    excluded: Vec<String>,
}

/// The differences between IPv4 and IPv6.
#[derive(Clone, Copy)]
struct Family {
    program: &'static str,
    loopback: &'static str,
    /// From where Envoy speaks to ports of its own machine that are no service's.
    passthrough: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        program: "iptables-restore",
        loopback: "127.0.0.1/32",
        passthrough: "127.0.0.6/32",
    },
    Family {
        program: "ip6tables-restore",
        loopback: "::1/128",
        passthrough: "::6/128",
    },
];

const MANIFEST: &str = "apiVersion: v1
kind: Pod
metadata:
  name: web-1
  namespace: demo
  annotations: {sidecar.istio.io/interceptionMode: MODE}
spec:
  containers:
  - {name: app, image: 'app:1'}
";

impl Interception {
    /// Returns the injector's arguments for a pod of this mode.
    pub fn injected(mode: &str) -> Self {
        let place = Place::new().with("pod.yaml", &MANIFEST.replace("MODE", mode));
        let output = gudgeon()
            .args(["inject", "-f"])
            .arg(place.path("pod.yaml"))
            .arg("--meshConfigFile")
            .arg(place.path("mesh"))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let pod: Value = serde_saphyr::from_slice(&output.stdout).unwrap();
        Self::of(&pod)
    }

    fn of(pod: &Value) -> Self {
        let containers = pod["spec"]["initContainers"].as_array().unwrap();
        let init = containers
            .iter()
            .find(|item| item["name"] == "istio-init")
            .unwrap();
        let arguments = init["args"].as_array().unwrap();
        let after = |flag: &str| {
            let place = arguments.iter().position(|word| word == flag).unwrap();
            let value = &arguments[place + 1];
            value
                .as_str()
                .map_or_else(|| value.to_string(), ToOwned::to_owned)
        };
        // All traffic, both ways: other settings are not implemented here.
        assert_eq!((after("-i"), after("-b")), ("*".into(), "*".into()));
        assert_eq!(after("-x"), "");
        Self {
            outbound: after("-p"),
            inbound: after("-z"),
            user: after("-u"),
            transparent: after("-m") == "TPROXY",
            excluded: after("-d").split(',').map(ToOwned::to_owned).collect(),
        }
    }

    /// Replaces the rules of a namespace.
    pub fn apply(&self, netns: &str) {
        for family in FAMILIES {
            restore(netns, family.program, &self.rules(family));
        }
        let ip = |arguments: &str| run("ip", arguments);
        ip(&format!("-n {netns} addr replace ::6/128 dev lo nodad"));
        if self.transparent {
            for version in ["-4", "-6"] {
                let start = format!("{version} -n {netns}");
                ip(&format!(
                    "{start} rule add fwmark {TO_ENVOY} lookup {TABLE}"
                ));
                ip(&format!(
                    "{start} route add local default dev lo table {TABLE}"
                ));
            }
        }
    }

    /// Applies the rules of Istio 1.1 and 1.2: inbound connections are redirected to the outbound port, and those of this
    /// machine to itself as well.
    pub fn apply_as_in_1_1(&self, netns: &str) {
        let Self { outbound, user, .. } = self;
        let mut lines = self.start();
        for chain in ["ISTIO_REDIRECT", "ISTIO_IN_REDIRECT"] {
            lines.push(format!(
                "-A {chain} -p tcp -j REDIRECT --to-ports {outbound}"
            ));
        }
        lines.extend(self.excludes());
        lines.push("-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT".into());
        let output = [
            "-o lo ! -d 127.0.0.1/32 -j ISTIO_REDIRECT",
            &format!("-m owner --uid-owner {user} -j RETURN"),
            &format!("-m owner --gid-owner {user} -j RETURN"),
            "-d 127.0.0.1/32 -j RETURN",
            "-j ISTIO_REDIRECT",
        ]
        .map(|rule| format!("-A ISTIO_OUTPUT {rule}"));
        lines.extend(output);
        restore(netns, "iptables-restore", &table("nat", &lines));
    }

    fn start(&self) -> Vec<String> {
        [
            ":ISTIO_INBOUND - [0:0]",
            ":ISTIO_OUTPUT - [0:0]",
            ":ISTIO_REDIRECT - [0:0]",
            ":ISTIO_IN_REDIRECT - [0:0]",
            "-A OUTPUT -p tcp -j ISTIO_OUTPUT",
            "-A PREROUTING -p tcp -j ISTIO_INBOUND",
        ]
        .map(ToOwned::to_owned)
        .into()
    }

    fn excludes(&self) -> impl Iterator<Item = String> {
        let ports = self.excluded.iter();
        ports.map(|port| format!("-A ISTIO_INBOUND -p tcp --dport {port} -j RETURN"))
    }

    fn rules(&self, family: Family) -> String {
        let Family {
            loopback,
            passthrough,
            ..
        } = family;
        let mut lines = self.start();
        for (chain, port) in [("", &self.outbound), ("IN_", &self.inbound)] {
            lines.push(format!(
                "-A ISTIO_{chain}REDIRECT -p tcp -j REDIRECT --to-ports {port}"
            ));
        }
        if !self.transparent {
            lines.extend(self.excludes());
            lines.push("-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT".into());
        }
        lines.push(format!("-A ISTIO_OUTPUT -s {passthrough} -o lo -j RETURN"));
        for owner in ["uid", "gid"] {
            let who = format!("--{owner}-owner {}", self.user);
            lines.extend([
                // From Envoy to a port of this machine, by an address of it: it comes in like others' traffic.
                format!("-A ISTIO_OUTPUT ! -d {loopback} -o lo -p tcp -m owner {who} -j ISTIO_IN_REDIRECT"),
                format!("-A ISTIO_OUTPUT -o lo -m owner ! {who} -j RETURN"),
                format!("-A ISTIO_OUTPUT -m owner {who} -j RETURN"),
            ]);
        }
        lines.push(format!("-A ISTIO_OUTPUT -d {loopback} -j RETURN"));
        lines.push("-A ISTIO_OUTPUT -j ISTIO_REDIRECT".into());
        let nat = table("nat", &lines);
        if self.transparent {
            return nat + &self.mangle(family);
        }
        nat
    }

    /// Inbound connections reach Envoy with the addresses that they came with.
    fn mangle(&self, family: Family) -> String {
        let Family {
            loopback,
            passthrough,
            ..
        } = family;
        let (user, port) = (&self.user, &self.inbound);
        let mut lines: Vec<String> = [
            ":ISTIO_INBOUND - [0:0]",
            ":ISTIO_DIVERT - [0:0]",
            ":ISTIO_TPROXY - [0:0]",
        ]
        .map(ToOwned::to_owned)
        .into();
        lines.push("-A PREROUTING -p tcp -j ISTIO_INBOUND".into());
        lines.push(format!(
            "-A PREROUTING -p tcp -m mark --mark {TO_ENVOY} -j CONNMARK --save-mark"
        ));
        let inbound = [
            format!("-m mark --mark {TO_ENVOY} -j RETURN"),
            format!("-s {passthrough} -i lo -j RETURN"),
            format!("-i lo -m mark ! --mark {FROM_ENVOY} -j RETURN"),
        ];
        lines.extend(inbound.map(|rule| format!("-A ISTIO_INBOUND -p tcp {rule}")));
        lines.extend(self.excludes());
        lines.extend([
            "-A ISTIO_INBOUND -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT".into(),
            "-A ISTIO_INBOUND -p tcp -j ISTIO_TPROXY".into(),
            format!("-A ISTIO_DIVERT -j MARK --set-mark {TO_ENVOY}"),
            "-A ISTIO_DIVERT -j ACCEPT".into(),
            format!("-A ISTIO_TPROXY ! -d {loopback} -p tcp -j TPROXY --tproxy-mark {TO_ENVOY}/0xffffffff --on-port {port}"),
            format!("-A OUTPUT -p tcp -o lo -m mark --mark {TO_ENVOY} -j RETURN"),
        ]);
        for owner in ["uid", "gid"] {
            lines.push(format!(
                "-A OUTPUT ! -d {loopback} -p tcp -o lo -m owner --{owner}-owner {user} -j MARK --set-mark {FROM_ENVOY}"
            ));
        }
        lines.push(format!(
            "-A OUTPUT -p tcp -m connmark --mark {TO_ENVOY} -j CONNMARK --restore-mark"
        ));
        table("mangle", &lines)
    }
}

fn table(name: &str, lines: &[String]) -> String {
    format!("*{name}\n{}\nCOMMIT\n", lines.join("\n"))
}

/// Hands the rules to a program of iptables, in one step.
fn restore(netns: &str, program: &str, rules: &str) {
    let done = inside(Some(netns), || {
        let mut child = Command::new(program)
            .arg("-w")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}: install iptables"));
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(rules.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    });
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program}: {stderr}\n{rules}");
}
