//! Networks of a test's own: a pod and its node, with a cable between them, and the rules that istio-init writes.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The pod's address, its node's, and further ones of the node.
pub const POD: &str = "10.9.8.7";
pub const NODE: &str = "10.9.8.1";
pub const OTHERS: [&str; 2] = ["10.9.8.2", "10.9.8.3"];
/// The same in the other family, where there are two.
pub const POD6: &str = "fd00:9::7";
pub const NODE6: &str = "fd00:9::1";
/// The proxy's user, and its group where it is root.
pub const USER: u32 = 1337;

/// In a thread of its own where there is a name: a namespace is the thread's, and that of all it starts.
pub fn inside<T: Send>(name: Option<&str>, work: impl FnOnce() -> T + Send) -> T {
    let Some(name) = name else { return work() };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{name}")).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Networks and other users are root's to make. A test that needs them fails for anybody else, unless `GUDGEON_WITHOUT_ROOT=1`
/// leaves it out: one that skipped itself would pass where nothing was shown.
pub fn is_root() -> bool {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let left_out = std::env::var_os("GUDGEON_WITHOUT_ROOT").is_some();
    assert!(
        root || left_out,
        "this test makes networks and users, which takes root: GUDGEON_WITHOUT_ROOT=1 leaves it out"
    );
    root
}

pub fn run(program: &str, arguments: &str) {
    let done = Command::new(program).args(arguments.split(' ')).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments}: {stderr}");
}

/// Both namespaces, gone when this is.
pub struct Network {
    pub pod: String,
    pub node: String,
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.pod, &self.node] {
            let _gone = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

impl Network {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("gudgeon-{end}-{}-{number}", std::process::id());
        let this = Self {
            pod: name("pod"),
            node: name("node"),
        };
        let ip = |arguments: &str| run("ip", arguments);
        for end in [&this.pod, &this.node] {
            ip(&format!("netns add {end}"));
            ip(&format!("-n {end} link set lo up"));
        }
        let (pod, node) = (&this.pod, &this.node);
        ip(&format!(
            "-n {pod} link add eth0 type veth peer name eth0 netns {node}"
        ));
        ip(&format!("-n {pod} addr add {POD}/24 dev eth0"));
        for address in [NODE].iter().chain(&OTHERS) {
            ip(&format!("-n {node} addr add {address}/24 dev eth0"));
        }
        for end in [pod, node] {
            ip(&format!("-n {end} link set eth0 up"));
        }
        // Services' addresses do not exist: connections to them are redirected before they leave.
        ip(&format!("-n {pod} route add default via {NODE}"));
        this
    }

    fn rule(&self, table: &str, arguments: &str) {
        self.rule_by("iptables", table, arguments);
    }

    fn rule_by(&self, program: &str, table: &str, arguments: &str) {
        inside(Some(&self.pod), || {
            run(program, &format!("-w -t {table} {arguments}"));
        });
    }

    /// Gives both ends an address of the other family, and what comes and goes by it to the proxy, too.
    pub fn redirect_both(&self, old: u16) {
        self.redirect(old);
        let (pod, node) = (&self.pod, &self.node);
        for arguments in [
            format!("-n {pod} addr add {POD6}/64 dev eth0 nodad"),
            format!("-n {node} addr add {NODE6}/64 dev eth0 nodad"),
            format!("-n {pod} route add default via {NODE6}"),
            // Passthrough connections come from this address.
            format!("-n {pod} addr add ::6/128 dev lo nodad"),
        ] {
            run("ip", &arguments);
        }
        let owner = format!("--uid-owner {USER}");
        for arguments in [
            "-A OUTPUT -o lo -s ::6/128 -j RETURN".to_owned(),
            format!(
                "-A OUTPUT -o lo ! -d ::1/128 -p tcp -m owner {owner} -j REDIRECT --to-ports 15006"
            ),
            format!("-A OUTPUT -m owner {owner} -j RETURN"),
            "-A OUTPUT -d ::1/128 -j RETURN".to_owned(),
            "-A OUTPUT -p tcp -j REDIRECT --to-ports 15001".to_owned(),
            "-A PREROUTING -p tcp -j REDIRECT --to-ports 15006".to_owned(),
        ] {
            self.rule_by("ip6tables", "nat", &arguments);
        }
    }

    /// Takes the pod's address of the first family, and the way out by it.
    pub fn forget_the_first(&self) {
        let pod = &self.pod;
        run("ip", &format!("-n {pod} addr del {POD}/24 dev eth0"));
    }

    /// Redirects the pod's outbound connections to 15001, except for the proxy's own.
    fn outbound(&self, owner: &str) {
        for arguments in [
            "-N ISTIO_OUTPUT".to_owned(),
            "-A OUTPUT -p tcp -j ISTIO_OUTPUT".to_owned(),
            "-A ISTIO_OUTPUT -o lo -s 127.0.0.6/32 -j RETURN".to_owned(),
            // As releases before 1.3 did: a call to the pod's own address from outside of the proxy is redirected, too.
            format!(
                "-A ISTIO_OUTPUT -o lo -d {POD}/32 -p tcp -m owner ! {owner} -j REDIRECT --to-ports 15001"
            ),
            format!(
                "-A ISTIO_OUTPUT -o lo ! -d 127.0.0.1/32 -p tcp -m owner {owner} -j REDIRECT --to-ports 15006"
            ),
            format!("-A ISTIO_OUTPUT -m owner {owner} -j RETURN"),
            "-A ISTIO_OUTPUT -d 127.0.0.0/8 -j RETURN".to_owned(),
            "-A ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 15001".to_owned(),
        ] {
            self.rule("nat", &arguments);
        }
    }

    /// Mode REDIRECT. What comes for `old` goes to 15001, as in release 1.1.
    pub fn redirect(&self, old: u16) {
        self.outbound(&format!("--uid-owner {USER}"));
        for arguments in [
            format!("-A PREROUTING -p tcp --dport {old} -j REDIRECT --to-ports 15001"),
            "-A PREROUTING -p tcp -j REDIRECT --to-ports 15006".to_owned(),
        ] {
            self.rule("nat", &arguments);
        }
    }

    /// Mode TPROXY: what comes in keeps its addresses.
    pub fn tproxy(&self) {
        self.outbound(&format!("--gid-owner {USER}"));
        for arguments in [
            "-N ISTIO_DIVERT",
            "-A ISTIO_DIVERT -j MARK --set-mark 1337",
            "-A ISTIO_DIVERT -j ACCEPT",
            "-A PREROUTING -i eth0 -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT",
            "-A PREROUTING -i eth0 -p tcp -j TPROXY --tproxy-mark 1337 --on-port 15006",
        ] {
            self.rule("mangle", arguments);
        }
        let pod = &self.pod;
        run("ip", &format!("-n {pod} rule add fwmark 1337 lookup 133"));
        run(
            "ip",
            &format!("-n {pod} route add local 0.0.0.0/0 dev lo table 133"),
        );
    }
}
