//! A galley that runs, with a directory of YAML that a test writes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous: the machine may be busy with something else altogether.
pub const SOON: Duration = Duration::from_secs(30);

pub const SERVICES: &str = "istio/networking/v1alpha3/virtualservices";

/// Waits until there is something.
pub fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn gudgeon() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gudgeon"))
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    let mut command = gudgeon();
    command.args(arguments).env_clear();
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let end = Instant::now() + SOON;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// A VirtualService with two weights, from line 1 to 9.
pub fn service(name: &str, weights: [u32; 2]) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  \
         hosts: [{name}]\n  http:\n  - route:\n    - {{destination: {{host: {name}, subset: a}}, weight: {}}}\n    \
         - {{destination: {{host: {name}, subset: b}}, weight: {}}}\n",
        weights[0], weights[1]
    )
}

/// A port that nobody has at this moment: 0 means that there is none.
fn free() -> u16 {
    let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Files of a galley.
pub struct Place {
    pub root: tempfile::TempDir,
    source: [String; 2],
    more: Vec<String>,
}

impl Place {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("config")).unwrap();
        let config = root.path().join("config");
        let config = config.to_str().unwrap().to_owned();
        Self {
            source: ["--configPath".to_owned(), config],
            root,
            more: Vec::new(),
        }
    }

    /// What an API server has, in the place of files.
    pub fn of_a_cluster(kubeconfig: &str) -> Self {
        let mut this = Self::new();
        this.source = ["--kubeconfig".to_owned(), kubeconfig.to_owned()];
        this.arg("--enable-validation=false")
    }

    pub fn with(self, name: &str, text: &str) -> Self {
        self.write(name, text);
        self
    }

    pub fn arg(mut self, argument: &str) -> Self {
        self.more.push(argument.to_owned());
        self
    }

    /// With a mesh configuration.
    pub fn mesh(self, text: &str) -> Self {
        let path = self.path("mesh").to_str().unwrap().to_owned();
        self.with("mesh", text).arg("--meshConfigFile").arg(&path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// In one step, as editors and kubelet do it.
    pub fn write(&self, name: &str, text: &str) {
        let new = self.path(".new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn arguments(&self, monitoring: u16, page: u16) -> Vec<String> {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let [source, from] = self.source.clone();
        let arguments = [
            "galley".to_owned(),
            source,
            from,
            "--insecure".to_owned(),
            "--server-address=tcp://127.0.0.1:0".to_owned(),
            "--livenessProbePath".to_owned(),
            path("live"),
            "--readinessProbePath".to_owned(),
            path("ready"),
            format!("--monitoringPort={monitoring}"),
            format!("--ctrlz_port={page}"),
            "--drainDuration=0s".to_owned(),
        ];
        arguments.into_iter().chain(self.more.clone()).collect()
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Galley {
        let galley = self.begin();
        until("readiness", || {
            (galley.get("/ready").0 == 200).then_some(())
        });
        galley
    }

    /// Starts it and waits until it listens.
    pub fn begin(self) -> Galley {
        let mut galley = None;
        let mut place = Some(self);
        for _ in 0..20 {
            let (monitoring, page) = (free(), free());
            let this = place.take().unwrap();
            match this.spawn(monitoring, page) {
                Ok(listens) => {
                    galley = Some(listens);
                    break;
                }
                // Somebody has taken one of the ports meanwhile.
                Err(this) => place = Some(this),
            }
        }
        galley.expect("two free ports")
    }

    fn spawn(self, monitoring: u16, page: u16) -> Result<Galley, Self> {
        let mut child = gudgeon()
            .args(self.arguments(monitoring, page))
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let shared = Arc::clone(&lines);
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                shared.lock().unwrap().push(line);
            }
        });
        let mut this = Galley {
            place: self,
            child,
            lines,
            monitoring,
            page,
        };
        let ended = until("listeners", || {
            if let Some(ended) = this.child.try_wait().unwrap() {
                return Some(Some(ended));
            }
            (this.logged("the page is at http://") > 0).then_some(None)
        });
        match ended {
            None => Ok(this),
            Some(ended) => {
                assert_eq!(ended.code(), Some(71), "{:?}", this.log());
                let place = std::mem::replace(&mut this.place, Self::new());
                Err(place)
            }
        }
    }
}

/// A running one.
pub struct Galley {
    pub place: Place,
    pub child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    monitoring: u16,
    page: u16,
}

impl Drop for Galley {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- galley\n{}", self.log().join("\n"));
        }
    }
}

impl Galley {
    pub fn log(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn logged(&self, words: &str) -> usize {
        let log = self.log();
        log.iter().filter(|line| line.contains(words)).count()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(sent.unwrap().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        until("its end", || self.child.try_wait().unwrap())
    }

    /// From the monitoring port.
    pub fn get(&self, path: &str) -> (u16, String) {
        request(self.monitoring, "GET", path)
    }

    /// From the address of the page.
    pub fn look(&self, path: &str) -> (u16, String) {
        request(self.page, "GET", path)
    }

    pub fn post(&self, path: &str) -> (u16, u16) {
        let [one, other] = [self.monitoring, self.page].map(|port| request(port, "POST", path).0);
        (one, other)
    }

    pub fn configz(&self) -> Value {
        self.document("/debug/configz")
    }

    pub fn document(&self, path: &str) -> Value {
        let (status, body) = self.look(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The collection's line in configz.
    pub fn collection(&self, name: &str) -> Value {
        let configz = self.configz();
        let all = configz["collections"].as_array().unwrap();
        let found = all.iter().find(|one| one["name"] == name);
        found.cloned().unwrap_or_default()
    }

    /// Waits until a collection has so many.
    pub fn counts(&self, collection: &str, count: u64) {
        until(&format!("{count} of {collection}"), || {
            (self.collection(collection)["count"] == count).then_some(())
        });
    }

    /// The names in a collection.
    pub fn names(&self, collection: &str) -> Vec<String> {
        let document = self.document(&format!("/debug/configz?collection={collection}"));
        let resources = document["resources"].as_array().unwrap().iter();
        resources
            .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Kibibytes in memory, but for the pages of the program's file.
    pub fn anonymous(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let words = line.unwrap().split_whitespace().nth(1);
        words.unwrap().parse().unwrap()
    }

    /// The value of a metric's line.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }
}

/// One request over a connection of its own; status 0: nobody answers.
fn request(port: u16, method: &str, path: &str) -> (u16, String) {
    let none = (0, String::new());
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return none;
    };
    stream.set_read_timeout(Some(SOON)).unwrap();
    let question = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let read = stream.write_all(question.as_bytes());
    if read.and_then(|()| stream.read_to_end(&mut answer)).is_err() {
        return none;
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return none;
    };
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
