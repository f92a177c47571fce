//! A galley that runs, with a directory of YAML that a test writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support;
use crate::support::program::{Program, free, is_a_program, metric_in, request};
pub use crate::support::program::{SOON, gudgeon, until};

pub const SERVICES: &str = "istio/networking/v1alpha3/virtualservices";

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

/// Files of a galley.
pub struct GalleyPlace {
    pub root: tempfile::TempDir,
    source: [String; 2],
    more: Vec<String>,
    program: fn(&Path) -> Command,
}

impl GalleyPlace {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("config")).unwrap();
        let config = root.path().join("config");
        let config = config.to_str().unwrap().to_owned();
        Self {
            source: ["--configPath".to_owned(), config],
            root,
            more: Vec::new(),
            program: |_| gudgeon(),
        }
    }

    /// Uses an API server in place of files.
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

    /// Runs the program as a user with limited permissions.
    pub fn not_by_root(mut self) -> Self {
        self.program = support::not_root;
        self
    }

    /// Run by another command line, of where its files are.
    pub fn by(mut self, program: fn(&Path) -> Command) -> Self {
        self.program = program;
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
        let (monitoring, page) = (free(), free());
        let arguments = self.arguments(monitoring, page);
        let mut command = (self.program)(self.root.path());
        let mut galley = Galley {
            program: Program::start(command.args(arguments).env_clear()),
            place: self,
            monitoring,
            page,
        };
        until("listeners", || {
            let ended = galley.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?} {:?}", galley.log());
            (galley.logged("the page is at http://") > 0).then_some(())
        });
        galley
    }
}

/// A running one.
pub struct Galley {
    pub place: GalleyPlace,
    program: Program,
    pub monitoring: u16,
    pub page: u16,
}

is_a_program!(Galley);

impl Galley {
    /// Requests a path of the monitoring port; status 0 if there is no response.
    pub fn get(&self, path: &str) -> (u16, String) {
        request(self.monitoring, "GET", path).unwrap_or_default()
    }

    /// From the address of the page.
    pub fn look(&self, path: &str) -> (u16, String) {
        request(self.page, "GET", path).unwrap_or_default()
    }

    pub fn post(&self, path: &str) -> (u16, u16) {
        let status = |port| request(port, "POST", path).unwrap_or_default().0;
        (status(self.monitoring), status(self.page))
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

    /// Waits until a collection has so many resources.
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

    /// The value of a metric's line.
    pub fn metric(&self, name: &str) -> Option<f64> {
        metric_in(&self.get("/metrics").1, name)
    }
}
