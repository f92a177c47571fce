//! A galley beside a discovery, over a directory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use crate::place::{gudgeon, until};

pub struct Galley {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Drop for Galley {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- galley\n{}", self.lines.lock().unwrap().join("\n"));
        }
    }
}

impl Galley {
    /// Without certificates.
    pub fn plain(config: &Path, address: &str) -> Self {
        let address = format!("--server-address={address}");
        Self::start(config, &["--insecure", &address])
    }

    pub fn start(config: &Path, more: &[&str]) -> Self {
        let mut child = gudgeon()
            .args(["galley", "--monitoringPort=0", "--ctrlz_port=0"])
            .args(["--livenessProbePath=", "--readinessProbePath="])
            .args(["--drainDuration=0s", "--enable-validation=false"])
            .arg("--configPath")
            .arg(config)
            .args(more)
            .env_clear()
            .stdout(Stdio::piped())
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
        Self { child, lines }
    }

    pub fn logged(&self, words: &str) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.contains(words)).count()
    }

    /// Where it listens.
    pub fn address(&mut self) -> String {
        until("the port of galley", || {
            assert!(self.child.try_wait().unwrap().is_none());
            let lines = self.lines.lock().unwrap();
            let (_, address) = lines
                .iter()
                .find_map(|line| line.split_once("listening on mcp"))?;
            Some(address.split_once("://")?.1.to_owned())
        })
    }
}
