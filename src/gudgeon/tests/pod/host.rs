//! The host: two network namespaces with a cable between them, and the image under test.

use std::fs::File;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::support::Answer;

/// The pod's address, and its node's.
pub(crate) const POD: &str = "10.9.8.7";
pub(crate) const NODE: &str = "10.9.8.1";

/// The image under test, which `build/ci/image-test` has built.
pub(crate) fn image() -> String {
    std::env::var("POD_IMAGE").expect("POD_IMAGE: build/ci/image-test sets it")
}

/// `podman` with the store that holds the image.
pub(crate) fn podman() -> Command {
    let command_line =
        std::env::var("POD_PODMAN").expect("POD_PODMAN: build/ci/image-test sets it");
    let mut command_line = command_line.split_whitespace();
    let mut command = Command::new(command_line.next().unwrap());
    command.args(command_line);
    command
}

/// Runs a command, and returns its output.
pub(crate) fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {stderr}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn ip(arguments: &str) {
    output(Command::new("ip").args(arguments.split(' ')));
}

/// The two namespaces, gone when this is.
pub(crate) struct Cable {
    pub(crate) pod: String,
    pub(crate) node: String,
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in [&self.pod, &self.node] {
            let _gone = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

impl Cable {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("pintle-{end}-{}-{number}", std::process::id());
        let this = Self {
            pod: name("pod"),
            node: name("node"),
        };
        for end in [&this.pod, &this.node] {
            ip(&format!("netns add {end}"));
            ip(&format!("-n {end} link set lo up"));
        }
        ip(&format!(
            "-n {} link add eth0 type veth peer name eth0 netns {}",
            this.pod, this.node
        ));
        for (end, address) in [(&this.pod, POD), (&this.node, NODE)] {
            ip(&format!("-n {end} addr add {address}/24 dev eth0"));
            ip(&format!("-n {end} link set eth0 up"));
        }
        this
    }

    /// The inbound half of what istio-init does with its arguments.
    pub(crate) fn intercept(&self, pod: &Value) {
        let containers = pod["spec"]["initContainers"].as_array().unwrap();
        let init = containers
            .iter()
            .find(|item| item["name"] == "istio-init")
            .unwrap();
        let arguments = init["args"].as_array().unwrap();
        let after = |flag: &str| {
            let place = arguments.iter().position(|word| word == flag).unwrap();
            arguments[place + 1].as_str().unwrap()
        };
        let rule = |arguments: &[&str]| {
            let netns = [
                "netns",
                "exec",
                &self.pod,
                "iptables",
                "-w",
                "-t",
                "nat",
                "-A",
                "PREROUTING",
                "-p",
                "tcp",
            ];
            output(Command::new("ip").args(netns).args(arguments));
        };
        assert_eq!(after("-b"), "*");
        for port in after("-d").split(',') {
            rule(&["--dport", port, "-j", "RETURN"]);
        }
        rule(&["-j", "REDIRECT", "--to-ports", after("-z")]);
    }

    /// Runs it on the node.
    pub(crate) fn on_node<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.node, work)
    }

    /// From the node to the pod.
    pub(crate) fn connect(&self, port: u16) -> Connection {
        Connection(
            self.on_node(|| {
                TcpStream::connect(SocketAddr::new(POD.parse().unwrap(), port)).unwrap()
            }),
        )
    }

    /// An HTTP probe as kubelet makes it; the status and the answer where it fails.
    pub(crate) fn probe(&self, probe: &Value) -> Result<(), String> {
        let action = &probe["httpGet"];
        assert!(
            action["host"].is_null() && action["scheme"] != "HTTPS",
            "{probe}"
        );
        let port = u16::try_from(action["port"].as_u64().unwrap()).unwrap();
        let path = action["path"].as_str().unwrap();
        let mut head = format!(
            "GET {path} HTTP/1.1\r\nHost: {POD}:{port}\r\nUser-Agent: kube-probe/1.33\r\nAccept: */*\r\n"
        );
        for header in action["httpHeaders"].as_array().into_iter().flatten() {
            let (name, value) = (
                header["name"].as_str().unwrap(),
                header["value"].as_str().unwrap(),
            );
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("Connection: close\r\n\r\n");
        let timeout = Duration::from_secs(probe["timeoutSeconds"].as_u64().unwrap_or(1));
        let asked = self.on_node(|| {
            let address = SocketAddr::new(POD.parse().unwrap(), port);
            let mut stream = TcpStream::connect_timeout(&address, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.write_all(head.as_bytes())?;
            Ok::<_, std::io::Error>(stream)
        });
        let mut stream = asked.map_err(|error| error.to_string())?;
        let answer = Answer::read(&mut stream).ok_or("no answer")?;
        if (200..400).contains(&answer.status) {
            return Ok(());
        }
        Err(format!("{}: {}", answer.status, answer.text()))
    }
}

/// A thread of its own: a namespace is the thread's.
fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(name);
                work()
            })
            .join()
            .unwrap()
    })
}

/// Moves this thread there.
pub(crate) fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// A kept connection over plain HTTP/1.1.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn get(&mut self, path: &str) -> Option<Answer> {
        self.0
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: shop.demo\r\n\r\n");
        self.0.write_all(head.as_bytes()).ok()?;
        Answer::read(&mut self.0)
    }
}

/// A thread that serves in a namespace until it is stopped.
pub(crate) struct Served {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    /// Starts `serve`, which binds its sockets before it returns a future, and serves in that future.
    pub(crate) fn start<S, F>(name: &str, serve: S) -> Self
    where
        S: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (started, bound) = std::sync::mpsc::channel();
        let name = name.to_owned();
        let thread = std::thread::spawn(move || {
            enter(&name);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let serving = serve();
                started.send(()).unwrap();
                tokio::select! {
                    () = serving => {}
                    _ = stopped => {}
                }
            });
        });
        bound.recv().expect("it binds");
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Its sockets are closed when this returns.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
